//! One limit's answer, and the request's: admit, delay, or refuse.

use super::rate::{Cost, Span};
use crate::clock::Timestamp;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// How long until the same request would be admitted. `Never` is the longest wait of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Microseconds, rounded up: waiting exactly this long admits, one microsecond less does not.
    Micros(u64),
    /// The cost is greater than the whole limit.
    Never,
}

impl Wait {
    /// What a limit says that lets requests go on after `delay`.
    pub(super) const fn outcome(self, delay: u64) -> VerdictOutcome {
        match self {
            Self::Micros(0) => VerdictOutcome::Admit { delay },
            wait => VerdictOutcome::Refuse(wait),
        }
    }
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
        Self::refused(Wait::Micros(0), span)
    }

    /// What needs no count at `span`: a peek, and a cost that a limit never holds.
    pub(super) fn uncounted(limit: u32, cost: Cost, span: Span) -> Option<Self> {
        match cost.units() {
            0 => Some(Self::admitted(span)),
            units => (units > limit).then(|| Self::refused(Wait::Never, span)),
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

    /// What it means for a limit whose units `part` counts. The reset is `taken` where something was charged, else the one that
    /// was measured. Without `charged` another limit of the request refused.
    pub(super) fn verdict(&self, limit: u32, cost: Cost, charged: bool, taken: u64) -> Verdict {
        let admitted = self.wait == Wait::Micros(0);
        let uncharged = if admitted && !charged {
            cost.units()
        } else {
            0
        };
        let held = self.span.part.saturating_sub(uncharged);
        let is_taken = admitted && charged && cost != Cost::ZERO;
        Verdict {
            outcome: self.wait.outcome(0),
            remaining: u64::from(limit.saturating_sub(held)),
            reset: if is_taken { taken } else { self.span.whole },
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
        let badness = |(_, verdict): &(usize, &Verdict)| Reverse(verdict.outcome);
        // Of several that are as bad the first.
        let worst = verdicts.iter().enumerate().min_by_key(badness);
        let ruling = match worst.map(|(by, verdict)| (by, verdict.outcome)) {
            Some((by, VerdictOutcome::Refuse(wait))) => Ruling::Refuse { by, wait },
            Some((_, VerdictOutcome::Admit { delay })) => Ruling::Admit { delay },
            None => Ruling::Admit { delay: 0 },
        };
        Self {
            at,
            verdicts,
            ruling,
        }
    }
}
