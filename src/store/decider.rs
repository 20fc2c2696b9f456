//! What made a decision.

use std::num::NonZeroU32;

/// What made a decision: a store, or what stands in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The memory store, as the file says.
    Memory,
    /// Redis.
    Redis,
    /// Redis, a while ago: it refused, and that still holds.
    Remembered,
    /// Redis, a while ago: several permits were taken at once.
    Lease,
    /// The memory store, because Redis is away.
    Local {
        /// As one of so many gateways.
        gateways: NonZeroU32,
    },
    /// No store: Redis is away and the file says to let everything pass.
    Open,
    /// No store, and the file says to let nothing pass; but a limit that this gateway counts by itself refused anyhow.
    Closed,
}

impl Decider {
    /// As one of how many gateways.
    pub(super) fn gateways(self) -> NonZeroU32 {
        match self {
            Self::Local { gateways } => gateways,
            _ => NonZeroU32::MIN,
        }
    }
}
