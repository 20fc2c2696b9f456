//! After what a limit gives its charges back.

use super::Rule;

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

impl Rule {
    /// Is it a bucket in which no request waits for a turn?
    #[must_use]
    pub fn is_open_bucket(&self) -> bool {
        matches!(self, Self::TokenBucket(_) | Self::LeakyBucket(_)) && !self.queues()
    }
}
