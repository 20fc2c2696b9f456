//! The recent clients of an upstream, as far as needed to know whether one of them is alone.
//!
//! Each worker notes its own requests in its own cell, and a check reads all cells.

use crate::client::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The time for which a client is remembered after a request, in microseconds.
pub(super) const LATELY: u64 = 10_000_000;

/// The clients of one worker. Times are microseconds of this process, and 0 means never.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(in crate::upstream) struct WorkerClients {
    /// The client of the last request ([`Client::number`]).
    last: AtomicU64,
    last_at: AtomicU64,
    /// The last time of a request of another client.
    other_at: AtomicU64,
}

impl WorkerClients {
    /// Notes a request of `client` at `now`. Only the worker itself calls this.
    #[inline]
    pub(in crate::upstream) fn asked(&self, client: Client, now: u64) {
        let number = client.number();
        if self.last.load(Ordering::Relaxed) != number {
            let before = self.last_at.load(Ordering::Relaxed);
            self.other_at.store(before, Ordering::Relaxed);
            self.last.store(number, Ordering::Relaxed);
        }
        self.last_at.store(now, Ordering::Relaxed);
    }

    /// The last time of a request of a client other than `client`.
    fn other_than(&self, client: Client) -> u64 {
        if self.last.load(Ordering::Relaxed) == client.number() {
            self.other_at.load(Ordering::Relaxed)
        } else {
            self.last_at.load(Ordering::Relaxed)
        }
    }

    fn is_recent(at: u64, now: u64) -> bool {
        at != 0 && now.saturating_sub(at) < LATELY
    }
}

/// The clients of all workers.
#[derive(Debug, Default)]
pub(in crate::upstream) struct RecentClients(Mutex<Vec<Arc<WorkerClients>>>);

impl RecentClients {
    /// A cell for a new worker. The cells of former workers are kept while they are relevant at `now`.
    pub(in crate::upstream) fn worker(&self, now: u64) -> Arc<WorkerClients> {
        let cell = Arc::default();
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|cell| {
            let last_at = cell.last_at.load(Ordering::Relaxed);
            Arc::strong_count(cell) > 1 || WorkerClients::is_recent(last_at, now)
        });
        cells.push(Arc::clone(&cell));
        cell
    }

    /// Has a client other than `client` sent a request recently?
    #[cold]
    pub(in crate::upstream) fn are_others(&self, client: Client, now: u64) -> bool {
        let cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = cells.iter().map(|cell| cell.other_than(client));
        times.any(|at| WorkerClients::is_recent(at, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(address: &str) -> Client {
        Client::of(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn others_are_known_for_a_while_whichever_worker_they_ask() {
        let clients = RecentClients::default();
        let (one, other) = (clients.worker(1), clients.worker(1));
        let [a, b] = ["192.0.2.1", "2001:db8::1"].map(client);
        one.asked(a, 1);
        one.asked(a, 2);
        assert!(!clients.are_others(a, 3) && clients.are_others(b, 3));
        one.asked(client("2001:db8::2"), 4);
        one.asked(b, 5);
        one.asked(a, 6);
        assert!(clients.are_others(a, 5 + LATELY - 1) && !clients.are_others(a, 5 + LATELY));
        assert!(clients.are_others(b, 5 + LATELY), "the last was at 6");
        other.asked(b, 7 + LATELY);
        assert!(clients.are_others(a, 8 + LATELY));
        assert!(!clients.are_others(b, 8 + LATELY), "all of a /64 is one");
    }

    #[test]
    fn a_reload_forgets_no_client() {
        let clients = RecentClients::default();
        let a = client("192.0.2.1");
        clients.worker(1).asked(client("192.0.2.2"), 1);
        let _next = clients.worker(2);
        assert!(clients.are_others(a, 3));
        let _last = clients.worker(1 + LATELY);
        assert_eq!(clients.0.lock().unwrap().len(), 2);
    }
}
