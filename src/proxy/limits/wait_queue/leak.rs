//! A queue's pace: released requests leak as in the bucket, so that late requests are released in turn rather than all
//! at once.
//!
//! The store spaces turns, and cannot know that a gateway was paused while they passed. The same bound is therefore
//! enforced here, at the instants at which requests are really released: over any time T at most B + N T/P of them.

use crate::limit::{Limit, rate::Cost};
use std::time::Duration;
use tokio::time::Instant;

/// A machine's ordinary lateness, which changes no turn. A request that is later than this is released in turn, and so
/// are all after it.
pub(super) const JITTER: Duration = Duration::from_millis(5);
/// The time by which a request's wait may exceed `max_wait`: even a merely busy machine may be as late.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// The share of one request in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeakShare {
    /// The time in which the request leaks.
    takes: Duration,
    /// The time that B - 1 units take. The request is released if no more than this is left of the requests before it.
    free: Duration,
    /// The longest wait.
    pub(super) max_wait: Duration,
}

impl LeakShare {
    pub(super) fn of(limit: &Limit, cost: Cost) -> Self {
        let Some(rule) = limit.rule.leaky_bucket() else {
            return Self {
                takes: Duration::ZERO,
                free: Duration::ZERO,
                max_wait: Duration::MAX,
            };
        };
        let time = |units: u64| {
            let interval = rule.bucket.interval;
            let span = interval.times(units);
            let part = span.part * 1_000 / u64::from(interval.den.get());
            Duration::from_micros(span.whole) + Duration::from_nanos(part)
        };
        Self {
            takes: time(cost.units()),
            free: time(rule.burst.get() - 1),
            max_wait: Duration::from_micros(rule.max_wait),
        }
    }

    /// The least time until a similar request finds room, if room becomes available at `room`.
    pub(super) fn retry_after(&self, room: Instant, now: Instant) -> Duration {
        let wait = room.saturating_duration_since(now);
        wait.saturating_sub(self.max_wait).max(self.takes)
    }
}

/// The requests that have been released from one queue and have not leaked yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leak {
    /// The time at which all of them will have leaked.
    pub(super) leaked: Option<Instant>,
}

impl Leak {
    /// May a request that is on time be released?
    pub(super) fn is_free(&self, share: &LeakShare, now: Instant) -> bool {
        self.over(share.free.max(JITTER), now) == Duration::ZERO
    }

    /// The turn of a request that would be released at `from` without others before it.
    pub(super) fn next(&self, share: &LeakShare, from: Instant) -> Instant {
        let over = self.over(share.free, from);
        from.checked_add(over).unwrap_or(from)
    }

    fn over(&self, free: Duration, at: Instant) -> Duration {
        let left = self
            .leaked
            .map(|leaked| leaked.saturating_duration_since(at));
        left.unwrap_or_default().saturating_sub(free)
    }

    /// Notes that a request is released.
    pub(super) fn went(&mut self, share: &LeakShare, at: Instant) {
        let from = self.leaked.map_or(at, |leaked| leaked.max(at));
        self.leaked = from.checked_add(share.takes).or(Some(from));
    }
}
