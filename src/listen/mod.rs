//! Listeners: bound sockets, the connections on them, and the clients on the far end.
//!
//! In: the listening sockets of the file. Out: requests for the service that is passed in, and its answers to clients.
//!
//! ```text
//! accept      a connection is accepted on a listener, and goes to a worker; sockets are bound and taken over
//! socket      the stream under hyper: TLS, what is seen in its bytes, how slow a client may be
//! connection  HTTP/1.1 or HTTP/2 on it, the trait of the service, deadlines and floods
//! arrival     what comes before the protocol: a proxy's header, the handshake
//! service     a socket's way at its worker: which of these steps it takes
//! ```

pub mod accept;
pub mod arrival;
pub mod connection;
pub mod service;
pub mod socket;

pub use accept::{bind, connection_register, dispatch, handed_sockets, listener, socket_file};
pub use arrival::{encrypted_peers, proxy_protocol, refused_chains};
pub use connection::{handler, keep_alive};
pub use socket::framing::FramingFault;
pub use socket::minimum_rate;
pub use socket::raw_target::encoded_target;

use crate::client::Scheme;
use crate::telemetry::metrics::Connected;
use crate::tls::{OfferInForce, TlsSession};
use accept::connection_register::Registration;
use accept::dispatch::OpenGuard;
use accept::listener::Listener;
use arrival::encrypted_peers::PeerPlace;
use connection::keep_alive::KeepAlive;
use http::{HeaderValue, Version};
use socket::minimum_rate::RateBound;
use socket::{SocketWatch, Stream};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection learns from its listener.
#[derive(Debug, Clone, Default)]
pub struct ListenerSettings {
    /// The offer of the listener; `None` means clear text.
    pub offer: Option<OfferInForce>,
    /// The listener redirects all requests to `https`.
    pub redirects: bool,
}

/// The far end of a client's connection.
#[derive(Debug)]
pub struct Peer {
    /// The client's address; `None` for the peer of a Unix socket; an IPv4 address is never mapped to IPv6.
    pub address: Option<SocketAddr>,
    /// Its proxy names no client: nothing on the connection is trusted, at any address.
    pub is_unnamed: bool,
    /// The scheme of the requests on the peer's connection.
    pub scheme: Scheme,
    /// Detects that the peer leaves.
    pub watch: SocketWatch,
    /// The fields that announce the peer to upstreams, kept between requests.
    pub forwarded_fields: RefCell<Option<Rc<ForwardedFields>>>,
    /// The listener redirects all requests to `https`.
    pub redirects: bool,
    /// The offer of the connection's listener; `None` means clear text.
    offer: Option<OfferInForce>,
    /// The outcome of the handshake.
    tls: OnceCell<Rc<TlsSession>>,
    /// The connection's place among those with TLS, after the handshake.
    place: OnceCell<PeerPlace>,
    /// The peer's connection in the worker's register.
    registration: Registration,
    /// A request of the peer has had an idle time of its own.
    has_route_idle: Cell<bool>,
    /// The peer's timer, kept between requests: moving a deadline costs a fraction of setting a new one.
    timer: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Counts the peer's connection as open, for dispatch and for draining.
    open: OpenGuard,
    /// Counts the peer's connection in the metrics.
    metric: Connected,
}

impl Peer {
    /// The peer of a connection of the client at `address` on `stream`, on a listener with these `facts`. The
    /// connection is counted for the life of the peer.
    #[must_use]
    pub fn new(
        address: Option<SocketAddr>,
        stream: &Stream,
        registration: Registration,
        open: OpenGuard,
        metric: Connected,
        facts: ListenerSettings,
    ) -> Self {
        let ListenerSettings { offer, redirects } = facts;
        Self {
            address: address.map(canonical),
            is_unnamed: false,
            scheme: match offer {
                Some(_) => Scheme::Https,
                None => Scheme::Http,
            },
            watch: stream.watch(),
            forwarded_fields: RefCell::default(),
            redirects,
            offer,
            tls: OnceCell::new(),
            place: OnceCell::new(),
            registration,
            has_route_idle: Cell::new(false),
            timer: RefCell::default(),
            open,
            metric,
        }
    }

    /// The result of the handshake; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<&Rc<TlsSession>> {
        self.tls.get()
    }

    /// May a request for a host be served on this connection? If not, the client finds the host on another connection
    /// ([`crate::tls::Offer::may_serve`]), provided that its handshake still meets the requirements. `host` is called
    /// only if the answer depends on the host.
    #[must_use]
    pub fn may_serve<'h>(&self, host: impl FnOnce() -> Cow<'h, str>) -> bool {
        let (Some(offer), Some(session)) = (&self.offer, self.tls.get()) else {
            return true;
        };
        let (offer, identity) = (offer.load(), &session.identity);
        if !offer.looks_at_hosts(identity) {
            return true;
        }
        if !self.is_trusted(session, &offer) {
            return false;
        }
        let host = host();
        offer.may_serve(identity, Some(&*host).filter(|host| !host.is_empty()))
    }

    /// The client's address without its port.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// Sets the idle time of the current request's route, if the route has its own. Over HTTP/2 (`is_shared`) the
    /// longest of all current requests' times applies to bytes that the socket does not accept.
    #[inline]
    pub fn has_idle(&self, idle: Option<Duration>, is_shared: bool) {
        if idle.is_some() || self.has_route_idle.get() {
            self.has_route_idle.set(true);
            self.watch.set_route_idle(idle, is_shared);
        }
    }

    /// Frees everything that is kept between requests.
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

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A timer that is returned to its peer even if the wait is cancelled.
struct BorrowedTimer<'a> {
    timer: Option<Pin<Box<Sleep>>>,
    peer: &'a Peer,
}

impl Drop for BorrowedTimer<'_> {
    fn drop(&mut self) {
        self.peer.timer.replace(self.timer.take());
    }
}

/// The fields that announce a peer to upstreams, valid while the peer requests one host in one version.
#[derive(Debug)]
pub struct ForwardedFields {
    /// The host that the peer requested.
    pub host: Option<HeaderValue>,
    /// The version of the peer's requests.
    pub version: Version,
    /// The requests name the host in their targets, and `Host` is absent or different.
    pub has_target_host: bool,
    /// The peer's address.
    pub address: HeaderValue,
    /// The peer's element of `Forwarded` (RFC 7239).
    pub element: HeaderValue,
    /// All of the gateway's fields in the request as bytes: complete lines, then the name of the last field, whose
    /// value is the request's id. Empty if the peer has requested no host.
    pub lines: Vec<u8>,
}

/// The bounds on connections and on their slowness. Read once, at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    /// The listeners, at least one, in the order of the file.
    pub listeners: Vec<Listener>,
    /// The longest time from accepting a connection to the end of the PROXY header and the TLS handshake.
    pub handshake: Duration,
    /// The longest time for a fresh connection until its protocol is known.
    pub first_byte: Duration,
    /// Longest time for a head, from its first byte.
    pub head: Duration,
    /// The longest silence inside a request: between two chunks of a body in either direction.
    pub idle: Duration,
    /// Longest time without a request, which a reload may change.
    pub keep_alive: KeepAlive,
    /// The least bytes a second of a body in either direction, while only the client causes a wait; 0 sets no bound.
    pub min_rate: u64,
    /// The most connections at once; beyond this number a connection that waits for its client is closed for a new one.
    pub max_connections: usize,
    /// The most connections of one client; without a number, a tenth of all while more than half of all are open.
    pub max_connections_per_client: Option<usize>,
}

impl ListenSettings {
    /// The bound on a client's slowness while only the client causes a wait.
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
            listeners: vec![Listener::plain(
                SocketAddr::from(([0, 0, 0, 0], 8080)).into(),
            )],
            handshake: Duration::from_secs(10),
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            keep_alive: KeepAlive::new(KeepAlive::USUAL),
            min_rate: 256,
            max_connections: 100_000,
            max_connections_per_client: None,
        }
    }
}
