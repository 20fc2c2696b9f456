//! One connection to a server: a request goes out on it, the head of the answer comes back, then its body.

use super::OutgoingBody;
use super::driver::Driver;
use super::keep_alive;
use super::recorder::{Recorder, WriteProgress};
use crate::clock;
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A connection to send one request on.
#[derive(Debug)]
pub struct Connection<B: OutgoingBody> {
    sender: Sender<B>,
    state: ConnectionState<B>,
    /// The connection has carried an exchange before: its server may be closing it at this very moment.
    pub reused: bool,
    /// The time until which its server will surely keep it, as far as that is known.
    rests_until: Instant,
    /// The server has answered in HTTP/1.0. hyper would send the next request in that version too, and drop the
    /// request's body where it has no length.
    is_http10: bool,
}

/// The half that takes requests. HTTP/2 becomes a second variant, whose connection is [`ConnectionState::Spawned`].
#[derive(Debug)]
enum Sender<B: OutgoingBody> {
    Http1(http1::SendRequest<B>),
}

/// The part that moves the bytes of a connection.
#[derive(Debug)]
enum ConnectionState<B: OutgoingBody> {
    /// The task that waits for the answer moves them. The driver is boxed, because it is large and changes hands.
    Driven(Box<Driver<B>>),
    /// A task of its own moves them.
    Spawned,
    /// The connection is over, and this is the stream that it ran on.
    Over(Recorder),
}

/// The failure of a request that was not answered.
#[derive(Debug)]
pub struct SendFailure<B> {
    /// hyper's error.
    pub error: hyper::Error,
    /// The request, if no byte of it was sent.
    pub unsent: Option<Request<B>>,
}

impl<B: OutgoingBody> Connection<B> {
    /// A new connection of HTTP/1.
    pub(super) fn new(sender: http1::SendRequest<B>, driver: Driver<B>) -> Self {
        Self {
            sender: Sender::Http1(sender),
            state: ConnectionState::Driven(Box::new(driver)),
            reused: false,
            rests_until: clock::now(),
            is_http10: false,
        }
    }

    /// Sends one request and waits for the head of the answer.
    ///
    /// A request that could not be sent a second time gets a further check on a connection that has rested: the system
    /// is asked whether the server has closed it, since the runtime may not know yet.
    ///
    /// # Errors
    /// When the connection ends before an answer.
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendFailure<B>>> + use<'_, B> {
        // The function is not async: its future would keep the request in its state although hyper has taken it.
        if let ConnectionState::Driven(driver) = &self.state {
            driver.progress().begin_head();
            if self.reused && !is_repeatable(&request) {
                driver.progress().doubt();
            }
        }
        let Sender::Http1(sender) = &mut self.sender;
        let sending = sender.try_send_request(request);
        let (state, is_http10) = (&mut self.state, &mut self.is_http10);
        async move {
            let mut sending = pin!(sending);
            poll_fn(|cx| state.poll_driven(cx, |cx| sending.as_mut().poll(cx)))
                .await
                .inspect(|response| *is_http10 = response.version() == Version::HTTP_10)
                .map_err(|mut failed| SendFailure {
                    unsent: failed.take_message(),
                    error: failed.into_error(),
                })
        }
    }

    /// Notes the head of an answer, which came at `at` and names the time that the connection will be kept. The server
    /// may count from then on: it does not know when the last byte is read.
    pub fn answered(&mut self, at: Instant, fields: &HeaderMap) {
        self.rests_until = at + keep_alive::rest(fields);
    }

    /// Will the server still keep the connection at `now`?
    pub(super) fn is_kept(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// The next part of the answer's body.
    ///
    /// # Errors
    /// When the connection fails before the body's end.
    pub fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // A part that has been read already is taken before more is read.
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet()) {
            return Poll::Ready(frame);
        }
        self.state
            .poll_driven(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Is the answer wholly read and the request wholly written, so that the connection can carry another request?
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.sender.is_ready() && self.is_flushed()
    }

    /// Are all bytes written that have been handed over so far?
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        matches!(&self.state, ConnectionState::Driven(driver) if driver.progress().is_flushed())
    }

    /// Leaves the connection to a task of its own: for tunnels, which hyper hands out only when it may drive the
    /// connection to its end. The connection is not reused.
    pub fn spawn_tunnel(&mut self) {
        match std::mem::replace(&mut self.state, ConnectionState::Spawned) {
            ConnectionState::Driven(driver) => {
                let connection = driver.into_connection().with_upgrades();
                tokio::task::spawn_local(async move {
                    // The connection's errors reach the task that waits for the answer.
                    let _ = connection.await;
                });
            }
            state => self.state = state,
        }
    }

    /// Ready with true when the connection is free, with false when it is over.
    pub(super) fn poll_free(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.state.poll_over(cx).is_ready() {
            return Poll::Ready(false);
        }
        if self.is_free() {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    }

    /// Resolves when bytes have waited to be written for `allowed` and none of them could be. Nothing where no task
    /// drives the connection from request to request.
    pub(super) fn write_stall(
        &self,
        allowed: Duration,
    ) -> Option<impl Future<Output = ()> + use<B>> {
        let ConnectionState::Driven(driver) = &self.state else {
            return None;
        };
        let progress = Arc::clone(driver.progress());
        Some(async move { stalled(&progress, allowed).await })
    }

    /// The head that was sent last, whole, if no byte has come back since.
    #[must_use]
    pub fn into_unanswered(self) -> Option<Vec<u8>> {
        match self.state {
            ConnectionState::Driven(driver) => driver.into_stream().into_unanswered(),
            ConnectionState::Over(stream) => stream.into_unanswered(),
            ConnectionState::Spawned => None,
        }
    }

    /// Lets the connection rest in a pool. False when it cannot be used again.
    pub(super) fn rest(&self) -> bool {
        match &self.state {
            ConnectionState::Driven(driver) if self.is_free() && !self.is_http10 => {
                driver.rest();
                true
            }
            _ => false,
        }
    }

    /// Can a resting connection still be used?
    pub(super) fn is_usable(&mut self) -> bool {
        match &mut self.state {
            ConnectionState::Driven(driver) => !driver.has_ended() && self.sender.is_ready(),
            ConnectionState::Spawned | ConnectionState::Over(_) => false,
        }
    }
}

impl<B: OutgoingBody> Sender<B> {
    /// Does the connection take a request now?
    fn is_ready(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready(),
        }
    }
}

impl<B: OutgoingBody> ConnectionState<B> {
    /// Moves the connection on, and then polls for the outcome.
    fn poll_driven<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut outcome: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if matches!(self, Self::Driven(_)) && self.poll_over(cx).is_pending() {
            // Only the connection can bring the outcome, and the connection's waker wakes this task.
            return outcome(&mut quiet());
        }
        outcome(cx)
    }

    /// Moves the connection on; ready when it is over.
    fn poll_over(&mut self, cx: &Context<'_>) -> Poll<()> {
        if let Self::Driven(driver) = self {
            ready!(driver.poll(cx));
        }
        if let Self::Driven(driver) = std::mem::replace(self, Self::Spawned) {
            // When the connection is taken apart, every wait for an event on it ends.
            *self = Self::Over(driver.into_stream());
        }
        Poll::Ready(())
    }
}

/// May the request be sent again although a server may have acted on it (RFC 9110, section 9.2.2), and can it be sent
/// again?
#[must_use]
pub fn is_repeatable<B: Body>(request: &Request<B>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}

async fn stalled(progress: &WriteProgress, allowed: Duration) {
    loop {
        let written = progress.written();
        sleep(allowed).await;
        if !progress.is_flushed() && progress.written() == written {
            return;
        }
    }
}

fn quiet() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
