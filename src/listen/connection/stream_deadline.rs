//! The streams of one HTTP/2 connection. Their requests are passed on. Their responses are watched until taken, and
//! abandoned if the client takes nothing of them.

use super::backpressure::{BodyPiece, ConnectionActivity, PendingResponse};
use super::h2_fields::IndexedFields;
use super::handler::{Handler, MOST_REQUEST_FIELDS, MOST_REQUEST_HEAD, ResponseBody};
use crate::clock;
use crate::listen::Peer;
use crate::listen::accept::connection_register::Registration;
use crate::listen::socket::SocketProbe;
use crate::listen::socket::framing::FramingFault;
use crate::listen::socket::minimum_rate::RateBound;
use crate::telemetry::h2_refusals::{self, RefusedStream};
use crate::telemetry::h2_words;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The bytes that each field of a head counts in addition to its own (RFC 9113 section 6.5.2).
const FIELD: usize = 32;

/// The service under hyper in HTTP/2.
pub(super) struct H2Service<A: Handler> {
    pub(in crate::listen) handler: Rc<A>,
    pub(in crate::listen) peer: Rc<Peer>,
    pub(in crate::listen) streams: Rc<StreamSet<A::Body>>,
}

impl<A: Handler> Service<Request<Incoming>> for H2Service<A> {
    type Response = Response<StreamBody<A::Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (handler, peer) = (Rc::clone(&self.handler), Rc::clone(&self.peer));
        peer.registration.set_busy();
        let stream_body = self.streams.begin();
        let size = head_size(request.uri(), request.headers());
        if (request.headers().len() > MOST_REQUEST_FIELDS || size > MOST_REQUEST_HEAD)
            && is_too_large(request.headers(), size)
        {
            request.extensions_mut().insert(FramingFault::TooLarge);
        }
        // The future is large, and built inside the box: `Box::pin` would move it there.
        let future = Box::write(Box::new_uninit(), async move {
            let mut response = handler.answer(request, peer).await;
            stream_body.streams.indexed.prepare(response.headers_mut());
            Ok(response.map(|body| {
                stream_body.response.set_body(body);
                stream_body
            }))
        });
        Box::into_pin(future)
    }
}

/// Is a head of this size too large after the pieces of its cookies, which browsers split, are joined (RFC 9113,
/// section 8.2.3)?
#[cold]
fn is_too_large(fields: &HeaderMap, size: usize) -> bool {
    let cookies = fields.get_all(header::COOKIE).iter().count();
    let joined = cookies.saturating_sub(1);
    // Each piece but the first loses its name and gets "; " before it.
    let less = joined * (header::COOKIE.as_str().len() + FIELD - 2);
    fields.len() - joined > MOST_REQUEST_FIELDS || size - less > MOST_REQUEST_HEAD
}

/// The size of a head, nearly as h2 counts it, pseudo-fields included.
fn head_size(uri: &Uri, fields: &HeaderMap) -> usize {
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let authority = uri
        .authority()
        .map_or(0, |authority| authority.as_str().len());
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    sizes.sum::<usize>() + target + authority + 4 * FIELD
}

/// The time limits of waits for a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleBounds {
    /// The instant from which the time without a request is counted at the earliest.
    pub(in crate::listen) from: Instant,
    /// The time while responses wait for the client.
    pub(in crate::listen) idle: Duration,
}

/// The streams of one connection.
pub(super) struct StreamSet<B> {
    activity: Rc<ConnectionActivity>,
    bound: RateBound,
    all: RefCell<Vec<Rc<PendingResponse<B>>>>,
    indexed: IndexedFields,
    /// The most recent stream, until hyper has a task for it.
    latest: RefCell<Option<Rc<PendingResponse<B>>>>,
}

impl<B: ResponseBody> StreamSet<B> {
    pub(in crate::listen) fn new(bound: RateBound) -> Rc<Self> {
        Rc::new(Self {
            activity: ConnectionActivity::new(),
            bound,
            all: RefCell::default(),
            indexed: IndexedFields::default(),
            latest: RefCell::default(),
        })
    }

    fn begin(self: &Rc<Self>) -> StreamBody<B> {
        let response = PendingResponse::begin(&self.activity, self.bound);
        self.all.borrow_mut().push(Rc::clone(&response));
        self.latest.replace(Some(Rc::clone(&response)));
        StreamBody {
            response,
            streams: Rc::clone(self),
        }
    }

    fn remove(&self, removed: &Rc<PendingResponse<B>>) {
        let mut all = self.all.borrow_mut();
        if let Some(at) = all
            .iter()
            .position(|response| Rc::ptr_eq(removed, response))
        {
            all.swap_remove(at);
        }
    }

    /// Drives hyper's connection to its end, and finishes responses as they are taken. Heads that are refused below
    /// hyper are passed to `refused`.
    pub(super) fn drive<'a, C: Future>(
        &'a self,
        mut connection: Pin<&'a mut C>,
        registration: &'a Registration,
        socket: &'a SocketProbe,
        refused: impl Fn(&RefusedStream) + 'a,
    ) -> impl Future<Output = C::Output> + 'a {
        poll_fn(move |cx| {
            let ended = h2_words::listening(|| connection.as_mut().poll(cx));
            h2_refusals::heard().iter().for_each(&refused);
            self.finish_responses();
            if !self.activity.is_still() {
                self.activity.wake_when_still(cx.waker());
            } else if !registration.is_waiting()
                && let Some(wait) = socket.client_wait()
            {
                registration.set_waiting(wait, self.activity.since());
            }
            ended
        })
    }

    /// Finishes the responses that have been taken completely, or lost.
    pub(super) fn finish_responses(&self) {
        if !self.activity.take_finished() {
            return;
        }
        let mut at = 0;
        while let Some(response) = self.get(at) {
            if response.is_over() {
                self.all.borrow_mut().swap_remove(at);
                response.finish();
            } else {
                at += 1;
            }
        }
    }

    /// Is there no current request, and no response waiting for the client?
    pub(super) fn are_still(&self) -> bool {
        self.activity.is_still()
    }

    /// The time of the connection's last sign of life.
    pub(super) fn quiet_since(&self) -> Instant {
        self.activity.since()
    }

    fn get(&self, at: usize) -> Option<Rc<PendingResponse<B>>> {
        self.all.borrow().get(at).cloned()
    }

    /// Resolves when the client need not be waited for any longer: it has sent no request for too long, or taken
    /// nothing of any waiting response. Until then a response that is not taken is abandoned although others are taken.
    /// `silent` returns the time without a request, which may change at any wakeup.
    pub(super) async fn client_idle(
        &self,
        bounds: IdleBounds,
        silent: impl Fn() -> Duration,
        socket: &SocketProbe,
    ) {
        loop {
            let now = clock::now();
            let allowed_silence = silent();
            // The client cannot take bytes that the socket does not accept. The socket's own bound ends a client that
            // takes nothing.
            let is_full = socket.is_full();
            let next = self.give_up_late(now, is_full);
            let until = if is_full || self.activity.has_requests() {
                now + allowed_silence
            } else {
                let allowed = if self.activity.has_responses() {
                    bounds.idle.max(self.longest_idle())
                } else {
                    allowed_silence
                };
                (self.activity.since() + allowed).max(bounds.from + allowed_silence)
            };
            if until <= now {
                return;
            }
            // Another response may begin to wait meanwhile.
            let until = until.min(now + allowed_silence.min(bounds.idle));
            let mut timer = pin!(sleep_until(next.map_or(until, |next| next.min(until))));
            poll_fn(|cx| {
                if silent() == allowed_silence {
                    timer.as_mut().poll(cx)
                } else {
                    Poll::Ready(())
                }
            })
            .await;
        }
    }

    /// The longest time for which the client may take nothing of a response that waits for it.
    fn longest_idle(&self) -> Duration {
        let all = self.all.borrow();
        let waiting = all.iter().filter(|response| response.is_waiting());
        waiting
            .map(|response| response.idle())
            .max()
            .unwrap_or_default()
    }

    /// Abandons responses of which the client has taken nothing for the idle time, or too little. Returns the time at
    /// which the next one may be due.
    fn give_up_late(&self, now: Instant, excused: bool) -> Option<Instant> {
        let mut at = 0;
        let mut next: Option<Instant> = None;
        while let Some(response) = self.get(at) {
            at += 1;
            if !response.is_waiting() {
                continue;
            }
            if excused {
                response.excuse(now);
            }
            if let Some(until) = response.check(now) {
                next = Some(next.map_or(until, |next| next.min(until)));
                continue;
            }
            if response.silent_since() == Some(self.activity.since()) {
                // The few bytes taken of this response were the last sign of life of the whole connection.
                self.activity.was_silent(now, self.bound.idle);
            }
            response.give_up();
        }
        next
    }
}

/// The body of a response in hyper's hands.
pub(super) struct StreamBody<B: ResponseBody> {
    response: Rc<PendingResponse<B>>,
    streams: Rc<StreamSet<B>>,
}

impl<B: ResponseBody> Body for StreamBody<B> {
    type Data = BodyPiece<B>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyPiece<B>>, B::Error>>> {
        self.response.poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.response.is_whole()
    }

    fn size_hint(&self) -> SizeHint {
        self.response.size_hint()
    }
}

impl<B: ResponseBody> Drop for StreamBody<B> {
    fn drop(&mut self) {
        if self.response.body_dropped() {
            self.streams.remove(&self.response);
            self.response.finish();
        }
    }
}

/// Runs hyper's tasks for the streams on the worker's own thread, and records each task in its stream.
pub(super) struct WorkerExecutor<B>(pub(in crate::listen) Rc<StreamSet<B>>);

impl<B> Clone for WorkerExecutor<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B, F: Future + 'static> Executor<F> for WorkerExecutor<B> {
    fn execute(&self, future: F) {
        let task = tokio::task::spawn_local(future);
        // hyper calls the service, and runs the returned future, before it looks at the next request.
        if let Some(latest) = self.0.latest.take() {
            latest.set_task(task.abort_handle());
        }
    }
}
