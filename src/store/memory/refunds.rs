//! What comes back: charges that are given back, and repeats that have not gone free after all.

use super::{MemoryQuestion, MemoryStore, OVERFLOW, record_key, shelf};
use crate::clock::Timestamp;
use crate::limit::RecordState;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Measurement, Repeat};
use crate::limit::{Limit, Refund, State, Ticket};
use crate::store::check::Check;
use crate::store::refund::RefundOutcome;
use crate::store::reservation::Charge;
use crate::store::settlement::{Correction, surcharge};
use std::num::NonZeroU32;

impl MemoryStore {
    /// Refunds what `ticket` was charged, as far as no other charge counts on it. Was that anything?
    pub fn refund(&self, limit: &Limit, key: &[u8], ticket: Ticket) -> bool {
        self.refund_at(limit, key, ticket, self.clock.now())
    }

    /// Refunds at an instant that is given.
    pub fn refund_at(&self, limit: &Limit, key: &[u8], ticket: Ticket, now: Timestamp) -> bool {
        self.change_charge(limit, key, ticket, |state| {
            limit.rule.refund(state, now, ticket)
        })
    }

    /// Refunds a charge, as far as no other charge counts on it.
    pub(in crate::store) fn refund_charge(&self, charge: &Charge) -> RefundOutcome {
        if self.refund(&charge.limit, &charge.key, charge.ticket) {
            RefundOutcome::Refunded
        } else {
            RefundOutcome::Declined
        }
    }

    /// Makes a charge, made as one of so many gateways, one of `truth`.
    pub(in crate::store) fn settle_charge(
        &self,
        charge: &Charge,
        truth: Cost,
        gateways: NonZeroU32,
    ) {
        let Charge { limit, key, .. } = charge;
        let truth = match gateways {
            NonZeroU32::MIN => truth,
            _ => limit.share(truth, gateways),
        };
        match charge.correction(truth) {
            Some(Correction::Less(ticket)) => self.correct(limit, key, ticket),
            Some(Correction::More(overdraft, cost)) => {
                let key = if charge.ticket.overflow {
                    OVERFLOW
                } else {
                    key
                };
                let overdraft = overdraft.overdraft_as_one_of(gateways);
                let check = surcharge(&overdraft, key, cost);
                self.measure(&[check], MemoryQuestion::now(false));
            }
            None => {}
        }
    }

    /// Gives back what a charge was too much.
    pub fn correct_at(&self, limit: &Limit, key: &[u8], ticket: Ticket, now: Timestamp) {
        self.change_charge(limit, key, ticket, |state| {
            limit.rule.refund(state, now, ticket)
        });
    }

    /// Gives back now what a charge was too much.
    pub fn correct(&self, limit: &Limit, key: &[u8], ticket: Ticket) {
        self.correct_at(limit, key, ticket, self.clock.now());
    }

    /// Takes back what `check` was charged at `at` for a request that another limit then refused. Could that be?
    pub(in crate::store) fn undo(
        &self,
        check: &Check<'_>,
        at: Timestamp,
        measured: Measurement,
    ) -> bool {
        let Check { limit, key, .. } = *check;
        let now = self.clock.now();
        if measured.repeat == Repeat::Free {
            self.undo_repeat(check, at);
            return true;
        }
        let ticket = check.ticket(at, measured, NonZeroU32::MIN);
        ticket.is_none_or(|ticket| {
            self.change_charge(limit, key, ticket, |state| {
                limit.rule.refund(state, now, ticket)
            })
        })
    }

    /// The repeat at `at` has not gone free after all.
    fn undo_repeat(&self, check: &Check<'_>, at: Timestamp) {
        let Some((dedupe, id)) = check.repeats() else {
            return;
        };
        let name = record_key(check.key, id);
        let place = self.place(check.limit, &name);
        let mut guards = self.lock([&place]);
        // One that lasts longer is of a charge that came after it.
        let last = at.plus(dedupe.ttl).micros();
        let record = place.find(&guards).and_then(State::record);
        if let Some(record) = record.filter(|record| record.ends <= last && record.free > 0) {
            let free = record.free - 1;
            let change = RecordState { free, ..record }.change();
            shelf(&mut guards, place.shard).put(&place, change);
        }
    }

    fn change_charge(
        &self,
        limit: &Limit,
        key: &[u8],
        ticket: Ticket,
        left: impl Fn(Option<&State>) -> Refund,
    ) -> bool {
        let id = ticket.record.map(|record| record_key(key, record.id));
        let record = id.as_ref().map(|id| self.place(limit, id));
        let counted = if ticket.overflow { OVERFLOW } else { key };
        let place = self.place(limit, counted);
        let mut guards = self.lock([&place].into_iter().chain(&record));
        let remembered = record.and_then(|at| at.find(&guards)?.record());
        if !ticket.is_unrepeated(remembered) {
            return false;
        }
        match left(place.find(&guards)) {
            Refund::Nothing => return false,
            Refund::Left(change) => shelf(&mut guards, place.shard).put(&place, change),
            Refund::Gone => {
                shelf(&mut guards, place.shard).remove(&place);
            }
        }
        if let Some(record) = record {
            shelf(&mut guards, record.shard).remove(&record);
        }
        true
    }
}
