//! The caller of a request: the values for keys, the known facts about the client, and the outcome of a key.

use super::cookie::Cookies;
use super::{Content, KeyPart};
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// The values of a request that a key can be made of.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The client's address, after trusted hops; nothing where the peer of a Unix socket names none.
    pub address: Option<IpAddr>,
    /// The name of the route that matched.
    pub route: &'a str,
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// The target of the request; only limits that count by it ask for it.
    pub location: &'a dyn Location,
    /// Its cookies.
    pub cookies: &'a Cookies<'a>,
    /// The known facts about the client; only groups ask for them.
    pub identity: &'a dyn Identity,
    /// The known facts about the request's body.
    pub content: Content,
    /// The certificate that the client has shown in the connection's handshake, verified; nothing where none was asked
    /// for or shown.
    pub certificate: Option<ShownCertificate<'a>>,
}

/// The verified certificate of a client.
#[derive(Debug, Clone, Copy)]
pub struct ShownCertificate<'a> {
    /// Its subject, as RFC 4514 writes it.
    pub subject: &'a str,
    /// SHA-256 of the certificate.
    pub fingerprint: &'a [u8; 32],
    /// A digest of the authorities that may vouch for such a subject.
    pub authorities: &'a [u8; 32],
}

/// Known facts about a client, beyond the request itself.
pub trait Identity: fmt::Debug {
    /// The claim of this name in the client's token, if the token is verified: a text or a number.
    fn claim(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }

    /// Calls `each` with every entry of the claim of this name, if the claim is a list.
    fn listed(&self, _name: &str, _each: &mut dyn FnMut(&str)) {}

    /// Has the client several tokens that differ? The upstream may believe any one of them.
    fn is_ambiguous(&self) -> bool {
        false
    }

    /// The cause for which the client's token is not believed, if there is such a token. A verifier that reads the
    /// token otherwise may believe it.
    fn doubt(&self) -> Option<TokenDoubt> {
        None
    }

    /// Was the request found in the group of this name when all of its data was there? A log may state so.
    fn tells_group(&self, _group: &str) -> bool {
        false
    }
}

/// A client without known facts.
#[derive(Debug, Clone, Copy)]
pub struct NoIdentity;

impl Identity for NoIdentity {}

/// The target of a request, in the spelling that routes are matched in.
pub trait Location: fmt::Debug {
    /// The host, empty when the request names none.
    fn host(&self) -> Cow<'_, str>;

    /// The value of this parameter in the route's path. Nothing when the route has no such parameter.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The path in its normal form, if it has one.
    fn path(&self) -> Option<Cow<'_, str>>;

    /// The query, as it came.
    fn query(&self) -> Option<&str>;
}

/// The outcome of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome<'a> {
    /// The key has been written.
    Key,
    /// The limit does not apply to this request.
    Skip,
    /// This part is absent and the limit demands it.
    Refuse(&'a KeyPart),
    /// No group knows the value of this part, and the limit takes known values only.
    Unknown(&'a KeyPart),
    /// The upstream's reading of the request is not known.
    Doubt(Doubt<'a>),
}

/// Values that an upstream may read otherwise than this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt<'a> {
    /// The part came several times, with different values.
    Several(&'a KeyPart),
    /// The part is claimed by a token that is not believed.
    Untrusted(&'a KeyPart),
}

/// The fault of a token, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenDoubt {
    /// There is no token.
    Absent,
    /// The value is no token.
    Malformed,
    /// The value holds other text beside the token; another reader may take the text for a part of it.
    Misspelt,
    /// No key is believed for the algorithm that the token names.
    Algorithm,
    /// The token's signature is of no key that is believed.
    Untrusted,
    /// The claims, or one that the standard gives a form, have another one.
    ClaimForm,
    /// The token states no end of its time, and must.
    Endless,
    /// The token's time is over.
    Expired,
    /// The token's time has not come.
    TooEarly,
    /// The token is for another audience, or from another issuer.
    Foreign,
    /// The keys that may have signed the token have not been read yet: nothing is known of it.
    KeysUnread,
}

impl TokenDoubt {
    /// The words that follow "the request's token is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Malformed => "no token",
            Self::Misspelt => "not spelled as `Bearer`, a blank and a token alone",
            Self::Algorithm => "of an algorithm (`alg`) for which no key is believed",
            Self::Untrusted => "not signed by a key that is believed",
            Self::ClaimForm => {
                "not formed as RFC 7519 says: its claims are no object, or one such as `sub` is of another kind"
            }
            Self::Endless => "without an end (`exp`), which `[jwt] require_exp` demands",
            Self::Expired => "expired",
            Self::TooEarly => "not valid yet",
            Self::Foreign => "from another issuer, or for another audience",
            Self::KeysUnread => "not verified: its issuer's keys have not been read yet",
        }
    }
}
