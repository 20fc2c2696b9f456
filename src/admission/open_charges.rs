//! The charges of an admitted request that its end may change, and the choice of those that are refunded then.

use crate::limit::Limit;
use crate::store::Reservation;

/// The charges of one request that its end may change.
#[derive(Debug, Default)]
pub struct OpenCharges {
    /// Slots of limits on what is in flight: each comes back when the request ends.
    pub slots: Vec<Reservation>,
    /// Places in queues: each comes back when the request leaves before its turn.
    pub places: Vec<Reservation>,
    /// Charges that the request's end refunds, or that the response settles.
    pub refundable: Vec<Reservation>,
}

/// The end of a request, as far as refunds depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The request was answered, by a status that is no error of a server.
    Answered,
    /// A server answered with an error, or none could be reached.
    ServerError,
    /// The client left, or the gateway gave the request up, before any of it was forwarded.
    Abandoned,
}

impl OpenCharges {
    /// Are there no charges of these kinds?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.places.is_empty() && self.refundable.is_empty()
    }

    /// The request stands in no queue: its places are charges like others.
    pub fn leave_queues(&mut self) {
        let places = self.places.drain(..);
        self.refundable
            .extend(places.filter(|place| place.limit.may_correct()));
    }
}

impl RequestEnd {
    /// Does a request that ended so get its charge at `limit` back?
    #[must_use]
    pub fn refunds(self, limit: &Limit) -> bool {
        match self {
            Self::Answered => false,
            Self::ServerError => limit.refund_on.errors,
            Self::Abandoned => limit.refund_on.cancels,
        }
    }
}
