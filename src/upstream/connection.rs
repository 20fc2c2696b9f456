//! One connection to a server: a request goes out on it, the head of the answer comes back, then its body.

use super::driver::{Driver, Io};
use super::recorder::Recorder;
use http::{Request, Response};
use http_body::Frame;
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A connection to send one request on.
#[derive(Debug)]
pub struct Connection<B: Body + 'static> {
    sender: SendRequest<B>,
    driven: Driven<B>,
    /// Has carried an exchange before: its server may be closing it at this very moment.
    pub reused: bool,
}

/// Who moves its bytes.
#[derive(Debug)]
enum Driven<B: Body + 'static> {
    /// Whoever waits for the answer. Boxed, because it is large and passes from hand to hand.
    Here(Box<Driver<B>>),
    /// A task of its own.
    Apart,
    /// Nobody any more: it is over, and this is what it ran on.
    Over(Recorder),
}

/// What became of a request that was not answered.
#[derive(Debug)]
pub struct Unanswered<B> {
    /// What hyper said.
    pub error: hyper::Error,
    /// The request, if none of it was sent.
    pub unsent: Option<Request<B>>,
}

impl<B> Connection<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    pub(super) fn new(sender: SendRequest<B>, connection: http1::Connection<Io, B>) -> Self {
        Self {
            sender,
            driven: Driven::Here(Box::new(Driver::new(connection))),
            reused: false,
        }
    }

    /// Sends one request and waits for the head of the answer.
    ///
    /// # Errors
    /// When the connection ends before an answer.
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, Unanswered<B>>> + use<'_, B> {
        // Not an async function: that would keep the request in its state although hyper has taken it.
        let answering = self.sender.try_send_request(request);
        let driven = &mut self.driven;
        async move {
            let mut answering = pin!(answering);
            poll_fn(|cx| driven.poll_here(cx, |cx| answering.as_mut().poll(cx)))
                .await
                .map_err(|mut failed| Unanswered {
                    unsent: failed.take_message(),
                    error: failed.into_error(),
                })
        }
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
        // What has been read already is taken before more is read.
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet()) {
            return Poll::Ready(frame);
        }
        self.driven
            .poll_here(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Is the answer wholly read, so that the connection can carry another request?
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.sender.is_ready() && matches!(self.driven, Driven::Here(_))
    }

    /// Leaves the connection to a task of its own, which moves it on whoever waits for what. It will not be reused.
    ///
    /// For a request's body that goes on beside the answer, and for tunnels, which hyper hands out only when it may
    /// drive the connection to its end.
    pub fn set_apart(&mut self) {
        match std::mem::replace(&mut self.driven, Driven::Apart) {
            Driven::Here(driver) => {
                let connection = driver.into_connection().with_upgrades();
                tokio::task::spawn_local(async move {
                    // Its errors reach whoever waits for the answer.
                    let _ = connection.await;
                });
            }
            other => self.driven = other,
        }
    }

    /// The head that was sent last, whole, if no byte has come back since.
    #[must_use]
    pub fn into_unanswered(self) -> Option<Vec<u8>> {
        match self.driven {
            Driven::Here(driver) => driver.into_stream().into_unanswered(),
            Driven::Over(stream) => stream.into_unanswered(),
            Driven::Apart => None,
        }
    }

    /// Lets it rest in a pool. False when it cannot be used again.
    pub(super) fn rest(&self) -> bool {
        match &self.driven {
            Driven::Here(driver) if self.sender.is_ready() => {
                driver.rest();
                true
            }
            _ => false,
        }
    }

    /// Can a resting connection still be used?
    pub(super) fn is_usable(&mut self) -> bool {
        match &mut self.driven {
            Driven::Here(driver) => !driver.has_ended() && self.sender.is_ready(),
            Driven::Apart | Driven::Over(_) => false,
        }
    }
}

impl<B> Driven<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// Moves the connection on, and then asks for what should have come of it.
    fn poll_here<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut outcome: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self::Here(driver) = self else {
            return outcome(cx);
        };
        if driver.poll(cx).is_pending() {
            // Only the connection can bring it, and its bell wakes this task.
            return outcome(&mut quiet());
        }
        if let Self::Here(driver) = std::mem::replace(self, Self::Apart) {
            // Taken apart, it tells whoever still waits that nothing will come.
            *self = Self::Over(driver.into_stream());
        }
        outcome(cx)
    }
}

fn quiet() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
