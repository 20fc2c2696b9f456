//! Requests whose client leaves while their decision is under way. The decision is made all the same. Charges that only a
//! request that goes on can use, or that their limit refunds to those that leave, come back when the answer is there.

use super::question::DecisionRequest;
use super::reply::ScriptReply;
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::limit::verdict::Wait;
use crate::store::answers::LimitAnswer;
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::reservation::{Charge, Refund, Reservation};
use crate::store::shadow::{Charges, Groups, groups};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Takes over a place in a queue that was granted to a request that has left, so long before its turn.
pub(super) type AbandonedTicketHandler = Box<dyn Fn(Charge, Duration)>;

/// Sends a refund to the node that serves its counter.
pub(super) type RefundHandler = Box<dyn Fn(Option<Timestamp>, Refund<'_>)>;

/// The abandoned requests of one worker, by their question's number.
#[derive(Default)]
pub(super) struct Abandonments {
    /// Questions asked so far.
    questions: Cell<u64>,
    abandoned: RefCell<hashbrown::HashMap<u64, AbandonedRequest, foldhash::fast::RandomState>>,
    /// Sends refunds to their nodes. It is set once there are nodes.
    pub(super) refunds: OnceCell<RefundHandler>,
    /// Gives places back in their order; without, each goes back by itself, if no request stands behind it by then.
    pub(super) tickets: OnceCell<AbandonedTicketHandler>,
}

impl Abandonments {
    /// The number of the next question.
    pub(super) fn number(&self) -> u64 {
        let number = self.questions.get();
        self.questions.set(number.wrapping_add(1));
        number
    }

    /// The question is not asked.
    pub(super) fn forget(&self, number: u64) {
        self.abandoned.borrow_mut().remove(&number);
    }

    /// Gives back what an abandoned request cannot use, now that its answer is there.
    #[cold]
    pub(super) fn conclude(&self, number: u64, reply: ScriptReply) {
        let request = self.abandoned.borrow_mut().remove(&number);
        if let Some(request) = request {
            self.refund_unused(&request, reply);
        }
    }

    fn refund_unused(&self, request: &AbandonedRequest, reply: ScriptReply) {
        let Ok((at, measured)) = reply else {
            return;
        };
        let admits = |index: usize, _| {
            let measured = measured.get(index);
            measured.is_none_or(|measured| measured.wait == Wait::Micros(0))
        };
        let charged = Charges::by(&request.groups, admits, false);
        for owned in &request.charges {
            let check = owned.check();
            let measured = measured
                .get(owned.index)
                .filter(|_| charged.has(owned.index));
            let Some(measured) = measured else { continue };
            let answer = LimitAnswer::measurement(&check, Decider::Redis, at, *measured);
            if let Some(charge) = answer.reservation(&check)
                && !self.hand_over(request.clock, &charge)
            {
                self.refund(request.clock, Refund::from(&charge.charge));
            }
        }
    }

    /// Gives a charge back, wherever its counter is served by now.
    pub(super) fn refund(&self, clock: Option<Timestamp>, refund: Refund<'_>) {
        if let Some(handler) = self.refunds.get() {
            handler(clock, refund);
        }
    }

    /// Takes back what was charged for a request that does not go on: all of it, but for places in queues, which go back
    /// in their order.
    pub(super) fn cancel(&self, clock: Option<Timestamp>, charged: &[Reservation]) {
        for reservation in charged {
            if !self.hand_over(clock, reservation) {
                self.refund(clock, Refund::from(&reservation.cancelled()));
            }
        }
    }

    /// Hands a place in a queue over, if there is a handler for it.
    pub(super) fn hand_over(&self, clock: Option<Timestamp>, reservation: &Reservation) -> bool {
        let is_place = reservation.charge.limit.rule.queues() && clock.is_none();
        let Some(handler) = self.tickets.get().filter(|_| is_place) else {
            return false;
        };
        handler(reservation.charge.clone(), reservation.turn);
        true
    }
}

/// Waits for the reply to one question. Dropping it before the reply was taken registers the request as abandoned.
pub(super) struct PendingAnswer<'a> {
    pub(super) abandonments: &'a Abandonments,
    pub(super) request: DecisionRequest<'a>,
    pub(super) number: u64,
    pub(super) receiver: oneshot::Receiver<ScriptReply>,
    /// The reply was taken, or nothing will be charged.
    pub(super) done: bool,
}

/// What a request that has left may have been charged.
struct AbandonedRequest {
    clock: Option<Timestamp>,
    /// Of all limits of the question.
    groups: Groups,
    charges: Vec<OwnedCheck>,
}

/// A check that outlives its request.
pub(super) struct OwnedCheck {
    /// Position among the limits of the question.
    index: usize,
    limit: Arc<Limit>,
    key: Box<[u8]>,
    cost: Cost,
    id: Option<RepeatId>,
}

impl OwnedCheck {
    pub(super) fn of(index: usize, check: &Check<'_>) -> Self {
        Self {
            index,
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            cost: check.cost,
            id: check.id,
        }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check {
            limit: &self.limit,
            key: &self.key,
            cost: self.cost,
            id: self.id,
        }
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let checks = self.request.checks;
        let charges: Vec<OwnedCheck> = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| comes_back(check.limit))
            .map(|(index, check)| OwnedCheck::of(index, check))
            .collect();
        if charges.is_empty() {
            return;
        }
        let request = AbandonedRequest {
            clock: self.request.clock,
            groups: groups(checks),
            charges,
        };
        match self.receiver.try_recv() {
            Ok(reply) => self.abandonments.refund_unused(&request, reply),
            Err(oneshot::error::TryRecvError::Empty) => {
                let mut abandoned = self.abandonments.abandoned.borrow_mut();
                abandoned.insert(self.number, request);
            }
            Err(oneshot::error::TryRecvError::Closed) => {}
        }
    }
}

/// A slot or a place in a queue is of no use to a request that has left; of other charges the limit says so.
pub(super) fn comes_back(limit: &Limit) -> bool {
    limit.rule.holds().is_some() || limit.rule.queues() || limit.refund_on.cancels
}
