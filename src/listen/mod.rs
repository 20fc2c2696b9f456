//! Listeners: bound sockets, the connections on them, and the clients on the far end.

pub mod accept;
mod backpressure;
pub mod bind;
mod chunk_framing;
pub mod connection;
pub mod connection_register;
pub mod dispatch;
mod framing;
mod h2_fields;
mod h2_flood;
mod h2_frames;
pub mod handler;
mod head_deadline;
pub mod minimum_rate;
mod requests;
pub mod socket;
mod stream_deadline;
mod transport;

pub use framing::FramingFault;

use crate::client::Scheme;
use crate::telemetry::metrics::Connected;
use connection_register::Registration;
use dispatch::OpenGuard;
use http::HeaderValue;
use minimum_rate::RateBound;
use socket::{SocketWatch, Stream};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The far end of a client's connection.
#[derive(Debug)]
pub struct Peer {
    /// The peer's address; an IPv4 address is never mapped to IPv6.
    pub address: SocketAddr,
    /// The scheme of the requests on the peer's connection.
    pub scheme: Scheme,
    /// Notices that the peer leaves.
    pub watch: SocketWatch,
    /// The fields that announce the peer upstream, kept from one request to the next.
    pub forwarded_fields: RefCell<Option<ForwardedFields>>,
    /// The peer's connection in the worker's register.
    registration: Registration,
    /// The peer's timer, kept from one request to the next: moving a deadline on costs a fraction of setting a new one.
    timer: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Counts the peer's connection as open, for dispatch and for draining.
    _open: OpenGuard,
    /// Counts the peer's connection in the metrics.
    _metric: Connected,
}

impl Peer {
    /// The peer of a connection that has come from `address` by `stream`. The connection is counted as long as the peer
    /// lives.
    #[must_use]
    pub fn new(
        address: SocketAddr,
        stream: &Stream,
        registration: Registration,
        open: OpenGuard,
        metric: Connected,
    ) -> Self {
        Self {
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
            scheme: stream.scheme(),
            watch: stream.watch(),
            forwarded_fields: RefCell::default(),
            registration,
            timer: RefCell::default(),
            _open: open,
            _metric: metric,
        }
    }

    /// Lets go of all that is kept from one request to the next.
    fn rest(&self) {
        self.forwarded_fields.take();
        self.timer.take();
    }

    /// Resolves at `until`.
    pub async fn until(&self, until: Instant) {
        let mut borrowed = BorrowedTimer {
            timer: self.timer.take(),
            peer: self,
        };
        if let Some(timer) = &mut borrowed.timer {
            timer.as_mut().reset(until);
        }
        let timer = borrowed
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().await;
    }
}

/// A timer that goes back to its peer even when the wait is cancelled.
struct BorrowedTimer<'a> {
    timer: Option<Pin<Box<Sleep>>>,
    peer: &'a Peer,
}

impl Drop for BorrowedTimer<'_> {
    fn drop(&mut self) {
        self.peer.timer.replace(self.timer.take());
    }
}

/// The fields that announce a peer upstream, as long as the peer asks for one host.
#[derive(Debug)]
pub struct ForwardedFields {
    /// The host that the peer asked for.
    pub host: Option<HeaderValue>,
    /// The peer's address.
    pub address: HeaderValue,
    /// The peer's element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
}

/// The bounds on connections and on their slowness. Read once, at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// Addresses to listen on; port 0 is any free port.
    pub addresses: Vec<SocketAddr>,
    /// Longest time in which a fresh connection may show its protocol.
    pub first_byte: Duration,
    /// Longest time for a head, from its first byte.
    pub head: Duration,
    /// Longest idle time of a connection: between requests, and between two chunks of a body in either direction.
    pub idle: Duration,
    /// Least bytes a second of a body in either direction, while the client alone is waited for; 0 demands none.
    pub min_rate: u64,
    /// Connections held at once; beyond this number a connection that waits for its client is closed for a new one.
    pub max_connections: usize,
    /// Connections that one client may have; without a number, a tenth of all while more than half are taken.
    pub max_connections_per_client: Option<usize>,
}

impl ListenSettings {
    /// The scheme of the requests that these listeners take.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        Scheme::Http
    }

    /// The bound on a client's slowness while the client alone is waited for.
    #[must_use]
    pub fn rate_bound(&self) -> RateBound {
        RateBound::new(self.idle, self.min_rate)
    }

    /// Longest time for a head: never longer than a connection may idle.
    fn head(&self) -> Duration {
        self.head.min(self.idle)
    }
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            addresses: vec![SocketAddr::from(([0, 0, 0, 0], 8080))],
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            min_rate: 256,
            max_connections: 100_000,
            max_connections_per_client: None,
        }
    }
}
