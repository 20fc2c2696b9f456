//! A decision that a request waits for: the question for Redis and its answer share one allocation. The lane has one
//! end of it, the request the other.

use crate::clock::{self, Timestamp};
use crate::store::error::StoreError;
use crate::store::redis::link::reply::{ReplyError, ScriptReply};
use crate::store::redis::wire::question::Question;
use crate::store::redis::wire::slot::CallRoute;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::time::Instant;

/// A decision, from the question to the answer.
pub(crate) struct PendingDecision {
    pub(crate) number: u64,
    pub(crate) question: Question,
    pub(crate) clock: Option<Timestamp>,
    pub(crate) arrived: Instant,
    reply: RefCell<Option<ScriptReply>>,
    /// Wakes the request.
    waker: Cell<Option<Waker>>,
    /// Has the request left, or taken the answer?
    left: Cell<bool>,
}

/// The lane's end: a decision that waits to be sent, or to be answered. Its drop wakes the request. If there is no
/// answer by then, Redis counts as unavailable for the request: the lane ended with the worker.
pub(crate) struct QueuedDecision {
    pub(crate) route: CallRoute,
    /// Its place among the groups of equal questions of its call.
    pub(crate) group: u8,
    decision: Rc<PendingDecision>,
}

/// The request's end.
pub(crate) struct PendingReply(Rc<PendingDecision>);

/// Both ends of a decision that arrives now.
#[inline]
pub(crate) fn decision(
    number: u64,
    question: Question,
    clock: Option<Timestamp>,
    route: CallRoute,
) -> (QueuedDecision, PendingReply) {
    let decision = Rc::new(PendingDecision {
        number,
        question,
        clock,
        arrived: clock::now(),
        reply: RefCell::default(),
        waker: Cell::default(),
        left: Cell::new(false),
    });
    let reply = PendingReply(Rc::clone(&decision));
    let queued = QueuedDecision {
        route,
        group: 0,
        decision,
    };
    (queued, reply)
}

impl Deref for QueuedDecision {
    type Target = PendingDecision;

    fn deref(&self) -> &PendingDecision {
        &self.decision
    }
}

impl QueuedDecision {
    /// Has the request left?
    pub(super) fn is_abandoned(&self) -> bool {
        self.left.get()
    }

    /// Is there an answer?
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.borrow().is_some()
    }

    /// Keeps the answer for the request.
    pub(crate) fn keep(&self, reply: ScriptReply) {
        *self.reply.borrow_mut() = Some(reply);
    }

    /// Answers that the decision was not made.
    pub(crate) fn fail(self, why: &StoreError) {
        self.keep(Err(ReplyError::Store(why.clone())));
    }
}

impl Drop for QueuedDecision {
    fn drop(&mut self) {
        if self.reply.borrow().is_none() {
            self.keep(Err(ReplyError::Store(StoreError::Down)));
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl PendingReply {
    /// The number of the decision.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Reads the answer, if it has arrived.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&ScriptReply) -> T) -> Option<T> {
        self.0.reply.borrow().as_ref().map(read)
    }
}

/// Waits until the answer has arrived.
impl Future for PendingReply {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.reply.borrow().is_some() {
            return Poll::Ready(());
        }
        let known = self.0.waker.take();
        let known = known.filter(|known| known.will_wake(context.waker()));
        let waker = known.unwrap_or_else(|| context.waker().clone());
        self.0.waker.set(Some(waker));
        Poll::Pending
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.0.left.set(true);
        self.0.waker.take();
    }
}
