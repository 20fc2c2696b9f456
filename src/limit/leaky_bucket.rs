//! Leaky bucket: a queue that lets go at N per P; what finds no room, or would wait too long, is refused.
//! With `over = "refuse"` nothing waits and it is a meter of size B. Twin: `lua/leaky_bucket.lua`.

use super::bucket::Bucket;
use super::rate::{Rate, Span};
use std::num::NonZeroU32;

/// A leaky bucket's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeakyBucket {
    /// B: how many may go on at once.
    pub burst: NonZeroU32,
    /// How many may wait behind them.
    pub queue: u32,
    /// Longest wait, in microseconds.
    pub max_wait: u64,
    /// The time B - 1 take: below this level no request waits.
    pub free: Span,
    /// Queue and B as time. Behind the latest level one still waits no longer than `max_wait`.
    pub bucket: Bucket,
}

impl LeakyBucket {
    /// A queue. The caller has checked `queue + burst` against [`Rate::most_units`].
    #[must_use]
    pub fn new(rate: Rate, burst: NonZeroU32, queue: u32, max_wait: u64) -> Self {
        let mut bucket = Bucket::new(rate, u64::from(queue) + u64::from(burst.get()));
        let free = bucket.interval.times(u64::from(burst.get()) - 1);
        bucket.latest = Some(Span {
            whole: free.whole.saturating_add(max_wait),
            part: free.part,
        });
        Self {
            burst,
            queue,
            max_wait,
            free,
            bucket,
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
        let queue = self.bucket.interval.times(u64::from(self.queue)).ceil();
        self.max_wait.min(queue)
    }

    /// How many may wait at once: the queue, or as many as go on within `max_wait` where that is less.
    #[must_use]
    pub fn most_waiting(&self) -> u64 {
        let patience = Span::micros(self.max_wait);
        let whole = self.bucket.interval.units_in(patience);
        let begun = self.bucket.interval.times(whole) < patience;
        u64::from(self.queue).min(whole.saturating_add(u64::from(begun)))
    }
}
