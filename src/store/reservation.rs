//! Charges that may not stay: each is kept, made another number (`settlement`), or refunded (`refund`).

use super::decider::Decider;
use crate::clock::Timestamp;
use crate::limit::{Limit, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// A charge that can be refunded later by the request that made it.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The limit that was charged.
    pub limit: Arc<Limit>,
    /// The key that was charged.
    pub key: Box<[u8]>,
    /// What [`StoreDecision::ticket`](super::StoreDecision::ticket) gave.
    pub ticket: Ticket,
    /// The decider that was paid, if not that of the rest of the request.
    pub by: Option<Decider>,
}

/// One charge to refund, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Refund<'a> {
    /// The limit that was charged.
    pub limit: &'a Arc<Limit>,
    /// The key that was charged.
    pub key: &'a [u8],
    /// What [`StoreDecision::ticket`](super::StoreDecision::ticket) gave.
    pub ticket: Ticket,
}

/// A charge that was made before it is known whether the request goes on.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    /// The charge.
    pub charge: Charge,
    /// When it was made, on the clock of the store that made it.
    pub at: Timestamp,
    /// In a queue: how long after that the request's turn is.
    pub turn: Duration,
}

impl<'a> From<&'a Charge> for Refund<'a> {
    fn from(charge: &'a Charge) -> Self {
        Self {
            limit: &charge.limit,
            key: &charge.key,
            ticket: charge.ticket,
        }
    }
}

impl Reservation {
    /// The charge as it is refunded where the request does not go on: all of it, whatever the counter forgot meanwhile.
    pub(super) fn cancelled(&self) -> Charge {
        let Charge { limit, ticket, .. } = &self.charge;
        Charge {
            ticket: limit.abandoned(*ticket, self.at),
            ..self.charge.clone()
        }
    }
}
