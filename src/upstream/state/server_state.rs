//! The state of one server of an upstream, shared by all workers of this process. It is kept over reloads.

use super::connection_bound::ConnectionBound;
use super::server_health::ServerHealth;
use crate::upstream::ServerUrl;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The state of one server; of one address, if the server is a name.
#[derive(Debug)]
pub struct ServerState {
    /// The server's name in outputs: its URL, followed by the address of a name.
    pub shown: Arc<str>,
    /// Its health.
    pub health: ServerHealth,
    /// The connections to it.
    pub connections: Arc<ConnectionBound>,
    /// Requests in flight to it, from all workers.
    in_flight: InFlight,
}

/// A counter on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct InFlight(AtomicU32);

impl ServerState {
    /// The state of a new server. `address` is one of its name's.
    #[must_use]
    pub fn new(url: &ServerUrl, address: Option<SocketAddr>) -> Self {
        let shown = match address.filter(|_| url.name().is_some()) {
            Some(address) => format!("{url} ({})", address.ip()),
            None => url.to_string(),
        };
        Self {
            shown: shown.into(),
            health: ServerHealth::default(),
            connections: Arc::default(),
            in_flight: InFlight::default(),
        }
    }

    /// Requests in flight, if they are counted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.0.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight, unless there are already `most`.
    #[must_use]
    pub(in crate::upstream) fn enter(&self, most: Option<u32>) -> bool {
        let Some(most) = most else {
            self.in_flight.0.fetch_add(1, Ordering::SeqCst);
            return true;
        };
        let more = |count: u32| (count < most).then(|| count + 1);
        self.in_flight
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Removes a request from the count.
    pub(in crate::upstream) fn leave(&self) {
        self.in_flight.0.fetch_sub(1, Ordering::SeqCst);
    }
}
