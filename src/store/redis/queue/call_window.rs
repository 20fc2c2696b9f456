//! The distance of a server, the signs of its life, and the number of concurrent calls to it.
//!
//! If the round trip is short, two calls are enough. Decisions that wait meanwhile are sent together in the next call,
//! which makes each decision cheap. If the round trip is long, each millisecond of it allows one more concurrent call.
//!
//! The round trip measures the distance, not the work: it is the minimum of several calls that were sent while hardly
//! any other was pending. A server whose calls take longer under more load gets fewer calls.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// Concurrent calls to a server that is near.
pub(crate) const NEAR: usize = 2;
/// The most concurrent calls of one worker, for any distance of the server.
pub(super) const MOST_CALLS: usize = 32;
/// The part of a round trip that allows one more concurrent call.
const PER_CALL: u64 = 1_000;
/// The number of calls after which a longer round trip is accepted.
const SAMPLES: u8 = 8;

/// The most consecutive losses of connections without an answer in between, as when all of a worker's are ended at
/// once. After one more loss the server counts as unavailable.
const MOST_LOST: u8 = 3;

/// A shorter silence, for any `timeout`, means that the server is delayed, not unavailable. Causes: a page that was
/// swapped out, a slow command, a fork, a core taken by another process. Decisions fall back by themselves meanwhile.
const HELD_UP: Duration = Duration::from_millis(50);

/// One worker's knowledge of the connection to one server. Times are in microseconds.
#[derive(Debug)]
pub(crate) struct CallWindow {
    timeout: Duration,
    /// The round trip. `None` before the first call.
    trip: Cell<Option<u64>>,
    /// The shortest of the last quiet calls, and their number. A call is quiet if hardly any other is pending.
    least: Cell<(u64, u8)>,
    /// The recent duration of calls, under any load.
    lately: Cell<u64>,
    /// The number of allowed concurrent calls.
    calls: Cell<usize>,
    /// The instant at which a call was last answered in time.
    answered: Cell<Option<Instant>>,
    /// The instant since which no call was answered in time, though some were made.
    late: Cell<Option<Instant>>,
    /// The last loss of a connection, and the number of consecutive losses without an answer in between.
    lost: Cell<(Option<Instant>, u8)>,
}

/// A pending call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallStart {
    at: Instant,
    /// Was hardly any other call pending?
    quiet: bool,
}

impl CallWindow {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            trip: Cell::new(None),
            least: Cell::new((u64::MAX, 0)),
            lately: Cell::new(0),
            calls: Cell::new(NEAR),
            answered: Cell::new(None),
            late: Cell::new(None),
            lost: Cell::default(),
        }
    }

    /// The number of allowed concurrent calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.get()
    }

    /// Notes that a call is made now, as one of this number of pending calls.
    pub(crate) fn send(&self, under_way: usize) -> CallStart {
        CallStart {
            at: clock::now(),
            quiet: under_way <= NEAR,
        }
    }

    /// Notes that the call was answered.
    pub(crate) fn answer(&self, sent: CallStart) {
        let now = clock::now();
        let took = now - sent.at;
        if took <= self.timeout {
            self.answered.set(Some(now));
            self.late.set(None);
            self.lost.set((None, 0));
        }
        self.learn(clock::micros(took), sent.quiet);
    }

    /// Notes that the call was not answered in time.
    pub(crate) fn misses(&self) {
        if self.late.get().is_none() {
            self.late.set(Some(clock::now()));
        }
    }

    /// Notes that the call was lost with its connection. Returns whether connections are lost as soon as they are used.
    /// Of calls that were pending together, one counts.
    pub(crate) fn loses(&self, sent: CallStart) -> bool {
        let (last, many) = self.lost.get();
        if last.is_some_and(|last| sent.at < last) {
            return false;
        }
        self.lost.set((Some(clock::now()), many.saturating_add(1)));
        many >= MOST_LOST
    }

    /// Has the server answered any call in time since this one was sent?
    pub(crate) fn lives_since(&self, sent: CallStart) -> bool {
        self.answered.get().is_some_and(|last| last >= sent.at)
    }

    /// Is the server available, but without an answer in time for so long that it is useless?
    pub(crate) fn is_too_slow(&self) -> bool {
        let late = self.late.get();
        late.is_some_and(|since| clock::now() - since >= self.timeout.max(HELD_UP) * 2)
    }

    /// The longest wait of a decision before it is sent: the remaining time must be enough for an answer.
    pub(super) fn longest_wait(&self) -> Duration {
        let trip = self.trip().mul_f64(1.25).min(self.timeout / 10 * 9);
        self.timeout - trip.max(self.timeout / 4)
    }

    /// The instant until which the server counts as available without an answer to this call: a whole `timeout` from
    /// its sending, however long its decisions had waited in this process. The time is longer if an answer takes most
    /// of the `timeout`, or if an ordinary delay takes longer than the `timeout`.
    pub(crate) fn patience(&self, sent: CallStart) -> Instant {
        let late_after = (self.trip() * 3 / 2).min(self.timeout * 2);
        sent.at + late_after.max(self.timeout).max(HELD_UP)
    }

    fn trip(&self) -> Duration {
        Duration::from_micros(self.trip.get().unwrap_or_default())
    }

    fn learn(&self, took: u64, quiet: bool) {
        let trip = self.trip.get().unwrap_or(u64::MAX);
        let (least, seen) = self.least.get();
        if took < trip {
            self.trip.set(Some(took));
            self.least.set((u64::MAX, 0));
        } else if quiet && seen + 1 == SAMPLES {
            self.trip.set(Some(least.min(took)));
            self.least.set((u64::MAX, 0));
        } else if quiet {
            self.least.set((least.min(took), seen + 1));
        }
        let lately = match self.lately.get() {
            0 => took,
            before => before - before / 8 + took / 8,
        };
        self.lately.set(lately);
        self.calls
            .set(allowed(self.trip.get().unwrap_or_default(), lately));
    }
}

/// The number of allowed concurrent calls over a round trip of `trip`, if calls take `lately`. It is the full number
/// for the trip while calls take at most twice as long, and the number for a near server from four times on.
fn allowed(trip: u64, lately: u64) -> usize {
    let room = usize::try_from(trip / PER_CALL).unwrap_or(MOST_CALLS);
    if room < 2 {
        return NEAR;
    }
    let more = (room + 1).min(MOST_CALLS) - NEAR;
    let spare = (trip * 4).saturating_sub(lately).min(trip * 2);
    let share = spare as f64 / (trip * 2) as f64;
    NEAR + (more as f64 * share) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_near_has_two_calls_under_way() {
        for (trip, lately) in [(0, 0), (80, 90), (300, 4_000), (1_999, 2_000)] {
            assert_eq!(allowed(trip, lately), NEAR, "{trip} {lately}");
        }
    }

    #[test]
    fn one_that_is_far_has_more_but_never_beyond_the_bound() {
        assert_eq!(allowed(5_000, 5_000), 6);
        assert_eq!(allowed(10_000, 20_000), 11);
        assert_eq!(allowed(60_000, 80_000), MOST_CALLS);
        assert_eq!(allowed(60_000_000, 60_000_000), MOST_CALLS);
    }

    #[test]
    fn one_that_is_slow_because_it_is_asked_too_much_is_asked_less() {
        assert_eq!(allowed(10_000, 30_000), 6);
        assert_eq!(allowed(10_000, 40_000), NEAR);
        assert_eq!(allowed(10_000, 400_000), NEAR);
    }

    #[test]
    fn a_longer_round_trip_is_believed_after_some_calls_and_a_shorter_one_at_once() {
        let pace = CallWindow::new(Duration::from_millis(250));
        pace.learn(200, true);
        for _ in 1..SAMPLES {
            pace.learn(60_000, true);
            assert_eq!(pace.calls(), NEAR);
        }
        // A call sent in parallel to many others is no evidence about the distance.
        pace.learn(90_000, false);
        pace.learn(60_000, true);
        assert_eq!(pace.trip(), Duration::from_millis(60));
        assert_eq!(pace.calls(), MOST_CALLS);
        pace.learn(200, false);
        assert_eq!(pace.calls(), NEAR);
    }

    #[test]
    fn a_server_that_breaks_each_connection_is_away() {
        let pace = CallWindow::new(Duration::from_millis(100));
        let together: Vec<CallStart> = (0..8).map(|_| pace.send(1)).collect();
        assert!(together.iter().all(|sent| !pace.loses(*sent)));
        for _ in 1..MOST_LOST {
            assert!(!pace.loses(pace.send(1)));
        }
        assert!(pace.loses(pace.send(1)));
        pace.answer(pace.send(1));
        assert!(!pace.loses(pace.send(1)));
    }

    #[test]
    fn a_short_timeout_makes_no_outage_of_a_hold_up() {
        let (short, long) = [10, 80]
            .map(|millis| CallWindow::new(Duration::from_millis(millis)))
            .into();
        let after = |pace: &CallWindow| {
            let sent = pace.send(1);
            pace.patience(sent) - sent.at
        };
        assert_eq!(after(&short), HELD_UP);
        assert_eq!(after(&long), Duration::from_millis(80));
    }

    #[test]
    fn what_has_waited_is_sent_while_an_answer_can_come_in_time() {
        let pace = CallWindow::new(Duration::from_millis(100));
        assert_eq!(pace.longest_wait(), Duration::from_millis(75));
        pace.learn(60_000, true);
        assert_eq!(pace.longest_wait(), Duration::from_millis(25));
        // For any distance of the server, a new decision is sent: otherwise the distance could never be learned again.
        pace.learn(50_000, true);
        let distant = CallWindow::new(Duration::from_millis(100));
        distant.learn(2_000_000, true);
        assert_eq!(distant.longest_wait(), Duration::from_millis(10));
    }
}
