//! What token bucket and leaky bucket share: one stored instant, the moment at which the bucket is empty again.
//!
//! Level and time are the same thing: a level of `v` units takes `v * P/N` to drain, so the only state is the instant
//! at which nothing is left (the theoretical arrival time of GCRA, as an exact fraction). Charging adds to it,
//! waiting needs no write. Twin: `lua/bucket.lua`.

use super::rate::{Interval, Span};
use crate::clock::Timestamp;

/// The stored state: empty at `at + part/den` microseconds. Absent or past is the same as empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    /// Whole microseconds since the epoch.
    pub at: u64,
    /// Fraction of a microsecond over `den`; 0 for most rates, and then `den` is 1.
    pub part: u32,
    /// Denominator that `part` was written under: another rate's fraction is recognised, never misread.
    pub den: u32,
}

impl BucketState {
    /// The state that empties `level` after `now`.
    #[must_use]
    pub fn at_level(now: Timestamp, level: Span, interval: Interval) -> Self {
        let den = if level.part == 0 {
            1
        } else {
            interval.den.get()
        };
        Self {
            at: now.plus(level.whole).micros(),
            part: level.part,
            den,
        }
    }

    /// The first instant at which this state equals no state.
    #[must_use]
    pub fn ends(self) -> Timestamp {
        Timestamp::from_micros(self.at).plus(u64::from(self.part > 0))
    }
}

/// What is in the bucket now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// As the time it takes to drain.
    pub span: Span,
    /// The stored state was impossible under the present numbers or clock and has been brought to the brim.
    pub mended: bool,
}

/// Reads the level at `now` from a stored state, never above `capacity`.
///
/// A fraction written under another denominator is rounded up: against the client, by less than a microsecond.
#[must_use]
pub fn level(
    state: Option<BucketState>,
    now: Timestamp,
    interval: Interval,
    capacity: Span,
) -> Level {
    let Some(state) = state.filter(|state| state.at >= now.micros()) else {
        return Level {
            span: Span::default(),
            mended: false,
        };
    };
    let mut span = Span {
        whole: state.at - now.micros(),
        part: state.part,
    };
    if span.part > 0 && state.den != interval.den.get() {
        span = Span {
            whole: span.whole + 1,
            part: 0,
        };
    }
    if span > capacity {
        return Level {
            span: capacity,
            mended: true,
        };
    }
    Level {
        span,
        mended: false,
    }
}

/// Takes back a `charge` of a moment ago that came to nothing, but for the time that has `elapsed` since. Without the
/// charge the bucket may have been empty for that long, and then the charge has drained by so much; nothing else can
/// have made it less, whoever else was charged or given back meanwhile. Returns the level that is left.
#[must_use]
pub fn undo(level: Span, charge: Span, elapsed: u64, interval: Interval) -> Span {
    let elapsed = Span {
        whole: elapsed,
        part: 0,
    };
    let back = interval.sub(charge, elapsed).unwrap_or_default();
    interval.sub(level, back).unwrap_or_default()
}

/// Can `state` be compared with what is computed under `interval`?
#[must_use]
pub fn is_comparable(state: BucketState, interval: Interval) -> bool {
    state.part == 0 || state.den == interval.den.get()
}

/// Takes back the place in a queue that `ticket` was granted.
///
/// Whoever came later was told a wait that counts on all in front, so that only the last place may go back: a newcomer
/// would else be let go before it or beside it (notes: `algorithms`, section 3.7). Returns the level that is left, or
/// nothing when nothing may go back.
#[must_use]
pub fn refund(
    state: BucketState,
    ticket: BucketState,
    charge: Span,
    now: Timestamp,
    interval: Interval,
) -> Option<Span> {
    if !is_comparable(state, interval) || !is_comparable(ticket, interval) {
        return None;
    }
    let (held, then) = (
        Span {
            whole: state.at,
            part: state.part,
        },
        Span {
            whole: ticket.at,
            part: ticket.part,
        },
    );
    if held != then {
        return None;
    }
    let passed = Span {
        whole: now.micros(),
        part: 0,
    };
    // What has come in again by itself is nobody's to give.
    let undrained = interval.sub(then, passed)?;
    let back = Some(charge.min(undrained)).filter(|back| *back > Span::default())?;
    let left = interval.sub(held, back)?;
    Some(interval.sub(left, passed).unwrap_or_default())
}
