//! Charges whose true number is known only afterwards.

use super::check::Check;
use super::reservation::Charge;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Ticket};
use std::sync::Arc;

/// What is to be done about a charge that was not the true one.
#[derive(Debug, Clone, Copy)]
pub enum Correction<'a> {
    /// It was too much: the ticket is of what comes back.
    Less(Ticket),
    /// It was too little: so much more is charged by this limit, which has room for a debt.
    More(&'a Arc<Limit>, Cost),
}

impl Charge {
    /// What makes this charge one of `truth`; nothing where it is, or cannot be settled.
    #[must_use]
    pub fn correction(&self, truth: Cost) -> Option<Correction<'_>> {
        let (charged, truth) = (self.ticket.cost.units(), truth.units());
        if truth > charged {
            let more = Cost::new(truth - charged);
            return Some(Correction::More(self.limit.overdraft()?, more));
        }
        let cost = Cost::new(charged - truth);
        // What is remembered of its id stays: it is the charge's own.
        let ticket = Ticket {
            cost,
            record: None,
            ..self.ticket
        };
        (cost != Cost::ZERO && self.limit.meter.is_some()).then_some(Correction::Less(ticket))
    }
}

/// A charge that is made whether it fits or not.
pub fn surcharge<'a>(overdraft: &'a Arc<Limit>, key: &'a [u8], cost: Cost) -> Check<'a> {
    Check {
        limit: overdraft,
        key,
        cost,
        id: None,
    }
}
