//! One limit's answer, and the request's: admit, delay, or refuse.

use super::rate::{Cost, Span};
use crate::clock::Timestamp;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::num::NonZeroU64;

/// The wait until the same request would be admitted. `Never` is the longest wait of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Microseconds, rounded up: a wait of exactly this long admits, one microsecond less does not.
    Micros(u64),
    /// The cost is greater than the whole limit.
    Never,
}

impl Wait {
    /// The outcome of a limit that lets requests go on after `delay`.
    pub(super) const fn outcome(self, delay: u64) -> VerdictOutcome {
        match self {
            Self::Micros(0) => VerdictOutcome::Admit { delay },
            wait => VerdictOutcome::Refuse(wait),
        }
    }
}

/// A store's measurement for one limit: the three numbers of the reply, before their interpretation.
///
/// Both stores answer in this form, so that the arithmetic after it exists once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Zero admits.
    pub wait: Wait,
    /// Buckets: the level, after the charge when admitted, else before it. Windows: microseconds left, and the count
    /// as `part`. A blocked key: what is left of the block, in microseconds.
    pub span: Span,
    /// A bucket whose state keeps other numbers than the limit's: the microseconds until it is empty. The level is of
    /// the limit's numbers, and at most its capacity.
    pub drains: Option<u64>,
    /// The granted units, if they are fewer than the cost, or if the request had an id that counts.
    pub granted: Option<GrantedUnits>,
    /// The meaning of the request's id.
    pub repeat: Repeat,
    /// The microseconds that had been given back at the instant of a full charge that is settled later (`history`).
    pub back: u64,
    /// Was the request counted on the overflow key, which all keys without room share?
    pub overflow: bool,
    /// Is the key blocked?
    pub block: BlockPhase,
    /// Is the counter unreadable? Only limits that do not decide are reported so.
    pub spoilt: bool,
}

/// Granted units. There is at least one, so that a measurement without a grant has no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedUnits(NonZeroU64);

impl GrantedUnits {
    /// The grant of `cost`, if it is one.
    #[must_use]
    pub const fn of(cost: Cost) -> Option<Self> {
        match NonZeroU64::new(cost.units()) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The granted units.
    #[must_use]
    pub const fn cost(self) -> Cost {
        Cost::new(self.0.get())
    }
}

/// The meaning of a request's id for a limit that charges each id once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// No meaning: the request had no id, was refused, or repeated once too often.
    No,
    /// The id was charged, and is remembered.
    First,
    /// The id has been charged before, and the request was free.
    Free,
}

/// What a block has to do with a measurement. A greater one is the more remarkable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BlockPhase {
    /// Nothing.
    #[default]
    No,
    /// The key was blocked before the request.
    Runs,
    /// The limit's count refused the request, and the key is blocked from now on.
    Begins,
}

// A measurement is copied for each limit of each request.
const _: () = assert!(size_of::<Measurement>() == 72);

impl Measurement {
    /// The measurement of a limit that was not counted.
    pub const UNKNOWN: Self = Self::admitted(Span { whole: 0, part: 0 });

    /// The measurement of a counter that cannot be read. No charge is made there.
    pub const SPOILT: Self = Self {
        spoilt: true,
        ..Self::refused(Wait::Never, Span { whole: 0, part: 0 })
    };

    /// An admission that leaves `span`.
    #[must_use]
    pub const fn admitted(span: Span) -> Self {
        Self::refused(Wait::Micros(0), span)
    }

    /// The measurement of a request that needs no count: a peek, or a cost above the limit.
    pub(super) fn uncounted(limit: u64, cost: Cost, span: Span) -> Option<Self> {
        match cost.units() {
            0 => Some(Self::admitted(span)),
            units => (units > limit).then(|| Self::refused(Wait::Never, span)),
        }
    }

    /// The charge of a request that was admitted at `cost`.
    #[must_use]
    pub fn charged(&self, cost: Cost) -> Cost {
        match self.repeat {
            Repeat::Free => Cost::ZERO,
            Repeat::No | Repeat::First => self.granted.map_or(cost, GrantedUnits::cost),
        }
    }

    /// A refusal for `wait`, at `span`.
    #[must_use]
    pub const fn refused(wait: Wait, span: Span) -> Self {
        Self {
            wait,
            span,
            drains: None,
            granted: None,
            repeat: Repeat::No,
            back: 0,
            overflow: false,
            block: BlockPhase::No,
            spoilt: false,
        }
    }

    /// The verdict about a blocked key: nothing is left until the wait is over.
    #[must_use]
    pub fn blocked_verdict(&self) -> Verdict {
        Verdict {
            outcome: self.wait.outcome(0),
            remaining: 0,
            reset: match self.wait {
                Wait::Micros(wait) => wait,
                Wait::Never => self.span.whole,
            },
        }
    }

    /// The verdict of a limit whose `part` counts units. The reset is `taken` if units were charged, else the measured
    /// one. Without `charged`, another limit of the request refused.
    pub(super) fn verdict(&self, limit: u64, cost: Cost, charged: bool, taken: u64) -> Verdict {
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
            remaining: limit.saturating_sub(held),
            reset: if is_taken { taken } else { self.span.whole },
        }
    }
}

/// One limit's outcome for one request. A greater outcome is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictOutcome {
    /// The request proceeds after `delay` microseconds (0 except for leaky buckets).
    Admit {
        /// Microseconds to hold the request.
        delay: u64,
    },
    /// The request is refused; the wait names the next chance.
    Refuse(Wait),
}

/// One limit's answer, with the numbers for the fields of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Admit or refuse.
    pub outcome: VerdictOutcome,
    /// Units left, floored.
    pub remaining: u64,
    /// Microseconds until the state equals no state.
    pub reset: u64,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Every limit agreed and was charged. The request is held this many microseconds first.
    Admit {
        /// The longest of the limits' delays, in microseconds.
        delay: u64,
    },
    /// At least one limit refused and none was charged.
    Refuse {
        /// The named limit: the one with the longest wait, on a tie the first.
        by: usize,
        /// The wait of the named limit.
        wait: Wait,
    },
}

impl Ruling {
    /// The fate by `verdicts`: any refusal refuses, the longest wait is named, the longest delay applies.
    #[must_use]
    pub fn by(verdicts: &[Verdict]) -> Self {
        let badness = |(_, verdict): &(usize, &Verdict)| Reverse(verdict.outcome);
        // Of several equally bad verdicts, the first is named.
        let worst = verdicts.iter().enumerate().min_by_key(badness);
        match worst.map(|(by, verdict)| (by, verdict.outcome)) {
            Some((by, VerdictOutcome::Refuse(wait))) => Self::Refuse { by, wait },
            Some((_, VerdictOutcome::Admit { delay })) => Self::Admit { delay },
            None => Self::Admit { delay: 0 },
        }
    }
}

/// A request's limits that fit without an allocation.
pub const INLINE_LIMITS: usize = 4;

/// All verdicts of one request, in the order of its limits, and the request's fate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The instant of the decision, on the store's clock.
    pub at: Timestamp,
    /// One for each limit.
    pub verdicts: SmallVec<[Verdict; INLINE_LIMITS]>,
    /// The request's fate by all verdicts.
    pub ruling: Ruling,
}

impl Decision {
    /// The fate by `verdicts`.
    #[must_use]
    pub fn of(at: Timestamp, verdicts: SmallVec<[Verdict; INLINE_LIMITS]>) -> Self {
        let ruling = Ruling::by(&verdicts);
        Self {
            at,
            verdicts,
            ruling,
        }
    }
}
