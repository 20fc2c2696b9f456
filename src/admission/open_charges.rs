//! The charges of an admitted request that may change at the request's end, and the choice of those to refund.

use crate::key::FinalStatus;
use crate::limit::Limit;
use crate::store::Reservation;

/// The charges of one request that may change at its end.
#[derive(Debug, Default)]
pub struct OpenCharges {
    /// Slots of `concurrency` limits: each is freed when the request ends.
    pub slots: Vec<Reservation>,
    /// Places in queues: each is freed when the request leaves before its turn.
    pub places: Vec<Reservation>,
    /// Charges that the request's end refunds, or that the response settles.
    pub refundable: Vec<Reservation>,
}

/// The end of a request, in the kinds that refunds distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// A server answered, or the gateway for want of an answer, and the final status is this one.
    Answered(FinalStatus),
    /// The gateway answered by itself, without a server.
    OwnAnswer(FinalStatus),
    /// The gateway refused the request as a guess, with this status: the charge is never refunded.
    Guess(FinalStatus),
    /// A limit refused the request after it was charged, since its turn would have come too late.
    Limited,
    /// The request failed because of its client: the charge stays under any condition.
    Kept,
    /// The client left, or the gateway abandoned the request with this status, before any of it was forwarded.
    Abandoned(Option<FinalStatus>),
}

impl OpenCharges {
    /// Are there no charges of these kinds?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.places.is_empty() && self.refundable.is_empty()
    }

    /// The request is in no queue: its places are ordinary charges.
    pub fn leave_queues(&mut self) {
        let places = self.places.drain(..);
        self.refundable
            .extend(places.filter(|place| place.limit.may_correct()));
    }
}

impl RequestEnd {
    /// Does a request with this end get its charge at `limit` refunded?
    #[must_use]
    pub fn refunds(self, limit: &Limit) -> bool {
        match self {
            Self::Kept | Self::Guess(_) => false,
            Self::Answered(status) => limit.refund_on.covers(status),
            Self::OwnAnswer(status) => limit.refund_on.statuses.has(status),
            Self::Abandoned(status) => {
                let refunds = &limit.refund_on;
                refunds.cancels || status.is_some_and(|status| refunds.statuses.has(status))
            }
            Self::Limited => limit.refund_on.cancels || limit.is_by_status(),
        }
    }

    /// The final status, if the end has one that counts.
    #[must_use]
    pub const fn status(self) -> Option<FinalStatus> {
        match self {
            Self::Answered(status) | Self::OwnAnswer(status) | Self::Guess(status) => Some(status),
            Self::Abandoned(status) => status,
            Self::Kept | Self::Limited => None,
        }
    }
}
