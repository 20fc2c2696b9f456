//! Whose request it is: what a key can be made of, what is known of the client beside it, and what became of a key.

use super::cookie::Cookies;
use super::{Content, KeyPart};
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// What of a request a key can be made of.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The client's address, after trusted hops.
    pub address: IpAddr,
    /// The name of the route that matched.
    pub route: &'a str,
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// Where the request goes; asked only by limits that count by it.
    pub location: &'a dyn Location,
    /// Its cookies.
    pub cookies: &'a Cookies<'a>,
    /// What is known of the client; asked only where a group is looked at.
    pub identity: &'a dyn Identity,
    /// What is known of its body.
    pub content: Content,
}

/// What is known of a client, beside what the request itself says.
pub trait Identity: fmt::Debug {
    /// The claim of this name in its token, if that is verified: a text or a number.
    fn claim(&self, _name: &str) -> Option<Cow<'_, str>> {
        None
    }

    /// What the claim of this name lists, if it is a list: `each` is called with every entry.
    fn listed(&self, _name: &str, _each: &mut dyn FnMut(&str)) {}

    /// Has it several tokens that differ? It is not known which of them the upstream believes.
    fn is_ambiguous(&self) -> bool {
        false
    }

    /// Why its token is not believed, if it has one that is not: a verifier that reads it otherwise may believe it.
    fn doubt(&self) -> Option<TokenDoubt> {
        None
    }

    /// Was the request found in the group of this name when all of it was there? A log may say so.
    fn is_told(&self, _group: &str) -> bool {
        false
    }
}

/// Nothing is known.
#[derive(Debug, Clone, Copy)]
pub struct NoIdentity;

impl Identity for NoIdentity {}

/// What a request is for, in the spelling that routes are matched in.
pub trait Location: fmt::Debug {
    /// The host, empty when the request names none.
    fn host(&self) -> Cow<'_, str>;

    /// What the parameter of this name in the route's path took. Nothing when the route has no such parameter.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The path in its normal form. Nothing when it has none.
    fn path(&self) -> Option<Cow<'_, str>>;

    /// The query, as it came.
    fn query(&self) -> Option<&str>;
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome<'a> {
    /// It has been written.
    Key,
    /// The limit does not apply to this request.
    Skip,
    /// This part is absent and the limit demands it.
    Refuse(&'a KeyPart),
    /// No group knows what this part says, and the limit takes only what is known.
    Unknown(&'a KeyPart),
    /// It is not known what the upstream takes the request to say.
    Doubt(Doubt<'a>),
}

/// What an upstream may read otherwise than this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt<'a> {
    /// This part came several times and differs.
    Several(&'a KeyPart),
    /// This part is claimed by a token that is not believed.
    Unbelieved(&'a KeyPart),
}

/// What was wrong with a token, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenDoubt {
    /// There is none.
    Absent,
    /// It is no token.
    Malformed,
    /// Something stands around it that is no part of it here, and may be elsewhere.
    Misspelt,
    /// It is signed in a way, or by a key, that is not believed.
    Unbelieved,
    /// It says no end of its time, and has to.
    Endless,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    TooEarly,
    /// It is for another audience, or from another issuer.
    Foreign,
}

impl TokenDoubt {
    /// In a sentence: "the request's token is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Malformed => "no token",
            Self::Misspelt => "not spelled as `Bearer`, a blank and a token alone",
            Self::Unbelieved => "not signed by a key that is believed",
            Self::Endless => "without an end (`exp`), which `[jwt] require_exp` demands",
            Self::Expired => "expired",
            Self::TooEarly => "not valid yet",
            Self::Foreign => "from another issuer, or for another audience",
        }
    }
}
