//! Causes for which a line of a trace cannot be read.

use std::fmt;

/// A cause for which a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The line has none of the known forms.
    Unknown,
    /// The line is not JSON.
    NotJson,
    /// The line is not UTF-8.
    NotText,
    /// The line is longer than any line of a log.
    TooLong,
    /// The line has no `ts`.
    NoTime,
    /// The line has neither a client nor a path.
    Nameless,
    /// The time is malformed, or outside of the range that limits can compute with.
    BadTime,
    /// The client is not an address.
    BadClient,
    /// The text between the quotes is not a request line.
    NoRequest,
    /// The member of this name has a value of the wrong type.
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
