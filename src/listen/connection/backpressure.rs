//! A response to an HTTP/2 client, which takes bytes at its own pace. The response is handed out in pieces that record
//! whether they were taken.
//!
//! hyper takes a piece from a body before the client's window has room for it, and h2 keeps the bytes beyond the
//! window. The body is therefore not polled while the client takes nothing, and only the pieces show that.
//!
//! h2 takes and drops pieces under locks of its own. Dropping a body may need the same locks (those of its request, if
//! the request's body is still incomplete). A piece therefore only notes its end; the connection finishes responses
//! ([`super::stream_deadline`]).

use super::handler::ResponseBody;
use crate::clock;
use crate::listen::socket::minimum_rate::{RateBound, RateMeter};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The most bytes that are handed out at once, since h2 cannot return them: the content of one DATA frame unless a
/// client allows more (RFC 9113 section 6.5.2).
const PIECE: usize = 16 * 1024;

/// A connection's signs of life. Pieces of responses write here from within h2.
pub(super) struct ConnectionActivity {
    /// Requests that wait for the gateway or for an upstream.
    under_way: Cell<u32>,
    /// Responses that wait for the client.
    waiting: Cell<u32>,
    /// The time at which the client last took a byte, or at which it last got something new to wait for.
    since: Cell<Instant>,
    /// There may be responses to finish.
    finished: Cell<bool>,
    /// The task that checks whether the connection is idle, woken when there may be no more requests.
    driver: Cell<Option<Waker>>,
}

impl ConnectionActivity {
    pub(in crate::listen) fn new() -> Rc<Self> {
        Rc::new(Self {
            under_way: Cell::new(0),
            waiting: Cell::new(0),
            since: Cell::new(clock::now()),
            finished: Cell::new(false),
            driver: Cell::new(None),
        })
    }

    /// The time of the last sign of life.
    pub(in crate::listen) fn since(&self) -> Instant {
        self.since.get()
    }

    /// Is a request waiting for the gateway or for an upstream?
    pub(super) fn has_requests(&self) -> bool {
        self.under_way.get() > 0
    }

    /// Is a response waiting for the client?
    pub(super) fn has_responses(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Is no request under way, and no response waiting for the client?
    pub(super) fn is_still(&self) -> bool {
        !self.has_requests() && !self.has_responses()
    }

    /// Are there responses to finish? Returns true once.
    pub(super) fn take_finished(&self) -> bool {
        self.finished.take()
    }

    /// Registers `waker`, to be woken when there may be no more requests.
    pub(super) fn wake_when_still(&self, waker: &Waker) {
        self.driver.set(Some(waker.clone()));
    }

    /// Notes that the client took too little: there has been no sign of life for `idle`.
    pub(super) fn was_silent(&self, now: Instant, idle: Duration) {
        self.since.set(now.checked_sub(idle).unwrap_or(now));
    }

    /// Notes a sign of life. Returns its time.
    fn touch(&self) -> Instant {
        let now = clock::now();
        self.since.set(now);
        now
    }

    fn request_begins(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    fn request_leaves(&self) {
        self.under_way.set(self.under_way.get().saturating_sub(1));
    }

    fn request_ends(&self) {
        self.request_leaves();
        if self.is_still()
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
    }

    /// Notes that a request now waits for the client. Returns the present time.
    fn response_waits(&self) -> Instant {
        self.request_leaves();
        self.waiting.set(self.waiting.get() + 1);
        self.touch()
    }

    fn response_leaves(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
    }
}

/// One response, from its request on.
pub(super) struct PendingResponse<B> {
    /// The body, absent before the response begins and once it is over.
    body: RefCell<Option<B>>,
    /// Bytes that have arrived and were too many to hand out at once.
    rest: RefCell<Bytes>,
    /// Pieces handed out and not yet taken.
    pieces: Cell<u32>,
    /// The rate at which the client takes the response.
    rate: RefCell<RateMeter>,
    /// The whole body has been handed out.
    whole: Cell<bool>,
    /// A piece was dropped instead of taken.
    lost: Cell<bool>,
    /// hyper has dropped its handle of the body.
    gone: Cell<bool>,
    /// The response was abandoned, since the client took nothing.
    stalled: Cell<bool>,
    /// hyper's task for the stream.
    task: Cell<Option<AbortHandle>>,
    activity: Rc<ConnectionActivity>,
}

/// A piece of a response's body on its way to the client.
pub(super) struct BodyPiece<B> {
    bytes: Bytes,
    response: Rc<PendingResponse<B>>,
}

/// The result of polling a response's body.
type PolledFrame<B> = Poll<Option<Result<Frame<BodyPiece<B>>, <B as Body>::Error>>>;

impl<B> PendingResponse<B> {
    /// Notes that a request has arrived.
    pub(in crate::listen) fn begin(
        activity: &Rc<ConnectionActivity>,
        bound: RateBound,
    ) -> Rc<Self> {
        activity.request_begins();
        Rc::new(Self {
            body: RefCell::default(),
            rest: RefCell::default(),
            pieces: Cell::new(0),
            rate: RefCell::new(RateMeter::new(bound)),
            whole: Cell::new(false),
            lost: Cell::new(false),
            gone: Cell::new(false),
            stalled: Cell::new(false),
            task: Cell::default(),
            activity: Rc::clone(activity),
        })
    }

    /// Notes hyper's task for the stream: aborting it resets the stream.
    pub(super) fn set_task(&self, task: AbortHandle) {
        self.task.set(Some(task));
    }

    /// Has hyper dropped the body, and have all of its pieces been taken?
    pub(in crate::listen) fn is_over(&self) -> bool {
        self.gone.get() && self.pieces.get() == 0
    }

    /// Does the response wait for the client?
    pub(in crate::listen) fn is_waiting(&self) -> bool {
        self.pieces.get() > 0 && !self.stalled.get()
    }

    /// Notes that the client could take no byte until `now`.
    pub(in crate::listen) fn excuse(&self, now: Instant) {
        self.rate.borrow_mut().excuse(now);
    }

    /// The time of the next check of the client's rate; `None` if the client is late.
    pub(in crate::listen) fn check(&self, now: Instant) -> Option<Instant> {
        let mut rate = self.rate.borrow_mut();
        if rate.is_late(now) {
            None
        } else {
            rate.next_check()
        }
    }

    /// The time at which the client last took a byte of the response, or was to begin.
    pub(in crate::listen) fn silent_since(&self) -> Option<Instant> {
        self.rate.borrow().silent_since()
    }

    /// The time for which the client may take nothing of the response.
    pub(in crate::listen) fn idle(&self) -> Duration {
        self.rate.borrow().bound().idle
    }

    /// Has the whole body been handed out?
    pub(in crate::listen) fn is_whole(&self) -> bool {
        self.whole.get()
    }

    fn hand_out(self: &Rc<Self>, bytes: Bytes) -> BodyPiece<B> {
        if !bytes.is_empty() {
            if self.pieces.get() == 0 {
                let now = self.activity.response_waits();
                self.rate.borrow_mut().begin_wait(now);
            }
            self.pieces.set(self.pieces.get() + 1);
        }
        BodyPiece {
            bytes,
            response: Rc::clone(self),
        }
    }

    /// Notes that a piece was taken or dropped.
    fn piece_ends(&self, now: Instant) {
        self.pieces.set(self.pieces.get().saturating_sub(1));
        if self.pieces.get() > 0 {
            return;
        }
        self.rate.borrow_mut().end_wait(now);
        self.activity.response_leaves();
        if self.gone.get() {
            self.activity.finished.set(true);
        } else {
            self.activity.request_begins();
        }
    }
}

impl<B: ResponseBody> PendingResponse<B> {
    /// Notes that the response has begun.
    pub(super) fn set_body(&self, body: B) {
        self.whole.set(body.is_end_stream());
        let (idle, is_bare) = (body.route_idle(), !body.has_minimum_rate());
        if idle.is_some() || is_bare {
            let mut rate = self.rate.borrow_mut();
            let bound = idle.map_or(rate.bound(), |idle| rate.bound().over(idle));
            rate.bind(if is_bare { bound.idle_alone() } else { bound });
        }
        self.body.replace(Some(body));
    }

    /// The next piece of the body, or its trailers.
    pub(super) fn poll_piece(self: &Rc<Self>, cx: &mut Context<'_>) -> PolledFrame<B> {
        let mut body = self.body.borrow_mut();
        // The body was abandoned, and the task that polls it is being aborted.
        let Some(body) = &mut *body else {
            return Poll::Pending;
        };
        let mut rest = self.rest.borrow_mut();
        if rest.is_empty() {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(trailers) => {
                        self.whole.set(true);
                        let frame = trailers.map_data(|bytes| self.hand_out(bytes));
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.whole.set(true);
                    return Poll::Ready(None);
                }
            }
        }
        let piece = match rest.len() {
            ..=PIECE => mem::take(&mut *rest),
            _ => rest.split_to(PIECE),
        };
        self.whole.set(rest.is_empty() && body.is_end_stream());
        Poll::Ready(Some(Ok(Frame::data(self.hand_out(piece)))))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let body = self.body.borrow();
        let mut hint = body.as_ref().map(Body::size_hint).unwrap_or_default();
        let rest = self.rest.borrow().len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }

    /// Notes that hyper has dropped its handle of the body. Returns true if no piece of it is still to be taken: the
    /// response is over, and to be finished.
    pub(super) fn body_dropped(&self) -> bool {
        self.gone.set(true);
        if self.pieces.get() > 0 {
            return false;
        }
        if !self.stalled.get() {
            self.activity.touch();
        }
        self.activity.request_ends();
        true
    }

    /// Drops the body. Pieces do not call this.
    pub(in crate::listen) fn finish(&self) {
        if let Some(mut body) = self.body.take()
            && self.whole.get()
            && !self.lost.get()
        {
            body.taken();
        }
    }

    /// Drops the rest and resets the stream. Pieces that h2 already has in full stay with h2.
    pub(super) fn give_up(&self) {
        self.stalled.set(true);
        if let Some(mut body) = self.body.take() {
            body.stalled(self.rate.borrow().lateness(clock::now()));
        }
        self.rest.take();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl<B> Buf for BodyPiece<B> {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.bytes.advance(count);
        let now = self.response.activity.touch();
        let rate = &self.response.rate;
        rate.borrow_mut().received_at(now, count as u64);
        if self.bytes.is_empty() {
            self.response.piece_ends(now);
        }
    }
}

impl<B> Drop for BodyPiece<B> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.response.lost.set(true);
            self.response.piece_ends(clock::now());
        }
    }
}
