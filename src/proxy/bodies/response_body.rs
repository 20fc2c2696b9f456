//! A response's body towards the client: streamed from the upstream, with an idle deadline; a broken one is detected.

use crate::listen::socket::SocketWatch;
use crate::proxy::bodies::body_failure::BodyError;
use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::bodies::soft_timeout::SoftTimeout;
use crate::proxy::bodies::trailers;
use crate::upstream::connection::Connection;
use crate::upstream::endpoint::PooledConnection;
use crate::upstream::http1::AnswerError;
use crate::upstream::shared_connection::AnswerHalf;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Incoming};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A body from the upstream.
pub(in crate::proxy) struct UpstreamBody {
    source: BodyBringer,
    /// The frame that arrived with the head.
    first: Option<Frame<Bytes>>,
    /// The bytes that are still to be passed on, where the body's length is known.
    left: Option<u64>,
    /// The break of the body, while the bytes before it are written out.
    broken: Option<BodyError>,
    patience: SoftTimeout,
}

/// The source of an answer's body.
pub(in crate::proxy) enum BodyBringer {
    /// A connection, which returns to its pool as soon as the whole body has been read.
    Connection(PooledConnection<RequestBody>),
    /// A connection on which the request is still being sent.
    Shared(AnswerHalf<RequestBody>),
    /// hyper, if a tunnel was requested.
    Tunnel(Incoming),
    /// All of the body has been read.
    Over,
}

/// The source of an answer's body.
#[derive(Debug)]
pub enum BodyCarrier {
    /// The connection, which returns to its pool afterwards.
    Connection(Connection<RequestBody>),
    /// The body of an answer to a request for a tunnel.
    Tunnel(Incoming),
}

impl BodyCarrier {
    /// The length of a body of which `start` has been read, if known.
    #[must_use]
    pub fn left(&self, start: &BodyStart) -> Option<u64> {
        let rest = match self {
            Self::Connection(connection) => connection.length(),
            Self::Tunnel(body) => body.size_hint().exact(),
        };
        let first = match start {
            BodyStart::With(frame) => frame.data_ref().map_or(0, |data| data.len() as u64),
            BodyStart::Unknown | BodyStart::Empty => 0,
        };
        rest.map(|rest| rest + first)
    }
}

/// The beginning of a body, if it is known with the head.
#[derive(Debug, Default)]
pub enum BodyStart {
    /// The beginning is still to arrive.
    #[default]
    Unknown,
    /// The body begins with this frame.
    With(Frame<Bytes>),
    /// The body is empty.
    Empty,
}

impl BodyStart {
    /// The beginning of the answer's body, found without waiting.
    ///
    /// # Errors
    /// If the body has broken before any of it arrived.
    pub fn of(carrier: &mut BodyCarrier) -> Result<Self, AnswerError> {
        let mut quiet = Context::from_waker(Waker::noop());
        let polled = match carrier {
            BodyCarrier::Connection(connection) => connection.poll_frame(&mut quiet),
            BodyCarrier::Tunnel(incoming) => {
                let polled = Pin::new(incoming).poll_frame(&mut quiet);
                polled.map_err(AnswerError::from)
            }
        };
        match polled {
            Poll::Pending => Ok(Self::Unknown),
            Poll::Ready(None) => Ok(Self::Empty),
            Poll::Ready(Some(frame)) => frame.map(Self::With),
        }
    }
}

impl UpstreamBody {
    /// A body that begins with `start` and has `left` bytes after it, if known; `None` if `start` is the whole body. A
    /// connection without anything left to read returns to its pool at once.
    #[inline]
    pub(in crate::proxy) fn new(
        mut source: BodyBringer,
        start: BodyStart,
        left: Option<u64>,
        allowed: Duration,
        client: &SocketWatch,
    ) -> Option<Self> {
        source.release_read();
        let first = match start {
            BodyStart::Empty => return None,
            BodyStart::Unknown => None,
            BodyStart::With(frame) => Some(trailers::filtered(frame)),
        };
        Some(Self {
            source,
            first,
            left,
            broken: None,
            patience: SoftTimeout::new(allowed, client.clone()),
        })
    }

    pub(in crate::proxy) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            self.pass(&first);
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = self.source.poll_frame(cx);
        self.source.release_read();
        let Poll::Ready(frame) = polled else {
            let error = ready!(self.patience.poll_lost(cx));
            return Poll::Ready(Some(Err(error)));
        };
        self.patience.resumed();
        if let Some(Err(error)) = frame {
            // When a body fails, hyper drops the bytes that it has not written. While a body is pending, hyper writes
            // them.
            self.broken = Some(error.into());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(Ok(frame)) = &frame {
            self.pass(frame);
        }
        Poll::Ready(frame.map(|frame| frame.map(trailers::filtered).map_err(BodyError::from)))
    }

    pub(in crate::proxy) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.broken.is_none() && self.source.is_read()
    }

    pub(in crate::proxy) fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Notes that a frame is handed on.
    fn pass(&mut self, frame: &Frame<Bytes>) {
        if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
            *left = left.saturating_sub(data.len() as u64);
        }
    }
}

impl BodyBringer {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match self {
            Self::Connection((connection, _)) => connection.poll_frame(cx),
            Self::Shared(client) => client.poll_frame(cx),
            Self::Tunnel(incoming) => Pin::new(incoming).poll_frame(cx).map_err(AnswerError::from),
            Self::Over => Poll::Ready(None),
        }
    }

    /// Has the body been read to its end?
    fn is_read(&self) -> bool {
        match self {
            Self::Connection((connection, _)) => connection.is_read(),
            Self::Shared(client) => client.is_read(),
            Self::Tunnel(incoming) => incoming.is_end_stream(),
            Self::Over => true,
        }
    }

    /// Puts a connection back from which the whole body has been read.
    fn release_read(&mut self) {
        if let Self::Connection((connection, _)) = self
            && connection.is_read()
            && let Self::Connection((connection, pool)) = std::mem::replace(self, Self::Over)
        {
            pool.put(connection);
        }
    }
}
