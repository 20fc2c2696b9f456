//! How often an order has failed, and when the next may be made. The record is kept beside the certificate, so that a
//! gateway that restarts repeatedly does not order repeatedly.

use super::schedule::Seconds;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The wait after a process that ended in the middle of its first order, in seconds.
const AFTER_AN_END: Seconds = 10;
/// The wait before another kind of challenge is tried, in seconds.
const OTHER_KIND: Seconds = 5;
/// The wait after an order that failed because of one of our own bounds, in seconds.
const OWN_BOUND: Seconds = 10;
/// Waits after the first, second, ... failure in a row, in seconds; the last for all that follow.
const WAITS: [Seconds; 6] = [60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 24 * 3600];
/// Failed orders of one identity within [`HOUR`]: the largest authority allows five.
const MOST_IN_AN_HOUR: usize = 4;
const HOUR: Seconds = 3600;
/// A certificate that was issued is not replaced before this share of its life has passed, or one day if that is
/// shorter, so that no wrong clock and no authority makes a gateway order without end.
const REST: i64 = 90;
const LONGEST_REST: Seconds = 24 * 3600;
/// The longest wait that an authority can demand.
const LONGEST: Seconds = 7 * 24 * 3600;
/// The cause of an order whose process has ended.
const ENDED: &str = "its gateway ended in the middle of the order";

/// The failures of one identity's orders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attempts {
    /// The order's content: authority and names. Another order starts with no failures.
    order: String,
    /// A digest of the means of the order: another account, challenge or trusted authority of the server is a reason to
    /// try at once.
    means: String,
    /// Failures in a row.
    failures: usize,
    /// The times of the last failures, the earliest first.
    last: Vec<Seconds>,
    /// The cause of the last failure, in words.
    cause: String,
    /// The earliest time of the next order.
    next: Seconds,
    /// The time until which the authority accepts no further requests.
    asked: Seconds,
    /// The time at which an unfinished order was begun.
    begun: Option<Seconds>,
    /// The time until which the last issued certificate is not replaced.
    rest: Seconds,
}

impl Attempts {
    /// Is this the last order, by the record?
    pub(super) fn is_of(&self, order: &str) -> bool {
        self.order.is_empty() || self.order == order
    }

    /// The record for this order; empty if the last order was another one.
    pub(super) fn of(self, order: &str) -> Self {
        if self.order == order {
            return self;
        }
        Self {
            order: order.into(),
            // The failures of the identity's last hour count for every order.
            last: self.last,
            ..Self::default()
        }
    }

    /// The record for an order made by these means. If the last order was made by other means, waits end, except for
    /// the pause that the authority requested; failures of the last hour still count.
    pub(super) fn by(self, means: &str) -> Self {
        if self.means == means {
            return self;
        }
        let is_known = !self.means.is_empty();
        let (failures, next) = if is_known {
            (0, self.asked)
        } else {
            (self.failures, self.next)
        };
        Self {
            means: means.into(),
            failures,
            next,
            cause: if is_known { String::new() } else { self.cause },
            ..self
        }
    }

    /// Reads the stored text. The record is empty if the text cannot be read.
    pub(super) fn read(text: &str) -> Self {
        let mut read: Self = serde_json::from_str(text).unwrap_or_default();
        read.last.truncate(MOST_IN_AN_HOUR);
        read
    }

    /// The text to keep.
    pub(super) fn text(&self) -> String {
        format!("{}\n", json!(self))
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// The time of the last failure since a certificate was issued, and the failure's cause in words, if known. `None`
    /// if the current order has not failed.
    pub(super) fn last_failure(&self) -> Option<(Seconds, Option<&str>)> {
        let at = self.last.last().copied()?;
        let cause = Some(self.cause.as_str()).filter(|cause| !cause.is_empty());
        (self.failures > 0 || cause.is_some()).then_some((at, cause))
    }

    /// The time from which an order may be made. After a clock was set back, the time is still at most the longest wait
    /// away.
    pub(super) fn next(&self, now: Seconds) -> Seconds {
        let next = match self.last[..] {
            [first, ..] if self.last.len() >= MOST_IN_AN_HOUR => self.next.max(first + HOUR + 1),
            _ => self.next,
        };
        if next > now + LONGEST { now } else { next }
    }

    /// The time of the last order that failed or is unfinished.
    pub(super) fn last(&self) -> Option<Seconds> {
        self.begun.or_else(|| self.last.last().copied())
    }

    /// Notes that an order begins at `now`.
    pub(super) fn begins(&mut self, now: Seconds) {
        self.begun = Some(now);
    }

    /// Is an order unfinished?
    pub(super) fn are_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Notes that the process which began an order has ended. The order may have caused the end, so that the end counts
    /// as a failure; the first such wait is short, since most such ends are deploys.
    pub(super) fn take_over(&mut self) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        let is_first = self.failures == 0;
        self.failed(begun, None, ENDED);
        if is_first {
            self.next = begun + AFTER_AN_END;
        }
    }

    /// Notes a failure at `now`, and the pause of `asked` seconds that the authority requested, if it requested one.
    /// The cause is in words.
    pub(super) fn failed(&mut self, now: Seconds, asked: Option<Seconds>, cause: &str) {
        let wait = WAITS[self.failures.min(WAITS.len() - 1)];
        self.failures += 1;
        self.count(now, cause);
        let asked = asked.unwrap_or_default().min(LONGEST);
        self.asked = now + asked;
        self.next = now + wait.max(asked);
    }

    /// Notes that an order failed at `now` because of one of our own bounds. The authority may have received requests,
    /// so that the failure counts in the hour; the wait is short, and the next wait is no longer.
    pub(super) fn held_back(&mut self, now: Seconds, cause: &str) {
        self.count(now, cause);
        self.next = now + OWN_BOUND;
    }

    /// Counts a failure at `now` as one of the failures of the last hour.
    fn count(&mut self, now: Seconds, cause: &str) {
        self.begun = None;
        self.cause = cause.into();
        self.last.retain(|at| (now - HOUR..=now).contains(at));
        if self.last.len() >= MOST_IN_AN_HOUR {
            self.last.remove(0);
        }
        self.last.push(now);
    }

    /// The earliest time of an order that an operator requested: only the authority's pause and the hour delay the
    /// order.
    pub(super) fn next_at_once(&self, now: Seconds) -> Seconds {
        let hurried = Self {
            next: self.next.min(self.asked),
            ..self.clone()
        };
        hurried.next(now)
    }

    /// Notes that the order which failed at `now` may succeed with another kind of challenge, which was not tried yet.
    /// The failure still counts.
    pub(super) fn has_other_kind(&mut self, now: Seconds) {
        self.next = now + OTHER_KIND;
    }

    /// Notes a success at `now`: a certificate that is good for `life` seconds.
    pub(super) fn succeeded(&mut self, now: Seconds, life: Seconds) {
        *self = Self::default().of(&self.order).by(&self.means);
        self.rest = now + (life / REST).clamp(0, LONGEST_REST);
    }

    /// The time until which an issued certificate is not replaced. A time more than a day away, as after a clock was
    /// set back, counts as passed.
    pub(super) fn rest(&self, now: Seconds) -> Seconds {
        if self.rest > now + LONGEST_REST {
            return now;
        }
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_survive_a_restart() {
        let mut attempts = Attempts::default().of("ca a.example");
        let mut now = 1_000_000;
        let mut waits = Vec::new();
        for _ in 0..8 {
            attempts.failed(now, None, "a cause");
            attempts = Attempts::read(&attempts.text()).of("ca a.example");
            waits.push(attempts.next(now) - now);
            now = attempts.next(now);
        }
        assert_eq!(waits[..3], [60, 300, 1800]);
        assert_eq!(waits[3..], [7200, 21_600, 86_400, 86_400, 86_400]);
        assert!(attempts.last_failure().is_some());
        attempts.succeeded(now, 90 * 86_400);
        attempts = Attempts::read(&attempts.text());
        assert_eq!(attempts.last_failure(), None);
        assert!(attempts.next(now) <= now);
        assert_eq!(attempts.rest(now), now + 86_400);
        assert_eq!(attempts.rest(0), 0);
        assert_eq!(attempts.failures(), 0);
    }

    #[test]
    fn a_change_of_how_it_is_ordered_ends_the_wait_but_neither_a_pause_nor_the_hour() {
        let reread = |attempts: Attempts| Attempts::read(&attempts.text());
        let mut attempts = Attempts::default().of("a").by("one key");
        attempts.failed(1000, None, "a cause");
        assert_eq!(reread(attempts.clone()).by("one key").next(1000), 1060);
        let mut changed = reread(attempts).by("another key");
        assert_eq!((changed.failures(), changed.next(1000)), (0, 1000));
        changed.failed(1000, Some(7200), "a cause");
        let paused = reread(changed).by("a third key");
        assert_eq!((paused.failures(), paused.next(1000)), (0, 8200));
        // The record of an earlier version does not have this field.
        let mut earlier = Attempts::default();
        earlier.failed(1000, None, "a cause");
        assert_eq!(earlier.by("one key").next(1000), 1060);
        let mut hour = Attempts::default();
        for means in ["a", "b", "c", "d"] {
            hour = hour.by(means);
            hour.failed(1000, None, "a cause");
        }
        assert_eq!(hour.by("e").next(1000), 1000 + 3601);
    }

    #[test]
    fn no_hour_has_more_than_four_failures() {
        let mut attempts = Attempts::default().of("a");
        for name in ["a", "b", "c", "d"] {
            // Each order has a different list of names: no wait applies, but failures of the last hour still count.
            attempts = attempts.of(name);
            assert_eq!(attempts.next(1000), 0);
            attempts.failed(1000, None, "a cause");
        }
        assert_eq!(attempts.next(1000), 1000 + 3601);
        assert_eq!(attempts.of("e").next(1000), 1000 + 3601);
    }

    #[test]
    fn a_process_that_ends_in_the_middle_of_its_orders_waits_longer_each_time() {
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        let mut now = 1_000_000;
        for _ in 0..3 {
            attempts.begins(now);
            attempts = Attempts::read(&attempts.text());
            attempts.take_over();
            waits.push(attempts.next(now) - now);
            now = attempts.next(now);
        }
        assert_eq!(waits, [10, 300, 1800]);
        let same = attempts.clone();
        attempts.take_over();
        assert_eq!(attempts, same);
    }

    #[test]
    fn another_kind_of_challenge_comes_soon_and_counts_as_others_do() {
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        for _ in 0..5 {
            attempts.failed(1000, None, "a cause");
            attempts.has_other_kind(1000);
            waits.push(attempts.next(1000) - 1000);
        }
        assert_eq!(waits, [5, 5, 5, 3601, 3601]);
    }

    #[test]
    fn a_bound_of_our_own_waits_ten_seconds_within_the_hour() {
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            attempts.held_back(1000, "a cause");
            attempts = Attempts::read(&attempts.text());
            waits.push(attempts.next(1000) - 1000);
        }
        assert_eq!(waits, [10, 10, 10, 3601]);
        assert_eq!(attempts.failures(), 0);
        assert_eq!(attempts.last_failure(), Some((1000, Some("a cause"))));
    }

    #[test]
    fn the_last_failure_is_known_with_its_cause_until_something_else_is_ordered() {
        let reread = |attempts: &Attempts| Attempts::read(&attempts.text());
        let mut attempts = Attempts::default().of("a").by("one key");
        assert_eq!(attempts.last_failure(), None);
        attempts.failed(1000, None, "the port is closed");
        let kept = reread(&attempts).of("a").by("one key");
        assert_eq!(
            kept.last_failure(),
            Some((1000, Some("the port is closed")))
        );
        assert_eq!(reread(&attempts).of("b").last_failure(), None);
        assert_eq!(reread(&attempts).by("another key").last_failure(), None);
        // A gateway of 0.1.0 keeps no cause.
        let earlier = Attempts::read(r#"{"failures":1,"last":[7]}"#);
        assert_eq!(earlier.last_failure(), Some((7, None)));
        attempts.begins(2000);
        attempts.take_over();
        assert_eq!(attempts.last_failure(), Some((2000, Some(ENDED))));
    }

    #[test]
    fn what_is_asked_for_at_once_waits_for_the_authority_and_the_hour_alone() {
        let mut attempts = Attempts::default();
        attempts.failed(1000, None, "a cause");
        assert_eq!(attempts.next(1000), 1060);
        assert_eq!(attempts.next_at_once(1000), 1000);
        attempts.failed(1000, Some(500), "a cause");
        assert_eq!(attempts.next_at_once(1000), 1500);
        let mut hour = Attempts::default();
        for _ in 0..4 {
            hour.failed(1000, None, "a cause");
        }
        assert_eq!(hour.next_at_once(1000), 1000 + 3601);
    }

    #[test]
    fn the_authority_may_ask_for_more_and_a_clock_may_jump() {
        let mut attempts = Attempts::default();
        attempts.failed(1000, Some(4000), "a cause");
        assert_eq!(attempts.next(1000), 5000);
        attempts.failed(1000, Some(i64::MAX), "a cause");
        assert_eq!(attempts.next(1000), 1000 + LONGEST);
        assert_eq!(attempts.next(0), 0);
        assert_eq!(Attempts::read("{ half"), Attempts::default());
        assert_eq!(Attempts::read("{}"), Attempts::default());
    }
}
