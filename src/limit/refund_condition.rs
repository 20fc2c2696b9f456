//! The events after which a limit refunds its charges.

use crate::key::{FinalStatus, StatusSet};

/// The condition under which a limit refunds the charge of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefundCondition {
    /// When the upstream fails, or fails to answer.
    pub errors: bool,
    /// If the request is abandoned before any part of it was forwarded.
    pub cancels: bool,
    /// When the final answer has one of these statuses.
    pub statuses: StatusSet,
}

impl RefundCondition {
    /// Is there any such event?
    #[must_use]
    pub const fn ever(self) -> bool {
        self.cancels || self.asks_status()
    }

    /// Does the final status decide?
    #[must_use]
    pub const fn asks_status(self) -> bool {
        self.errors || !self.statuses.is_empty()
    }

    /// Is the charge refunded after an upstream's answer, or one for want of it, that ends by `status`?
    #[must_use]
    pub fn covers(self, status: FinalStatus) -> bool {
        self.errors && status.is_server_error() || self.statuses.has(status)
    }
}
