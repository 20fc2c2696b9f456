//! What all workers of this process know of one server of an upstream. It is kept over reloads.

use super::ServerUrl;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The state of one server; of one address, where the server is a name.
#[derive(Debug)]
pub struct ServerState {
    /// The server as it is shown: its place, and behind it the address of a name.
    pub shown: Arc<str>,
    /// Requests that are in flight to it, from all workers.
    in_flight: InFlight,
}

/// A counter with a line of the processor's cache of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct InFlight(AtomicU32);

impl ServerState {
    /// The state of a server of which nothing is known. `address` is one of its name's.
    #[must_use]
    pub fn new(url: &ServerUrl, address: Option<SocketAddr>) -> Self {
        let shown = match address.filter(|_| url.name().is_some()) {
            Some(address) => format!("{url} ({})", address.ip()),
            None => url.to_string(),
        };
        Self {
            shown: shown.into(),
            in_flight: InFlight::default(),
        }
    }

    /// Requests that are in flight, where they are counted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.0.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight until the guard is dropped.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> RequestInFlight {
        self.in_flight.0.fetch_add(1, Ordering::Relaxed);
        RequestInFlight(Arc::clone(self))
    }
}

/// A request in flight to a server.
#[derive(Debug)]
pub struct RequestInFlight(Arc<ServerState>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.in_flight.0.fetch_sub(1, Ordering::Relaxed);
    }
}
