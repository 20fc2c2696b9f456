//! The handshake of TLS on a fresh connection: the identity is chosen by the host that the client names, and every end of
//! a handshake that fails is one that the client understands.

mod failure;

pub(in crate::listen) use failure::{FailedHandshake, HandshakeFailure};

use super::proxy_protocol;
use super::refused_chains::RefusedChains;
use crate::client::Client;
use crate::clock;
use crate::listen::socket::Stream;
use crate::listen::socket::encrypted_layer::EncryptedLayer;
use crate::tls::{
    AuthorityChallenges, CHALLENGE_PROTOCOL, OfferInForce, ServerIdentity, TlsSession, TlsVersion,
    named_host, take_handshake_step,
};
use bytes::BytesMut;
use failure::{broken, cause_of};
use rustls::server::{Accepted, AcceptedAlert, Acceptor, ClientHello};
use rustls::{Error, PeerIncompatible, ServerConfig};
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};

/// The first byte of a handshake: the type of its records (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 0x16;
/// Most bytes of one read, of which most hellos need one.
const CHUNK: usize = 4096;
/// The alert that refuses a client whose host no identity answers for (RFC 6066 section 3).
const UNRECOGNIZED_NAME: [u8; 7] = fatal(112);
/// The alert that refuses a client of TLS 1.1 or older (RFC 8446 section 6.2).
const PROTOCOL_VERSION: [u8; 7] = fatal(70);
/// The alert that refuses bytes that are no hello (RFC 8446 section 6.2).
const DECODE_ERROR: [u8; 7] = fatal(50);
/// The alert that refuses a client whose certificates were refused too often (RFC 8446 section 6.2).
const ACCESS_DENIED: [u8; 7] = fatal(49);
/// Where a client's hello says the second half of its version, which is 3.N: behind the heads of the record and of the
/// message (RFC 5246 section 7.4.1.2).
const HELLO_MINOR_VERSION: usize = 10;
/// What stands there for TLS 1.2 and those since.
const TLS12_MINOR_VERSION: u8 = 3;
/// The answer to a client that does not speak TLS.
const PLAIN_TEXT_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
content-type: text/plain; charset=utf-8\r\n\
content-length: 57\r\n\
connection: close\r\n\
\r\n\
This port speaks TLS: use https:// in place of http://.\r\n";
/// Longest time in which a client whose handshake failed may take the reason.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most reads for that, of a client that goes on sending.
const MOST_DISCARDS: usize = 64;

/// A record with a fatal alert.
const fn fatal(alert: u8) -> [u8; 7] {
    [0x15, 3, 3, 0, 2, 2, alert]
}

/// What handshakes are made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandshakeSources<'a> {
    pub(in crate::listen) offer: &'a OfferInForce,
    pub(super) challenges: &'a AuthorityChallenges,
    /// The client, on whose account a look at other gateways is.
    pub(in crate::listen) client: Client,
    /// Clients whose certificates are refused. Those of peers that stand for many clients are not counted.
    pub(in crate::listen) refused: Option<&'a RefusedChains>,
}

/// A handshake that succeeded.
#[derive(Debug)]
pub(super) enum Shaken {
    /// The connection is the client's.
    Session(Rc<TlsSession>),
    /// A certification authority has looked whether this host is ours (RFC 8737). The connection has ended.
    Challenge(Box<str>),
}

/// Shakes hands on `stream`, until `deadline` at the latest. `first` are the bytes of the client's that have been read.
pub(super) async fn shake_hands(
    stream: &mut Stream,
    first: BytesMut,
    sources: HandshakeSources<'_>,
    deadline: Instant,
) -> Result<Shaken, FailedHandshake> {
    let shaken = try_to_shake_hands(stream, first, sources, deadline).await;
    if let Err(failed) = &shaken {
        let last_words = match &failed.cause {
            HandshakeFailure::PlainText | HandshakeFailure::ProxyHeader => PLAIN_TEXT_ANSWER,
            HandshakeFailure::NoName(_) => &UNRECOGNIZED_NAME,
            HandshakeFailure::ClientThrottled if !stream.is_encrypted() => &ACCESS_DENIED,
            // The layer has sent an alert.
            HandshakeFailure::ClientThrottled
            | HandshakeFailure::Client(_)
            | HandshakeFailure::Protocol(_) => &[],
            HandshakeFailure::Late | HandshakeFailure::Silent | HandshakeFailure::Left => {
                return shaken;
            }
        };
        // The client leaves when it likes.
        let _ = timeout(FAREWELL, part(stream, last_words)).await;
    }
    shaken
}

/// Ends the connection in order. Bytes that lie unread at the end would turn it into a reset, which takes the last words
/// away from the client.
async fn part(stream: &mut Stream, last_words: &[u8]) -> io::Result<()> {
    stream.write_all(last_words).await?;
    stream.shutdown().await?;
    for _ in 0..MOST_DISCARDS {
        if poll_fn(|cx| stream.poll_discard(cx)).await? == 0 {
            break;
        }
    }
    Ok(())
}

async fn try_to_shake_hands(
    stream: &mut Stream,
    first: BytesMut,
    sources: HandshakeSources<'_>,
    deadline: Instant,
) -> Result<Shaken, FailedHandshake> {
    if first.first() != Some(&HANDSHAKE) {
        let cause = if proxy_protocol::is_header(&first) {
            HandshakeFailure::ProxyHeader
        } else {
            HandshakeFailure::PlainText
        };
        return Err(cause.into());
    }
    let (accepted, rest) = in_time(deadline, read_hello(stream, first)).await?;
    if let Some(host) = host_to_show(&accepted.client_hello(), sources.challenges) {
        // The future is boxed: no other handshake needs room for it.
        let finding = sources.challenges.handshake_anywhere(&host, sources.client);
        let finding = Box::pin(finding);
        let found = in_time(deadline, async { Ok(finding.await) }).await?;
        if let Some(config) = found {
            let challenge = ChallengeHandshake { host, config };
            let answering = answer_authority(stream, accepted, &rest, challenge);
            return Box::pin(in_time(deadline, answering))
                .await
                .map_err(FailedHandshake::from);
        }
    }
    let identity = sources.identity_for(&accepted.client_hello())?;
    let config = Arc::clone(identity.config());
    let hears_chains = || sources.hears_chains_at(&identity);
    let finishing = finish(stream, accepted, &rest, config, hears_chains);
    match in_time(deadline, finishing).await {
        Ok(()) => {
            let session =
                stream.of_layer(|layer| TlsSession::new(layer.connection(), Arc::clone(&identity)));
            let session = session.ok_or(HandshakeFailure::Left)?;
            Ok(Shaken::Session(Rc::new(session)))
        }
        Err(cause) => {
            let cause = cause.of_client_of(&identity);
            sources.note(&cause);
            Err(FailedHandshake {
                cause,
                identity: Some(identity),
                version: stream
                    .of_layer(|layer| TlsVersion::of(layer.connection()))
                    .flatten(),
            })
        }
    }
}

impl HandshakeSources<'_> {
    /// The identity for the host that the client names, if a chain of the client's would be looked at there.
    fn identity_for(
        &self,
        hello: &ClientHello<'_>,
    ) -> Result<Arc<ServerIdentity>, FailedHandshake> {
        let host = hello.server_name().map(named_host);
        let Some(identity) = self.offer.load().choose(host).cloned() else {
            return Err(HandshakeFailure::NoName(host.map(Into::into)).into());
        };
        if self.hears_chains_at(&identity) {
            return Ok(identity);
        }
        Err(FailedHandshake {
            cause: HandshakeFailure::ClientThrottled,
            identity: Some(identity),
            version: None,
        })
    }

    /// Is a chain of the client looked at by an identity? It is not by one that asks for certificates, where too many of its
    /// were refused lately.
    ///
    /// This is asked before the handshake, and again with each step of it: others of the client may have been refused
    /// meanwhile. Each worker takes one step at a time, and counts a chain with the step that refuses it. So of any number
    /// of handshakes side by side, no more chains than the bound, and one for each worker, are verified.
    fn hears_chains_at(&self, identity: &ServerIdentity) -> bool {
        let refused = self.refused.filter(|_| identity.client().is_some());
        !refused.is_some_and(|refused| refused.are_too_many(self.client, clock::now()))
    }

    /// Counts a certificate that was refused. A missing one costs no more than any handshake, and is no guess.
    fn note(&self, cause: &HandshakeFailure) {
        if let (Some(refused), HandshakeFailure::Client(why)) = (self.refused, cause)
            && *why != Error::NoCertificatesPresented
        {
            refused.count(self.client, clock::now());
        }
    }
}

async fn in_time<T>(
    deadline: Instant,
    step: impl Future<Output = Result<T, HandshakeFailure>>,
) -> Result<T, HandshakeFailure> {
    let done = timeout_at(deadline, step).await;
    done.unwrap_or(Err(HandshakeFailure::Late))
}

/// Reads until the client's hello is whole. Returns the bytes behind it too.
async fn read_hello(
    stream: &mut Stream,
    mut read: BytesMut,
) -> Result<(Accepted, BytesMut), HandshakeFailure> {
    let mut acceptor = Acceptor::default();
    let (mut before, mut is_old) = (0, false);
    loop {
        while !read.is_empty() {
            let version = HELLO_MINOR_VERSION.checked_sub(before);
            if let Some(minor) = version.and_then(|at| read.get(at)) {
                is_old = *minor < TLS12_MINOR_VERSION;
            }
            let mut rest = &read[..];
            if acceptor.read_tls(&mut rest).is_err() {
                let _ = stream.write_all(&DECODE_ERROR).await;
                return Err(broken());
            }
            let taken = read.len() - rest.len();
            before += taken;
            let _ = read.split_to(taken);
            match acceptor.accept() {
                Ok(Some(accepted)) => return Ok((accepted, read)),
                Ok(None) => {}
                Err((error, alert)) => return Err(refuse(stream, error, alert, is_old).await),
            }
        }
        read.reserve(CHUNK);
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return Err(HandshakeFailure::Left),
            Ok(_) => {}
        }
    }
}

/// Refuses a hello. rustls misses an extension in those of TLS 1.1 and older, and says so in place of the version.
#[cold]
async fn refuse(
    stream: &mut Stream,
    error: Error,
    alert: AcceptedAlert,
    is_old: bool,
) -> HandshakeFailure {
    if is_old {
        let _ = stream.write_all(&PROTOCOL_VERSION).await;
        return HandshakeFailure::Protocol(PeerIncompatible::Tls12NotOffered.into());
    }
    send(stream, alert).await;
    HandshakeFailure::Protocol(error)
}

/// The handshake that shows an authority that a host is ours.
struct ChallengeHandshake {
    host: Box<str>,
    config: Arc<ServerConfig>,
}

/// The host that a client wants to be shown as ours: `acme-tls/1` is the one protocol that it speaks (RFC 8737, section
/// 3), and an order for the host that it names may be under way, here or at another gateway. Anything else is a
/// handshake like others.
fn host_to_show(hello: &ClientHello<'_>, challenges: &AuthorityChallenges) -> Option<Box<str>> {
    let mut protocols = hello.alpn()?;
    if protocols.next() != Some(CHALLENGE_PROTOCOL) || protocols.next().is_some() {
        return None;
    }
    let host = named_host(hello.server_name()?);
    challenges.may_have_handshake(host).then(|| host.into())
}

/// Shakes hands with an authority that looks whether a host is ours, and ends the connection.
#[cold]
async fn answer_authority(
    stream: &mut Stream,
    accepted: Accepted,
    rest: &[u8],
    challenge: ChallengeHandshake,
) -> Result<Shaken, HandshakeFailure> {
    finish(stream, accepted, rest, challenge.config, || true).await?;
    // The authority leaves when it likes.
    let _ = timeout(FAREWELL, part(stream, &[])).await;
    Ok(Shaken::Challenge(challenge.host))
}

/// Goes on from the client's hello to the end of the handshake. `rest` are bytes that came behind the hello. Before each
/// step `hears_chains` is asked whether a chain of the client is looked at.
async fn finish(
    stream: &mut Stream,
    accepted: Accepted,
    rest: &[u8],
    config: Arc<ServerConfig>,
    hears_chains: impl Fn() -> bool,
) -> Result<(), HandshakeFailure> {
    let connection = match accepted.into_connection(config) {
        Ok(connection) => connection,
        Err((error, alert)) => {
            send(stream, alert).await;
            return Err(HandshakeFailure::Protocol(error));
        }
    };
    let mut layer = EncryptedLayer::new(connection);
    let took = take_handshake_step(hears_chains(), || layer.take_read(rest));
    stream.encrypt(layer);
    let shaken = match took {
        Ok(()) => {
            poll_fn(|cx| take_handshake_step(hears_chains(), || stream.poll_handshake(cx))).await
        }
        Err(error) => {
            // The alert waits in the layer.
            let _ = stream.flush().await;
            Err(error)
        }
    };
    shaken.map_err(|error| cause_of(&error))
}

async fn send(stream: &mut Stream, mut alert: AcceptedAlert) {
    let mut bytes = Vec::new();
    // A vector takes everything; of a client that has left nothing more is wanted.
    let _ = alert.write_all(&mut bytes);
    if bytes.is_empty() {
        // rustls has none for bytes of which it can make no message.
        bytes.extend(DECODE_ERROR);
    }
    let _ = stream.write_all(&bytes).await;
}

#[cfg(test)]
mod tests;
