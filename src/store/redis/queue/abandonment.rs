//! Requests whose client leaves during their decision. The decision is made nevertheless. Two kinds of charges are
//! given back when the answer arrives: charges that only a continuing request can use, and charges that their limit
//! refunds to leaving requests. If one slot of several refuses, all charges are given back.

use super::slot_question::{self, SlotQuestion};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::store::check::Check;
use crate::store::redis::wire::question::DecisionRequest;
use crate::store::reservation::Reservation;
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use tokio::sync::Notify;

/// Receives the place in a queue of a request that has left.
pub(crate) type AbandonedTicketHandler = Box<dyn Fn(Reservation)>;

/// The abandoned requests of one worker.
#[derive(Default)]
pub(crate) struct Abandonments {
    requests: RefCell<Vec<AbandonedRequest>>,
    arrived: Notify,
    /// Requests whose answers are still to come.
    open: Cell<usize>,
    /// The handler that gives places back in their order. Without a handler, each place is given back by itself, if no
    /// request is after it by then.
    pub(crate) tickets: OnceCell<AbandonedTicketHandler>,
}

impl Abandonments {
    /// Takes over a request that has left, with its calls.
    pub(crate) fn push(&self, request: DecisionRequest<'_>, questions: Vec<SlotQuestion>) {
        self.open.set(self.open.get() + 1);
        self.requests.borrow_mut().push(AbandonedRequest {
            clock: request.clock,
            checks: request.checks.iter().map(OwnedCheck::of).collect(),
            questions,
        });
        self.arrived.notify_one();
    }

    /// Calls `cancel` for each charge that an abandoned request cannot use, until the worker ends.
    pub(crate) async fn serve(&self, cancel: impl Fn(Option<Timestamp>, &Reservation)) {
        loop {
            self.arrived.notified().await;
            for request in self.requests.take() {
                request.conclude(&cancel).await;
                self.open.set(self.open.get() - 1);
            }
        }
    }

    /// Have all abandoned requests got their answers?
    pub(crate) fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Passes on a place in a queue, if there is a handler for it.
    pub(crate) fn hand_over(&self, clock: Option<Timestamp>, reservation: &Reservation) -> bool {
        let is_place = reservation.is_place() && clock.is_none();
        let Some(handler) = self.tickets.get().filter(|_| is_place) else {
            return false;
        };
        handler(reservation.clone());
        true
    }
}

/// A request that has left, and its calls, which may have charged it.
struct AbandonedRequest {
    clock: Option<Timestamp>,
    checks: Vec<OwnedCheck>,
    questions: Vec<SlotQuestion>,
}

impl AbandonedRequest {
    /// Waits for the answers, and cancels the charges that the request cannot use: all charges if it was refused.
    async fn conclude(mut self, cancel: &impl Fn(Option<Timestamp>, &Reservation)) {
        let checks: Vec<Check<'_>> = self.checks.iter().map(OwnedCheck::check).collect();
        for question in &mut self.questions {
            question.conclude(&checks).await;
        }
        let Ok(answers) = slot_question::combine(&checks, &self.questions) else {
            return;
        };
        let is_admitted = answers.admit(&checks) && answers.outage.is_none();
        let charged = self.questions.iter().flat_map(|one| one.charged(&checks));
        for charge in charged.filter(|charge| !is_admitted || comes_back(&charge.limit)) {
            cancel(self.clock, &charge);
        }
    }
}

/// A check that outlives its request.
struct OwnedCheck {
    limit: Arc<Limit>,
    key: Box<[u8]>,
    cost: Cost,
    id: Option<RepeatId>,
}

impl OwnedCheck {
    fn of(check: &Check<'_>) -> Self {
        Self {
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            cost: check.cost,
            id: check.id,
        }
    }

    fn check(&self) -> Check<'_> {
        Check {
            limit: &self.limit,
            key: &self.key,
            cost: self.cost,
            id: self.id,
        }
    }
}

/// Is a leaving request's charge of this limit given back? A slot or a place in a queue is useless to it; for other
/// charges the limit decides.
pub(crate) fn comes_back(limit: &Limit) -> bool {
    limit.rule.concurrency().is_some() || limit.rule.queues() || limit.refund_on.cancels
}
