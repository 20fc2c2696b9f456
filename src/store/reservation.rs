//! Charges that are not final: each stays as it is, or is amended once its request's end is known.

use super::decider::Decider;
use super::error::StoreError;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Mark, Ticket};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What one limit charged a request: units of a bucket, a window or a log, slots, a place in a queue, or a repeat that went
/// free.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// The limit that was charged.
    pub limit: Arc<Limit>,
    /// The key that was charged.
    pub key: Box<[u8]>,
    /// Where the charge is found again.
    pub ticket: Ticket,
    /// The decider that made it.
    pub by: Decider,
    /// When it was made, on the decider's clock.
    pub at: Timestamp,
    /// In a queue: how long after that the request's turn is.
    pub turn: Duration,
}

/// What becomes of a reservation that does not stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amendment {
    /// The charge comes back, as far as no other charge counts on it.
    Refund,
    /// The request does not go on: all of the charge comes back, whatever the counter forgot meanwhile.
    Cancellation,
    /// The request has cost so much.
    Settlement(Cost),
    /// The request lives on, and with it its slots.
    Renewal,
}

/// What an amendment does to the counter.
#[derive(Debug, Clone)]
pub enum Correction {
    /// The cost of this ticket comes back.
    Less(Ticket),
    /// So much more is charged, by a limit of the same counter that has room for a debt.
    More(Arc<Limit>, Cost),
    /// The slots of this ticket are held for longer.
    Longer(Ticket),
}

impl Reservation {
    /// What `amendment` does to the counter; nothing where the charge is as it should be, or cannot be settled.
    #[must_use]
    pub fn correction(&self, amendment: Amendment) -> Option<Correction> {
        match amendment {
            Amendment::Refund => Some(Correction::Less(self.ticket)),
            Amendment::Cancellation => {
                let whole = self.limit.abandoned(self.ticket, self.at);
                Some(Correction::Less(whole))
            }
            Amendment::Settlement(truth) => self.settled(truth),
            Amendment::Renewal => {
                let is_slot = matches!(self.ticket.mark, Mark::Slot(_));
                is_slot.then_some(Correction::Longer(self.ticket))
            }
        }
    }

    /// What makes the charge one of `truth`.
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
        // What is remembered of its id stays: it is the charge's own.
        let ticket = Ticket {
            cost,
            record: None,
            ..self.ticket
        };
        let is_settled = cost != Cost::ZERO && self.limit.meter.is_some();
        is_settled.then_some(Correction::Less(ticket))
    }

    /// Does something come back by this?
    pub(super) fn comes_back(&self, amendment: Amendment) -> bool {
        match amendment {
            Amendment::Refund | Amendment::Cancellation => true,
            Amendment::Settlement(truth) => truth < self.ticket.cost,
            Amendment::Renewal => false,
        }
    }

    /// Is it a place in a queue, which requests behind it move up into?
    pub(super) fn is_place(&self) -> bool {
        self.limit.rule.queues() && self.ticket.mark != Mark::Repeat
    }
}

/// What has become of a charge that was to be refunded.
#[derive(Debug)]
pub enum RefundOutcome {
    /// It has been refunded, whole or in part.
    Refunded,
    /// Nothing was refunded: another charge counts on it, or it has passed. It can be tried again.
    Declined,
    /// The store did not answer, or it can never be refunded.
    Lost,
    /// The store has not answered yet.
    Pending(PendingRefund),
}

/// A store's answer that is to come.
#[derive(Debug)]
pub struct PendingRefund(pub(super) oneshot::Receiver<Result<u8, StoreError>>);

impl PendingRefund {
    /// Waits for it: as long as the store's calls may take.
    pub async fn outcome(self) -> RefundOutcome {
        match self.0.await {
            Ok(Ok(0)) => RefundOutcome::Declined,
            Ok(Ok(1 | 2)) => RefundOutcome::Refunded,
            // What may have been done is not tried again.
            Ok(Ok(_) | Err(_)) | Err(_) => RefundOutcome::Lost,
        }
    }
}
