//! The bound on a peer's slowness: a minimum rate and a longest silence, both counted only while the peer alone causes
//! a wait.
//!
//! The time in which a server, a limit or the gateway delays the peer does not count, so that a slow server is never
//! counted against a client. The waiting time is divided into parts. The latest parts, which add up to the idle time,
//! must have enough bytes.

use crate::clock;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The number of parts of the idle time: a peer that has just become slow is detected at most one part later.
const PARTS: usize = 8;

/// The way in which a peer is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// The peer has been silent for too long.
    Silent,
    /// The peer has transferred too few bytes.
    Slow,
}

/// The requirements for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateBound {
    /// Longest time without a byte.
    pub idle: Duration,
    /// The least bytes in the idle time; 0 sets no bound.
    pub least: u64,
}

impl RateBound {
    /// `rate` bytes a second, over `idle`.
    #[must_use]
    pub fn new(idle: Duration, rate: u64) -> Self {
        let least = u128::from(rate) * idle.as_millis() / 1000;
        Self {
            idle,
            least: u64::try_from(least).unwrap_or(u64::MAX),
        }
    }

    /// The same rate for another idle time.
    #[must_use]
    pub fn over(self, idle: Duration) -> Self {
        let least = u128::from(self.least) * idle.as_micros() / self.idle.as_micros().max(1);
        Self {
            idle,
            least: u64::try_from(least).unwrap_or(u64::MAX),
        }
    }

    /// The same bound without a rate, for a stream that may be silent for long.
    #[must_use]
    pub fn idle_alone(self) -> Self {
        Self { least: 0, ..self }
    }
}

/// The rate of one peer, in one direction.
#[derive(Debug)]
pub struct RateMeter {
    bound: RateBound,
    /// Bytes in the present part of the waiting time, and in the parts before it.
    parts: [u64; PARTS],
    present: usize,
    /// The number of complete parts.
    over: usize,
    /// Time waited in the present part.
    waited: Duration,
    wait: Option<WaitSpan>,
    /// The latest parts had too few bytes.
    slow: bool,
}

/// A wait for the peer.
#[derive(Debug, Clone, Copy)]
struct WaitSpan {
    /// The start of the wait, or the time of its last byte.
    silent: Instant,
    /// The time up to which the wait is added to the parts.
    counted: Instant,
}

impl RateMeter {
    /// A meter without bytes, while the peer is not waited for.
    #[must_use]
    pub fn new(bound: RateBound) -> Self {
        Self {
            bound,
            parts: [0; PARTS],
            present: 0,
            over: 0,
            waited: Duration::ZERO,
            wait: None,
            slow: false,
        }
    }

    /// Sets the bound from now on.
    pub fn bind(&mut self, bound: RateBound) {
        if self.bound != bound {
            self.bound = bound;
            self.slow = false;
        }
    }

    /// The bound on the peer.
    #[must_use]
    pub fn bound(&self) -> RateBound {
        self.bound
    }

    /// Notes that a wait for the peer begins at `now`, unless a wait has already begun.
    pub fn begin_wait(&mut self, now: Instant) {
        self.wait.get_or_insert(WaitSpan {
            silent: now,
            counted: now,
        });
    }

    /// Is the peer waited for?
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Notes bytes that arrived without a wait.
    pub fn received(&mut self, bytes: u64) {
        self.parts[self.present] += bytes;
    }

    /// Notes bytes that have arrived while more bytes are waited for.
    pub fn received_at(&mut self, now: Instant, bytes: u64) {
        self.received(bytes);
        self.count(now);
        if let Some(wait) = &mut self.wait {
            wait.silent = now;
        }
    }

    /// Notes that the peer is no longer waited for.
    pub fn end_wait(&mut self, now: Instant) {
        self.count(now);
        self.wait = None;
    }

    /// Notes that the peer could neither send nor take bytes until `now`.
    pub fn excuse(&mut self, now: Instant) {
        if let Some(wait) = &mut self.wait {
            *wait = WaitSpan {
                silent: now,
                counted: now,
            };
        }
    }

    /// The time since which no byte has arrived, during a wait for the peer.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        self.wait.map(|wait| wait.silent)
    }

    /// The time of the next check; `None` while the peer is not waited for.
    #[must_use]
    pub fn next_check(&self) -> Option<Instant> {
        let wait = self.wait?;
        let idle = wait.silent + self.bound.idle;
        if self.slow {
            return Some(wait.counted);
        }
        if self.bound.least == 0 {
            return Some(idle);
        }
        let part = wait.counted + self.part().saturating_sub(self.waited);
        Some(idle.min(part))
    }

    /// Has the peer been silent for too long, or transferred too few bytes?
    pub fn is_late(&mut self, now: Instant) -> bool {
        self.count(now);
        self.wait
            .is_some_and(|wait| self.slow || now >= wait.silent + self.bound.idle)
    }

    /// The way in which a late peer is late. A peer that stops sending has too few bytes for some time before its
    /// silence is too long.
    #[cold]
    #[must_use]
    pub fn lateness(&self, now: Instant) -> Lateness {
        let silent = self
            .wait
            .is_none_or(|wait| now + self.part() >= wait.silent + self.bound.idle || !self.slow);
        if silent {
            Lateness::Silent
        } else {
            Lateness::Slow
        }
    }

    fn part(&self) -> Duration {
        self.bound.idle / PARTS as u32
    }

    /// Adds the time waited to the parts.
    fn count(&mut self, now: Instant) {
        let Some(wait) = &mut self.wait else {
            return;
        };
        if now <= wait.counted {
            return;
        }
        let new = now - wait.counted;
        wait.counted = now;
        if self.bound.least == 0 {
            return;
        }
        // A longer wait is too long in any case.
        let mut left = new.min(self.bound.idle * 2);
        let part = self.part().max(Duration::from_micros(1));
        while left >= part.saturating_sub(self.waited) {
            left -= part.saturating_sub(self.waited);
            self.waited = Duration::ZERO;
            self.end_part();
        }
        self.waited += left;
    }

    fn end_part(&mut self) {
        self.over = PARTS.min(self.over + 1);
        let sum = self.parts.into_iter().fold(0, u64::saturating_add);
        self.slow = self.over == PARTS && sum < self.bound.least;
        self.present = (self.present + 1) % PARTS;
        self.parts[self.present] = 0;
    }
}

/// A [`RateMeter`] with its own timer, which is created when the peer is first waited for, and moved when it fires.
#[derive(Debug)]
pub struct RateTimer {
    meter: RateMeter,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RateTimer {
    /// A timer without bytes, while the peer is not waited for.
    #[must_use]
    pub fn new(bound: RateBound) -> Self {
        Self {
            meter: RateMeter::new(bound),
            timer: None,
        }
    }

    /// Sets the bound from now on.
    pub fn bind(&mut self, bound: RateBound) {
        self.meter.bind(bound);
    }

    /// Notes bytes, which end a wait.
    pub fn received(&mut self, bytes: u64) {
        self.meter.received(bytes);
        if self.meter.is_waiting() {
            self.meter.end_wait(clock::now());
        }
    }

    /// Waits for the peer; ready when it is time to check whether the peer is late ([`Self::is_late`]).
    pub fn poll_check(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.meter.is_waiting() {
            self.meter.begin_wait(clock::now());
        }
        // A timer that was set for an earlier wait fires too early, never too late.
        while let Some(next) = self.meter.next_check() {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(next)));
            ready!(timer.as_mut().poll(cx));
            if next <= clock::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(next);
        }
        Poll::Pending
    }

    /// Is the peer late?
    pub fn is_late(&mut self) -> bool {
        self.meter.is_late(clock::now())
    }

    /// The way in which a late peer is late.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        self.meter.lateness(clock::now())
    }

    /// Waits for the peer; ready when the peer has been silent for too long, or transferred too few bytes.
    pub fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.poll_check(cx));
            if self.is_late() {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Duration = Duration::from_secs(60);
    const ALLOWED: RateBound = RateBound {
        idle: IDLE,
        least: 15_360,
    };

    /// The time after which a peer is late that is always waited for, and sends `bytes` at each interval of `every`.
    fn late_after(bound: RateBound, every: Duration, bytes: u64) -> Option<Duration> {
        let start = Instant::now();
        let mut meter = RateMeter::new(bound);
        meter.begin_wait(start);
        let (mut now, mut sends) = (start, start + every);
        while now < start + IDLE * 10 {
            let look = meter.next_check().unwrap();
            if look < sends {
                now = look;
                if meter.is_late(now) {
                    return Some(now - start);
                }
            } else {
                now = sends;
                meter.received_at(now, bytes);
                sends += every;
            }
        }
        None
    }

    #[test]
    fn another_time_keeps_the_rate() {
        assert_eq!(ALLOWED.over(IDLE * 10), RateBound::new(IDLE * 10, 256));
        assert_eq!(ALLOWED.over(IDLE / 4), RateBound::new(IDLE / 4, 256));
        assert_eq!(ALLOWED.idle_alone().over(IDLE * 10).least, 0);
    }

    #[test]
    fn a_silent_peer_is_late_after_the_idle_time() {
        let never = IDLE * 20;
        assert_eq!(late_after(ALLOWED, never, 0), Some(IDLE));
        assert_eq!(late_after(ALLOWED.idle_alone(), never, 0), Some(IDLE));
    }

    #[test]
    fn a_peer_that_drips_is_late_and_one_that_keeps_the_rate_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(RateBound::new(IDLE, 256), ALLOWED);
        for bytes in [1, 100, 255] {
            assert_eq!(late_after(ALLOWED, second, bytes), Some(IDLE), "{bytes}");
        }
        for bytes in [257, 10_000] {
            assert_eq!(late_after(ALLOWED, second, bytes), None, "{bytes}");
        }
        assert_eq!(late_after(ALLOWED.idle_alone(), second, 1), None);
        // All bytes come at once, in time.
        assert_eq!(late_after(ALLOWED, second * 59, 15_361), None);
    }

    #[test]
    fn silence_and_slowness_are_told_apart() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        for (every, expected) in [(1, Lateness::Slow), (1000, Lateness::Silent)] {
            let mut meter = RateMeter::new(ALLOWED);
            meter.begin_wait(start);
            meter.received_at(start + second, 20_000);
            let mut at = 1;
            while !meter.is_late(start + second * at) {
                at += 1;
                if at % every == 0 {
                    meter.received_at(start + second * at, 1);
                }
            }
            assert_eq!(meter.lateness(start + second * at), expected);
        }
    }

    #[test]
    fn a_peer_that_becomes_lazy_is_late_a_part_of_the_idle_time_later_at_most() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        for busy in 0..30 {
            let mut meter = RateMeter::new(ALLOWED);
            meter.begin_wait(start);
            for at in 0..busy {
                meter.received_at(start + second * at, 1_000_000);
            }
            let (lazy, mut late) = (start + second * busy, None);
            for at in busy..200 {
                let now = start + second * at;
                meter.received_at(now, 1);
                if late.is_none() && meter.is_late(now) {
                    late = Some(now - lazy);
                }
            }
            let late = late.unwrap();
            assert!(
                late >= IDLE - second && late <= IDLE + IDLE / 8 + second,
                "{late:?}"
            );
        }
    }

    #[test]
    fn time_in_which_the_peer_is_not_waited_for_does_not_count() {
        let start = Instant::now();
        let mut meter = RateMeter::new(ALLOWED);
        for turn in 0..100 {
            // One second of waiting transfers enough bytes for that second, and an hour of other work transfers none.
            let now = start + Duration::from_secs(3600) * turn;
            meter.begin_wait(now);
            meter.received_at(now + Duration::from_secs(1), 300);
            assert!(!meter.is_late(now + Duration::from_secs(1)));
            meter.end_wait(now + Duration::from_secs(1));
            assert_eq!(meter.next_check(), None);
        }
        let mut meter = RateMeter::new(ALLOWED);
        meter.begin_wait(start + Duration::from_secs(400_000));
        meter.excuse(start + Duration::from_secs(500_000));
        assert!(!meter.is_late(start + Duration::from_secs(500_059)));
        assert!(meter.is_late(start + Duration::from_secs(500_060)));
    }

    proptest! {
        #[test]
        fn a_peer_that_keeps_the_rate_in_every_part_is_never_late(
            gaps in proptest::collection::vec((1u64..7_000, 0u64..100_000), 1..60),
        ) {
            let mut now = Instant::now();
            let mut meter = RateMeter::new(ALLOWED);
            for (wait, rest) in gaps {
                meter.begin_wait(now);
                now += Duration::from_millis(wait);
                // The meter is checked as often as it requires.
                meter.received_at(now, 4_000);
                prop_assert!(!meter.is_late(now));
                meter.end_wait(now);
                now += Duration::from_millis(rest);
            }
        }
    }
}
