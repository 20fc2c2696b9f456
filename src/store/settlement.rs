//! Settles charges whose true number is known only afterwards. Nobody waits for it.

use super::check::{Charge, Check, Refund};
use super::decider::Decider;
use super::memory::OVERFLOW;
use super::{MemoryStore, Store};
use crate::limit::rate::Cost;
use crate::limit::{Limit, Scope, Ticket};
use std::num::NonZeroU32;
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

impl Store {
    /// Makes a charge, decided `by` that, one of `truth`.
    pub fn correct(&self, charge: &Charge, truth: Cost, by: Decider) {
        let gateways = charge.by.unwrap_or(by).gateways();
        let truth = match gateways {
            NonZeroU32::MIN => truth,
            _ => charge.limit.share(truth, gateways),
        };
        let Some(correction) = charge.correction(truth) else {
            return;
        };
        let Charge { limit, key, .. } = charge;
        let memory = |memory: &MemoryStore| match correction {
            Correction::Less(ticket) => memory.correct(limit, key, ticket),
            Correction::More(overdraft, cost) => {
                let key = if charge.ticket.overflow {
                    OVERFLOW
                } else {
                    key
                };
                let overdraft = overdraft.overdraft_as_one_of(gateways);
                memory.measure(&[more(&overdraft, key, cost)], None, false);
            }
        };
        match (self, charge.by.unwrap_or(by)) {
            (Self::Redis { local, .. }, _) if limit.scope == Scope::Gateway => memory(local),
            (
                Self::Memory(local) | Self::Redis { local, .. },
                Decider::Memory | Decider::Local { .. },
            ) => memory(local),
            (Self::Redis { shared, near, .. }, Decider::Redis) => match correction {
                Correction::Less(ticket) => {
                    near.returns(limit, key);
                    shared.correct([Refund { limit, key, ticket }]);
                }
                Correction::More(overdraft, cost) => shared.charge(&more(overdraft, key, cost)),
            },
            (Self::Memory(_), Decider::Redis)
            | (_, Decider::Lease | Decider::Remembered | Decider::Open | Decider::Closed) => {}
        }
    }
}

/// A charge that is not asked whether it fits.
pub fn more<'a>(overdraft: &'a Arc<Limit>, key: &'a [u8], cost: Cost) -> Check<'a> {
    Check {
        limit: overdraft,
        key,
        cost,
        id: None,
    }
}
