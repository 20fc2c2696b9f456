//! Serves one connection: recognises HTTP/1.1 or HTTP/2, by the TLS handshake or by the first bytes, and runs the
//! protocol's own loop.
//!
//! In: a stream after its arrival. Out: requests for the service, and its answers to the client.
//!
//! ```text
//! http1            HTTP/1.1; a connection at rest has no state of hyper
//! http2            HTTP/2
//! handler          the trait of the service, and of its bodies
//! requests         requests of one connection in flight
//! keep_alive       how long a connection waits for its next request
//! head_deadline    one deadline for a head of HTTP/2; of HTTP/1.1 it is in `http1`
//! stream_deadline  a stream whose client takes nothing is reset
//! backpressure     pieces of an answer over HTTP/2 that know whether they were taken
//! h2_flood         floods of PING, SETTINGS and frames that move nothing
//! h2_fields        fields of answers that HPACK does not index
//! ```

mod backpressure;
mod h2_fields;
mod h2_flood;
pub mod handler;
mod head_deadline;
mod http1;
mod http2;
pub mod keep_alive;
mod requests;
mod stream_deadline;

#[cfg(test)]
pub(crate) use http2::{MOST_SEEN, MOST_STREAMS, MOST_UNTAKEN, STREAM_WINDOW};

use super::accept::connection_register::{ClientWait, Registration};
use super::socket::Stream;
use super::socket::h2_frames::PREFACE;
use super::{ListenSettings, Peer};
use crate::clock;
use crate::tls::Alpn;
use bytes::BytesMut;
use handler::{Handler, RejectedHead};
use http::StatusCode;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Below this age, a draining gateway still waits for the first request of a connection: the request may be on its way,
/// and the client cannot know that the gateway ends.
const FRESH: Duration = Duration::from_secs(1);
/// The longest time for a client to take the answer that ends its connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// The parts that serve a connection.
struct Session<'a, A> {
    peer: Rc<Peer>,
    handler: Rc<A>,
    settings: &'a ListenSettings,
}

enum Protocol {
    Http1,
    Http2,
}

/// The first bytes of a connection.
struct Beginning {
    protocol: Protocol,
    /// The time of the first byte, if more than one read was needed.
    since: Option<Instant>,
}

/// Serves one connection until it ends, idles too long, or draining is over.
pub async fn serve<A: Handler>(
    mut stream: Stream,
    peer: Rc<Peer>,
    handler: Rc<A>,
    settings: &ListenSettings,
) {
    // The future is boxed, so that no connection needs room for it once its protocol is known.
    let beginning = Box::pin(begin(&mut stream, &peer.registration, settings)).await;
    let Some(Beginning { protocol, since }) = beginning else {
        return;
    };
    peer.registration.set_busy();
    // With TLS, the handshake has selected the protocol.
    let protocol = match (peer.tls().map(|session| session.protocol), protocol) {
        (None, seen) => seen,
        (Some(Alpn::H2), _) => Protocol::Http2,
        (Some(Alpn::Http11), Protocol::Http1) => Protocol::Http1,
        (Some(Alpn::Http11), Protocol::Http2) => {
            return Box::pin(reject_preface(stream, &peer, &*handler)).await;
        }
    };
    let session = Session {
        peer,
        handler,
        settings,
    };
    match protocol {
        Protocol::Http1 => http1::serve(&session, stream, since).await,
        // The future is boxed, so that the many connections of HTTP/1.1 need no room for it.
        Protocol::Http2 => Box::pin(http2::serve(&session, stream)).await,
    }
}

/// Polls `step`, and notes in the register that the client is waited for meanwhile.
pub(super) async fn waiting<F: Future>(
    registration: &Registration,
    wait: ClientWait,
    step: F,
) -> F::Output {
    let mut step = pin!(step);
    poll_fn(|cx| {
        let done = step.as_mut().poll(cx);
        if done.is_pending() {
            registration.set_waiting(wait, clock::now());
        }
        done
    })
    .await
}

/// Ends a connection on which the client uses HTTP/2 although its handshake selected HTTP/1.1.
#[cold]
async fn reject_preface<A: Handler>(mut stream: Stream, peer: &Peer, handler: &A) {
    let head = RejectedHead::Http1 {
        status: StatusCode::BAD_REQUEST,
        beginning: PREFACE,
    };
    let answer = handler.rejected(&head, peer);
    // The client may leave at any time.
    let _ = timeout(FAREWELL, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    })
    .await;
}

/// Waits for the first bytes of a connection. `None` if they do not arrive in time, or the connection must end before.
async fn begin(
    stream: &mut Stream,
    registration: &Registration,
    settings: &ListenSettings,
) -> Option<Beginning> {
    let since = clock::now();
    tokio::select! {
        biased;
        () = poll_fn(|cx| registration.poll_evicted(cx)) => None,
        beginning = timeout(settings.first_byte, sniff(stream, settings.head(), registration)) => beginning.ok()?,
        () = until_given_up(registration, since) => None,
    }
}

/// Resolves when the gateway drains and no longer needs to wait for the first request of a connection that was accepted
/// at `since`.
pub(super) async fn until_given_up(registration: &Registration, since: Instant) {
    poll_fn(|_| registration.poll_draining()).await;
    sleep_until(registration.drain_midpoint().min(since + FRESH)).await;
}

/// Reads until the first bytes are known to be the HTTP/2 preface or not, for at most `head` after the first of them.
/// `None` if the client leaves before.
async fn sniff(
    stream: &mut Stream,
    head: Duration,
    registration: &Registration,
) -> Option<Beginning> {
    let mut seen = BytesMut::with_capacity(512);
    let mut since = None;
    loop {
        let wait = if seen.is_empty() {
            ClientWait::Silent
        } else {
            ClientWait::HalfHead
        };
        let read = {
            let read = waiting(registration, wait, stream.read_buf(&mut seen));
            match since {
                None => read.await,
                Some(since) => timeout_at(since + head, read).await.ok()?,
            }
        };
        if read.ok()? == 0 {
            return None;
        }
        let compared = seen.len().min(PREFACE.len());
        let protocol = if seen[..compared] != PREFACE[..compared] {
            Protocol::Http1
        } else if compared == PREFACE.len() {
            Protocol::Http2
        } else {
            since.get_or_insert_with(clock::now);
            continue;
        };
        stream.unread(seen.freeze());
        return Some(Beginning { protocol, since });
    }
}
