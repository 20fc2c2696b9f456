//! Whether a limit decides, or is only counted beside those that do.

/// What a limit's word is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It is counted and reported, and never refuses or delays. Its counters are those it has when it decides.
    Shadow,
    /// Other numbers of a limit, counted beside it and reported. They have counters of their own.
    Candidate,
}

impl Mode {
    /// Does it decide?
    #[must_use]
    pub const fn decides(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// As metrics, reports and the file write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Candidate => "candidate",
        }
    }
}
