//! What a limit does while the store that all gateways share is away.

/// What a limit does while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDown {
    /// Counts in this process, as one of the gateways that were there.
    Local,
    /// Lets everything pass.
    Open,
    /// Refuses everything with 503.
    Closed,
}

impl OnDown {
    /// As the file writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}
