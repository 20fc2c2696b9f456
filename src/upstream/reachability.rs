//! Whether a server takes connections, as all workers of this process see it together: one line in the log when it takes
//! none any more, and one when it does again.

use super::Server;
use super::pool::ConnectError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A server that failed less than this ago is not said to be back: one that takes every other connection would fill the log.
const STEADY: Duration = Duration::from_secs(1);

/// Every server that a pool leads to. Asked when a pool is made, never by a request.
static KNOWN: Mutex<BTreeMap<String, Weak<Reachability>>> = Mutex::new(BTreeMap::new());

/// What is known of one server. Times are microseconds of this process, 0 is never.
#[derive(Debug, Default)]
pub(super) struct Reachability {
    /// Since when it takes no connections; 0 while it does, for all that is known.
    lost: AtomicU64,
    /// When it failed last.
    failed: AtomicU64,
    /// When it took one after that.
    taken: AtomicU64,
}

impl Reachability {
    /// What all pools of this process to `server` share.
    pub(super) fn of(server: &Server) -> Arc<Self> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that no pool leads to any more, since the file changed.
        known.retain(|_, reach| reach.strong_count() > 0);
        let shared = known.entry(server.to_string()).or_default();
        shared.upgrade().unwrap_or_else(|| {
            let reach = Arc::default();
            *shared = Arc::downgrade(&reach);
            reach
        })
    }

    /// It took no connection.
    pub(super) fn fails(&self, error: &ConnectError) {
        if self.fails_at(uptime()) {
            tracing::warn!("{}", error.in_full());
        }
    }

    /// It took a connection.
    pub(super) fn takes(&self) {
        if self.lost.load(Ordering::Relaxed) != 0 {
            self.taken.store(uptime(), Ordering::Relaxed);
        }
    }

    /// Says that `server` is back, if it is. To be asked now and then.
    pub(super) fn look(&self, server: &Server) {
        if let Some(lost) = self.returns_at(uptime()) {
            let lost = lost.as_secs_f64();
            tracing::info!("{server} takes connections again, after {lost:.1} s");
        }
    }

    /// Is this its first failure?
    fn fails_at(&self, now: u64) -> bool {
        self.failed.store(now, Ordering::Relaxed);
        self.lost
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// How long it was lost, where it is back and nobody has said so.
    fn returns_at(&self, now: u64) -> Option<Duration> {
        let lost = self.lost.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let taken = self.taken.load(Ordering::Relaxed);
        let is_steady = taken > failed && now >= failed + micros(STEADY);
        if lost == 0 || !is_steady {
            return None;
        }
        self.lost
            .compare_exchange(lost, 0, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|lost| Duration::from_micros(taken.saturating_sub(lost)))
    }
}

/// Microseconds since this was first asked, and never 0.
fn uptime() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    micros(ORIGIN.get_or_init(Instant::now).elapsed()) + 1
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_failure_and_a_return_are_said_once() {
        let reach = Reachability::default();
        assert!(reach.fails_at(5 * SECOND));
        assert!(!reach.fails_at(6 * SECOND));
        assert_eq!(reach.returns_at(60 * SECOND), None, "nobody has tried");
        reach.taken.store(8 * SECOND, Ordering::Relaxed);
        let lost = reach.returns_at(8 * SECOND);
        assert_eq!(lost, Some(Duration::from_secs(3)));
        assert_eq!(reach.returns_at(9 * SECOND), None);
        assert!(reach.fails_at(10 * SECOND));
    }

    #[test]
    fn one_that_takes_every_other_connection_is_not_back() {
        let reach = Reachability::default();
        assert!(reach.fails_at(SECOND));
        for beat in 3..50 {
            reach.taken.store(beat * SECOND / 2, Ordering::Relaxed);
            assert_eq!(reach.returns_at(beat * SECOND / 2), None);
            assert!(!reach.fails_at(beat * SECOND / 2 + 1));
        }
    }

    #[test]
    fn pools_of_one_server_share_what_is_known_and_forget_it_together() {
        let server = Server::Http {
            host: "192.0.2.1".into(),
            port: 1,
        };
        let one = Reachability::of(&server);
        assert!(Arc::ptr_eq(&one, &Reachability::of(&server)));
        one.fails_at(1);
        drop(one);
        assert!(Reachability::of(&server).fails_at(2));
    }
}
