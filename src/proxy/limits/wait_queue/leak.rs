//! A queue's pace: requests that went on leak as the bucket does, so that late requests go on in turn and not at once.
//!
//! The store spaces turns, and cannot know that a gateway stood still while they passed. The same bound is kept here
//! once more, at the instants at which requests really go on: over any time T at most B + N T/P of them.

use crate::limit::{Limit, rate::Cost};
use std::time::Duration;
use tokio::time::Instant;

/// A machine's ordinary lateness, which moves no request. A request that is later than this goes on in turn, and so do
/// all behind it.
pub(super) const JITTER: Duration = Duration::from_millis(5);
/// The time by which a request's wait may exceed `max_wait`: a busy machine alone may be as late.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// The share of one request in its queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeakShare {
    /// The time in which the request leaks.
    takes: Duration,
    /// The time that B - 1 units take. The request goes on where no more than this is left of the requests before it.
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
        let time = |units: u32| {
            let interval = rule.bucket.interval;
            let span = interval.times(u64::from(units));
            let part = u64::from(span.part) * 1_000 / u64::from(interval.den.get());
            Duration::from_micros(span.whole) + Duration::from_nanos(part)
        };
        Self {
            takes: time(cost.units()),
            free: time(rule.burst.get() - 1),
            max_wait: Duration::from_micros(rule.max_wait),
        }
    }

    /// The least time until a similar request finds room, where room is to be had at `room`.
    pub(super) fn retry_after(&self, room: Instant, now: Instant) -> Duration {
        let wait = room.saturating_duration_since(now);
        wait.saturating_sub(self.max_wait).max(self.takes)
    }
}

/// The requests that have gone on from one queue and have not leaked yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leak {
    /// The time at which all of them will have leaked.
    pub(super) leaked: Option<Instant>,
}

impl Leak {
    /// May a request that is on time go on?
    pub(super) fn is_free(&self, share: &LeakShare, now: Instant) -> bool {
        self.over(share.free.max(JITTER), now) == Duration::ZERO
    }

    /// The turn of a request that would go on at `from` if none were in front.
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

    /// Notes that a request goes on.
    pub(super) fn went(&mut self, share: &LeakShare, at: Instant) {
        let from = self.leaked.map_or(at, |leaked| leaked.max(at));
        self.leaked = from.checked_add(share.takes).or(Some(from));
    }
}
