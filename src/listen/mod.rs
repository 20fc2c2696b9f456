//! Listeners: bound sockets, the connections on them, and who is on the other end.

pub mod accept;
mod backpressure;
pub mod bind;
mod chunk_framing;
pub mod connection;
pub mod connection_register;
pub mod dispatch;
pub mod drain;
mod framing;
mod h2_flood;
mod h2_frames;
mod head_deadline;
pub mod minimum_rate;
mod requests;
pub mod socket;
mod stream_deadline;

pub use framing::FramingFault;

use crate::telemetry::metrics::Connected;
use connection_register::Registration;
use dispatch::OpenGuard;
use http::HeaderValue;
use minimum_rate::RateBound;
use socket::SocketWatch;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Who is on the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address, an IPv4 one never in IPv6 clothes.
    pub address: SocketAddr,
    /// Sees it leave.
    pub watch: SocketWatch,
    /// Counts its connection as open, for dealing out and for draining.
    pub open: OpenGuard,
    /// Its connection in the worker's register.
    pub registration: Registration,
    /// Counts it in the metrics.
    pub metric: Connected,
    /// How its requests are announced upstream, kept from one to the next.
    pub forwarded_fields: RefCell<Option<ForwardedFields>>,
    /// Kept from one request to the next: moving a deadline on costs a fraction of setting one.
    pub timer: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl Peer {
    /// Resolves at `until`.
    pub async fn until(&self, until: Instant) {
        let mut lent = BorrowedTimer {
            timer: self.timer.take(),
            peer: self,
        };
        if let Some(timer) = &mut lent.timer {
            timer.as_mut().reset(until);
        }
        let timer = lent
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().await;
    }
}

/// A timer that goes back also when nobody waits for it any more.
struct BorrowedTimer<'a> {
    timer: Option<Pin<Box<Sleep>>>,
    peer: &'a Peer,
}

impl Drop for BorrowedTimer<'_> {
    fn drop(&mut self) {
        self.peer.timer.replace(self.timer.take());
    }
}

/// The fields that announce a peer upstream, as long as it asks for the same host.
#[derive(Debug)]
pub struct ForwardedFields {
    /// The host it asked for.
    pub host: Option<HeaderValue>,
    /// Its address.
    pub address: HeaderValue,
    /// Its element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
}

/// How connections are taken and how long they may dawdle. Read once, at start.
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
    /// Least bytes a second of a body in either direction, while the client alone is waited for; 0 asks for none.
    pub min_rate: u64,
    /// Connections held at once; beyond it one that waits for its client is closed for a new one.
    pub max_connections: usize,
    /// Connections that one client may have; nothing for a tenth of all while more than half are taken.
    pub max_connections_per_client: Option<usize>,
}

impl ListenSettings {
    /// How slow a client may be while it alone is waited for.
    #[must_use]
    pub fn allowed(&self) -> RateBound {
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
