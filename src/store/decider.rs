//! The maker of a decision.

use std::num::NonZeroU32;

/// The maker of a decision: a store, or the stand-in for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The memory store, as the file demands.
    Memory,
    /// Redis.
    Redis,
    /// Redis, a while ago: its refusal still holds.
    Remembered,
    /// Redis, a while ago: one call took several permits.
    Lease,
    /// The memory store, because Redis is away.
    Local {
        /// The number of gateways among which the limits are divided.
        gateways: NonZeroU32,
    },
    /// No store: Redis is away and the file says to let everything pass.
    Open,
    /// No store: the file demands that nothing passes. A limit that this gateway counts by itself refused in any case.
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
