//! Listeners: bound sockets, the connections on them, and the clients on the far end.

pub mod accept;
mod backpressure;
pub mod bind;
mod chunk_framing;
pub mod connection;
pub mod connection_register;
pub mod dispatch;
mod framing;
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
    /// Its address, an IPv4 one never mapped to IPv6.
    pub address: SocketAddr,
    /// The scheme of the requests on its connection.
    pub scheme: Scheme,
    /// Sees it leave.
    pub watch: SocketWatch,
    /// Kept from one request to the next: the fields that announce the peer upstream.
    pub forwarded_fields: RefCell<Option<ForwardedFields>>,
    /// Its connection in the worker's register.
    registration: Registration,
    /// Kept from one request to the next: moving a deadline on costs a fraction of setting one.
    timer: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Counts its connection as open, for dispatch and for draining.
    _open: OpenGuard,
    /// Counts its connection in the metrics.
    _metric: Connected,
}

impl Peer {
    /// The peer of a connection that has come from `address` by `stream`. What counts the connection lives as long.
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

/// A timer that goes back to its peer also when the wait is cancelled.
struct BorrowedTimer<'a> {
    timer: Option<Pin<Box<Sleep>>>,
    peer: &'a Peer,
}

impl Drop for BorrowedTimer<'_> {
    fn drop(&mut self) {
        self.peer.timer.replace(self.timer.take());
    }
}

/// The fields that announce a peer upstream, as long as it asks for one host.
#[derive(Debug)]
pub struct ForwardedFields {
    /// The host that the peer asked for.
    pub host: Option<HeaderValue>,
    /// The peer's address.
    pub address: HeaderValue,
    /// The peer's element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
}

/// How connections are taken and how slow they may be. Read once, at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// Addresses to listen on; port 0 is any free port.
    pub addresses: Vec<SocketAddr>,
    /// Longest a fresh connection may take to show which protocol it speaks.
    pub first_byte: Duration,
    /// Longest a head may take, from its first byte.
    pub head: Duration,
    /// Longest a connection may idle: between requests, between two chunks of a body in either direction.
    pub idle: Duration,
    /// Least bytes a second of a body in either direction, while the client alone is waited for; 0 demands none.
    pub min_rate: u64,
    /// Connections held at once; beyond it a connection that waits for its client is closed for a new one.
    pub max_connections: usize,
    /// Connections that one client may have; nothing for a tenth of all while more than half are taken.
    pub max_connections_per_client: Option<usize>,
}

impl ListenSettings {
    /// The scheme of the requests that its listeners take.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        Scheme::Http
    }

    /// How slow a client may be while the client alone is waited for.
    #[must_use]
    pub fn rate_bound(&self) -> RateBound {
        RateBound::new(self.idle, self.min_rate)
    }

    /// Longest a head may take: never longer than a connection may idle.
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
