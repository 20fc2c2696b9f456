//! Drives one connection: tells HTTP/1.1 from HTTP/2, each with its deadlines, and ends it gracefully.

use super::calls::{Calls, Open};
use super::drain::LocalDrain;
use super::register::{Guest, Waiting};
use super::socket::{Beside, Stream};
use super::streams::{self, OnWorker, Streams, Waits};
use super::{Peer, Settings};
use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most bytes in a head. h2 answers what exceeds its own bound without telling us, so that one is higher. Fields are bounded by hyper, at 100; saying so here would make it allocate for each head.
pub(super) const MOST_HEAD: usize = 64 * 1024;
/// Most bytes in a head of HTTP/2 that we get to see, and refuse.
const MOST_SEEN: u32 = 128 * 1024;
/// How long a peer without a request under way may take to say goodbye, at most a quarter of the idle time it ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 128;

/// What answers requests. Given by whoever wires the program; this room does not know it.
pub trait Answer: 'static {
    /// Body of the responses.
    type Body: Carried;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        peer: Rc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + 'static;

    /// Hears of a head that was no request and has been answered without being asked about.
    fn refused(&self, head: &RefusedHead<'_>, peer: &Peer);
}

/// A body that hears, over HTTP/2, what became of it. Over HTTP/1.1 it is over when all of it has been asked for.
pub trait Carried:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// The client has taken all of it. One that hears nothing and is dropped has lost its client.
    fn taken(&mut self);

    /// The client has taken nothing of it for the idle time.
    fn stalled(&mut self);
}

/// A head that hyper has refused.
#[derive(Debug, Clone, Copy)]
pub struct RefusedHead<'a> {
    /// The status it was answered with.
    pub status: StatusCode,
    /// Its first line, or as much as has come and is worth keeping of it.
    pub line: &'a [u8],
}

/// Serves one connection until it ends, idles too long, or draining is over.
pub async fn serve<A: Answer>(
    mut stream: Stream,
    peer: Peer,
    answer: Rc<A>,
    settings: &Settings,
    drain: LocalDrain,
) {
    let mut draining = drain.listen();
    let protocol = tokio::select! {
        biased;
        () = poll_fn(|cx| peer.guest.poll_asked(cx)) => return,
        protocol = timeout(settings.first_byte, sniff(&mut stream, &peer.guest)) => protocol,
        // Nothing has been asked on it yet.
        () = poll_fn(|cx| draining.poll_begun(cx)) => return,
    };
    let Ok(Some(protocol)) = protocol else {
        return;
    };
    drop(draining);
    peer.guest.is_busy();
    let peer = Rc::new(peer);
    match protocol {
        Protocol::Http1 => serve_http1(stream, peer, answer, settings, drain).await,
        // Boxed, so that the many connections of HTTP/1.1 need no room for it.
        Protocol::Http2 => {
            Box::pin(serve_http2(stream, peer, answer, settings, drain)).await;
        }
    }
}

enum Protocol {
    Http1,
    Http2,
}

/// Reads until the first bytes are or are not the HTTP/2 preface. Nothing when the peer leaves before.
async fn sniff(stream: &mut Stream, guest: &Guest) -> Option<Protocol> {
    let mut seen = BytesMut::with_capacity(512);
    loop {
        let waiting = match seen.is_empty() {
            true => Waiting::Silent,
            false => Waiting::HalfHead,
        };
        let read = {
            let mut reading = pin!(stream.read_buf(&mut seen));
            let read = poll_fn(|cx| {
                let read = reading.as_mut().poll(cx);
                if read.is_pending() {
                    guest.waits(waiting, Instant::now());
                }
                read
            });
            read.await
        };
        if read.ok()? == 0 {
            return None;
        }
        let compared = seen.len().min(PREFACE.len());
        let protocol = match (
            seen[..compared] == PREFACE[..compared],
            compared == PREFACE.len(),
        ) {
            (false, _) => Protocol::Http1,
            (true, true) => Protocol::Http2,
            (true, false) => continue,
        };
        stream.unread(seen.freeze());
        return Some(protocol);
    }
}

async fn serve_http1<A: Answer>(
    stream: Stream,
    peer: Rc<Peer>,
    answer: Rc<A>,
    settings: &Settings,
    drain: LocalDrain,
) {
    let (beside, open) = (stream.follow(), Open::new());
    let service = Calls {
        answer: Rc::clone(&answer),
        peer: Rc::clone(&peer),
        open: Rc::clone(&open),
        drain: drain.clone(),
        beside: beside.clone(),
    };
    // Without hyper's deadline for heads, which is a timer set anew for each request, and without its way of looking for
    // a client that leaves, which is a read.
    let connection = http1::Builder::new()
        .half_close(true)
        .max_header_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut idle = pin!(sleep_until(open.since() + settings.idle));
    let mut seen = 0;
    let mut listening = Some(drain.listen());
    let guest = &peer.guest;
    let ended = poll_fn(|cx| {
        // Before hyper looks for another request.
        if guest.poll_asked(cx).is_ready() {
            return Poll::Ready(None);
        }
        if let Some(draining) = &mut listening
            && draining.poll_begun(cx).is_ready()
        {
            listening = None;
            // The app's deadline ends what does not end by itself.
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended.err());
        }
        if !open.is_idle() {
            return beside.poll_left(cx).map(|()| None);
        }
        match beside.waiting() {
            Some(Waiting::Idle) => guest.waits(Waiting::Idle, open.since()),
            Some(waiting) => guest.waits(waiting, Instant::now()),
            None => guest.is_busy(),
        }
        poll_idle(
            cx,
            idle.as_mut(),
            &mut seen,
            (&open, &beside),
            settings.idle,
        )
        .map(|()| None)
    })
    .await;
    // It ends here, or becomes a tunnel.
    guest.stays();
    if let Some(status) = ended.as_ref().and_then(answered_by_hyper) {
        let line = &beside.first_line();
        answer.refused(&RefusedHead { status, line }, &peer);
    }
}

/// Ready when nothing has been asked for too long: between two requests, or inside a head. A body that still comes after
/// its answer may come, as long as it does come.
///
/// Asked only where nothing is under way: the timer, once set, is moved when it fires and not with each request.
fn poll_idle(
    cx: &mut Context<'_>,
    mut timer: Pin<&mut Sleep>,
    seen: &mut u64,
    (open, beside): (&Open, &Beside),
    allowed: Duration,
) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now();
        let until = match beside.in_body() {
            Some(bytes) if bytes != std::mem::replace(seen, bytes) => now + allowed,
            // An answer is over for hyper before its last bytes are taken.
            _ => open.since().max(beside.wrote()) + allowed,
        };
        if until <= now {
            return Poll::Ready(());
        }
        timer.as_mut().reset(until);
    }
}

/// The status with which hyper has answered what it could not read, if it was that.
fn answered_by_hyper(error: &hyper::Error) -> Option<StatusCode> {
    if error.is_parse_too_large() {
        // Never 414: a URI too long for hyper is in a head that is too large for us.
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    (error.is_parse() && !error.is_parse_version_h2()).then_some(StatusCode::BAD_REQUEST)
}

/// Why a connection of HTTP/2 asks for no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The client has left, or broken the protocol.
    ByItself,
    /// It has been idle for too long, or the gateway stops.
    InPeace,
    /// Another is to have its room.
    ForAnother,
}

async fn serve_http2<A: Answer>(
    stream: Stream,
    peer: Rc<Peer>,
    answer: Rc<A>,
    settings: &Settings,
    drain: LocalDrain,
) {
    let (beside, streams) = (stream.beside(), Streams::new());
    let service = streams::Calls {
        answer,
        peer: Rc::clone(&peer),
        streams: Rc::clone(&streams),
    };
    let connection = http2::Builder::new(OnWorker(Rc::clone(&streams)))
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_SEEN)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .serve_connection(TokioIo::new(stream), service);
    {
        let mut connection = pin!(connection);
        let mut draining = drain.listen();
        let farewell = FAREWELL.min(settings.idle / 4);
        let waits = Waits {
            from: Instant::now(),
            silent: settings.idle - farewell,
            idle: settings.idle,
        };
        let ended = tokio::select! {
            biased;
            // Before hyper looks for another request.
            () = poll_fn(|cx| peer.guest.poll_asked(cx)) => Ended::ForAnother,
            _ = streams.drive(connection.as_mut(), &peer.guest, &beside) => Ended::ByItself,
            () = poll_fn(|cx| draining.poll_begun(cx)) => Ended::InPeace,
            // hyper's keep-alive finds dead peers; a live one that asks for nothing, or takes nothing, is ours to end.
            () = streams.over(waits, &beside) => Ended::InPeace,
        };
        peer.guest.stays();
        if ended != Ended::ByItself {
            connection.as_mut().graceful_shutdown();
        }
        if ended == Ended::ForAnother {
            // The client is told as far as its socket takes it at once.
            poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx).is_ready())).await;
        }
        if ended == Ended::InPeace {
            // What is under way is finished; while draining, the app's deadline ends what does not end by itself.
            let waits = Waits {
                from: Instant::now(),
                silent: farewell,
                idle: settings.idle,
            };
            tokio::select! {
                _ = streams.drive(connection, &peer.guest, &beside) => {}
                () = streams.over(waits, &beside) => {}
            }
        }
    }
    streams.settle();
}
