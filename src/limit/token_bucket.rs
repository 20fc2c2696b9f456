//! Token bucket: a bucket of B tokens, full at first, refilled continuously at N per P; holds `n` or refuses.
//! Twin: `lua/token_bucket.lua`.

use super::bucket::BucketBounds;
use super::rate::{Cost, Interval, Rate, Span};
use super::verdict::{Measurement, Verdict, Wait};
use super::{BucketState, Change};
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
    pub debt_ceiling: Span,
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
            debt_ceiling: capacity,
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
    ) -> (Measurement, Option<Change>) {
        self.bounds().check(state, now, cost)
    }

    /// The numbers that both buckets have.
    #[inline]
    #[must_use]
    pub fn bounds(&self) -> BucketBounds {
        BucketBounds {
            interval: self.interval,
            capacity: self.capacity,
            latest: None,
            debt_ceiling: self.debt_ceiling,
        }
    }

    /// What the reply of either store means. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
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
}
