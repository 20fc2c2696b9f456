//! Modes: a limit decides, or is only counted together with the deciding limits.

/// The weight of a limit's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// The limit decides.
    #[default]
    Enforce,
    /// The limit is counted and reported, and never refuses or delays. Its counters are the counters of the deciding
    /// limit.
    Shadow,
    /// Other numbers of a limit, counted in addition to it and reported, on separate counters.
    Candidate,
}

impl Mode {
    /// Does the limit decide?
    #[must_use]
    pub const fn decides(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// The mode's word in metrics, reports and the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Candidate => "candidate",
        }
    }
}
