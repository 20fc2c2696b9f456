//! The health of one server in this process: by requests, by probes, and the time of its return.

use crate::clock;
use crate::upstream::rules::ejection::EjectionState;
use crate::upstream::rules::probe_rule::{ProbeChange, ProbeCount, ProbeRule};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The least share of a returning server, in thousandths of its whole share.
const LEAST: u64 = 100;

/// The health of one server. Times are microseconds of this process.
#[derive(Debug, Default)]
pub struct ServerHealth {
    /// The results of requests.
    pub ejection: EjectionState,
    /// The results of probes. Only the prober locks it.
    probes: Mutex<ProbeCount>,
    is_down: AtomicBool,
    /// The time of its last return; 0 if it has never been unavailable.
    returned: AtomicU64,
    /// Ejections that have not been counted yet.
    ejections: AtomicU64,
}

/// The state of a server as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthWord {
    /// It gets requests.
    Up,
    /// It gets no requests, since it has failed probes.
    Down,
    /// It gets no requests for some time, since it has failed requests.
    Ejected,
}

impl HealthWord {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Ejected => "ejected",
        }
    }

    /// The number in the metrics.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Up => 1,
            Self::Down => 0,
            Self::Ejected => -1,
        }
    }
}

impl ServerHealth {
    /// Does its health allow the server to get requests?
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.word() == HealthWord::Up
    }

    /// The state as a word.
    #[must_use]
    pub fn word(&self) -> HealthWord {
        if self.is_down.load(Ordering::Relaxed) {
            HealthWord::Down
        } else if self.ejection.is_ejected() {
            HealthWord::Ejected
        } else {
            HealthWord::Up
        }
    }

    /// Notes a probe.
    pub fn probed(&self, rule: &ProbeRule, is_good: bool) -> Option<ProbeChange> {
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        let change = probes.note(rule, is_good);
        self.is_down.store(probes.is_down(), Ordering::Relaxed);
        change
    }

    /// Notes that the server is no longer probed: earlier results are dropped.
    pub fn unprobed(&self) -> bool {
        *self.probes.lock().unwrap_or_else(PoisonError::into_inner) = ProbeCount::default();
        self.is_down.swap(false, Ordering::Relaxed)
    }

    /// Notes that the server was ejected: good probes are counted from zero.
    pub fn ejected(&self) {
        self.ejections.fetch_add(1, Ordering::Relaxed);
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.restart();
    }

    /// Returns the ejections since the last call, to be counted.
    pub fn take_ejections(&self) -> u64 {
        self.ejections.swap(0, Ordering::Relaxed)
    }

    /// Notes that the server gets requests again.
    pub fn is_back(&self, now: u64) {
        self.returned.store(now.max(1), Ordering::Relaxed);
    }

    /// The part of its share that the server gets at `now`, in thousandths: it grows from a tenth to the whole within
    /// `ramp` after its return. `None` if it has its whole share.
    #[must_use]
    pub fn ramped(&self, ramp: Duration, now: u64) -> Option<u64> {
        let returned = self.returned.load(Ordering::Relaxed);
        let ramp = clock::micros(ramp).max(1);
        let since = now.saturating_sub(returned);
        if returned == 0 || since >= ramp {
            return None;
        }
        let grown = u128::from(since) * 1_000 / u128::from(ramp);
        Some(u64::try_from(grown).unwrap_or(1_000).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_from_a_tenth_to_the_whole() {
        let health = ServerHealth::default();
        let ramp = Duration::from_secs(10);
        assert_eq!(health.ramped(ramp, 5_000_000), None, "it was never away");
        health.is_back(1_000_000);
        for (seconds, share) in [
            (1, Some(100)),
            (2, Some(100)),
            (6, Some(500)),
            (10, Some(900)),
            (11, None),
        ] {
            assert_eq!(health.ramped(ramp, seconds * 1_000_000), share, "{seconds}");
        }
    }
}
