//! The events after which a limit refunds its charges.

/// The condition under which a limit refunds the charge of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefundCondition {
    /// When the upstream fails, or fails to answer.
    pub errors: bool,
    /// If the request is abandoned before any part of it was forwarded.
    pub cancels: bool,
}

impl RefundCondition {
    /// Is there any such event?
    #[must_use]
    pub const fn ever(self) -> bool {
        self.errors || self.cancels
    }
}
