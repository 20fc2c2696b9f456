//! Serves one connection: tells HTTP/1.1 from HTTP/2 by the first bytes, and hands the connection to the protocol's own
//! loop.

mod http1;
mod http2;

use super::connection_register::{ClientWait, Registration};
use super::h2_frames::PREFACE;
use super::handler::Handler;
use super::socket::Stream;
use super::{ListenSettings, Peer};
use crate::clock;
use bytes::BytesMut;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

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

/// Waits for the first bytes of a connection. Nothing when they do not come in time, or the connection must go before.
async fn begin(
    stream: &mut Stream,
    registration: &Registration,
    settings: &ListenSettings,
) -> Option<Beginning> {
    tokio::select! {
        biased;
        () = poll_fn(|cx| registration.poll_evicted(cx)) => None,
        beginning = timeout(settings.first_byte, sniff(stream, settings.head(), registration)) => beginning.ok()?,
        // No request has come on the connection yet.
        () = poll_fn(|_| registration.poll_draining()) => None,
    }
}

/// Reads until the first bytes are known to be the HTTP/2 preface or not, for `head` at most from the first of them on.
/// Nothing when the client leaves before.
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
            let mut reading = pin!(stream.read_buf(&mut seen));
            let read = poll_fn(|cx| {
                let read = reading.as_mut().poll(cx);
                if read.is_pending() {
                    registration.set_waiting(wait, clock::now());
                }
                read
            });
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
