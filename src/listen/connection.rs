//! Drives one connection: tells HTTP/1.1 from HTTP/2, each with its deadlines, and ends it gracefully.

use super::drain::LocalDrain;
use super::socket::Stream;
use super::{Peer, Settings};
use crate::shutdown::Drain;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most bytes in a head. Fields are bounded by hyper, at 100; saying so here would make it allocate for each head.
const MOST_HEAD: usize = 64 * 1024;
/// How long a peer without a request under way may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 128;

/// What answers requests. Given by whoever wires the program; this room does not know it.
pub trait Answer: 'static {
    /// Body of the responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        peer: Rc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + 'static;
}

/// Spawns on the worker's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
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
        protocol = timeout(settings.first_byte, sniff(&mut stream)) => protocol,
        // Nothing has been asked on it yet.
        () = poll_fn(|cx| draining.poll_begun(cx)) => return,
    };
    let Ok(Some(protocol)) = protocol else {
        return;
    };
    drop(draining);
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
async fn sniff(stream: &mut Stream) -> Option<Protocol> {
    let mut seen = BytesMut::with_capacity(512);
    loop {
        if stream.read_buf(&mut seen).await.ok()? == 0 {
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
    let service = Calls {
        answer,
        peer,
        open: None,
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Runs from the end of one response to the end of the next head, so it ends idle keep-alive too.
        .header_read_timeout(settings.idle)
        .max_header_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut listening = Some(drain.listen());
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if let Some(draining) = &mut listening
            && draining.poll_begun(cx).is_ready()
        {
            listening = None;
            connection.as_mut().graceful_shutdown();
            // The app's deadline ends what does not end by itself.
            return connection.as_mut().poll(cx).map(drop);
        }
        Poll::Pending
    })
    .await;
}

async fn serve_http2<A: Answer>(
    stream: Stream,
    peer: Rc<Peer>,
    answer: Rc<A>,
    settings: &Settings,
    drain: LocalDrain,
) {
    let open = Rc::new(OpenStreams {
        count: Cell::new(0),
        since: Cell::new(Instant::now()),
    });
    let service = Calls {
        answer,
        peer,
        open: Some(Rc::clone(&open)),
    };
    let connection = http2::Builder::new(Local)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(u32::try_from(MOST_HEAD).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut draining = drain.listen();
    tokio::select! {
        _ = connection.as_mut() => return,
        () = poll_fn(|cx| draining.poll_begun(cx)) => {}
        // hyper's keep-alive finds dead peers; a live one that asks for nothing is ours to end.
        () = open.idle_for(settings.idle) => {}
    }
    connection.as_mut().graceful_shutdown();
    let patience = if open.count.get() == 0 {
        // Nothing is under way: only the peer's farewell is waited for.
        FAREWELL
    } else {
        drain_patience(drain.token(), settings.idle)
    };
    let _ = timeout(patience, connection).await;
}

/// How long an ending HTTP/2 connection may take: to the drain's deadline, or one idle time.
fn drain_patience(drain: &Drain, idle: Duration) -> Duration {
    drain.deadline().map_or(idle, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    })
}

/// Requests under way on an HTTP/2 connection, and since when there is none.
struct OpenStreams {
    count: Cell<u32>,
    since: Cell<Instant>,
}

impl OpenStreams {
    async fn idle_for(&self, allowed: Duration) {
        loop {
            let (count, since) = (self.count.get(), self.since.get());
            let until = if count == 0 {
                since + allowed
            } else {
                Instant::now() + allowed
            };
            sleep_until(until).await;
            if self.count.get() == 0 && Instant::now() >= self.since.get() + allowed {
                return;
            }
        }
    }
}

/// One request under way.
struct OpenStream(Rc<OpenStreams>);

impl OpenStream {
    fn new(open: &Rc<OpenStreams>) -> Self {
        open.count.set(open.count.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.since.set(Instant::now());
    }
}

/// A response body that keeps its stream counted as open until its end.
struct Tracked<B> {
    body: B,
    _open: Option<OpenStream>,
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

struct Calls<A> {
    answer: Rc<A>,
    peer: Rc<Peer>,
    open: Option<Rc<OpenStreams>>,
}

impl<A: Answer> Service<Request<Incoming>> for Calls<A> {
    type Response = Response<Tracked<A::Body>>;
    type Error = Infallible;
    // Boxed, because hyper keeps room for the future as long as the connection lives: an idle one must stay small.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (answer, peer) = (Rc::clone(&self.answer), Rc::clone(&self.peer));
        let open = self.open.as_ref().map(OpenStream::new);
        // Built inside the box, where it then lives: it is large, and moving it would cost as much as a system call.
        Box::pin(async move {
            let response = answer.answer(request, peer).await;
            Ok(response.map(|body| Tracked { body, _open: open }))
        })
    }
}
