//! Why a line of a trace cannot be read.

use std::fmt;

/// Why a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// In no form that is known.
    Unknown,
    /// Not JSON.
    NotJson,
    /// Not UTF-8.
    NotText,
    /// Longer than any line that could be one.
    TooLong,
    /// Has no `ts`.
    NoTime,
    /// Has neither a client nor a path.
    Nameless,
    /// The time is none, or one that cannot be computed with.
    BadTime,
    /// The client is no address.
    BadClient,
    /// The quotes hold no request.
    NoRequest,
    /// A member is of another type than it should be.
    BadMember(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "neither JSON nor a form of log that is known",
            Self::NotJson => "not JSON",
            Self::NotText => "not UTF-8",
            Self::TooLong => "longer than 1 MiB",
            Self::NoTime => "no ts",
            Self::Nameless => "no client and no path",
            Self::BadTime => {
                "the time is neither since 1970 (before the year 2112) nor RFC 3339 nor a log's"
            }
            Self::BadClient => "the client is not an address",
            Self::NoRequest => "no method and path",
            Self::BadMember(name) => return write!(f, "{name} is not what it should be"),
        })
    }
}
