//! Time, handed in: whole microseconds since the Unix epoch, from the system or from a test.
#![expect(
    clippy::disallowed_methods,
    reason = "the clocks are read here, and handed on"
)]

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

/// The present of the monotonic clock, which measures deadlines and waits.
#[must_use]
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The wall clock of this machine, for text that people read and never for counting.
#[must_use]
pub fn wall() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
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
/// The system clock is read once and then only runs forward with the monotonic clock, so that a step of the
/// wall clock neither refills nor locks a bucket.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Wall time at start, plus monotonic time since.
    System {
        /// Monotonic instant at which the clock was made.
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

    /// The present.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { origin, start } => {
                start.plus(u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX))
            }
            Self::Manual(at) => Timestamp(at.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock, in either direction; a system clock does not move by hand.
    pub fn set(&self, to: Timestamp) {
        if let Self::Manual(at) = self {
            at.store(to.0, Ordering::Relaxed);
        }
    }
}
