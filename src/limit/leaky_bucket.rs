//! Leaky bucket: a queue that releases N per P. A request that finds no room, or would wait too long, is refused. With
//! `over = "refuse"` no request waits, and the bucket is a meter of size B. Twin: `lua/leaky_bucket.lua`.

use super::Rule;
use super::bucket::Bucket;
use super::rate::{Rate, Span};
use std::num::NonZeroU64;

/// A leaky bucket's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeakyBucket {
    /// B: the number of requests that may pass at once.
    pub burst: NonZeroU64,
    /// The number of requests that may wait after them.
    pub queue: u32,
    /// Longest wait, in microseconds.
    pub max_wait: u64,
    /// The time of B - 1 units: below this level no request waits.
    pub free: Span,
    /// Queue and B as time. A request below the latest level waits no longer than `max_wait`.
    pub bucket: Bucket,
}

impl LeakyBucket {
    /// A bucket with a queue. The caller has checked `queue + burst` against [`Rate::most_units`].
    #[must_use]
    pub fn new(rate: Rate, burst: NonZeroU64, queue: u32, max_wait: u64) -> Self {
        let mut bucket = Bucket::new(rate, u64::from(queue) + burst.get());
        if queue > 0 {
            // Requests that are held have their turns, whatever becomes of the numbers.
            bucket.numbers = None;
        }
        let free = bucket.interval.times(burst.get() - 1);
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

    /// A meter: a request beyond its size is refused at once, and none waits.
    #[must_use]
    pub fn meter(rate: Rate, burst: NonZeroU64) -> Self {
        Self::new(rate, burst, 0, 0)
    }

    /// The longest wait of a request, in microseconds: the smaller of `max_wait` and the time of a full queue.
    #[must_use]
    pub fn longest_wait(&self) -> u64 {
        let queue = self.bucket.interval.times(u64::from(self.queue)).ceil();
        self.max_wait.min(queue)
    }

    /// The number of requests that may wait at once: the smaller of the queue and the number that are released within
    /// `max_wait`.
    #[must_use]
    pub fn most_waiting(&self) -> u64 {
        let patience = Span::micros(self.max_wait);
        let whole = self.bucket.interval.units_in(patience);
        let begun = self.bucket.interval.times(whole) < patience;
        u64::from(self.queue).min(whole.saturating_add(u64::from(begun)))
    }
}

impl Rule {
    /// The leaky bucket, with or without a queue.
    #[must_use]
    pub fn leaky_bucket(&self) -> Option<&LeakyBucket> {
        match self {
            Self::LeakyBucket(rule) => Some(rule),
            _ => None,
        }
    }

    /// The leaky bucket in which requests wait.
    #[must_use]
    pub fn queue(&self) -> Option<&LeakyBucket> {
        self.leaky_bucket().filter(|rule| rule.queue > 0)
    }
}
