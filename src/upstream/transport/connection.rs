//! One connection to a server: a request is sent on it, the head of the answer is received, then its body.

use super::http1::{self, AnswerError, Http1, ReadBuffers, WholeRequest};
use super::http2::Http2Exchange;
use super::http2::connection::OpenStream;
use super::http2::send_window::ENOUGH;
use super::keep_alive;
use crate::clock;
use crate::telemetry::metrics::Failure;
use crate::upstream::OutgoingBody;
use crate::upstream::dial::open_socket::OpenSocket;
use crate::upstream::dial::stream::{PeekEnd as _, ServerStream};
use crate::upstream::rules::retry_rule::RetryCause;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body, Frame};
use hyper::body::Bytes;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A connection for one request, and then another; over HTTP/2 a stream for one request.
#[derive(Debug)]
pub struct Connection<B: OutgoingBody> {
    carrier: Carrier<B>,
    /// The connection has carried an exchange before, so that its server may be closing it right now.
    pub reused: bool,
    /// The last request may be sent again although a server may have acted on it.
    is_repeatable: bool,
    /// The last answer on the connection was to HEAD and without a length: many servers then close the connection,
    /// perhaps only after the gateway has checked that it is open.
    is_doubtful: bool,
    /// The time until which its server will surely keep it, as far as known.
    rests_until: Instant,
    /// The time from which it takes no further request.
    retires: Option<Instant>,
}

/// The protocol on the transport. Boxed, because it is large and moves.
#[derive(Debug)]
enum Carrier<B: OutgoingBody> {
    /// HTTP/1.1; the second part counts the socket while it is open.
    Http1(Box<Http1<B, ServerStream>>, OpenSocket),
    /// A stream of HTTP/2.
    Http2(Box<Http2Exchange<B>>),
}

/// A request that can be sent once more, on a connection of either protocol.
#[derive(Debug)]
pub struct UnsentRequest<B> {
    request: Unsent<B>,
    /// It may be sent again although a server may have acted on it.
    is_repeatable: bool,
    /// A server has had a part of its body, which is sent again.
    pub is_begun: bool,
    /// The failure after which it can be retried.
    pub cause: RetryCause,
}

impl<B> UnsentRequest<B> {
    /// The request's fields, if it has not been serialised for HTTP/1.1.
    pub fn fields_mut(&mut self) -> Option<&mut HeaderMap> {
        match &mut self.request {
            Unsent::Whole(request) => Some(&mut request.head.headers),
            Unsent::Written(_) => None,
        }
    }
}

#[derive(Debug)]
enum Unsent<B> {
    Written(http1::WrittenRequest<B>),
    Whole(WholeRequest<B>),
}

impl<B> UnsentRequest<B> {
    /// Sets another host in the request, since another server gets it.
    #[cold]
    pub fn set_host(&mut self, host: &HeaderValue) {
        match &mut self.request {
            Unsent::Written(written) => written.set_host(host),
            Unsent::Whole(whole) => drop(whole.head.headers.insert(header::HOST, host.clone())),
        }
    }
}

impl<B: OutgoingBody> Connection<B> {
    /// A new connection of HTTP/1.
    pub(in crate::upstream) fn new(
        stream: ServerStream,
        socket: OpenSocket,
        buffers: Rc<ReadBuffers>,
        max_age: Option<Duration>,
    ) -> Self {
        let now = clock::now();
        Self {
            carrier: Carrier::Http1(Box::new(Http1::new(stream, buffers)), socket),
            reused: false,
            is_repeatable: false,
            is_doubtful: false,
            rests_until: now,
            retires: max_age.map(|age| keep_alive::retires(now, age)),
        }
    }

    /// An HTTP/2 stream, on a connection that may have others.
    pub(in crate::upstream) fn on_stream(stream: OpenStream, now: Instant) -> Self {
        Self {
            reused: stream.is_reused,
            carrier: Carrier::Http2(Box::new(Http2Exchange::new(stream))),
            is_repeatable: false,
            is_doubtful: false,
            rests_until: now,
            retires: None,
        }
    }

    /// Over HTTP/2, does not wait for room for a request's body, since no other connection is available.
    pub(in crate::upstream) fn sharing_window(mut self) -> Self {
        if let Carrier::Http2(exchange) = &mut self.carrier {
            exchange.shares_window();
        }
        self
    }

    /// Sends one request, with the lines of `added` after its fields, and waits for the head of the answer.
    ///
    /// Before a request that cannot be retried is sent on an idle connection, the system is queried whether the server
    /// has closed the connection, since the runtime may not know yet.
    ///
    /// # Errors
    /// If the connection ends before an answer, or the answer is malformed.
    pub fn send(
        &mut self,
        request: Request<B>,
        added: &[&[u8]],
    ) -> impl Future<Output = Result<Response<()>, AnswerError>> + use<'_, B> {
        // The function is not async: its future would keep the request in its state, although the connection has it.
        self.is_repeatable = is_repeatable(&request);
        let is_over = match &mut self.carrier {
            Carrier::Http1(http1, _) => {
                let is_doubted = self.reused && !self.is_repeatable;
                let is_over = is_doubted && http1.stream().peek_end().is_ready();
                http1.begin(request, added);
                is_over
            }
            Carrier::Http2(exchange) => {
                exchange.needs_room(room_of(&request));
                exchange.begin(WholeRequest::new(request), added);
                false
            }
        };
        poll_fn(move |cx| {
            if is_over {
                return Poll::Ready(Err(AnswerError::Incomplete));
            }
            self.poll_answer(cx)
        })
    }

    /// Sends a request that could not be sent on another connection.
    ///
    /// # Errors
    /// Like [`Self::send`].
    pub fn resend(
        &mut self,
        request: UnsentRequest<B>,
    ) -> impl Future<Output = Result<Response<()>, AnswerError>> + use<'_, B> {
        self.is_repeatable = request.is_repeatable;
        let request_is_begun = request.is_begun;
        let is_sent = match (&mut self.carrier, request.request) {
            (Carrier::Http1(http1, _), Unsent::Written(request)) => {
                http1.restart(request);
                true
            }
            (Carrier::Http1(http1, _), Unsent::Whole(request)) => {
                http1.begin_whole(request);
                true
            }
            (Carrier::Http2(exchange), request) => {
                let whole = match request {
                    Unsent::Whole(request) => Some(request),
                    Unsent::Written(request) => WholeRequest::of_unsent(request),
                };
                let body = whole.as_ref().and_then(|whole| whole.body.as_ref());
                exchange.needs_room(match body {
                    // The taken part is sent again.
                    Some(_) if request_is_begun => ENOUGH,
                    body => body.map_or(0, room_of_body),
                });
                let is_whole = whole.is_some();
                whole
                    .into_iter()
                    .for_each(|request| exchange.begin(request, &[]));
                is_whole
            }
        };
        poll_fn(move |cx| {
            if !is_sent {
                return Poll::Ready(Err(AnswerError::GivenUp));
            }
            self.poll_answer(cx)
        })
    }

    #[inline]
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, AnswerError>> {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.poll_answer(cx),
            Carrier::Http2(exchange) => exchange.poll_answer(cx),
        }
    }

    /// The unanswered request, if it can be sent once more: no byte of it was written; over HTTP/2, the server has not
    /// processed it, and all of its body is available; or it may be repeated and no byte was received.
    #[must_use]
    pub fn into_unsent(self) -> Option<UnsentRequest<B>> {
        let is_repeatable = self.is_repeatable;
        let (cause, is_begun, request) = match self.carrier {
            Carrier::Http1(http1, _) => {
                let cause = http1.retry_cause();
                let written = http1.into_unsent(is_repeatable)?;
                (cause, false, Unsent::Written(written))
            }
            Carrier::Http2(exchange) => {
                let (cause, is_begun) = (exchange.retry_cause(), exchange.is_begun());
                let whole = exchange.into_unsent(is_repeatable)?;
                (cause, is_begun, Unsent::Whole(whole))
            }
        };
        Some(UnsentRequest {
            request,
            is_repeatable,
            is_begun,
            cause,
        })
    }

    /// The request as sent, if it may be sent once more although it has been answered.
    #[must_use]
    pub fn repeated(&self) -> Option<UnsentRequest<B>> {
        if !self.is_repeatable {
            return None;
        }
        let request = match &self.carrier {
            Carrier::Http1(http1, _) => Unsent::Written(http1.repeated()?),
            Carrier::Http2(exchange) => Unsent::Whole(exchange.repeated()?),
        };
        Some(UnsentRequest {
            request,
            is_repeatable: true,
            is_begun: false,
            cause: RetryCause::Reset,
        })
    }

    /// Was `error`, the end of the connection, caused by a server that had closed the idle connection meanwhile?
    #[must_use]
    pub fn is_stale(&self, error: &AnswerError) -> bool {
        match &self.carrier {
            Carrier::Http1(..) => self.reused,
            Carrier::Http2(exchange) => exchange.is_stale(error),
        }
    }

    /// Was `error`, the end of the exchange, no failure of the server? A client may have delayed its body for longer
    /// than the server waits, or may have aborted so many requests that the server sends `ENHANCE_YOUR_CALM`. An answer
    /// that is not HTTP is a failure in any case.
    #[must_use]
    pub fn is_ended_by_client(&self, error: &AnswerError) -> bool {
        error.failure() != Failure::Protocol
            && match &self.carrier {
                Carrier::Http1(http1, _) => http1.is_held_back(),
                Carrier::Http2(exchange) => exchange.is_held_back() || exchange.is_calm(),
            }
    }

    /// Is it an HTTP/2 stream?
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self.carrier, Carrier::Http2(_))
    }

    /// Notes the head of an answer, which arrived at `at` and states the idle time of the connection. The server may
    /// count from then on, since it does not know when the last byte is read.
    pub fn answered(&mut self, at: Instant, head: &Response<()>) {
        self.rests_until = at + keep_alive::rest(head.headers());
        self.is_doubtful = match &self.carrier {
            Carrier::Http1(http1, _) => http1.is_to_head() && is_unframed(head),
            Carrier::Http2(_) => false,
        };
    }

    /// May its server be closing it, because of its last answer? If so, only repeatable requests may use it.
    pub(in crate::upstream) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Will the server still keep the connection at `now`?
    pub(in crate::upstream) fn is_kept(&self, now: Instant) -> bool {
        now < self.rests_until && self.retires.is_none_or(|retires| now < retires)
    }

    /// The next part of the answer's body.
    ///
    /// # Errors
    /// If the connection fails before the body's end.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.poll_frame(cx),
            Carrier::Http2(exchange) => exchange.poll_frame(cx),
        }
    }

    /// The bytes that are left of the answer's body, if the length is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.carrier {
            Carrier::Http1(http1, _) => http1.length(),
            Carrier::Http2(exchange) => exchange.length(),
        }
    }

    /// Has the answer been read to its end?
    #[must_use]
    pub fn is_read(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(http1, _) => http1.is_read(),
            Carrier::Http2(exchange) => exchange.is_read(),
        }
    }

    /// Is a part of the request still to be written?
    #[must_use]
    pub fn is_writing(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(http1, _) => http1.is_writing(),
            Carrier::Http2(exchange) => exchange.is_writing(),
        }
    }

    /// The number of bytes written so far, if others are waiting.
    pub(in crate::upstream) fn stalled_at(&self) -> Option<u64> {
        match &self.carrier {
            Carrier::Http1(http1, _) => http1.has_unwritten().then(|| http1.written()),
            Carrier::Http2(exchange) => exchange.stalled_at(),
        }
    }

    /// Continues to write the request. Ready when there is nothing left to write.
    ///
    /// # Errors
    /// If the request's body fails.
    pub(in crate::upstream) fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AnswerError>> {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.poll_upload(cx),
            Carrier::Http2(exchange) => exchange.poll_upload(cx),
        }
    }

    /// Ready when the server ends a connection whose answer has been read, or sends further bytes.
    pub(in crate::upstream) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<AnswerError> {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.poll_silence(cx),
            Carrier::Http2(exchange) => exchange.poll_end(cx),
        }
    }

    /// Prepares the connection for the pool. Returns false if it cannot be used again.
    pub(in crate::upstream) fn rest(&mut self) -> bool {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.is_free() && http1.rest(),
            // The stream is over; its connection is in the pool anyway.
            Carrier::Http2(_) => false,
        }
    }

    /// Can an idle connection still be used?
    pub(in crate::upstream) fn is_usable(&mut self) -> bool {
        match &mut self.carrier {
            Carrier::Http1(http1, _) => http1.is_silent(),
            Carrier::Http2(exchange) => exchange.is_usable(),
        }
    }

    /// Has the server chosen HTTP/1.1 in the TLS handshake?
    pub(in crate::upstream) fn has_chosen_http1(&self) -> bool {
        match &self.carrier {
            Carrier::Http1(http1, _) => http1.stream().has_chosen_http1(),
            Carrier::Http2(_) => false,
        }
    }

    /// The stream of a fresh connection of HTTP/1.1, for another protocol.
    pub(super) fn into_stream(self) -> Option<(ServerStream, OpenSocket)> {
        match self.carrier {
            Carrier::Http1(http1, socket) => Some((http1.into_stream(), socket)),
            Carrier::Http2(_) => None,
        }
    }
}

/// Has an answer to HEAD neither a length nor a coding, though its status would allow a body?
#[cold]
fn is_unframed(head: &Response<()>) -> bool {
    let fields = head.headers();
    !matches!(head.status().as_u16(), 204 | 304)
        && !fields.contains_key(header::CONTENT_LENGTH)
        && !fields.contains_key(header::TRANSFER_ENCODING)
}

/// The room that the beginning of a request's body needs in the window of an HTTP/2 connection.
pub(in crate::upstream) fn room_of<B: Body>(request: &Request<B>) -> u32 {
    room_of_body(request.body())
}

fn room_of_body<B: Body>(body: &B) -> u32 {
    let hint = body.size_hint();
    let most = hint.upper().unwrap_or(u64::from(ENOUGH));
    u32::try_from(most).unwrap_or(ENOUGH).min(ENOUGH)
}

/// May the request be sent again although a server may have acted on it (RFC 9110, section 9.2.2), and can it be sent
/// again?
#[must_use]
pub fn is_repeatable<B: Body>(request: &Request<B>) -> bool {
    request.method().is_idempotent() && request.body().is_end_stream()
}
