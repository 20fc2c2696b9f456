//! The requests of one HTTP/2 connection: handed on, watched until their answers are taken, and given up when they are not.

use super::backpressure::{PendingResponse, StreamBody};
use super::connection::{Handler, ResponseBody};
use super::connection_register::Registration;
use super::framing::FramingFault;
use super::minimum_rate::RateBound;
use super::socket::SocketProbe;
use super::{Peer, connection};
use http::{HeaderMap, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What each field of a head counts beside its bytes (RFC 9113 section 6.5.2).
const FIELD: usize = 32;

/// Answers requests.
pub(super) struct H2Service<A: Handler> {
    pub(super) handler: Rc<A>,
    pub(super) peer: Rc<Peer>,
    pub(super) streams: Rc<StreamSet<A::Body>>,
}

impl<A: Handler> Service<Request<Incoming>> for H2Service<A> {
    type Response = Response<StreamBody<A::Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (handler, peer) = (Rc::clone(&self.handler), Rc::clone(&self.peer));
        peer.registration.is_busy();
        let tracked = self.streams.begin();
        if request.headers().len() > connection::MOST_FIELDS
            || size(request.uri(), request.headers()) > connection::MOST_HEAD
        {
            request.extensions_mut().insert(FramingFault::TooLarge);
        }
        Box::pin(async move {
            let response = handler.answer(request, peer).await;
            Ok(response.map(|body| tracked.with(body)))
        })
    }
}

/// About as h2 counts a head, pseudo-fields included.
fn size(uri: &Uri, fields: &HeaderMap) -> usize {
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let authority = uri
        .authority()
        .map_or(0, |authority| authority.as_str().len());
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    sizes.sum::<usize>() + target + authority + 4 * FIELD
}

/// A connection's signs of life. Pieces of answers write here from within h2.
pub(super) struct ConnectionActivity {
    /// Requests that wait for us or for an upstream.
    under_way: Cell<u32>,
    /// Answers that wait for the client.
    waiting: Cell<u32>,
    /// When the client last took a byte, or there was last something for it to wait for.
    since: Cell<Instant>,
    /// There may be answers to finish.
    finished: Cell<bool>,
    /// Who looks whether the connection is idle, once there may be no request any more.
    driver: Cell<Option<Waker>>,
}

impl ConnectionActivity {
    pub(super) fn since(&self) -> Instant {
        self.since.get()
    }

    /// Nothing was taken but too little: there has been no sign of life for so long.
    fn was_silent(&self, now: Instant, idle: Duration) {
        self.since.set(now.checked_sub(idle).unwrap_or(now));
    }

    /// No request is under way, and no answer waits for the client.
    fn is_still(&self) -> bool {
        self.under_way.get() == 0 && self.waiting.get() == 0
    }

    /// Something was taken. Returns the time.
    pub(super) fn beats(&self) -> Instant {
        let now = Instant::now();
        self.since.set(now);
        now
    }

    /// A request has come.
    pub(super) fn begins(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// One that was under way is over, perhaps by our own doing.
    pub(super) fn ends(&self, given_up: bool) {
        self.under_way.set(self.under_way.get().saturating_sub(1));
        if !given_up {
            self.beats();
        }
        if self.is_still()
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
    }

    /// One that was under way waits for the client now. Returns the time.
    pub(super) fn waits(&self) -> Instant {
        self.under_way.set(self.under_way.get().saturating_sub(1));
        self.waiting.set(self.waiting.get() + 1);
        self.beats()
    }

    /// One waits no more: it is under way again, unless nobody does anything for it.
    pub(super) fn waits_no_more(&self, gone: bool) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
        if gone {
            self.finished.set(true);
        } else {
            self.begins();
        }
    }
}

/// How long a connection is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleBounds {
    /// At least until so long after this.
    pub(super) from: Instant,
    /// Without a request.
    pub(super) silent: Duration,
    /// While answers wait for the client. Not shorter than the other.
    pub(super) idle: Duration,
}

/// The streams of one connection.
pub(super) struct StreamSet<B> {
    pulse: Rc<ConnectionActivity>,
    allowed: RateBound,
    all: RefCell<Vec<Rc<PendingResponse<B>>>>,
    /// The one that was begun last, until its task is.
    latest: RefCell<Option<Rc<PendingResponse<B>>>>,
}

impl<B: ResponseBody> StreamSet<B> {
    pub(super) fn new(allowed: RateBound) -> Rc<Self> {
        let pulse = ConnectionActivity {
            under_way: Cell::new(0),
            waiting: Cell::new(0),
            since: Cell::new(Instant::now()),
            finished: Cell::new(false),
            driver: Cell::new(None),
        };
        Rc::new(Self {
            pulse: Rc::new(pulse),
            allowed,
            all: RefCell::default(),
            latest: RefCell::default(),
        })
    }

    fn begin(self: &Rc<Self>) -> StreamBody<B> {
        let taking = PendingResponse::begin(&self.pulse, self.allowed);
        self.all.borrow_mut().push(Rc::clone(&taking));
        self.latest.replace(Some(Rc::clone(&taking)));
        StreamBody::new(taking, Rc::clone(self))
    }

    pub(super) fn remove(&self, one: &Rc<PendingResponse<B>>) {
        let mut all = self.all.borrow_mut();
        if let Some(at) = all.iter().position(|other| Rc::ptr_eq(one, other)) {
            all.swap_remove(at);
        }
    }

    /// Drives hyper's connection to its end, and finishes answers as they are taken.
    pub(super) fn drive<'a, C: Future>(
        &'a self,
        mut connection: Pin<&'a mut C>,
        registration: &'a Registration,
        socket: &'a SocketProbe,
    ) -> impl Future<Output = C::Output> + 'a {
        poll_fn(move |cx| {
            let ended = connection.as_mut().poll(cx);
            self.settle();
            if !self.pulse.is_still() {
                self.pulse.driver.set(Some(cx.waker().clone()));
            } else if !registration.is_waiting()
                && let Some(waiting) = socket.waiting()
            {
                registration.waits(waiting, self.pulse.since());
            }
            ended
        })
    }

    /// Finishes what has been taken, or lost, to its end.
    pub(super) fn settle(&self) {
        if !self.pulse.finished.take() {
            return;
        }
        let mut at = 0;
        while let Some(one) = self.get(at) {
            if one.is_over() {
                self.all.borrow_mut().swap_remove(at);
                one.finish();
            } else {
                at += 1;
            }
        }
    }

    fn get(&self, at: usize) -> Option<Rc<PendingResponse<B>>> {
        self.all.borrow().get(at).cloned()
    }

    /// Resolves when the client is no longer to be waited for: it has asked for nothing, or taken nothing of any answer
    /// that is there, for too long. Until then answers are given up that are not taken beside others that are.
    pub(super) async fn over(&self, waits: IdleBounds, socket: &SocketProbe) {
        loop {
            let now = Instant::now();
            // What the socket does not take cannot be taken; a client that takes nothing of that is found out there.
            let is_full = socket.is_full();
            let next = self.give_up(now, is_full);
            let until = if is_full || self.pulse.under_way.get() > 0 {
                now + waits.silent
            } else {
                let allowed = match self.pulse.waiting.get() {
                    0 => waits.silent,
                    _ => waits.idle,
                };
                (self.pulse.since() + allowed).max(waits.from + waits.silent)
            };
            if until <= now {
                return;
            }
            let until = until.min(now + waits.silent);
            sleep_until(next.map_or(until, |next| next.min(until))).await;
        }
    }

    /// Gives up answers of which nothing has been taken for the idle time, or too little. Returns when the next may be due.
    fn give_up(&self, now: Instant, excused: bool) -> Option<Instant> {
        let (mut at, mut next) = (0, None);
        while let Some(one) = self.get(at) {
            at += 1;
            if !one.waits() {
                continue;
            }
            if excused {
                one.excuse(now);
            }
            match one.look(now) {
                Some(until) => {
                    next = Some(next.map_or(until, |next: Instant| next.min(until)));
                }
                None => {
                    if one.silent_since() == Some(self.pulse.since()) {
                        // The little that was taken of it was the last sign of the whole connection.
                        self.pulse.was_silent(now, self.allowed.idle);
                    }
                    one.give_up();
                }
            }
        }
        next
    }
}

/// Runs what hyper does for the streams, on the worker's own thread, and lets each know what is done for it.
pub(super) struct WorkerExecutor<B>(pub(super) Rc<StreamSet<B>>);

impl<B> Clone for WorkerExecutor<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B, F: Future + 'static> Executor<F> for WorkerExecutor<B> {
    fn execute(&self, future: F) {
        let task = tokio::task::spawn_local(future);
        // hyper calls the service, and runs what that returns, before it looks at the next request.
        if let Some(latest) = self.0.latest.take() {
            latest.runs(task.abort_handle());
        }
    }
}
