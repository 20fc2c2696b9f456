//! How slow a peer may be: a least rate beside a longest silence, both counted only while the peer alone is waited for.
//!
//! Time in which a server, a limit or we ourselves keep it waiting is not in it, so that a slow server is never a client's
//! fault. What is waited is cut in parts, and the latest of them, which make one idle time, must have brought enough.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Parts of the idle time: one that has just become lazy is found out a part later at most.
const PARTS: usize = 8;

/// What is asked of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateBound {
    /// Longest without a byte.
    pub idle: Duration,
    /// Least bytes in that time; 0 asks for none.
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

    /// The same without a rate: for what may be silent by its nature.
    #[must_use]
    pub fn idle_alone(self) -> Self {
        Self { least: 0, ..self }
    }
}

/// What one peer has done so far, in one direction.
#[derive(Debug)]
pub struct RateMeter {
    allowed: RateBound,
    /// Bytes that came in the present part of what was waited, and in those before it.
    parts: [u64; PARTS],
    present: usize,
    /// Parts that are over.
    over: usize,
    /// Waited in the present part.
    waited: Duration,
    wait: Option<WaitSpan>,
    /// The latest parts brought too little.
    slow: bool,
}

/// The peer is waited for.
#[derive(Debug, Clone, Copy)]
struct WaitSpan {
    /// Since the wait began, or its last byte came.
    silent: Instant,
    /// What was waited before this is in the parts.
    counted: Instant,
}

impl RateMeter {
    /// Nothing has come, and nothing is waited for.
    #[must_use]
    pub fn new(allowed: RateBound) -> Self {
        Self {
            allowed,
            parts: [0; PARTS],
            present: 0,
            over: 0,
            waited: Duration::ZERO,
            wait: None,
            slow: false,
        }
    }

    /// No rate is asked for any more.
    pub fn idle_alone(&mut self) {
        self.allowed = self.allowed.idle_alone();
        self.slow = false;
    }

    /// The peer is waited for from now on, if it was not before.
    pub fn waits(&mut self, now: Instant) {
        self.wait.get_or_insert(WaitSpan {
            silent: now,
            counted: now,
        });
    }

    /// Is it waited for?
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Bytes have come that nobody waited for.
    pub fn comes(&mut self, bytes: u64) {
        self.parts[self.present] += bytes;
    }

    /// Bytes have come, and more are waited for.
    pub fn comes_at(&mut self, now: Instant, bytes: u64) {
        self.comes(bytes);
        self.count(now);
        if let Some(wait) = &mut self.wait {
            wait.silent = now;
        }
    }

    /// It is no longer waited for.
    pub fn rests(&mut self, now: Instant) {
        self.count(now);
        self.wait = None;
    }

    /// It could do nothing until now.
    pub fn excuse(&mut self, now: Instant) {
        if let Some(wait) = &mut self.wait {
            *wait = WaitSpan {
                silent: now,
                counted: now,
            };
        }
    }

    /// Since when there has been no byte, while it is waited for.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        self.wait.map(|wait| wait.silent)
    }

    /// When to look again; never while nothing is waited for.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let wait = self.wait?;
        let idle = wait.silent + self.allowed.idle;
        if self.slow {
            return Some(wait.counted);
        }
        if self.allowed.least == 0 {
            return Some(idle);
        }
        let part = wait.counted + self.part().saturating_sub(self.waited);
        Some(idle.min(part))
    }

    /// Has it been silent for too long, or brought too little?
    pub fn is_late(&mut self, now: Instant) -> bool {
        self.count(now);
        self.wait
            .is_some_and(|wait| self.slow || now >= wait.silent + self.allowed.idle)
    }

    fn part(&self) -> Duration {
        self.allowed.idle / PARTS as u32
    }

    /// Puts what was waited into the parts.
    fn count(&mut self, now: Instant) {
        let Some(wait) = &mut self.wait else {
            return;
        };
        let new = now.saturating_duration_since(wait.counted);
        wait.counted = wait.counted.max(now);
        if self.allowed.least == 0 {
            return;
        }
        // What is longer than that is too long anyway.
        let mut left = new.min(self.allowed.idle * 2);
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
        let sum = self
            .parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(*part));
        self.slow = self.over == PARTS && sum < self.allowed.least;
        self.present = (self.present + 1) % PARTS;
        self.parts[self.present] = 0;
    }
}

/// The same with a timer of its own, which is made when something is waited for, and moved when it fires.
#[derive(Debug)]
pub struct RateTimer {
    pace: RateMeter,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RateTimer {
    /// Nothing has come, and nothing is waited for.
    #[must_use]
    pub fn new(allowed: RateBound) -> Self {
        Self {
            pace: RateMeter::new(allowed),
            timer: None,
        }
    }

    /// No rate is asked for any more.
    pub fn idle_alone(&mut self) {
        self.pace.idle_alone();
    }

    /// Bytes have come, and with them the end of a wait.
    pub fn comes(&mut self, bytes: u64) {
        self.pace.comes(bytes);
        if self.pace.is_waiting() {
            self.pace.rests(Instant::now());
        }
    }

    /// The peer is waited for; ready when it is time to look whether it is late ([`Self::is_late`]).
    pub fn poll_check(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.pace.is_waiting() {
            self.pace.waits(Instant::now());
        }
        // A timer that was set for an earlier wait fires too early, never too late.
        while let Some(next) = self.pace.next() {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(next)));
            ready!(timer.as_mut().poll(cx));
            if next <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(next);
        }
        Poll::Pending
    }

    /// The look.
    pub fn is_late(&mut self) -> bool {
        self.pace.is_late(Instant::now())
    }

    /// The peer is waited for; ready when it has been silent for too long, or brought too little.
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

    /// When a peer is late that is waited for all the time, and sends `bytes` each `every`.
    fn late_after(allowed: RateBound, every: Duration, bytes: u64) -> Option<Duration> {
        let start = Instant::now();
        let mut pace = RateMeter::new(allowed);
        pace.waits(start);
        let (mut now, mut sends) = (start, start + every);
        while now < start + IDLE * 10 {
            let look = pace.next().unwrap();
            if look < sends {
                now = look;
                if pace.is_late(now) {
                    return Some(now - start);
                }
            } else {
                now = sends;
                pace.comes_at(now, bytes);
                sends += every;
            }
        }
        None
    }

    #[test]
    fn who_is_silent_is_late_after_the_idle_time() {
        let never = IDLE * 20;
        assert_eq!(late_after(ALLOWED, never, 0), Some(IDLE));
        assert_eq!(late_after(ALLOWED.idle_alone(), never, 0), Some(IDLE));
    }

    #[test]
    fn who_drips_is_late_as_well_and_who_keeps_the_rate_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(RateBound::new(IDLE, 256), ALLOWED);
        for bytes in [1, 100, 255] {
            assert_eq!(late_after(ALLOWED, second, bytes), Some(IDLE), "{bytes}");
        }
        for bytes in [257, 10_000] {
            assert_eq!(late_after(ALLOWED, second, bytes), None, "{bytes}");
        }
        assert_eq!(late_after(ALLOWED.idle_alone(), second, 1), None);
        // All at once, in time.
        assert_eq!(late_after(ALLOWED, second * 59, 15_361), None);
    }

    #[test]
    fn who_becomes_lazy_is_late_a_part_of_the_idle_time_later_at_most() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        for busy in 0..30 {
            let mut pace = RateMeter::new(ALLOWED);
            pace.waits(start);
            for at in 0..busy {
                pace.comes_at(start + second * at, 1_000_000);
            }
            let (lazy, mut late) = (start + second * busy, None);
            for at in busy..200 {
                let now = start + second * at;
                pace.comes_at(now, 1);
                if late.is_none() && pace.is_late(now) {
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
    fn what_others_take_is_not_counted() {
        let start = Instant::now();
        let mut pace = RateMeter::new(ALLOWED);
        for turn in 0..100 {
            // A second of waiting brings enough for it, and an hour of something else nothing.
            let now = start + Duration::from_secs(3600) * turn;
            pace.waits(now);
            pace.comes_at(now + Duration::from_secs(1), 300);
            assert!(!pace.is_late(now + Duration::from_secs(1)));
            pace.rests(now + Duration::from_secs(1));
            assert_eq!(pace.next(), None);
        }
        let mut pace = RateMeter::new(ALLOWED);
        pace.waits(start + Duration::from_secs(400_000));
        pace.excuse(start + Duration::from_secs(500_000));
        assert!(!pace.is_late(start + Duration::from_secs(500_059)));
        assert!(pace.is_late(start + Duration::from_secs(500_060)));
    }

    proptest! {
        #[test]
        fn nobody_who_keeps_the_rate_in_every_part_is_late(
            gaps in proptest::collection::vec((1u64..7_000, 0u64..100_000), 1..60),
        ) {
            let mut now = Instant::now();
            let mut pace = RateMeter::new(ALLOWED);
            for (wait, rest) in gaps {
                pace.waits(now);
                now += Duration::from_millis(wait);
                // Looked at as often as it asks to be.
                pace.comes_at(now, 4_000);
                prop_assert!(!pace.is_late(now));
                pace.rests(now);
                now += Duration::from_millis(rest);
            }
        }
    }
}
