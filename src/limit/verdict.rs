//! One limit's answer, and the request's: admit, delay, or refuse.

use super::rate::{Cost, Span};
use crate::clock::Timestamp;
use smallvec::SmallVec;

/// How long until the same request would be admitted. `Never` is the longest wait of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Microseconds, rounded up: waiting exactly this long admits, one microsecond less does not.
    Micros(u64),
    /// The cost is greater than the whole limit.
    Never,
}

/// What a store measured for one limit: the reply's three numbers, before they are given meaning.
///
/// Both stores answer in this form, so the arithmetic behind it exists once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Zero admits.
    pub wait: Wait,
    /// Buckets: the level, after the charge when admitted, else before it. Windows: microseconds left, and the count
    /// as `part`.
    pub span: Span,
    /// What was granted, where that is less than the cost, or the request had an id that counts.
    pub granted: Option<Cost>,
    /// What its id meant.
    pub repeat: Repeat,
    /// How many microseconds had been given back when all was charged, where that is settled later (`history`).
    pub back: u64,
    /// It was counted where all count for whose keys there was no room.
    pub overflow: bool,
    /// Its counter cannot be read. Only limits that do not decide are reported so.
    pub spoilt: bool,
}

/// What the id of a request meant to a limit that charges each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing: it had none, was refused, or repeated once too often.
    No,
    /// It was charged, and is remembered.
    First,
    /// It has been charged before, and went free.
    Free,
}

impl Measurement {
    /// For a limit that was not counted.
    pub const UNKNOWN: Self = Self::admitted(Span { whole: 0, part: 0 });

    /// Of a counter that cannot be read: nothing is charged there.
    pub const SPOILT: Self = Self {
        spoilt: true,
        ..Self::refused(Wait::Never, Span { whole: 0, part: 0 })
    };

    /// Admitted, leaving `span`.
    #[must_use]
    pub const fn admitted(span: Span) -> Self {
        Self {
            wait: Wait::Micros(0),
            span,
            granted: None,
            repeat: Repeat::No,
            back: 0,
            overflow: false,
            spoilt: false,
        }
    }

    /// What the request was charged, when it was admitted at `cost`.
    #[must_use]
    pub fn charged(&self, cost: Cost) -> Cost {
        match self.repeat {
            Repeat::Free => Cost::ZERO,
            Repeat::No | Repeat::First => self.granted.unwrap_or(cost),
        }
    }

    /// Refused for `wait`, at `span`.
    #[must_use]
    pub const fn refused(wait: Wait, span: Span) -> Self {
        Self {
            wait,
            span,
            granted: None,
            repeat: Repeat::No,
            back: 0,
            overflow: false,
            spoilt: false,
        }
    }

    /// The outcome of a rule that never delays.
    pub(super) const fn outcome(&self) -> VerdictOutcome {
        match self.wait {
            Wait::Micros(0) => VerdictOutcome::Admit { delay: 0 },
            wait => VerdictOutcome::Refuse(wait),
        }
    }

    /// How many units are held, where `part` counts them. Without `charged` another limit of the request refused.
    pub(super) fn held(&self, cost: Cost, charged: bool) -> u32 {
        match self.wait {
            Wait::Micros(0) if !charged => self.span.part.saturating_sub(cost.units()),
            _ => self.span.part,
        }
    }
}

/// What one limit says to one request. A greater one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictOutcome {
    /// Go on after `delay` microseconds (0 but for leaky buckets).
    Admit {
        /// Microseconds to hold the request.
        delay: u64,
    },
    /// Not now; the wait says when.
    Refuse(Wait),
}

/// One limit's answer with what the fields of the response need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Admit or refuse.
    pub outcome: VerdictOutcome,
    /// Units left, floored.
    pub remaining: u64,
    /// Microseconds until the state equals no state.
    pub reset: u64,
}

/// What happens to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Every limit agreed and was charged; hold the request this many microseconds first.
    Admit {
        /// The longest of the limits' delays, in microseconds.
        delay: u64,
    },
    /// At least one limit refused and none was charged.
    Refuse {
        /// Which limit is named: the one with the longest wait, on a tie the first.
        by: usize,
        /// Its wait.
        wait: Wait,
    },
}

/// Up to this many limits a request fit without an allocation.
pub const INLINE_LIMITS: usize = 4;

/// All verdicts of one request, in the order of its limits, and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The instant of the decision, on the store's clock.
    pub at: Timestamp,
    /// One for each limit.
    pub verdicts: SmallVec<[Verdict; INLINE_LIMITS]>,
    /// The sum of them.
    pub ruling: Ruling,
}

impl Decision {
    /// Any refusal refuses, the longest wait is named, the longest delay is waited.
    #[must_use]
    pub fn of(at: Timestamp, verdicts: SmallVec<[Verdict; INLINE_LIMITS]>) -> Self {
        let mut ruling = Ruling::Admit { delay: 0 };
        for (index, verdict) in verdicts.iter().enumerate() {
            ruling = match (ruling, verdict.outcome) {
                (Ruling::Admit { delay }, VerdictOutcome::Admit { delay: more }) => Ruling::Admit {
                    delay: delay.max(more),
                },
                (Ruling::Admit { .. }, VerdictOutcome::Refuse(wait)) => {
                    Ruling::Refuse { by: index, wait }
                }
                (Ruling::Refuse { wait, .. }, VerdictOutcome::Refuse(longer)) if longer > wait => {
                    Ruling::Refuse {
                        by: index,
                        wait: longer,
                    }
                }
                (refused @ Ruling::Refuse { .. }, _) => refused,
            };
        }
        Self {
            at,
            verdicts,
            ruling,
        }
    }
}
