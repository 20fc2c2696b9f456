//! One connection to a server: a request goes out on it, the head of the answer comes back, then its body.

use super::http1::{AnswerError, Http1, ReadBuffers, UnsentRequest};
use super::open_socket::OpenSocket;
use super::stream::{PeekEnd as _, ServerStream};
use super::{OutgoingBody, keep_alive};
use crate::clock;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Bytes;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// A connection to send one request on, and then another.
#[derive(Debug)]
pub struct Connection<B: OutgoingBody> {
    /// The bytes and what they mean. Boxed, because it is large and changes hands.
    http1: Box<Http1<B, ServerStream>>,
    /// The connection has carried an exchange before: its server may be closing it at this very moment.
    pub reused: bool,
    /// The request that was sent last may be sent again although a server may have acted on it.
    is_repeatable: bool,
    /// The time until which its server will surely keep it, as far as that is known.
    rests_until: Instant,
    /// Counts the socket as long as it is open.
    socket: OpenSocket,
}

impl<B: OutgoingBody> Connection<B> {
    /// A new connection of HTTP/1.
    pub(super) fn new(
        stream: ServerStream,
        socket: OpenSocket,
        buffers: Rc<ReadBuffers>,
    ) -> Self {
        Self {
            http1: Box::new(Http1::new(stream, buffers)),
            reused: false,
            is_repeatable: false,
            rests_until: clock::now(),
            socket,
        }
    }

    /// Sends one request, with the lines of `added` behind its fields, and waits for the head of the answer.
    ///
    /// A request that could not be sent a second time gets a further check on a connection that has rested: the system
    /// is asked whether the server has closed it, since the runtime may not know yet.
    ///
    /// # Errors
    /// When the connection ends before an answer, or the answer is malformed.
    pub fn send(
        &mut self,
        request: Request<B>,
        added: &[&[u8]],
    ) -> impl Future<Output = Result<Response<()>, AnswerError>> + use<'_, B> {
        // The function is not async: its future would keep the request in its state, although the connection has it.
        self.is_repeatable = is_repeatable(&request);
        let is_doubted = self.reused && !self.is_repeatable;
        let is_over = is_doubted && self.http1.stream().peek_end().is_ready();
        self.http1.begin(request, added);
        poll_fn(move |cx| {
            if is_over {
                return Poll::Ready(Err(AnswerError::Incomplete));
            }
            self.http1.poll_answer(cx)
        })
    }

    /// Sends a request that could not be sent on another connection.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_again(
        &mut self,
        request: UnsentRequest<B>,
    ) -> impl Future<Output = Result<Response<()>, AnswerError>> + use<'_, B> {
        self.is_repeatable = request.is_repeatable;
        self.http1.begin_again(request);
        poll_fn(|cx| self.http1.poll_answer(cx))
    }

    /// The request that was not answered, where it can be sent once more: nothing of the request was written, or it may
    /// be repeated and no byte came back.
    #[must_use]
    pub fn into_unsent(self) -> Option<UnsentRequest<B>> {
        self.http1.into_unsent(self.is_repeatable)
    }

    /// The request as it was sent, where it may be sent once more although it has been answered.
    #[must_use]
    pub fn repeated(&self) -> Option<UnsentRequest<B>> {
        self.is_repeatable.then(|| self.http1.repeated()).flatten()
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
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        self.http1.poll_frame(cx)
    }

    /// The bytes that are left of the answer's body, where its length is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.http1.length()
    }

    /// Has the answer been read to its end?
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.http1.is_read()
    }

    /// Is a part of the request still to be written?
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.http1.is_writing()
    }

    /// Bytes that have been written so far, where others wait to be.
    pub(super) fn stalled_at(&self) -> Option<u64> {
        self.http1.has_unwritten().then(|| self.http1.written())
    }

    /// Goes on writing the request. Ready when there is nothing left to write.
    ///
    /// # Errors
    /// When the request's body fails.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        self.http1.poll_upload(cx)
    }

    /// Ready when the server ends a connection whose answer has been read, or sends more.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<AnswerError> {
        self.http1.poll_silence(cx)
    }

    /// Lets the connection rest in a pool. False when it cannot be used again.
    pub(super) fn rest(&mut self) -> bool {
        self.http1.is_free() && self.http1.rest()
    }

    /// Can a resting connection still be used?
    pub(super) fn is_usable(&mut self) -> bool {
        self.http1.is_silent()
    }

    /// The stream of a fresh connection, for another protocol.
    pub(super) fn into_stream(self) -> (ServerStream, OpenSocket) {
        (self.http1.into_stream(), self.socket)
    }
}

/// May the request be sent again although a server may have acted on it (RFC 9110, section 9.2.2), and can it be sent
/// again?
fn is_repeatable<B: Body>(request: &Request<B>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}
