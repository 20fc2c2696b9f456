//! Causes for which a line of a trace cannot be read.

/// A cause for which a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line has none of the known forms.
    #[error("neither JSON nor a form of log that is known")]
    Unknown,
    /// The line is not JSON.
    #[error("not JSON")]
    NotJson,
    /// The line is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// The line is longer than any line of a log.
    #[error("longer than 1 MiB")]
    TooLong,
    /// The line has no `ts`.
    #[error("no ts")]
    NoTime,
    /// The line has neither a client nor a path.
    #[error("no client and no path")]
    Nameless,
    /// The time is malformed, or outside of the range that limits can compute with.
    #[error(
        "the time is neither a number since 1970 (before the year 2112), nor RFC 3339, nor in the form of a known log"
    )]
    BadTime,
    /// The client is not an address.
    #[error("the client is not an address")]
    BadClient,
    /// The text between the quotes is not a request line.
    #[error("no method and path")]
    NoRequest,
    /// The member of this name has a value of the wrong type.
    #[error("{0} has the wrong form")]
    BadMember(&'static str),
}
