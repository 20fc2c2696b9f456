//! Decisions that wait to be sent to one node.
//!
//! A decision waits no longer than the store's `timeout`, the wait for a lane included, although no request has a
//! timer. A call's deadline is that of its oldest decision; the decisions behind it came later.

use super::MOST_IN_CALL;
use super::context::StoreContext;
use super::health::Health;
use super::lanes::Lanes;
use super::question::{DecisionRequest, Question};
use super::reply::{ReplyError, ScriptReply};
use super::slot::CallRoute;
use crate::clock::{self, Timestamp};
use crate::store::check::Intent;
use crate::store::error::StoreError;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Counters in one call, unless a single request has more.
const MOST_LIMITS: usize = 256;
/// Most decisions that wait; one more is turned away at once.
const MOST_WAITING: usize = 4096;

const _: () = assert!(MOST_IN_CALL <= MOST_WAITING);

/// A decision that waits to be sent.
#[derive(Debug)]
pub(super) struct QueuedDecision {
    pub(super) number: u64,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) arrived: Instant,
    pub(super) route: CallRoute,
    pub(super) answer: oneshot::Sender<ScriptReply>,
    /// Its place among the groups of equal questions of its call.
    pub(super) group: u8,
}

/// The decisions that wait for one node.
pub(super) struct CallQueue {
    /// Shows whether Redis is away.
    health: Rc<Health>,
    lanes: Rc<Lanes>,
    context: Rc<StoreContext>,
    decisions: RefCell<VecDeque<Box<QueuedDecision>>>,
}

impl CallQueue {
    pub(super) fn new(context: &Rc<StoreContext>, health: &Rc<Health>, lanes: &Rc<Lanes>) -> Self {
        Self {
            health: Rc::clone(health),
            lanes: Rc::clone(lanes),
            context: Rc::clone(context),
            decisions: RefCell::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decisions.borrow().is_empty()
    }

    /// Is there room for this decision?
    ///
    /// # Errors
    /// The cause for which there is none.
    pub(super) fn admit(&self, request: DecisionRequest<'_>) -> Result<(), StoreError> {
        if self.health.is_down() {
            self.context.stats.down.add(1);
            return Err(StoreError::Down);
        }
        let checks = request.checks.len();
        if checks + usize::from(request.intent == Intent::Peek) > usize::from(u8::MAX) {
            return Err(StoreError::TooMany(checks));
        }
        if self.decisions.borrow().len() >= MOST_WAITING {
            self.context.stats.overloaded.add(1);
            return Err(StoreError::Overloaded);
        }
        Ok(())
    }

    /// Adds a decision that was admitted. Returns its number, and what receives the reply.
    pub(super) fn push(
        &self,
        question: Question,
        clock: Option<Timestamp>,
        route: CallRoute,
    ) -> (u64, oneshot::Receiver<ScriptReply>) {
        let (answer, receiver) = oneshot::channel();
        let number = self.context.next_number();
        let decision = Box::new(QueuedDecision {
            number,
            question,
            clock,
            arrived: clock::now(),
            route,
            answer,
            group: 0,
        });
        self.decisions.borrow_mut().push_back(decision);
        self.lanes.wake();
        (number, receiver)
    }

    /// Is a decision still to be sent? A decision whose request has left by then is not sent.
    pub(super) fn is_unsent(&self, number: u64) -> bool {
        let decisions = self.decisions.borrow();
        decisions.iter().any(|one| one.number == number)
    }

    /// Puts a decision in front of all waiting ones.
    pub(super) fn put_back(&self, decision: Box<QueuedDecision>) {
        self.decisions.borrow_mut().push_front(decision);
    }

    /// The instant since which the oldest decision waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        Some(self.decisions.borrow().front()?.arrived)
    }

    /// The decisions of the next call: of one clock, and only decisions that a request still waits for. A decision that
    /// has used up nearly all of its time is turned away: its call would end too early for all others in it, and would
    /// look like the call of a store that does not answer.
    pub(super) fn next(&self) -> Vec<Box<QueuedDecision>> {
        let mut waiting = self.decisions.borrow_mut();
        if waiting.is_empty() {
            return Vec::new();
        }
        let mut batch = Vec::<Box<QueuedDecision>>::with_capacity(waiting.len().min(MOST_IN_CALL));
        let mut limits = 0;
        let too_old = clock::now().checked_sub(self.lanes.window.longest_wait());
        while let Some(next) = waiting.front() {
            let fits = batch.len() < MOST_IN_CALL
                && (batch.is_empty() || limits + next.question.limits() <= MOST_LIMITS)
                && batch.first().is_none_or(|first| first.clock == next.clock);
            if !fits {
                break;
            }
            let Some(next) = waiting.pop_front() else {
                break;
            };
            if next.answer.is_closed() {
                continue;
            }
            if too_old.is_none_or(|limit| next.arrived >= limit) {
                limits += next.question.limits();
                batch.push(next);
            } else {
                self.turn_away(next);
            }
        }
        batch
    }

    /// Turns away decisions that have used up their time. Returns the instant at which the next one has.
    pub(super) fn expire(&self) -> Option<Instant> {
        loop {
            let ends = self.oldest()? + self.context.timeout;
            if ends > clock::now() {
                return Some(ends);
            }
            let next = self.decisions.borrow_mut().pop_front()?;
            self.turn_away(next);
        }
    }

    /// Turns away a decision that has waited too long in this process, which is no evidence about the server.
    fn turn_away(&self, decision: Box<QueuedDecision>) {
        self.context.stats.overloaded.add(1);
        decision.fail(&StoreError::Overloaded);
    }

    /// Answers all waiting decisions: Redis is away.
    pub(super) fn set_down(&self) {
        let decisions = self.decisions.take();
        self.context.stats.down.add(decisions.len() as u64);
        for decision in decisions {
            decision.fail(&StoreError::Down);
        }
    }
}

impl QueuedDecision {
    /// Answers the request, if it is still there.
    pub(super) fn answer(self, reply: ScriptReply) {
        let _ = self.answer.send(reply);
    }

    /// Answers that the decision was not made.
    pub(super) fn fail(self, why: &StoreError) {
        self.answer(Err(ReplyError::Store(why.clone())));
    }
}
