//! Time as a parameter: whole microseconds since the Unix epoch, from the system or from a test.
#![expect(
    clippy::disallowed_methods,
    reason = "the clocks are read here, and handed on"
)]

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant: whole microseconds since the Unix epoch. Below 2^53 until the year 2255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant `micros` microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The whole seconds since the epoch, the unit of times in certificates.
    #[must_use]
    pub fn seconds(self) -> i64 {
        i64::try_from(self.0 / 1_000_000).unwrap_or(i64::MAX)
    }

    /// The instant `micros` microseconds later.
    #[must_use]
    pub const fn plus(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The microseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A time in whole microseconds, the unit of counters, metrics and logs. Longer times than `u64` has are cut to it.
#[inline]
#[must_use]
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The current time of the monotonic clock, which measures deadlines and waits.
#[must_use]
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The wall clock of this machine, for text that people read, and for windows that begin at clock times. No other
/// counting uses it.
#[must_use]
pub fn wall() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Timestamp(micros(since))
}

/// The time for which the wall clock is assumed to advance with the monotonic one, without a new reading.
const AGREEMENT: Duration = Duration::from_secs(1);

thread_local! {
    /// Both clocks at one moment.
    static BOTH: Cell<Option<(tokio::time::Instant, Timestamp)>> = const { Cell::new(None) };
}

/// The wall clock at `now`, a recent reading of the monotonic clock. A thread reads the wall clock about once a second,
/// and advances it with the monotonic clock in between, so that one reading gives both times. A step of the wall clock
/// appears within a second.
#[must_use]
pub fn wall_at(now: tokio::time::Instant) -> Timestamp {
    if let Some((then, wall)) = BOTH.get()
        && let Some(since) = now.checked_duration_since(then)
        && since < AGREEMENT
    {
        // Less than a second.
        return wall.plus(u64::from(since.subsec_micros()));
    }
    read_both(now)
}

#[cold]
#[inline(never)]
fn read_both(now: tokio::time::Instant) -> Timestamp {
    let (then, wall) = (self::now(), wall());
    BOTH.set(Some((then, wall)));
    let passed = micros(then.saturating_duration_since(now));
    Timestamp(wall.0.saturating_sub(passed))
}

/// Microseconds since the first call in this process, and never 0.
#[must_use]
pub fn uptime() -> u64 {
    static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();
    let micros = ORIGIN.get_or_init(now).elapsed().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX >> 1) + 1
}

/// The clock of the counters in this process.
///
/// The system clock is read once and then advances with the monotonic clock, so that a step of the wall clock neither
/// refills nor locks a bucket. Windows by the clock and the calendar use [`Clock::wall`].
#[derive(Debug, Clone)]
pub enum Clock {
    /// Wall time at start, plus monotonic time since.
    System {
        /// Monotonic instant at which the clock was created.
        origin: Instant,
        /// Wall time at that instant.
        start: Timestamp,
    },
    /// A clock that is moved by hand: for tests and simulations.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The clock of a running gateway.
    #[must_use]
    pub fn system() -> Self {
        Self::System {
            origin: Instant::now(),
            start: wall(),
        }
    }

    /// A clock that stands still until [`Clock::set`].
    #[must_use]
    pub fn manual(at: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicU64::new(at.0)))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { origin, start } => start.plus(micros(origin.elapsed())),
            Self::Manual(clock) => Timestamp(clock.load(Ordering::Relaxed)),
        }
    }

    /// The current time by the wall clock, which people set: for windows that begin at clock times. It may step in
    /// either direction.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        match self {
            Self::System { .. } => wall(),
            Self::Manual(_) => self.now(),
        }
    }

    /// Moves a manual clock, in either direction; a system clock does not change.
    pub fn set(&self, to: Timestamp) {
        if let Self::Manual(clock) = self {
            clock.store(to.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree_whichever_was_read_first() {
        let early = now();
        std::thread::sleep(Duration::from_millis(20));
        let late = now();
        // The wall clock is read at the first call, for an instant in the past.
        let (early, late) = (wall_at(early), wall_at(late));
        assert!((20_000..1_000_000).contains(&late.since(early)));
        assert!(wall().since(late) < 1_000_000);
    }
}
