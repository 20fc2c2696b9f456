//! The caller of a request: the values for keys, the known facts about the client, and the outcome of a key.

use super::cookie::Cookies;
use super::{Content, CustomerReading, KeyPart};
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// The part that requests with credentials of different customers are in doubt about.
pub(super) static CUSTOMER: KeyPart = KeyPart::Customer;

/// The values of a request that a key can be made of.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The client's address, after trusted hops; `None` if the peer of a Unix socket names none.
    pub address: Option<IpAddr>,
    /// The name of the route that matched.
    pub route: &'a str,
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// The target of the request; only limits that count by the target read it.
    pub location: &'a dyn Location,
    /// Its cookies.
    pub cookies: &'a Cookies<'a>,
    /// The known facts about the client; only groups read them.
    pub identity: &'a dyn Identity,
    /// The lookup of the customer whose credential the request has.
    pub customers: &'a dyn CustomerLookup,
    /// The known facts about the request's body.
    pub content: Content,
    /// The certificate that the client has shown in the connection's handshake, verified; `None` if none was requested
    /// or shown.
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

impl Caller<'_> {
    /// Does a credential name the customer that proves it, rather than an address or a text that any client may write?
    /// `room` has room after its end.
    #[must_use]
    pub fn is_proven_customer(&self, room: &mut Vec<u8>) -> bool {
        let reading = self.customers.read(self, room);
        matches!(
            reading,
            CustomerReading::Named {
                is_proven: true,
                ..
            }
        )
    }

    /// The cause for which the credentials of the request do not say whose request it is: they are of different
    /// customers, unreadable, or not trusted. `room` has room after its end.
    #[must_use]
    pub fn customer_doubt(&self, room: &mut Vec<u8>) -> Option<Doubt<'_>> {
        let reading = self.customers.read(self, room);
        let credential = || self.customers.faulty_credential().unwrap_or(&CUSTOMER);
        match reading {
            CustomerReading::Different => Some(Doubt::Several(&CUSTOMER)),
            CustomerReading::Several(_) => Some(Doubt::Several(credential())),
            CustomerReading::Malformed(_) => Some(Doubt::Malformed(credential())),
            CustomerReading::Untrusted(_) => Some(Doubt::Untrusted(credential())),
            CustomerReading::Named { .. }
            | CustomerReading::Nothing
            | CustomerReading::Unknown(_) => None,
        }
    }
}

/// Known facts about a client, beyond the request itself.
pub trait Identity: fmt::Debug {
    /// The claim of this name in the client's token, if the token is verified: a text or a number.
    fn claim(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }

    /// Calls `each` with every entry of the claim of this name, if the claim is a list.
    fn listed(&self, _name: &str, _each: &mut dyn FnMut(&str)) {}

    /// Has the client several tokens that differ? The upstream may use any one of them.
    fn is_ambiguous(&self) -> bool {
        false
    }

    /// The reason why the client's token is not trusted, if there is such a token. A verifier that reads the token
    /// differently may trust it.
    fn doubt(&self) -> Option<TokenDoubt> {
        None
    }

    /// The customer whose name a log states for the request.
    fn tells_customer(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Does a log state that the request was in the group of this name? A log may lack the data that the group needs.
    fn tells_group(&self, _group: &str) -> bool {
        false
    }
}

/// A client without known facts.
#[derive(Debug, Clone, Copy)]
pub struct NoIdentity;

impl Identity for NoIdentity {}

/// The lookup of the customer whose credential a request has.
pub trait CustomerLookup: fmt::Debug {
    /// The customer of `caller`, looked up when it is first needed. `room` has room after its end.
    fn read(&self, caller: &Caller<'_>, room: &mut Vec<u8>) -> &CustomerReading;

    /// The name of the customer, if the customer was needed and is known.
    fn name(&self) -> Option<&str>;

    /// The one part for whose credential the customer is not known: no group knows it, it came several times, it is
    /// malformed, or it is not trusted.
    fn faulty_credential(&self) -> Option<&KeyPart>;

    /// Calls `each` with every part for whose credential the request has a value that no group knows. `room` has room
    /// after its end.
    fn each_unknown(&self, caller: &Caller<'_>, room: &mut Vec<u8>, each: &mut dyn FnMut(&KeyPart));

    /// Does `is_elsewhere` hold for one of the parts that are credentials?
    fn are_elsewhere(&self, is_elsewhere: &dyn Fn(&KeyPart) -> bool) -> bool;
}

/// The target of a request, in the spelling that routes are matched in.
pub trait Location: fmt::Debug {
    /// The host, empty when the request names none.
    fn host(&self) -> Cow<'_, str>;

    /// The value of this parameter in the route's path. `None` if the route has no such parameter.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The path in its normal form, if it has one.
    fn path(&self) -> Option<Cow<'_, str>>;

    /// The query, as received.
    fn query(&self) -> Option<&str>;
}

/// The outcome of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome<'a> {
    /// The key has been written.
    Key,
    /// The limit does not apply to this request.
    Skip,
    /// This part is absent and the limit requires it.
    Refuse(&'a KeyPart),
    /// No group knows the value of this part, and the limit takes known values only.
    Unknown(&'a KeyPart),
    /// The upstream's reading of the request is not known.
    Doubt(Doubt<'a>),
}

/// Values that an upstream may read differently from this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt<'a> {
    /// The part occurs several times, with different values. If it is the customer, the request has credentials of
    /// different customers.
    Several(&'a KeyPart),
    /// The part cannot be read in one way only.
    Malformed(&'a KeyPart),
    /// The part is a claim of an untrusted token.
    Untrusted(&'a KeyPart),
}

/// The fault of a token, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenDoubt {
    /// There is no token.
    Absent,
    /// The value is not a token.
    Malformed,
    /// The value holds other text besides the token; another reader may take the text for a part of it.
    Misspelt,
    /// No key is trusted for the algorithm that the token names.
    Algorithm,
    /// The token's signature is not from a trusted key.
    Untrusted,
    /// The claims, or a claim with a standard form, are malformed.
    ClaimForm,
    /// The token states no end of its validity, and must.
    Endless,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    TooEarly,
    /// The token is for another audience, or from another issuer.
    Foreign,
    /// The keys that may have signed the token have not been read yet, so that the token's validity is unknown.
    KeysUnread,
}

impl TokenDoubt {
    /// The words that follow "the request's token is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Malformed => "no token",
            Self::Misspelt => "not of the form `Bearer TOKEN`",
            Self::Algorithm => "of an algorithm (`alg`) for which no key is trusted",
            Self::Untrusted => "not signed by a key that is trusted",
            Self::ClaimForm => {
                "not in the form of RFC 7519: its claims are no object, or a claim such as `sub` has another type"
            }
            Self::Endless => "without an end (`exp`), which `[jwt] require_exp` demands",
            Self::Expired => "expired",
            Self::TooEarly => "not valid yet",
            Self::Foreign => "from another issuer, or for another audience",
            Self::KeysUnread => "not verified: its issuer's keys have not been read yet",
        }
    }
}
