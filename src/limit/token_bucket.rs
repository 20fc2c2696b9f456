//! Token bucket: a bucket of B tokens, full at first, refilled continuously at N per P; holds `n` or refuses.
//! Twin: `lua/token_bucket.lua`.

use super::bucket::{self, BucketState};
use super::rate::{Cost, Interval, Rate, Span};
use super::verdict::{Measured, Verdict, Wait};
use super::{Change, State};
use crate::clock::Timestamp;
use std::num::NonZeroU32;

/// A token bucket's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// One token's time.
    pub interval: Interval,
    /// How many tokens the bucket holds.
    pub burst: NonZeroU32,
    /// The time all of them take.
    pub capacity: Span,
    /// The most that a state may hold: more than all of them, where a debt may be.
    pub brim: Span,
}

impl TokenBucket {
    /// `rate` with room for `burst` at once. The caller has checked `burst` against [`Rate::most_units`].
    #[must_use]
    pub fn new(rate: Rate, burst: NonZeroU32) -> Self {
        let interval = rate.interval();
        let capacity = interval.times(u64::from(burst.get()));
        Self {
            interval,
            burst,
            capacity,
            brim: capacity,
        }
    }

    /// Would `cost` be admitted at `now`, and what would then be stored?
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<BucketState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
        let charge = self.interval.times(u64::from(cost.units()));
        // What is never admitted needs no debt to be remembered.
        let brim = if charge > self.capacity {
            self.capacity
        } else {
            self.brim
        };
        let level = bucket::level(state, now, self.interval, brim);
        if cost == Cost::ZERO {
            return (Measured::admitted(level.span), None);
        }
        let next = self.interval.add(level.span, charge);
        if let Some(over) = self
            .interval
            .sub(next, self.capacity)
            .filter(|over| *over > Span::default())
        {
            let wait = if charge > self.capacity {
                Wait::Never
            } else {
                Wait::Micros(over.ceil())
            };
            let mended = level.mended && wait != Wait::Never;
            let change = mended.then(|| self.change(now, level.span));
            return (Measured::refused(wait, level.span), change);
        }
        (Measured::admitted(next), Some(self.change(now, next)))
    }

    /// What the reply of either store means. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measured, cost: Cost, charged: bool) -> Verdict {
        let level = match measured.wait {
            Wait::Micros(0) if !charged => self
                .interval
                .sub(measured.span, self.interval.times(u64::from(cost.units())))
                .unwrap_or_default(),
            _ => measured.span,
        };
        let left = self.interval.sub(self.capacity, level).unwrap_or_default();
        Verdict {
            outcome: measured.outcome(),
            remaining: self.interval.units_in(left),
            reset: level.ceil(),
        }
    }

    fn change(&self, now: Timestamp, level: Span) -> Change {
        let state = BucketState::at_level(now, level, self.interval);
        Change::put(State::Bucket(state), state.ends())
    }
}
