//! After what a limit gives its charges back.

use super::{Limit, Rule};
use crate::clock::Timestamp;

/// When a limit gives back what a request was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefundCondition {
    /// When the upstream fails, or fails to answer.
    pub errors: bool,
    /// When the request is given up before anything of it was forwarded.
    pub cancels: bool,
}

impl RefundCondition {
    /// Does it ever?
    #[must_use]
    pub const fn ever(self) -> bool {
        self.errors || self.cancels
    }
}

impl Limit {
    /// The same, giving charges back. The state of a bucket says then what must be known for all of a charge to come
    /// back, whichever requests were charged after it (`history`); a place in a queue comes back in its order.
    #[must_use]
    pub fn giving_back(mut self, refund_on: RefundCondition) -> Self {
        self.refund_on = refund_on;
        if refund_on.ever() && self.rule.is_open_bucket() && !self.history {
            self.history = true;
            self.block = self.block_of(self.cost, Timestamp::default());
        }
        self
    }
}

impl Rule {
    /// Is it a bucket in which no request waits for a turn?
    #[must_use]
    pub fn is_open_bucket(&self) -> bool {
        matches!(self, Self::TokenBucket(_) | Self::LeakyBucket(_)) && !self.queues()
    }
}
