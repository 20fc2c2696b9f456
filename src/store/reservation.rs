//! Charges that are not final: each stays unchanged, or is amended once its request's end is known.

use super::decider::Decider;
use super::error::StoreError;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Mark, Ticket};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// One limit's charge to a request: units of a bucket, a window or a log, slots, a place in a queue, or a free repeat.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// The limit that was charged.
    pub limit: Arc<Limit>,
    /// The key that was charged.
    pub key: Box<[u8]>,
    /// The ticket by which the charge is found again.
    pub ticket: Ticket,
    /// The decider that made the charge.
    pub by: Decider,
    /// The instant of the charge, on the decider's clock.
    pub at: Timestamp,
    /// In a queue: the wait from the charge to the request's turn.
    pub turn: Duration,
}

/// The change of a reservation that does not stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amendment {
    /// The charge is refunded, in so far as no other charge depends on it.
    Refund,
    /// The request is not forwarded: the whole charge is given back, even if the counter has lost a part meanwhile.
    Cancellation,
    /// The request has cost this much.
    Settlement(Cost),
    /// The request is still alive, and its slots are renewed.
    Renewal,
    /// The request's slots are registered with a server that may not know them.
    Registration,
}

/// The effect of an amendment on the counter.
#[derive(Debug, Clone)]
pub enum Correction {
    /// The cost of this ticket is given back.
    Less(Ticket),
    /// This cost is charged in addition, by a variant of the limit that has room for a debt.
    More(Arc<Limit>, Cost),
    /// The slots of this ticket are renewed.
    Longer(Ticket),
}

/// Charges of the same counter are equal if everything else is.
impl PartialEq for Reservation {
    fn eq(&self, other: &Self) -> bool {
        let what = |one: &Self| (one.limit.id, one.ticket, one.by, one.at, one.turn);
        what(self) == what(other) && self.key == other.key
    }
}

impl Eq for Reservation {}

impl Reservation {
    /// The effect of `amendment` on the counter. `None` if the charge is already right, or cannot be settled.
    #[must_use]
    pub fn correction(&self, amendment: Amendment) -> Option<Correction> {
        match amendment {
            Amendment::Refund => Some(Correction::Less(self.ticket)),
            Amendment::Cancellation => {
                let whole = self.limit.abandoned(self.ticket, self.at);
                Some(Correction::Less(whole))
            }
            Amendment::Settlement(truth) => self.settled(truth),
            Amendment::Renewal | Amendment::Registration => {
                let is_slot = matches!(self.ticket.mark, Mark::Slot(_));
                is_slot.then_some(Correction::Longer(self.ticket))
            }
        }
    }

    /// The effect that turns the charge into one of `truth`.
    fn settled(&self, truth: Cost) -> Option<Correction> {
        let gateways = self.by.gateways();
        let truth = match gateways {
            NonZeroU32::MIN => truth,
            many => self.limit.share(truth, many),
        };
        let (charged, truth) = (self.ticket.cost.units(), truth.units());
        if truth > charged {
            let overdraft = self.limit.overdraft()?.overdraft_as_one_of(gateways);
            return Some(Correction::More(overdraft, Cost::new(truth - charged)));
        }
        let cost = Cost::new(charged - truth);
        // The record of the charge's id stays: it belongs to the charge as a whole.
        let ticket = Ticket {
            cost,
            record: None,
            ..self.ticket
        };
        let is_settled = cost != Cost::ZERO && self.limit.meter.is_some();
        is_settled.then_some(Correction::Less(ticket))
    }

    /// Does the amendment give anything back?
    pub(super) fn comes_back(&self, amendment: Amendment) -> bool {
        match amendment {
            Amendment::Refund | Amendment::Cancellation => true,
            Amendment::Settlement(truth) => truth < self.ticket.cost,
            Amendment::Renewal | Amendment::Registration => false,
        }
    }

    /// Is the reservation a place in a queue? Requests after it move up when it is cancelled.
    pub(super) fn is_place(&self) -> bool {
        self.limit.rule.queues() && self.ticket.mark != Mark::Repeat
    }
}

/// The outcome of a refund.
#[derive(Debug)]
pub enum RefundOutcome {
    /// The charge has been refunded, whole or in part.
    Refunded,
    /// Nothing was refunded: another charge depends on this one, or it has drained. The refund can be tried again.
    Declined,
    /// The store did not answer, or the charge can never be refunded.
    Lost,
    /// The store has not answered yet.
    Pending(PendingRefund),
}

/// A store's pending answer.
#[derive(Debug)]
pub struct PendingRefund(pub(super) oneshot::Receiver<Result<u8, StoreError>>);

impl PendingRefund {
    /// Waits for the outcome, at most as long as the store's calls may take.
    pub async fn outcome(self) -> RefundOutcome {
        match self.0.await {
            Ok(Ok(0)) => RefundOutcome::Declined,
            Ok(Ok(1 | 2)) => RefundOutcome::Refunded,
            // A refund that may have been applied is not tried again.
            Ok(Ok(_) | Err(_)) | Err(_) => RefundOutcome::Lost,
        }
    }
}
