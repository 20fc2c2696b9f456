//! The common arithmetic of token bucket and leaky bucket: one stored instant, at which the bucket is empty again.
//!
//! Level and time are the same thing: a level of `v` units takes `v * P/N` to drain, so the only state is the instant
//! at which nothing is left (the theoretical arrival time of GCRA, as an exact fraction). Charging adds to it,
//! waiting needs no write. Twin: `lua/bucket.lua`.

mod numbers;

pub use numbers::{LONGEST_OF_LARGE, Numbers};

use super::rate::{Cost, Interval, Rate, Span};
use super::verdict::{Measurement, Verdict, Wait};
use super::{BucketState, Change, State};
use crate::clock::Timestamp;

/// The numbers of a bucket, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The time one unit takes.
    pub interval: Interval,
    /// The time of all units that fit: an admitted request's level stays within it.
    pub capacity: Span,
    /// The highest level at which a request may still be admitted, if that is not the capacity.
    pub latest: Option<Span>,
    /// The highest level of a state: above the capacity where a debt is possible.
    pub debt_ceiling: Span,
    /// The numbers that states carry; `None` for a bucket in which requests wait, whose states are instants.
    pub numbers: Option<Numbers>,
}

impl Bucket {
    /// A bucket of `rate` with room for `units`, and for no debt.
    #[must_use]
    pub fn new(rate: Rate, units: u64) -> Self {
        let interval = rate.interval();
        let capacity = interval.times(units);
        Self {
            interval,
            capacity,
            latest: None,
            debt_ceiling: capacity,
            numbers: Some(Numbers::new(interval, units)),
        }
    }

    /// Makes room for a debt, up to `units`.
    pub(super) fn hold_up_to(&mut self, units: u64) {
        self.debt_ceiling = self.interval.times(units);
        self.numbers = self.numbers.map(|numbers| numbers.with_room_for(units));
    }

    /// The bucket that admits every charge that fits below the debt ceiling.
    pub(super) fn without_bound(self) -> Self {
        Self {
            capacity: self.debt_ceiling,
            latest: self.latest.map(|_| self.debt_ceiling),
            ..self
        }
    }

    /// Would `cost` be admitted at `now`, and which state would then be stored?
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<BucketState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        if let Some((state, numbers)) = self.written_otherwise(state, now) {
            return self.check_changed(state, numbers, now, cost);
        }
        let charge = self.interval.times(cost.units());
        // A charge that is never admitted needs no memory of a debt.
        let ceiling = if charge > self.capacity {
            self.capacity
        } else {
            self.debt_ceiling
        };
        let level = level(state, now, self.interval, ceiling);
        if cost == Cost::ZERO {
            return (Measurement::admitted(level.span), None);
        }
        let next = self.interval.add(level.span, charge);
        let excess = |span, bound| self.interval.sub(span, bound).map_or(0, Span::ceil);
        let late = self.latest.map_or(0, |latest| excess(level.span, latest));
        let wait = excess(next, self.capacity).max(late);
        if wait > 0 {
            let wait = if charge > self.capacity {
                Wait::Never
            } else {
                Wait::Micros(wait)
            };
            let mended = level.mended && wait != Wait::Never;
            let change = mended.then(|| self.change(now, level.span));
            return (Measurement::refused(wait, level.span), change);
        }
        (Measurement::admitted(next), Some(self.change(now, next)))
    }

    /// The state, if it counts at `now` and was written with other numbers, and these numbers.
    #[inline]
    fn written_otherwise(
        &self,
        state: Option<BucketState>,
        now: Timestamp,
    ) -> Option<(BucketState, Numbers)> {
        let state = state.filter(|state| state.numbers != self.numbers)?;
        let numbers = state.numbers.filter(|_| self.numbers.is_some())?;
        (state.at >= now.micros()).then_some((state, numbers))
    }

    /// Like [`Self::check`], of a state that was written with the numbers `under`: the units that are used stay used.
    ///
    /// A refusal under a faster rate writes the state with that rate, without a charge. Any other refusal writes
    /// nothing, and the bucket drains as before.
    #[cold]
    fn check_changed(
        &self,
        state: BucketState,
        under: Numbers,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        let (mut held, mut mended) = (state.span(), false);
        held.whole -= now.micros();
        let mut used = under.used(held);
        if used > under.most() {
            (used, held, mended) = (under.most(), under.full(), true);
        }
        let level = Numbers::level_of(used, under, self.interval);
        let charge = self.interval.times(cost.units());
        let never = charge > self.capacity;
        let ceiling = if never {
            self.capacity
        } else {
            self.debt_ceiling
        };
        let excess = |span, bound| self.interval.sub(span, bound).map_or(0, Span::ceil);
        let next = self.interval.add(level, charge);
        let late = self.latest.map_or(0, |latest| excess(level, latest));
        let wait = excess(next, self.capacity).max(late);
        let shown = level.min(ceiling);
        let drains = Some(held.ceil());
        let refused = |wait, drains| Measurement {
            drains,
            ..Measurement::refused(wait, shown)
        };
        if cost == Cost::ZERO {
            return (refused(Wait::Micros(0), drains), None);
        }
        if wait == 0 {
            return (Measurement::admitted(next), Some(self.change(now, next)));
        }
        if never {
            return (refused(Wait::Never, drains), None);
        }
        let numbers = self.numbers.unwrap_or(under);
        if numbers.is_faster_than(under) {
            let numbers = Some(numbers.or_larger(under));
            let state = BucketState::at_level(now, level, self.interval, numbers);
            let drains = (numbers != self.numbers).then(|| level.ceil());
            let change = Change::put(State::Bucket(state), state.ends());
            return (refused(Wait::Micros(wait), drains), Some(change));
        }
        let wait = under.interval().sub(held, self.room(charge, under));
        let wait = Wait::Micros(wait.map_or(1, Span::ceil).max(1));
        let change = mended.then(|| {
            let state = BucketState::at_level(now, held, under.interval(), Some(under));
            Change::put(State::Bucket(state), state.ends())
        });
        (refused(wait, drains), change)
    }

    /// The level at which `charge` would be admitted, as time under other numbers.
    fn room(&self, charge: Span, under: Numbers) -> Span {
        let free = self.interval.sub(self.capacity, charge).unwrap_or_default();
        let free = self.latest.map_or(free, |latest| latest.min(free));
        under.interval().times(self.interval.units_in(free))
    }

    /// Interprets either store's reply. `charged` is false when another limit of the request refused. A request waits
    /// while the level before its own units is above `free`, in a bucket with waits.
    pub(super) fn verdict(
        &self,
        measured: Measurement,
        cost: Cost,
        charged: bool,
        free: Option<Span>,
    ) -> Verdict {
        let before = || match measured.wait {
            Wait::Micros(0) => {
                let charge = self.interval.times(cost.units());
                self.interval.sub(measured.span, charge).unwrap_or_default()
            }
            _ => measured.span,
        };
        let level = if charged { measured.span } else { before() };
        let hold = |free| self.interval.sub(before(), free).map_or(0, Span::ceil);
        let delay = free.filter(|_| cost != Cost::ZERO).map_or(0, hold);
        Verdict {
            outcome: measured.wait.outcome(delay),
            remaining: self.left(level),
            reset: measured.drains.unwrap_or_else(|| level.ceil()),
        }
    }

    /// The whole units that fit above `level`.
    pub(super) fn fitting(&self, level: Span) -> u64 {
        let room = self.interval.sub(self.capacity, level).unwrap_or_default();
        self.interval.units_in(room)
    }

    /// The number of one-unit requests that would be admitted now in sequence: within the capacity, and each with a
    /// wait that is allowed.
    fn left(&self, level: Span) -> u64 {
        let fitting = self.fitting(level);
        let Some(latest) = self.latest else {
            return fitting;
        };
        match self.interval.sub(latest, level) {
            Some(patience) => fitting.min(self.interval.units_in(patience).saturating_add(1)),
            None => 0,
        }
    }

    /// The state of a bucket that has drained `level` after `now`.
    #[must_use]
    pub fn state_at(&self, now: Timestamp, level: Span) -> BucketState {
        BucketState::at_level(now, level, self.interval, self.numbers)
    }

    fn change(&self, now: Timestamp, level: Span) -> Change {
        let state = self.state_at(now, level);
        Change::put(State::Bucket(state), state.ends())
    }
}

/// The present content of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLevel {
    /// The content as the time in which it drains.
    pub span: Span,
    /// Was the stored state impossible under the present numbers or clock? If so, it was set to the debt ceiling.
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
) -> BucketLevel {
    let Some(state) = state.filter(|state| state.at >= now.micros()) else {
        return BucketLevel {
            span: Span::default(),
            mended: false,
        };
    };
    let mut span = Span {
        whole: state.at - now.micros(),
        part: u64::from(state.part),
    };
    if span.part > 0 && state.den != interval.den.get() {
        span = Span::micros(span.whole + 1);
    }
    if span > capacity {
        return BucketLevel {
            span: capacity,
            mended: true,
        };
    }
    BucketLevel {
        span,
        mended: false,
    }
}

/// Can `state` be compared with states computed under `interval`?
#[must_use]
pub fn is_comparable(state: BucketState, interval: Interval) -> bool {
    state.part == 0 || state.den == interval.den.get()
}

/// Does `state` drain at the rate of `interval`, as far as is known, so that charges can be given back?
#[must_use]
pub fn is_of_rate(state: BucketState, interval: Interval) -> bool {
    let is_of = |numbers: Numbers| numbers.is_of(interval);
    is_comparable(state, interval) && state.numbers.is_none_or(is_of)
}

/// Takes back the place in a queue that `ticket` was granted.
///
/// A later request's wait depends on all places in front of it, so that only the last place may be given back.
/// Otherwise a new request would be released before that request or together with it. Returns the remaining level, or
/// `None` if no place may be given back.
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
    let (held, then) = (state.span(), ticket.span());
    if held != then {
        return None;
    }
    let passed = Span::micros(now.micros());
    // A part of the charge that has already drained is not given back.
    let undrained = interval.sub(then, passed)?;
    let back = Some(charge.min(undrained)).filter(|back| *back > Span::default())?;
    let left = interval.sub(held, back)?;
    Some(interval.sub(left, passed).unwrap_or_default())
}
