//! Leaky bucket: a queue that lets go at N per P; what finds no room, or would wait too long, is refused.
//! With `over = "refuse"` nothing waits and it is a meter of size B. Twin: `lua/leaky_bucket.lua`.

use super::bucket::BucketBounds;
use super::rate::{Cost, Interval, Rate, Span};
use super::verdict::{Measurement, Verdict, VerdictOutcome, Wait};
use super::{BucketState, Change};
use crate::clock::Timestamp;
use std::num::NonZeroU32;

/// A leaky bucket's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeakyBucket {
    /// The time one unit takes to leak.
    pub interval: Interval,
    /// B: how many may go on at once.
    pub burst: NonZeroU32,
    /// How many may wait behind them.
    pub queue: u32,
    /// Longest wait, in microseconds.
    pub max_wait: u64,
    /// The time queue + B take: what is admitted fits below it.
    pub capacity: Span,
    /// The time B - 1 take: below this level no request waits.
    pub free: Span,
    /// The highest level behind which one still waits no longer than `max_wait`.
    pub latest: Span,
    /// The most that a state may hold: more than the capacity, where a debt may be.
    pub debt_ceiling: Span,
}

impl LeakyBucket {
    /// A queue. The caller has checked `queue + burst` against [`Rate::most_units`].
    #[must_use]
    pub fn new(rate: Rate, burst: NonZeroU32, queue: u32, max_wait: u64) -> Self {
        let interval = rate.interval();
        let free = interval.times(u64::from(burst.get()) - 1);
        let capacity = interval.times(u64::from(queue) + u64::from(burst.get()));
        let latest = Span {
            whole: free.whole.saturating_add(max_wait),
            part: free.part,
        };
        Self {
            interval,
            burst,
            queue,
            max_wait,
            capacity,
            free,
            latest,
            debt_ceiling: capacity,
        }
    }

    /// A meter: full means refused at once, nothing waits.
    #[must_use]
    pub fn meter(rate: Rate, burst: NonZeroU32) -> Self {
        Self::new(rate, burst, 0, 0)
    }

    /// Longest that anybody waits, in microseconds: `max_wait`, or what the queue holds where that is less.
    #[must_use]
    pub fn longest_wait(&self) -> u64 {
        let queue = self.interval.times(u64::from(self.queue)).ceil();
        self.max_wait.min(queue)
    }

    /// How many may wait at once: the queue, or as many as go on within `max_wait` where that is less.
    #[must_use]
    pub fn most_waiting(&self) -> u64 {
        let patience = Span {
            whole: self.max_wait,
            part: 0,
        };
        let whole = self.interval.units_in(patience);
        let begun = self.interval.times(whole) < patience;
        u64::from(self.queue).min(whole.saturating_add(u64::from(begun)))
    }

    /// Would `cost` be admitted at `now`, and what would then be stored?
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
            latest: Some(self.latest),
            debt_ceiling: self.debt_ceiling,
        }
    }

    /// What the reply of either store means. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
        let admitted = measured.wait == Wait::Micros(0);
        let before = if admitted {
            self.interval
                .sub(measured.span, self.interval.times(u64::from(cost.units())))
                .unwrap_or_default()
        } else {
            measured.span
        };
        let level = if admitted && charged {
            measured.span
        } else {
            before
        };
        let left = self.interval.sub(self.capacity, level).unwrap_or_default();
        let delay = match cost {
            Cost::ZERO => 0,
            _ => self.interval.sub(before, self.free).map_or(0, Span::ceil),
        };
        Verdict {
            outcome: if admitted {
                VerdictOutcome::Admit { delay }
            } else {
                VerdictOutcome::Refuse(measured.wait)
            },
            remaining: self.interval.units_in(left),
            reset: level.ceil(),
        }
    }
}
