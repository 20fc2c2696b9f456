//! The arrival of a connection at its worker: everything before its HTTP protocol is known. A proxy names the
//! connection's client in a header of the PROXY protocol, and client and gateway make a TLS handshake.
//!
//! One deadline covers both, counted from the time at which the connection was accepted. Meanwhile the connection may
//! be evicted, like every connection that waits for its client.
//!
//! In: a stream and its peer, as reported by the socket. Out: the client of the connection and its session, or the
//! cause for which it is closed.
//!
//! ```text
//! proxy_protocol          the header by which a proxy names the client, in bytes as they come
//! proxy_protocol/text     its version 1
//! proxy_protocol/tlv      the TLVs of its version 2
//! proxy_protocol/crc32c   their checksum
//! proxy_protocol/fuzz     the entry of the fuzzer
//! handshake               the choice of an identity, the challenge of an authority
//! handshake/failure       the causes for which handshakes fail
//! handshake_report        what metrics and log have of them
//! refused_chains          clients whose certificates are refused again and again
//! encrypted_peers         may clients with TLS go on (`tls/entitlement`)? Looked at beside requests
//! encrypted_peers/places  a place for each such connection
//! ```

pub mod encrypted_peers;
mod handshake;
mod handshake_report;
pub mod proxy_protocol;
pub mod refused_chains;

use super::accept::PeerTrust;
use super::accept::connection_register::{ClientWait, ConnectionRegister, Registration};
use super::accept::dispatch::Dispatcher;
use super::connection::{until_given_up, waiting};
use super::socket::Stream;
use super::{Peer, canonical};
use crate::client::{Client, spelled};
use crate::telemetry::log::Throttles;
use crate::telemetry::metrics::{Metrics, Rejection};
use crate::tls::AuthorityChallenges;
use bytes::BytesMut;
use encrypted_peers::EncryptedPeers;
use handshake::{FailedHandshake, HandshakeFailure, HandshakeSources, Shaken};
use proxy_protocol::{HeaderFault, HeaderReader, NamedClient};
use refused_chains::RefusedChains;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

/// The number of bytes that are examined at a time: most headers arrive in one piece of fewer bytes.
const PIECE: usize = 536;
/// The least time between two log lines about headers that are missing, late, or malformed.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The parts of a worker that the arrival of connections needs.
#[derive(Debug)]
pub struct Arrivals {
    /// The bounds on connections.
    pub dispatcher: Arc<Dispatcher>,
    /// The current file's trust in peers.
    pub trust: Arc<dyn PeerTrust>,
    /// The worker's connections.
    pub register: ConnectionRegister,
    /// Longest time from accepting a connection to the end of its arrival.
    pub within: Duration,
    /// Counts failed arrivals.
    pub metrics: Arc<Metrics>,
    /// The answers that certification authorities find when they check whether we control a host.
    pub challenges: AuthorityChallenges,
    /// Clients whose certificates are refused, over all workers.
    pub refused_chains: Arc<RefusedChains>,
    /// The worker's connections with TLS.
    pub encrypted: EncryptedPeers,
}

/// The kind of a connection's peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// A client.
    Client,
    /// A peer in `trust`, which represents many clients.
    Trusted,
    /// A client that its proxy does not name: untrusted, at any address. It is one of the many clients of that proxy.
    Unnamed,
}

impl PeerKind {
    /// The kind of a peer, which `trust` may include.
    #[must_use]
    pub fn of(is_trusted: bool) -> Self {
        if is_trusted {
            Self::Trusted
        } else {
            Self::Client
        }
    }
}

/// The causes for which a connection does not arrive.
#[derive(Debug)]
enum ArrivalFault {
    /// The peer has left without sending a byte. This is not logged: a proxy checks in this way whether the gateway is
    /// alive.
    Left,
    /// Draining or eviction ends the connection, or its client has too many.
    Unwanted,
    /// Bytes that are not a header.
    Header(HeaderFault),
    /// The header is incomplete.
    Broken,
    /// The deadline has passed.
    Late,
}

impl From<HeaderFault> for ArrivalFault {
    fn from(fault: HeaderFault) -> Self {
        Self::Header(fault)
    }
}

/// The words after "its PROXY protocol header ...".
impl fmt::Display for ArrivalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(HeaderFault::NoHeader) => f.write_str("is missing"),
            Self::Header(fault) => write!(f, "is bad: {fault}"),
            Self::Late => f.write_str("was not whole in time (`handshake`)"),
            Self::Broken | Self::Left | Self::Unwanted => f.write_str("was not whole at its end"),
        }
    }
}

impl Arrivals {
    /// Adds `new` to the register.
    #[must_use]
    pub(super) fn enter(&self, from: Option<SocketAddr>) -> Registration {
        self.register.enter(Client::of(from.map(|from| from.ip())))
    }

    /// Reads the header that names the client of a connection, whose `peer` is of this kind before that. Returns the
    /// kind of the client; `None` if the connection must be closed.
    pub(super) async fn named(
        &self,
        stream: &mut Stream,
        peer: &mut Peer,
        kind: PeerKind,
        since: Instant,
    ) -> Option<PeerKind> {
        let proxy = peer.address;
        match self.until_named(stream, &peer.registration, since).await {
            Ok(NamedClient::Peer) => Some(kind),
            Ok(NamedClient::Nobody) => {
                peer.is_unnamed = true;
                if let Some(proxy) = proxy {
                    self.counted(peer, proxy, false, since).await?;
                }
                Some(PeerKind::Unnamed)
            }
            Ok(NamedClient::At(client)) => {
                let known = self.trust.known(Some(client));
                let client = known.from.unwrap_or(client);
                self.counted(peer, client, known.is_trusted, since).await?;
                Some(PeerKind::of(known.is_trusted))
            }
            Err(fault) => {
                self.report(&fault, proxy);
                None
            }
        }
    }

    /// Counts the connection of `peer` as one of `client`. `None` if the client has the most connections that it may
    /// have.
    async fn counted(
        &self,
        peer: &mut Peer,
        client: SocketAddr,
        is_trusted: bool,
        since: Instant,
    ) -> Option<()> {
        let open = &mut peer.open;
        let naming = self
            .dispatcher
            .name(open, client, is_trusted, &self.register);
        if !timeout_at(since + self.within, naming).await.ok()? {
            return None;
        }
        peer.registration = self.enter(Some(client));
        peer.address = Some(canonical(client));
        Some(())
    }

    /// The client that the header names, before the deadline and while the connection may stay.
    async fn until_named(
        &self,
        stream: &mut Stream,
        registration: &Registration,
        since: Instant,
    ) -> Result<NamedClient, ArrivalFault> {
        tokio::select! {
            biased;
            () = poll_fn(|cx| registration.poll_evicted(cx)) => Err(ArrivalFault::Unwanted),
            named = timeout_at(since + self.within, read_header(stream, registration)) => {
                named.unwrap_or(Err(ArrivalFault::Late))
            }
            () = until_given_up(registration, since) => Err(ArrivalFault::Unwanted),
        }
    }

    /// Makes a handshake on a connection whose listener offers identities, and counts the handshake. If the peer
    /// represents many clients by its `kind`, one client's refused certificate does not count against the others.
    /// Returns false if the connection must be closed.
    pub(super) async fn encrypted(
        &self,
        stream: &mut Stream,
        peer: &Rc<Peer>,
        kind: PeerKind,
        since: Instant,
    ) -> bool {
        let Some(offer) = &peer.offer else {
            return true;
        };
        let sources = HandshakeSources {
            offer,
            challenges: &self.challenges,
            client: Client::of(peer.ip()),
            refused: (kind == PeerKind::Client).then_some(&*self.refused_chains),
        };
        let registration = &peer.registration;
        let deadline = since + self.within;
        let shaken = tokio::select! {
            biased;
            () = poll_fn(|cx| registration.poll_evicted(cx)) => return false,
            shaken = shake_hands(stream, registration, sources, deadline) => shaken,
            () = until_given_up(registration, since) => return false,
        };
        match shaken {
            Ok(Shaken::Session(session)) => {
                handshake_report::succeeded(&session, peer);
                let is_set = peer.tls.set(session).is_ok();
                self.encrypted.enter(peer);
                is_set
            }
            Ok(Shaken::Challenge(host)) => {
                handshake_report::challenge(&host, peer);
                false
            }
            Err(failed) => {
                handshake_report::failed(&failed, peer);
                false
            }
        }
    }

    #[cold]
    fn report(&self, fault: &ArrivalFault, proxy: Option<SocketAddr>) {
        static FAULTY: Throttles<3> = Throttles::every(LOG_EVERY);
        self.metrics.rejected(match fault {
            ArrivalFault::Left | ArrivalFault::Unwanted => return,
            ArrivalFault::Late => Rejection::Late,
            ArrivalFault::Header(_) | ArrivalFault::Broken => Rejection::ProxyHeader,
        });
        let cause = match fault {
            ArrivalFault::Header(HeaderFault::NoHeader) => 0,
            ArrivalFault::Late => 1,
            _ => 2,
        };
        if let Some(more) = FAULTY.pass(cause) {
            let proxy = spelled(proxy.map(|proxy| proxy.ip()));
            tracing::warn!(
                "a connection from {proxy}, which `proxy_protocol` names, was closed: its PROXY protocol header {fault}{more}"
            );
        }
    }
}

/// Waits for the first bytes, and makes the handshake with them.
async fn shake_hands(
    stream: &mut Stream,
    registration: &Registration,
    sources: HandshakeSources<'_>,
    deadline: Instant,
) -> Result<Shaken, FailedHandshake> {
    let mut first = BytesMut::with_capacity(PIECE);
    let reading = stream.read_buf(&mut first);
    let reading = waiting(registration, ClientWait::Silent, reading);
    match timeout_at(deadline, reading).await {
        Err(_) => return Err(HandshakeFailure::Late.into()),
        Ok(Ok(0) | Err(_)) => return Err(HandshakeFailure::Silent.into()),
        Ok(Ok(_)) => {}
    }
    let shaking = handshake::shake_hands(stream, first, sources, deadline);
    waiting(registration, ClientWait::HalfHead, shaking).await
}

/// Reads a header, and not a byte beyond it.
async fn read_header(
    stream: &mut Stream,
    registration: &Registration,
) -> Result<NamedClient, ArrivalFault> {
    let mut reader = HeaderReader::default();
    let mut seen = [0; PIECE];
    loop {
        let (waits_for, at_end) = if reader.is_empty() {
            (ClientWait::Silent, ArrivalFault::Left)
        } else {
            (ClientWait::HalfHead, ArrivalFault::Broken)
        };
        let seen = match peek(stream, &mut seen, waits_for, registration).await {
            Ok(0) | Err(_) => return Err(at_end),
            Ok(count) => &mut seen[..count],
        };
        let progress = reader.read(seen)?;
        let taken = stream.read_exact(&mut seen[..progress.taken]).await;
        if taken.is_err() {
            return Err(at_end);
        }
        if let Some(client) = progress.client {
            return Ok(client);
        }
    }
}

/// Peeks at the next bytes, and notes in the register the event that the connection waits for if none has arrived yet.
async fn peek(
    stream: &Stream,
    seen: &mut [u8],
    waits_for: ClientWait,
    registration: &Registration,
) -> io::Result<usize> {
    waiting(registration, waits_for, stream.peek(seen)).await
}
