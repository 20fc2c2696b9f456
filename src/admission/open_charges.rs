//! The charges of an admitted request that may change at the request's end, and the choice of those to refund.

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
    /// The request was answered, by a status other than a server error.
    Answered,
    /// A server answered with an error, or no server could be reached.
    ServerError,
    /// The client left, or the gateway abandoned the request, before any of it was forwarded.
    Abandoned,
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
            Self::Answered => false,
            Self::ServerError => limit.refund_on.errors,
            Self::Abandoned => limit.refund_on.cancels,
        }
    }
}
