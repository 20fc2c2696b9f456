//! After what a limit gives its charges back.

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
