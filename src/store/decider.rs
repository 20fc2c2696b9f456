//! The maker of a decision.

use std::num::NonZeroU32;

/// The maker of a decision: a store, or the stand-in for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The memory store, by configuration.
    Memory,
    /// Redis.
    Redis,
    /// Redis, earlier: its refusal is still valid.
    Remembered,
    /// Redis, earlier: one call took several permits.
    Lease,
    /// The memory store, because Redis is unavailable.
    Local {
        /// The number of gateways among which the limits are divided.
        gateways: NonZeroU32,
    },
    /// No store: Redis is unavailable and the file admits every request then.
    Open,
    /// No store: the file refuses every request then. Or a limit that this gateway counts by itself has refused.
    Closed,
}

impl Decider {
    /// The number of gateways among which this decider divides a limit.
    pub(super) fn gateways(self) -> NonZeroU32 {
        match self {
            Self::Local { gateways } => gateways,
            _ => NonZeroU32::MIN,
        }
    }
}
