//! A response's body on its way down: streamed from the upstream, with an idle deadline; one that breaks is noticed.

use super::body_failure::BodyError;
use super::request_body::RequestBody;
use super::soft_timeout::SoftTimeout;
use super::trailers;
use crate::listen::socket::SocketWatch;
use crate::upstream::connection::Connection;
use crate::upstream::endpoint::PooledConnection;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Incoming};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A body from the upstream.
pub(super) struct UpstreamBody {
    incoming: Incoming,
    /// The frame that came with the head.
    first: Option<Frame<Bytes>>,
    /// The break of the body, while the bytes before it are written out.
    broken: Option<BodyError>,
    patience: SoftTimeout,
    /// The connection that brings the body; it goes back to its pool as soon as the whole body has been read.
    connection: LentConnection,
}

/// The connection that brings a body, and its pool; none when another part of the gateway moves the connection on.
pub(super) type LentConnection = Option<PooledConnection<RequestBody>>;

/// The beginning of a body, if it is known with the head.
#[derive(Debug, Default)]
pub enum BodyStart {
    /// The beginning is still to come.
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
    /// When the body has broken before any of it came: hyper's error.
    pub fn of(
        incoming: &mut Incoming,
        connection: &mut Connection<RequestBody>,
    ) -> Result<Self, hyper::Error> {
        if incoming.is_end_stream() {
            return Ok(Self::Empty);
        }
        match connection.poll_frame(incoming, &mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Pending => Ok(Self::Unknown),
            Poll::Ready(None) => Ok(Self::Empty),
            Poll::Ready(Some(frame)) => frame.map(Self::With),
        }
    }
}

impl UpstreamBody {
    /// A body that begins with `start`; nothing when `start` is the whole body. A connection without anything left to
    /// read goes back at once.
    pub(super) fn new(
        incoming: Incoming,
        start: BodyStart,
        allowed: Duration,
        client: &SocketWatch,
        mut connection: LentConnection,
    ) -> Option<Self> {
        release_free(&mut connection);
        let first = match start {
            BodyStart::Empty => return None,
            BodyStart::Unknown => None,
            BodyStart::With(frame) => Some(trailers::filtered(frame)),
        };
        Some(Self {
            incoming,
            first,
            broken: None,
            patience: SoftTimeout::new(allowed, client.clone()),
            connection,
        })
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = match &mut self.connection {
            Some((connection, _)) => connection.poll_frame(&mut self.incoming, cx),
            None => Pin::new(&mut self.incoming).poll_frame(cx),
        };
        release_free(&mut self.connection);
        let Poll::Ready(frame) = polled else {
            let error = ready!(self.patience.poll_lost(cx));
            return Poll::Ready(Some(Err(error)));
        };
        self.patience.resumed();
        if let Some(Err(error)) = frame {
            // When a body fails, hyper drops the bytes that it has not written. While a body has nothing yet, hyper
            // writes them out.
            self.broken = Some(error.into());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(frame.map(|frame| frame.map(trailers::filtered).map_err(BodyError::from)))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        let data = self.first.as_ref().and_then(Frame::data_ref);
        let first = data.map_or(0, |data| data.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + first);
        }
        hint.set_lower(hint.lower() + first);
        hint
    }
}

fn release_free(lent: &mut LentConnection) {
    if let Some((connection, pool)) = lent.take_if(|(connection, _)| connection.is_free()) {
        pool.put(connection);
    }
}
