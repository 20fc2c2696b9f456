//! Decisions that wait to be sent to one node, and surcharges: charges that no request waits for, since a request has cost
//! more than its estimate.
//!
//! A decision waits no longer than the store's `timeout`, waiting for a lane included, though no request has a timer: a
//! call's deadline is that of its oldest decision, and the decisions behind it came later.

use super::MOST_IN_CALL;
use super::context::StoreContext;
use super::counter_update::{KEPT, REPEATED};
use super::health::Health;
use super::lanes::Lanes;
use super::pending_refunds::MOST_TRIES;
use super::question::DecisionRequest;
use super::question::Question;
use super::reply::{ReplyError, ScriptReply};
use super::slot::CallRoute;
use crate::clock::{self, Timestamp};
use crate::store::error::StoreError;
use crate::telemetry::metrics::{CallOutcome, Operation};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Counters in one call, unless a single request has more.
const MOST_LIMITS: usize = 256;
/// Decisions that wait; one more is turned away at once.
const MOST_WAITING: usize = 4096;
/// Surcharges that wait.
const MOST_SURCHARGES: usize = MOST_WAITING / 2;

const _: () = assert!(MOST_IN_CALL <= MOST_WAITING);

/// A decision that waits to be sent.
#[derive(Debug)]
pub(super) struct QueuedDecision {
    pub(super) number: u64,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) arrived: Instant,
    /// The charge is made although no request waits for it.
    pub(super) surcharge: Option<Surcharge>,
    pub(super) route: CallRoute,
    pub(super) answer: oneshot::Sender<ScriptReply>,
}

/// How far a surcharge has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surcharge {
    until: Instant,
    /// When the surcharge was sent first.
    since: Option<Instant>,
    /// How often the surcharge was sent in vain.
    tries: u8,
}

impl Surcharge {
    pub(super) fn new() -> Self {
        Self {
            until: clock::now() + KEPT,
            since: None,
            tries: 0,
        }
    }

    /// A call with it had no answer.
    fn count_try(&mut self) {
        self.since.get_or_insert_with(clock::now);
        self.tries += 1;
    }

    fn is_over(&self) -> bool {
        let now = clock::now();
        let is_in_vain = self.since.is_some_and(|since| now - since >= REPEATED);
        self.until <= now || is_in_vain || self.tries >= MOST_TRIES
    }
}

/// How far a decision came before it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    /// The decision was not sent.
    Unsent,
    /// The decision was sent, and may have been applied.
    Sent,
}

/// The decisions that wait for one node.
pub(super) struct CallQueue {
    /// Is asked whether Redis is away.
    health: Rc<Health>,
    lanes: Rc<Lanes>,
    context: Rc<StoreContext>,
    decisions: RefCell<VecDeque<QueuedDecision>>,
    /// Surcharges that wait for Redis to be back.
    surcharges: RefCell<VecDeque<QueuedDecision>>,
}

impl CallQueue {
    pub(super) fn new(context: &Rc<StoreContext>, health: &Rc<Health>, lanes: &Rc<Lanes>) -> Self {
        Self {
            health: Rc::clone(health),
            lanes: Rc::clone(lanes),
            context: Rc::clone(context),
            decisions: RefCell::default(),
            surcharges: RefCell::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decisions.borrow().is_empty()
    }

    /// Does no surcharge wait for Redis to be back?
    pub(super) fn is_paid(&self) -> bool {
        self.surcharges.borrow().is_empty()
    }

    /// Is there room for this decision?
    ///
    /// # Errors
    /// Why not.
    pub(super) fn admit(&self, request: DecisionRequest<'_>) -> Result<(), StoreError> {
        if self.health.is_down() {
            self.context.stats.down.add(1);
            return Err(StoreError::Down);
        }
        let checks = request.checks.len();
        if checks + usize::from(request.refused) > usize::from(u8::MAX) {
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
        let number = self.context.abandonments.number();
        self.decisions.borrow_mut().push_back(QueuedDecision {
            number,
            question,
            clock,
            arrived: clock::now(),
            surcharge: None,
            route,
            answer,
        });
        self.lanes.wake();
        (number, receiver)
    }

    /// Puts a decision in front of all that wait.
    pub(super) fn put_back(&self, decision: QueuedDecision) {
        self.decisions.borrow_mut().push_front(decision);
    }

    /// Since when the oldest decision waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        Some(self.decisions.borrow().front()?.arrived)
    }

    /// What goes into the next call: of one clock, and only decisions that a request still waits for. A decision that has
    /// waited so long that hardly any of its time is left is turned away: its call would end too early for all others in
    /// it, and would look like a store that does not answer.
    pub(super) fn next(&self) -> Vec<QueuedDecision> {
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
            if next.answer.is_closed() && next.surcharge.is_none() {
                self.context.abandonments.forget(next.number);
            } else if too_old.is_none_or(|limit| next.arrived >= limit) {
                limits += next.question.limits();
                batch.push(next);
            } else if next.surcharge.is_some() {
                // A surcharge may wait longer, and goes behind the decisions that may not.
                let arrived = clock::now();
                waiting.push_back(QueuedDecision { arrived, ..next });
            } else {
                self.turn_away(next);
            }
        }
        batch
    }

    /// Turns away decisions that have waited for all of their time. Returns when the time of the next is over.
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

    /// The decision has waited too long here, which says nothing of the server.
    fn turn_away(&self, decision: QueuedDecision) {
        self.context.stats.overloaded.add(1);
        self.fail(decision, &StoreError::Overloaded, SendState::Unsent);
    }

    /// Redis is away: no decision waits for it.
    pub(super) fn set_down(&self) {
        let decisions = self.decisions.take();
        self.context.stats.down.add(decisions.len() as u64);
        for decision in decisions {
            self.fail(decision, &StoreError::Down, SendState::Unsent);
        }
    }

    /// Answers a decision. What an abandoned request cannot use is given back.
    pub(super) fn answer(&self, decision: QueuedDecision, reply: ScriptReply) {
        if decision.surcharge.is_some() {
            let outcome = if reply.is_ok() {
                CallOutcome::Ok
            } else {
                CallOutcome::Lost
            };
            let took = clock::now() - decision.arrived;
            self.context.stats.updated(Operation::Settle, outcome, took);
        }
        if let Err(reply) = decision.answer.send(reply) {
            self.context.abandonments.conclude(decision.number, reply);
        }
    }

    /// The decision was not made. A surcharge is made later.
    pub(super) fn fail(&self, mut decision: QueuedDecision, why: &StoreError, sending: SendState) {
        let Some(surcharge) = &mut decision.surcharge else {
            return self.answer(decision, Err(ReplyError::Store(why.clone())));
        };
        if sending == SendState::Sent {
            surcharge.count_try();
        }
        let is_full = self.surcharges.borrow().len() >= MOST_SURCHARGES;
        if is_full || surcharge.is_over() || decision.clock.is_some() {
            return self.count_surcharge(CallOutcome::Lost);
        }
        decision.route = CallRoute::to(decision.route.slot);
        self.surcharges.borrow_mut().push_back(decision);
        self.lanes.reminder.notify_one();
    }

    /// Makes a new surcharge, soon or when Redis is back.
    pub(super) fn charge(&self, question: Question, clock: Option<Timestamp>, route: CallRoute) {
        self.push_surcharge(QueuedDecision {
            number: self.context.abandonments.number(),
            question,
            clock,
            arrived: clock::now(),
            surcharge: Some(Surcharge::new()),
            route,
            answer: oneshot::channel().0,
        });
    }

    /// Makes a surcharge, soon or when Redis is back.
    pub(super) fn push_surcharge(&self, mut decision: QueuedDecision) {
        decision.arrived = clock::now();
        let is_down = self.health.is_down();
        let queue = if is_down {
            &self.surcharges
        } else {
            &self.decisions
        };
        let is_lost = is_down && decision.clock.is_some();
        let is_over = decision
            .surcharge
            .is_none_or(|surcharge| surcharge.is_over());
        if is_lost || is_over || queue.borrow().len() >= MOST_SURCHARGES {
            return self.count_surcharge(CallOutcome::Lost);
        }
        queue.borrow_mut().push_back(decision);
        if is_down {
            self.count_surcharge(CallOutcome::Down);
        } else {
            self.lanes.wake();
        }
    }

    /// Makes the surcharges that wait, in front of decisions that come from now on.
    pub(super) fn charge_all(&self) {
        let arrived = clock::now();
        let waiting = self.surcharges.take().into_iter();
        let waiting = waiting.map(|decision| QueuedDecision {
            arrived,
            ..decision
        });
        self.decisions.borrow_mut().extend(waiting);
    }

    /// All surcharges that wait, for other nodes.
    pub(super) fn take_surcharges(&self) -> VecDeque<QueuedDecision> {
        self.surcharges.take()
    }

    fn count_surcharge(&self, outcome: CallOutcome) {
        self.context
            .stats
            .updated(Operation::Settle, outcome, Duration::ZERO);
    }
}
