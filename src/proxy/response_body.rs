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
    /// What was there with the head.
    first: Option<Frame<Bytes>>,
    /// How it broke, while what came before is written out.
    broken: Option<BodyError>,
    patience: SoftTimeout,
    /// Brings the body; goes back to its pool as soon as all of it has been read.
    connection: LentConnection,
}

/// The connection that a body comes on, and where it belongs; none when it is moved on elsewhere.
pub(super) type LentConnection = Option<PooledConnection<RequestBody>>;

/// What a body begins with, if that is known with the head.
#[derive(Debug, Default)]
pub enum BodyStart {
    /// It is still to come.
    #[default]
    Unknown,
    /// This.
    With(Frame<Bytes>),
    /// There is none.
    Empty,
}

impl BodyStart {
    /// Has the answer's body broken before anything of it came? That is seen without waiting, or not at all.
    ///
    /// # Errors
    /// What hyper says of the body.
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
    /// A body that begins with `start`; nothing when that is all. A connection without anything left to read goes back at
    /// once.
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
            // hyper drops what it has not written when a body fails, and writes it when a body has nothing yet.
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
