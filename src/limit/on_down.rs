//! A limit's behaviour while the store that all gateways share is unavailable.

/// A limit's behaviour while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDown {
    /// Counts in this process, as one of the last known number of gateways.
    Local,
    /// Lets every request pass.
    Open,
    /// Refuses every request with 503.
    Closed,
}

impl OnDown {
    /// The word in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}
