//! The reachability of a server, shared by all workers of this process: one line in the log when the server accepts no
//! connections any more, and one when it accepts them again; one a minute for each cause of an invalid answer.

use super::fault::{FaultCause, UpstreamFault};
use crate::clock;
use crate::telemetry::log::Throttles;
use crate::upstream::{ConnectError, Destination};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The time without a failure, in microseconds, after which a server is logged as back. Without this time a server that
/// accepts every second connection would fill the log.
const STEADY: u64 = 1_000_000;
/// The time between two log lines about one server and one cause.
const FAULTS: Duration = Duration::from_secs(60);

/// Every server with a pool. Read when a pool is created, never by a request.
static SERVERS: Mutex<BTreeMap<String, Weak<Reachability>>> = Mutex::new(BTreeMap::new());

/// The failures of one server. Times are microseconds of this process, 0 means never.
#[derive(Debug)]
pub(in crate::upstream) struct Reachability {
    /// The time since which the server accepts no connections; 0 while it accepts them.
    lost: AtomicU64,
    /// The time of the last failed connection.
    failed: AtomicU64,
    /// The time of the first connection after that failure.
    taken: AtomicU64,
    /// Throttles of the log lines about its faults, one for each cause.
    faults: Throttles<{ FaultCause::COUNT }>,
}

impl Default for Reachability {
    fn default() -> Self {
        Self {
            lost: AtomicU64::default(),
            failed: AtomicU64::default(),
            taken: AtomicU64::default(),
            faults: Throttles::every(FAULTS),
        }
    }
}

impl Reachability {
    /// The reachability of `server`, shared by all pools of this process.
    pub(in crate::upstream) fn of(server: &Destination) -> Arc<Self> {
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers without a pool remain from an earlier file.
        servers.retain(|_, reach| reach.strong_count() > 0);
        let shared = servers.entry(server.to_string()).or_default();
        shared.upgrade().unwrap_or_else(|| {
            let reach = Arc::default();
            *shared = Arc::downgrade(&reach);
            reach
        })
    }

    /// Notes that the server accepted no connection, and logs the first time.
    pub(in crate::upstream) fn connect_failed(&self, error: &ConnectError) {
        if self.fail_at(clock::uptime()) {
            tracing::warn!("{}", error.in_full());
        }
    }

    /// Notes that `server` has given no valid answer, and logs one message a minute for each cause.
    #[cold]
    pub(in crate::upstream) fn faulted(&self, server: &Destination, fault: &UpstreamFault<'_>) {
        let Some(cause) = fault.cause else { return };
        let Some(more) = self.faults.pass(cause as usize) else {
            return;
        };
        tracing::warn!("no valid answer from {server}: {fault}{more}");
    }

    /// Notes that the server accepted a connection.
    pub(in crate::upstream) fn connected(&self) {
        if self.lost.load(Ordering::Relaxed) != 0 {
            self.taken.store(clock::uptime(), Ordering::Relaxed);
        }
    }

    /// Logs that `server` is back, if it is. Called occasionally.
    pub(in crate::upstream) fn log_return(&self, server: &Destination) {
        if let Some(lost) = self.return_at(clock::uptime()) {
            let lost = lost.as_secs_f64();
            tracing::info!("{server} takes connections again, after {lost:.1} s");
        }
    }

    /// Is this failure the server's first?
    fn fail_at(&self, now: u64) -> bool {
        self.failed.store(now, Ordering::Relaxed);
        self.lost
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The time for which the server was lost, if it is back and its return has not been logged.
    fn return_at(&self, now: u64) -> Option<Duration> {
        let lost = self.lost.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let is_steady = taken > failed && now >= failed + STEADY;
        if lost == 0 || !is_steady {
            return None;
        }
        self.lost
            .compare_exchange(lost, 0, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|lost| Duration::from_micros(taken.saturating_sub(lost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_failure_and_a_return_are_logged_once() {
        let reach = Reachability::default();
        assert!(reach.fail_at(5 * SECOND));
        assert!(!reach.fail_at(6 * SECOND));
        assert_eq!(
            reach.return_at(60 * SECOND),
            None,
            "no connection was tried"
        );
        reach.taken.store(8 * SECOND, Ordering::Relaxed);
        let lost = reach.return_at(8 * SECOND);
        assert_eq!(lost, Some(Duration::from_secs(3)));
        assert_eq!(reach.return_at(9 * SECOND), None);
        assert!(reach.fail_at(10 * SECOND));
    }

    #[test]
    fn a_server_that_takes_every_second_connection_is_not_back() {
        let reach = Reachability::default();
        assert!(reach.fail_at(SECOND));
        for beat in 3..50 {
            reach.taken.store(beat * SECOND / 2, Ordering::Relaxed);
            assert_eq!(reach.return_at(beat * SECOND / 2), None);
            assert!(!reach.fail_at(beat * SECOND / 2 + 1));
        }
    }

    #[test]
    fn pools_of_one_server_share_its_reachability_and_forget_it_together() {
        let server = Destination {
            url: crate::upstream::ServerUrl::Unix("/run/gone.sock".into()),
            socket_fence: None,
            address: None,
            tls: None,
            protocol: crate::upstream::ServerProtocol::Http1,
            max_age: None,
        };
        let one = Reachability::of(&server);
        assert!(Arc::ptr_eq(&one, &Reachability::of(&server)));
        one.fail_at(1);
        drop(one);
        assert!(Reachability::of(&server).fail_at(2));
    }
}
