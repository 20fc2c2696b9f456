//! Decisions that wait to be sent to one node.
//!
//! A decision waits no longer than the store's `timeout`, including the wait for a lane, although no request has a
//! timer. A call has the deadline of its oldest decision; the later decisions arrived after it.

use super::context::StoreContext;
use super::lanes::Lanes;
use super::pending_decision::{self, PendingReply, QueuedDecision};
use crate::clock::{self, Timestamp};
use crate::store::check::Intent;
use crate::store::error::StoreError;
use crate::store::redis::MOST_IN_CALL;
use crate::store::redis::link::health::Health;
use crate::store::redis::wire::question::{DecisionRequest, Question};
use crate::store::redis::wire::slot::CallRoute;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::time::Instant;

/// Counters in one call, unless a single request has more.
const MOST_LIMITS: usize = 256;
/// The most waiting decisions; one more is rejected at once.
const MOST_WAITING: usize = 4096;

const _: () = assert!(MOST_IN_CALL <= MOST_WAITING);

/// The decisions that wait for one node.
pub(crate) struct CallQueue {
    /// Shows whether Redis is available.
    health: Rc<Health>,
    lanes: Rc<Lanes>,
    context: Rc<StoreContext>,
    decisions: RefCell<VecDeque<QueuedDecision>>,
}

impl CallQueue {
    pub(crate) fn new(context: &Rc<StoreContext>, health: &Rc<Health>, lanes: &Rc<Lanes>) -> Self {
        Self {
            health: Rc::clone(health),
            lanes: Rc::clone(lanes),
            context: Rc::clone(context),
            decisions: RefCell::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.decisions.borrow().is_empty()
    }

    /// Is there room for this decision?
    ///
    /// # Errors
    /// The cause for which no connection exists.
    pub(crate) fn admit(&self, request: DecisionRequest<'_>) -> Result<(), StoreError> {
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

    /// Adds a decision that was admitted. Returns the receiver of the reply.
    pub(crate) fn push(
        &self,
        question: Question,
        clock: Option<Timestamp>,
        route: CallRoute,
    ) -> PendingReply {
        let number = self.context.next_number();
        let (decision, reply) = pending_decision::decision(number, question, clock, route);
        self.decisions.borrow_mut().push_back(decision);
        self.lanes.wake();
        reply
    }

    /// Is a decision still unsent? If so, it is not sent, since its request has left.
    pub(crate) fn is_unsent(&self, number: u64) -> bool {
        let decisions = self.decisions.borrow();
        decisions.iter().any(|one| one.number == number)
    }

    /// Puts a decision before all waiting ones.
    pub(crate) fn put_back(&self, decision: QueuedDecision) {
        self.decisions.borrow_mut().push_front(decision);
    }

    /// The instant since which the oldest decision waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        Some(self.decisions.borrow().front()?.arrived)
    }

    /// The decisions of the next call: of one clock, and only decisions that a request still waits for. A decision that
    /// has used up nearly all of its time is rejected: its call would end too early for all others in it, and would
    /// resemble a call to a store that does not answer.
    pub(crate) fn next(&self) -> Vec<QueuedDecision> {
        let mut waiting = self.decisions.borrow_mut();
        if waiting.is_empty() {
            return Vec::new();
        }
        let mut batch: Vec<QueuedDecision> = Vec::with_capacity(waiting.len().min(MOST_IN_CALL));
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
            if next.is_abandoned() {
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

    /// Rejects decisions that have used up their time. Returns the instant at which the next one will have.
    pub(crate) fn expire(&self) -> Option<Instant> {
        loop {
            let ends = self.oldest()? + self.context.timeout;
            if ends > clock::now() {
                return Some(ends);
            }
            let next = self.decisions.borrow_mut().pop_front()?;
            self.turn_away(next);
        }
    }

    /// Rejects a decision that has waited too long in this process, which is no evidence about the server.
    fn turn_away(&self, decision: QueuedDecision) {
        self.context.stats.overloaded.add(1);
        decision.fail(&StoreError::Overloaded);
    }

    /// Answers all waiting decisions, since Redis is unavailable.
    pub(crate) fn set_down(&self) {
        let decisions = self.decisions.take();
        self.context.stats.down.add(decisions.len() as u64);
        for decision in decisions {
            decision.fail(&StoreError::Down);
        }
    }
}
