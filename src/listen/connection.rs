//! Drives one connection: tells HTTP/1.1 from HTTP/2, each with its deadlines, and ends it gracefully.

use super::connection_register::{ClientWait, Registration};
use super::drain::WorkerDrain;
use super::h2_flood::{FloodMeter, goaway};
use super::head_deadline::HeadDeadline;
use super::requests::{H1Service, OpenRequests};
use super::socket::{SocketProbe, Stream};
use super::stream_deadline::{self, IdleBounds, StreamSet, WorkerExecutor};
use super::{ListenSettings, Peer};
use crate::telemetry::log::Throttle;
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
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most fields in a head, without the pseudo-fields of HTTP/2. In HTTP/1.1 hyper's own bound, which is the same: saying so
/// there would make it allocate for each head.
pub(super) const MOST_FIELDS: usize = 100;
/// Most bytes in a head. h2 answers what exceeds its own bound without telling us, so that one is higher.
pub(super) const MOST_HEAD: usize = 64 * 1024;
/// Most bytes in a head of HTTP/2 that we get to see, and refuse.
const MOST_SEEN: u32 = 128 * 1024;
/// How long a peer without a request under way may take to say goodbye, at most a quarter of the idle time it ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 128;

/// What is said to a client whose head is late.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// What answers requests. Given by whoever wires the program; this room does not know it.
pub trait Handler: 'static {
    /// Body of the responses.
    type Body: ResponseBody;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        peer: Rc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + 'static;

    /// Hears of a head that was no request and has been answered without being asked about.
    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer);
}

/// A body that hears, over HTTP/2, what became of it. Over HTTP/1.1 it is over when all of it has been asked for.
pub trait ResponseBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// Does the client have to take it at the least rate, or is it one that may be silent by its nature?
    fn has_minimum_rate(&self) -> bool;

    /// The client has taken all of it. One that hears nothing and is dropped has lost its client.
    fn taken(&mut self);

    /// The client has taken nothing of it for the idle time, or too little.
    fn stalled(&mut self);
}

/// A head that was refused before it was a request.
#[derive(Debug, Clone, Copy)]
pub struct RejectedHead<'a> {
    /// The status it was answered with.
    pub status: StatusCode,
    /// Its first line, or as much as has come and is worth keeping of it.
    pub line: &'a [u8],
}

/// Serves one connection until it ends, idles too long, or draining is over.
pub async fn serve<A: Handler>(
    mut stream: Stream,
    peer: Peer,
    handler: Rc<A>,
    settings: &ListenSettings,
    drain: WorkerDrain,
) {
    let mut draining = drain.listen();
    let protocol = tokio::select! {
        biased;
        () = poll_fn(|cx| peer.registration.poll_evicted(cx)) => return,
        protocol = timeout(settings.first_byte, sniff(&mut stream, settings.head(), &peer.registration)) => protocol,
        // Nothing has been asked on it yet.
        () = poll_fn(|cx| draining.poll_begun(cx)) => return,
    };
    let Ok(Some((protocol, begun))) = protocol else {
        return;
    };
    drop(draining);
    peer.registration.is_busy();
    let session = Session {
        stream,
        peer: Rc::new(peer),
        handler,
        settings,
        drain,
    };
    match protocol {
        Protocol::Http1 => {
            serve_http1(session, begun).await;
        }
        // Boxed, so that the many connections of HTTP/1.1 need no room for it.
        Protocol::Http2 => {
            Box::pin(serve_http2(session)).await;
        }
    }
}

/// A connection whose protocol is known, and what serves it.
struct Session<'a, A> {
    stream: Stream,
    peer: Rc<Peer>,
    handler: Rc<A>,
    settings: &'a ListenSettings,
    drain: WorkerDrain,
}

enum Protocol {
    Http1,
    Http2,
}

/// Reads until the first bytes are or are not the HTTP/2 preface, for `head` at most from the first of them on, and says
/// when that was, where they came one by one. Nothing when the peer leaves before.
async fn sniff(
    stream: &mut Stream,
    head: Duration,
    registration: &Registration,
) -> Option<(Protocol, Option<Instant>)> {
    let mut seen = BytesMut::with_capacity(512);
    let mut begun = None;
    loop {
        let waiting = if seen.is_empty() {
            ClientWait::Silent
        } else {
            ClientWait::HalfHead
        };
        let read = {
            let mut reading = pin!(stream.read_buf(&mut seen));
            let read = poll_fn(|cx| {
                let read = reading.as_mut().poll(cx);
                if read.is_pending() {
                    registration.waits(waiting, Instant::now());
                }
                read
            });
            match begun {
                None => read.await,
                Some(begun) => timeout_at(begun + head, read).await.ok()?,
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
            begun.get_or_insert_with(Instant::now);
            continue;
        };
        stream.unread(seen.freeze());
        return Some((protocol, begun));
    }
}

async fn serve_http1<A: Handler>(session: Session<'_, A>, begun: Option<Instant>) {
    let Session {
        stream,
        peer,
        handler,
        settings,
        drain,
    } = session;
    let probe = stream.follow();
    let open = OpenRequests::new();
    let service = H1Service {
        handler: Rc::clone(&handler),
        peer: Rc::clone(&peer),
        open: Rc::clone(&open),
        drain: drain.clone(),
        probe: probe.clone(),
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
    let mut between = QuietConnection {
        open: &open,
        probe: &probe,
        settings,
        head: begun,
        seen: 0,
    };
    let mut listening = Some(drain.listen());
    let registration = &peer.registration;
    let ended = poll_fn(|cx| {
        // Before hyper looks for another request.
        if registration.poll_evicted(cx).is_ready() {
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
            return Poll::Ready(ended.err().as_ref().and_then(answered_by_hyper));
        }
        if !open.is_idle() {
            return probe.poll_left(cx).map(|()| None);
        }
        match probe.waiting() {
            Some(ClientWait::Idle) => registration.waits(ClientWait::Idle, open.since()),
            Some(waiting) => registration.waits(waiting, Instant::now()),
            None => registration.is_busy(),
        }
        between.poll_over(cx, idle.as_mut())
    })
    .await;
    // It ends here, or becomes a tunnel.
    registration.exempt();
    if let Some(status) = ended {
        if status == StatusCode::REQUEST_TIMEOUT {
            probe.write_last(LATE);
        }
        let line = &probe.first_line();
        handler.rejected(&RejectedHead { status, line }, &peer);
    }
}

/// A connection on which nothing is under way: before its first request, or between two.
struct QuietConnection<'a> {
    open: &'a OpenRequests,
    probe: &'a SocketProbe,
    settings: &'a ListenSettings,
    /// Since when a head is on its way.
    head: Option<Instant>,
    /// Bytes that had come when it was looked at last.
    seen: u64,
}

impl QuietConnection<'_> {
    /// Ready when nothing has been asked for too long, or when a head is late, with the status for that. A body that still
    /// comes after its answer may come, as long as it does come.
    ///
    /// Asked only where nothing is under way: the timer, once set, is moved when it fires and not with each request; only
    /// a head that does not come in one piece brings it forward.
    fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<Option<StatusCode>> {
        let late = if self.probe.in_head() {
            Some(*self.head.get_or_insert_with(Instant::now) + self.settings.head())
        } else {
            self.head = None;
            None
        };
        if let Some(late) = late
            && timer.deadline() > late
        {
            timer.as_mut().reset(late);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            let until = late.unwrap_or_else(|| self.idle_until(now));
            if until <= now {
                return Poll::Ready(late.map(|_| StatusCode::REQUEST_TIMEOUT));
            }
            timer.as_mut().reset(until);
        }
    }

    /// Has enough of a body come since this was last asked?
    fn keeps_coming(&mut self, bytes: u64) -> bool {
        let new = bytes - std::mem::replace(&mut self.seen, bytes).min(bytes);
        new >= self.settings.allowed().least.max(1)
    }

    fn idle_until(&mut self, now: Instant) -> Instant {
        let allowed = self.settings.idle;
        match self.probe.in_body() {
            Some(bytes) if self.keeps_coming(bytes) => now + allowed,
            // An answer is over for hyper before its last bytes are taken.
            _ => self.open.since().max(self.probe.wrote()) + allowed,
        }
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
enum EndReason {
    /// The client has left, or broken the protocol.
    ByItself,
    /// It has been idle for too long, or the gateway stops.
    InPeace,
    /// Another is to have its room.
    ForAnother,
    /// It has demanded too many answers to PING and SETTINGS; its latest stream.
    Flood(u32),
    /// A head is late. Behind half of one nothing can come that anything under way may wait for.
    Late,
}

async fn serve_http2<A: Handler>(session: Session<'_, A>) {
    let Session {
        stream,
        peer,
        handler,
        settings,
        drain,
    } = session;
    let probe = stream.follow_frames();
    let streams = StreamSet::new(settings.allowed());
    let service = stream_deadline::H2Service {
        handler: Rc::clone(&handler),
        peer: Rc::clone(&peer),
        streams: Rc::clone(&streams),
    };
    let connection = http2::Builder::new(WorkerExecutor(Rc::clone(&streams)))
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
        let waits = IdleBounds {
            from: Instant::now(),
            silent: settings.idle - farewell,
            idle: settings.idle,
        };
        let mut late = HeadDeadline::default();
        let mut demands = FloodMeter::new(Instant::now());
        let mut flooded = || {
            let (demanded, stream) = probe.demanded()?;
            demands.is_flood(demanded, Instant::now).then_some(stream)
        };
        let ended = tokio::select! {
            biased;
            // Before hyper looks for another request.
            () = poll_fn(|cx| peer.registration.poll_evicted(cx)) => EndReason::ForAnother,
            _ = streams.drive(connection.as_mut(), &peer.registration, &probe) => EndReason::ByItself,
            // After the connection has read what there was.
            stream = poll_fn(|_| flooded().map_or(Poll::Pending, Poll::Ready)) => EndReason::Flood(stream),
            () = poll_fn(|cx| late.poll(cx, probe.in_head(), settings.head())) => EndReason::Late,
            () = poll_fn(|cx| draining.poll_begun(cx)) => EndReason::InPeace,
            // hyper's keep-alive finds dead peers; a live one that asks for nothing, or takes nothing, is ours to end.
            () = streams.over(waits, &probe) => EndReason::InPeace,
        };
        peer.registration.exempt();
        if let EndReason::Flood(stream) = ended {
            warn_of_flood(&peer);
            probe.write_last(&goaway(stream));
        } else if ended != EndReason::ByItself {
            connection.as_mut().graceful_shutdown();
        }
        if ended == EndReason::Late {
            // There is no stream yet to answer on.
            let (status, line) = (StatusCode::REQUEST_TIMEOUT, &[][..]);
            handler.rejected(&RejectedHead { status, line }, &peer);
        }
        if matches!(ended, EndReason::ForAnother | EndReason::Late) {
            // The client is told as far as its socket takes it at once.
            poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx).is_ready())).await;
        }
        if ended == EndReason::InPeace {
            // What is under way is finished; while draining, the app's deadline ends what does not end by itself.
            let waits = IdleBounds {
                from: Instant::now(),
                silent: farewell,
                idle: settings.idle,
            };
            tokio::select! {
                _ = streams.drive(connection, &peer.registration, &probe) => {}
                () = streams.over(waits, &probe) => {}
            }
        }
    }
    streams.settle();
}

#[cold]
fn warn_of_flood(peer: &Peer) {
    static FLOOD: Throttle = Throttle::every(Duration::from_secs(10));
    if let Some(more) = FLOOD.pass() {
        tracing::warn!(
            "{} demanded answer upon answer to PING and SETTINGS over HTTP/2: its connection was ended (ENHANCE_YOUR_CALM){more}",
            peer.address.ip()
        );
    }
}
