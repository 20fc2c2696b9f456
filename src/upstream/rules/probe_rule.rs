//! The probes of a server, and the evaluation of their results.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The probes of an upstream's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRule {
    /// The request.
    pub ask: ProbeQuestion,
    /// The time between two probes of a server, varied by up to a tenth.
    pub interval: Duration,
    /// The longest time of a probe.
    pub timeout: Duration,
    /// Consecutive failed probes after which a server gets no requests; above zero.
    pub fall: u32,
    /// Consecutive good probes after which it gets them again; above zero.
    pub rise: u32,
}

/// A probe's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeQuestion {
    /// `GET` of a path; a status in one of these ranges is good.
    Http {
        /// The path, with its query.
        path: Arc<str>,
        /// The host of the request; `None` means the server's own.
        host: Option<Arc<str>>,
        /// The good statuses.
        status: Vec<RangeInclusive<u16>>,
    },
    /// `Check` of `grpc.health.v1` for a service; SERVING alone is good.
    Grpc {
        /// The service; empty for the server as a whole.
        service: Arc<str>,
    },
    /// A connection that the server accepts, TLS included, is good.
    Connect,
}

impl ProbeRule {
    /// The longest time from a server's end until it gets no more requests.
    #[must_use]
    pub fn leaves_within(&self) -> Duration {
        self.interval.saturating_mul(self.fall) + self.timeout
    }
}

/// The probes of one server so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeCount {
    /// Consecutive failed probes.
    bad: u32,
    /// Consecutive good probes.
    good: u32,
    /// The server gets no requests.
    is_down: bool,
    /// The server has been probed before.
    is_known: bool,
}

/// The change that a probe causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeChange {
    /// The server gets no more requests.
    Falls,
    /// The server gets requests again.
    Rises,
    /// The consecutive good probes suffice to end an ejection.
    Steady,
}

impl ProbeCount {
    /// Notes a probe. A server's first probe, if it fails, counts as `fall` failures: a server that is not running yet
    /// gets few requests.
    pub fn note(&mut self, rule: &ProbeRule, is_good: bool) -> Option<ProbeChange> {
        let is_first = !std::mem::replace(&mut self.is_known, true);
        if is_good {
            self.bad = 0;
            self.good = self.good.saturating_add(1);
            if self.good < rule.rise {
                return None;
            }
            let was_down = std::mem::take(&mut self.is_down);
            return Some(if was_down {
                ProbeChange::Rises
            } else {
                ProbeChange::Steady
            });
        }
        self.good = 0;
        self.bad = self.bad.saturating_add(1);
        if is_first {
            self.bad = self.bad.max(rule.fall);
        }
        let falls = self.bad >= rule.fall && !self.is_down;
        self.is_down |= falls;
        falls.then_some(ProbeChange::Falls)
    }

    /// Is the server to get no requests?
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// Counts good probes from zero, since the server has been ejected.
    pub fn restart(&mut self) {
        self.good = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(fall: u32, rise: u32) -> ProbeRule {
        ProbeRule {
            ask: ProbeQuestion::Connect,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            fall,
            rise,
        }
    }

    proptest! {
        #[test]
        fn it_falls_and_rises_by_probes_in_a_row(probes in prop::collection::vec(any::<bool>(), 1..60), fall in 1_u32..5, rise in 1_u32..5) {
            let rule = rule(fall, rise);
            let mut count = ProbeCount::default();
            for end in 1..=probes.len() {
                let before = count.is_down();
                let change = count.note(&rule, probes[end - 1]);
                let row = |good: bool| probes[..end].iter().rev().take_while(|probe| **probe == good).count();
                let is_first_bad = end == 1 && !probes[0];
                let falls = !before && (row(false) >= fall as usize || is_first_bad);
                let rises = before && row(true) >= rise as usize;
                prop_assert_eq!(change == Some(ProbeChange::Falls), falls);
                prop_assert_eq!(change == Some(ProbeChange::Rises), rises);
                prop_assert_eq!(count.is_down(), (before || falls) && !rises);
            }
        }
    }

    #[test]
    fn a_server_leaves_within_the_failed_probes_and_one_timeout() {
        assert_eq!(rule(3, 2).leaves_within(), Duration::from_secs(17));
    }
}
