//! Requests whose client leaves while their decision is under way. The decision is made all the same. Charges that only a
//! request that goes on can use, or that their limit refunds to those that leave, come back when the answer is there; all
//! charges do where one slot of several refuses.

use super::question::DecisionRequest;
use super::slot_question::{self, SlotQuestion};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::store::check::Check;
use crate::store::reservation::Reservation;
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use tokio::sync::Notify;

/// Takes over a place in a queue that was granted to a request that has left.
pub(super) type AbandonedTicketHandler = Box<dyn Fn(Reservation)>;

/// The abandoned requests of one worker.
#[derive(Default)]
pub(super) struct Abandonments {
    requests: RefCell<Vec<AbandonedRequest>>,
    arrived: Notify,
    /// Requests that wait for their answers.
    open: Cell<usize>,
    /// Gives places back in their order; without, each goes back by itself, if no request stands behind it by then.
    pub(super) tickets: OnceCell<AbandonedTicketHandler>,
}

impl Abandonments {
    /// The request with these questions has left.
    pub(super) fn push(&self, request: DecisionRequest<'_>, questions: Vec<SlotQuestion>) {
        self.open.set(self.open.get() + 1);
        self.requests.borrow_mut().push(AbandonedRequest {
            clock: request.clock,
            checks: request.checks.iter().map(OwnedCheck::of).collect(),
            questions,
        });
        self.arrived.notify_one();
    }

    /// Has `cancel` take back what abandoned requests were charged and cannot use, until the worker ends.
    pub(super) async fn serve(&self, cancel: impl Fn(Option<Timestamp>, &Reservation)) {
        loop {
            self.arrived.notified().await;
            for request in self.requests.take() {
                request.conclude(&cancel).await;
                self.open.set(self.open.get() - 1);
            }
        }
    }

    /// Does no abandoned request wait for its answers?
    pub(super) fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Hands a place in a queue over, if there is a handler for it.
    pub(super) fn hand_over(&self, clock: Option<Timestamp>, reservation: &Reservation) -> bool {
        let is_place = reservation.is_place() && clock.is_none();
        let Some(handler) = self.tickets.get().filter(|_| is_place) else {
            return false;
        };
        handler(reservation.clone());
        true
    }
}

/// A request that has left, and what it may have been charged.
struct AbandonedRequest {
    clock: Option<Timestamp>,
    checks: Vec<OwnedCheck>,
    questions: Vec<SlotQuestion>,
}

impl AbandonedRequest {
    /// Waits for the answers, and cancels what the request cannot use: all of it where it was refused.
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

/// A slot or a place in a queue is of no use to a request that has left; of other charges the limit says so.
pub(super) fn comes_back(limit: &Limit) -> bool {
    limit.rule.holds().is_some() || limit.rule.queues() || limit.refund_on.cancels
}
