//! Bodies on their way through: streamed both ways, never collected, each with a deadline for silence and a least rate.

use super::body_prefix::BodyPrefix;
use super::exchange::{Exchange, ExchangeEnd};
use super::response_body::{UpstreamBody, filter_trailers};
use super::soft_timeout::QUICK;
use crate::listen::handler::ResponseBody;
use crate::listen::minimum_rate::{RateBound, RateTimer};
use crate::listen::socket::SocketWatch;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Incoming};
use std::cell::Cell;
use std::fmt;
use std::future::pending;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Nothing came for too long, or too little.
    #[error("nothing came for {0:?}, or too little")]
    Idle(Duration),
    /// Nobody is left to read it.
    #[error("the client is gone")]
    ClientGone,
    /// The connection it came on failed.
    #[error("the connection failed")]
    Lost(#[from] hyper::Error),
}

/// Why a request's body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadFailure {
    /// Nothing came for too long, or too little.
    Stopped,
    /// The client left.
    ClientGone,
    /// It is not framed as HTTP frames bodies.
    Malformed,
}

/// Resolves when the rest of an upload will not come, since its client has left. Never once all of it has been taken: what
/// is then left to do is the server's; nor while its server takes what the client has left behind, which may be all of it.
pub async fn abandoned(client: SocketWatch, upload: Rc<Upload>) {
    let mut leaving = pin!(client.gone());
    let mut gone = false;
    loop {
        let (was_gone, relayed) = (gone, upload.bytes.get());
        if gone {
            sleep(QUICK).await
        } else {
            gone = timeout(QUICK, leaving.as_mut()).await.is_ok() || client.is_over()
        }
        if upload.done.get() {
            return pending().await;
        }
        if was_gone && upload.bytes.get() == relayed {
            // Whoever still reads the answer finds its connection ended, by the client's doing.
            let broken = upload.broken.get().unwrap_or(UploadFailure::ClientGone);
            upload.broken.set(Some(broken));
            return;
        }
    }
}

/// What hyper's error on a request's body comes from: it tells by the kind of an I/O error beneath.
pub(super) fn broken_by(error: &hyper::Error) -> UploadFailure {
    use std::io::ErrorKind::{InvalidData, InvalidInput};
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return match error.kind() {
                InvalidData | InvalidInput => UploadFailure::Malformed,
                _ => UploadFailure::ClientGone,
            };
        }
        cause = error.source();
    }
    UploadFailure::ClientGone
}

/// Is it not a failure of the connection, but something that is no HTTP?
#[must_use]
pub fn is_malformed(error: &hyper::Error) -> bool {
    error.is_parse() || broken_by(error) == UploadFailure::Malformed
}

/// What is known of a request's body while it is on its way.
#[derive(Debug, Default)]
pub struct Upload {
    /// Bytes relayed so far.
    pub bytes: Cell<u64>,
    /// Nothing more of it will come.
    pub done: Cell<bool>,
    /// Why it ended early, not by the upstream's doing.
    pub broken: Cell<Option<UploadFailure>>,
}

/// A request's body towards the upstream. Small, because hyper moves it several times on its way.
#[derive(Debug)]
pub enum RequestBody {
    /// None.
    Empty,
    /// As the client sends it.
    Stream(Box<UploadBody>),
}

/// A body on its way up.
#[derive(Debug)]
pub struct UploadBody {
    /// What has been read of it already.
    beginning: Option<Box<BodyPrefix>>,
    incoming: Incoming,
    pace: RateTimer,
    allowed: RateBound,
    upload: Rc<Upload>,
}

impl RequestBody {
    /// Wraps what the client sends; the other half tells how far it has come.
    #[must_use]
    pub fn new(
        beginning: Option<Box<BodyPrefix>>,
        incoming: Incoming,
        allowed: RateBound,
    ) -> (Self, Option<Rc<Upload>>) {
        if incoming.is_end_stream() && beginning.is_none() {
            return (Self::Empty, None);
        }
        let upload = Rc::<Upload>::default();
        let sending = UploadBody {
            beginning,
            incoming,
            pace: RateTimer::new(allowed),
            allowed,
            upload: Rc::clone(&upload),
        };
        (Self::Stream(Box::new(sending)), Some(upload))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Stream(sending) => sending.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(sending) => sending.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(sending) => match &sending.beginning {
                Some(beginning) => beginning.announced(),
                None => sending.incoming.size_hint(),
            },
        }
    }
}

impl UploadBody {
    fn is_over(&self) -> bool {
        match &self.beginning {
            None => self.incoming.is_end_stream(),
            Some(beginning) => beginning.is_all && beginning.is_over(),
        }
    }

    /// What has been read before; its end, if that was among it.
    #[cold]
    fn next_of(&mut self, mut beginning: Box<BodyPrefix>) -> Option<Frame<Bytes>> {
        let frame = beginning.next();
        // Kept where it was all, for the body is not asked again when it has ended.
        self.beginning = Some(beginning).filter(|rest| rest.is_all || !rest.is_over());
        self.upload.done.set(self.is_over());
        let frame = frame?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.upload.bytes.set(self.upload.bytes.get() + length);
        Some(filter_trailers(frame))
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(beginning) = self.beginning.take() {
            let frame = self.next_of(beginning);
            if frame.is_some() || self.is_over() {
                return Poll::Ready(frame.map(Ok));
            }
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            ready!(self.pace.poll_late(cx));
            self.upload.broken.set(Some(UploadFailure::Stopped));
            return Poll::Ready(Some(Err(BodyError::Idle(self.allowed.idle))));
        };
        let length = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        self.pace.received(length);
        let ended = self.incoming.is_end_stream() || !matches!(frame, Some(Ok(_)));
        self.upload.done.set(ended);
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                self.upload.bytes.set(self.upload.bytes.get() + length);
                Some(Ok(filter_trailers(frame)))
            }
            Some(Err(error)) => {
                self.upload.broken.set(Some(broken_by(&error)));
                Some(Err(error.into()))
            }
            None => None,
        })
    }
}

/// A response's body towards the client; the exchange rides on it and ends with it.
pub struct Body {
    kind: BodySource,
    exchange: Option<Box<Exchange>>,
    /// Its end is when the client has taken it, not when it has been handed on.
    until_taken: bool,
}

enum BodySource {
    /// Written by the gateway.
    Own(Option<Bytes>),
    /// Streamed from the upstream.
    Upstream(Box<UpstreamBody>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BodySource::Own(_) => "Body::Own",
            BodySource::Upstream(_) => "Body::Upstream",
        })
    }
}

impl Body {
    /// A body of the gateway's own.
    #[must_use]
    pub fn own(bytes: Bytes) -> Self {
        Self {
            kind: BodySource::Own(Some(bytes).filter(|bytes| !bytes.is_empty())),
            exchange: None,
            until_taken: false,
        }
    }

    /// A body from the upstream, if there is any.
    #[must_use]
    pub(super) fn upstream(download: Option<UpstreamBody>) -> Self {
        Self {
            kind: match download {
                Some(download) => BodySource::Upstream(Box::new(download)),
                None => BodySource::Own(None),
            },
            exchange: None,
            until_taken: false,
        }
    }

    /// Lets the exchange ride on this body: it ends when the last byte has been handed on, or when the body is dropped.
    #[must_use]
    pub fn carrying(mut self, mut exchange: Box<Exchange>) -> Self {
        self.until_taken = exchange.version() == Version::HTTP_2;
        if let BodySource::Own(bytes) = &self.kind {
            exchange.sent(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
        }
        self.exchange = Some(exchange);
        if let BodySource::Own(_) = &self.kind {
            self.complete();
        }
        self
    }

    /// All of it has been handed on.
    fn complete(&mut self) {
        match &mut self.exchange {
            Some(exchange) if self.until_taken => exchange.handed_on(),
            _ => self.end(ExchangeEnd::Complete),
        }
    }

    /// It goes no further.
    fn end(&mut self, ending: ExchangeEnd) {
        if let Some(exchange) = self.exchange.take() {
            exchange.end(ending);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let download = match &mut this.kind {
            BodySource::Own(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            BodySource::Upstream(download) => download,
        };
        let frame = ready!(download.poll_frame(cx));
        // A server that knows the length stops asking after the last byte, so the end is seen here and not by a
        // further question.
        match &frame {
            Some(Ok(part)) => {
                if let (Some(exchange), Some(data)) = (&mut this.exchange, part.data_ref()) {
                    exchange.passes(data);
                }
                // Nothing follows trailers, and hyper does not ask again after writing them.
                if part.is_trailers() || download.is_end_stream() {
                    this.complete();
                }
            }
            Some(Err(BodyError::ClientGone)) => this.end(ExchangeEnd::ClientGone),
            Some(Err(BodyError::Idle(_))) => this.end(ExchangeEnd::UpstreamStalled),
            Some(Err(BodyError::Lost(error))) if is_malformed(error) => {
                this.end(ExchangeEnd::UpstreamMalformed);
            }
            Some(Err(_)) => this.end(ExchangeEnd::UpstreamFailed),
            None => this.complete(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodySource::Own(bytes) => bytes.is_none(),
            BodySource::Upstream(download) => download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodySource::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            BodySource::Upstream(download) => download.size_hint(),
        }
    }
}

impl ResponseBody for Body {
    fn has_minimum_rate(&self) -> bool {
        let exchange = self.exchange.as_ref();
        !exchange.is_some_and(|exchange| exchange.is_silent_by_nature())
    }

    fn taken(&mut self) {
        self.end(ExchangeEnd::Complete);
    }

    fn stalled(&mut self) {
        self.end(ExchangeEnd::ClientStalled);
    }
}

/// Most of a refused request's body that is read, and for how long, so that the refusal is not overtaken by a reset
/// (RFC 9112, section 9.6).
const DISCARDED: u64 = 64 * 1024;
const DISCARDING: Duration = Duration::from_secs(1);

/// Is more of it to come than [`discard`] reads? Then its connection ends with a refusal.
#[must_use]
pub fn outlasts<B: http_body::Body>(request: &Request<B>) -> bool {
    let body = request.body();
    !body.is_end_stream()
        && (body.size_hint().lower() > DISCARDED || request.headers().contains_key(header::EXPECT))
}

/// Reads a little of a body that nobody wants. A client that waits for a 100 sends none and is sent none.
pub fn discard(mut incoming: Incoming, parts: &Parts) {
    use http_body_util::BodyExt as _;
    if incoming.is_end_stream() || parts.headers.contains_key(header::EXPECT) {
        return;
    }
    tokio::task::spawn_local(async move {
        let reading = async {
            let mut left = DISCARDED;
            while let Some(Ok(frame)) = incoming.frame().await {
                let read = frame.data_ref().map_or(0, |data| data.len() as u64);
                if read >= left {
                    return;
                }
                left -= read;
            }
        };
        let _ = tokio::time::timeout(DISCARDING, reading).await;
    });
}
