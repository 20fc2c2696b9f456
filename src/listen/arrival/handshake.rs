//! The TLS handshake on a fresh connection: the identity is chosen by the host that the client names, and every failed
//! handshake ends in a way that the client understands.

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
/// The most bytes of one read; most hellos fit into one.
const CHUNK: usize = 4096;
/// The alert that refuses a client whose host no identity serves (RFC 6066 section 3).
const UNRECOGNIZED_NAME: [u8; 7] = fatal(112);
/// The alert that refuses a client of TLS 1.1 or older (RFC 8446 section 6.2).
const PROTOCOL_VERSION: [u8; 7] = fatal(70);
/// The alert that refuses bytes that are not a hello (RFC 8446 section 6.2).
const DECODE_ERROR: [u8; 7] = fatal(50);
/// The alert that refuses a client whose certificates were refused too often (RFC 8446 section 6.2).
const ACCESS_DENIED: [u8; 7] = fatal(49);
/// The position of the second half of a hello's version, which is 3.N: after the heads of the record and of the message
/// (RFC 5246 section 7.4.1.2).
const HELLO_MINOR_VERSION: usize = 10;
/// Its value in TLS 1.2 and later.
const TLS12_MINOR_VERSION: u8 = 3;
/// The answer to a client that does not use TLS.
const PLAIN_TEXT_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
content-type: text/plain; charset=utf-8\r\n\
content-length: 57\r\n\
connection: close\r\n\
\r\n\
This port speaks TLS: use https:// in place of http://.\r\n";
/// The longest time for a client whose handshake failed to take the reason.
const FAREWELL: Duration = Duration::from_secs(1);
/// The most reads meanwhile, of a client that continues to send.
const MOST_DISCARDS: usize = 64;

/// A record with a fatal alert.
const fn fatal(alert: u8) -> [u8; 7] {
    [0x15, 3, 3, 0, 2, 2, alert]
}

/// The sources for handshakes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandshakeSources<'a> {
    pub(in crate::listen) offer: &'a OfferInForce,
    pub(super) challenges: &'a AuthorityChallenges,
    /// The client. Look-ups of challenges at other gateways count against its bound.
    pub(in crate::listen) client: Client,
    /// Clients whose certificates are refused. `None` for peers that represent many clients, which are not counted.
    pub(in crate::listen) refused: Option<&'a RefusedChains>,
}

/// A handshake that succeeded.
#[derive(Debug)]
pub(super) enum Shaken {
    /// The connection is a client's.
    Session(Rc<TlsSession>),
    /// A certification authority has checked whether we control this host (RFC 8737). The connection has ended.
    Challenge(Box<str>),
}

/// Makes a handshake on `stream`, until `deadline` at the latest. `first` are the client's bytes that have been read
/// already.
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
            // The TLS layer has sent an alert.
            HandshakeFailure::ClientThrottled
            | HandshakeFailure::Client(_)
            | HandshakeFailure::Protocol(_) => &[],
            HandshakeFailure::Late | HandshakeFailure::Silent | HandshakeFailure::Left => {
                return shaken;
            }
        };
        // The client may leave at any time.
        let _ = timeout(FAREWELL, part(stream, last_words)).await;
    }
    shaken
}

/// Ends the connection in order. Unread bytes at the end would turn it into a reset, which may destroy the last bytes
/// for the client.
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
    /// The identity for the host that the client names, if a client's chain would be verified there.
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

    /// Does an identity verify a chain of the client? An identity that requests certificates does not, if too many of
    /// the client's were refused recently.
    ///
    /// This is checked before the handshake, and again before each step of it: others of the client may have been
    /// refused meanwhile. Each worker takes one step at a time, and counts a chain with the step that refuses it. So
    /// for any number of parallel handshakes, the number of verified chains is at most the bound plus one for each
    /// worker.
    fn hears_chains_at(&self, identity: &ServerIdentity) -> bool {
        let refused = self.refused.filter(|_| identity.client().is_some());
        !refused.is_some_and(|refused| refused.are_too_many(self.client, clock::now()))
    }

    /// Counts a refused certificate. A missing one costs no more than any handshake, and is not a guess.
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

/// Reads until the client's hello is complete. Also returns the bytes after it.
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

/// Refuses a hello. rustls reports a missing extension for hellos of TLS 1.1 and older, rather than the version.
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

/// The handshake that proves to an authority that we control a host.
struct ChallengeHandshake {
    host: Box<str>,
    config: Arc<ServerConfig>,
}

/// The host that a client checks for our control: `acme-tls/1` is the only protocol that it offers (RFC 8737, section
/// 3), and its host may be in an unfinished order, here or at another gateway. Every other hello leads to an ordinary
/// handshake.
fn host_to_show(hello: &ClientHello<'_>, challenges: &AuthorityChallenges) -> Option<Box<str>> {
    let mut protocols = hello.alpn()?;
    if protocols.next() != Some(CHALLENGE_PROTOCOL) || protocols.next().is_some() {
        return None;
    }
    let host = named_host(hello.server_name()?);
    challenges.may_have_handshake(host).then(|| host.into())
}

/// Makes a handshake with an authority that checks whether we control a host, and ends the connection.
#[cold]
async fn answer_authority(
    stream: &mut Stream,
    accepted: Accepted,
    rest: &[u8],
    challenge: ChallengeHandshake,
) -> Result<Shaken, HandshakeFailure> {
    finish(stream, accepted, rest, challenge.config, || true).await?;
    // The authority may leave at any time.
    let _ = timeout(FAREWELL, part(stream, &[])).await;
    Ok(Shaken::Challenge(challenge.host))
}

/// Continues from the client's hello to the end of the handshake. `rest` are bytes that followed the hello. Before each
/// step `hears_chains` is called to learn whether a client's chain is verified.
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
            // The alert waits in the TLS layer.
            let _ = stream.flush().await;
            Err(error)
        }
    };
    shaken.map_err(|error| cause_of(&error))
}

async fn send(stream: &mut Stream, mut alert: AcceptedAlert) {
    let mut bytes = Vec::new();
    // A vector takes everything; for a client that has left nothing further is needed.
    let _ = alert.write_all(&mut bytes);
    if bytes.is_empty() {
        // rustls has no alert for bytes from which it can parse no message.
        bytes.extend(DECODE_ERROR);
    }
    let _ = stream.write_all(&bytes).await;
}

#[cfg(test)]
mod tests;
