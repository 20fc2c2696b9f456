//! Charges that are given back, and repeats that were not free after all.

use super::shard_locks::table_at;
use super::side_states::record_key;
use super::{MemoryStore, OVERFLOW};
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Mark, Refund, Ticket};
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::reservation::{Amendment, Correction, RefundOutcome, Reservation};
use std::sync::Arc;

impl MemoryStore {
    /// Amends a charge, in so far as no other charge depends on it. In this process no slot lapses, and none is
    /// renewed.
    pub fn amend(&self, reservation: &Reservation, amendment: Amendment) -> RefundOutcome {
        let Reservation { limit, key, at, .. } = reservation;
        match reservation.correction(amendment) {
            Some(Correction::Less(ticket)) => {
                return self.refund_charge(limit, key, ticket, Some(*at));
            }
            Some(Correction::More(..)) if self.is_stale(limit, key, reservation.ticket, *at) => {}
            Some(Correction::More(overdraft, cost)) => {
                let surcharge = Check {
                    limit: &overdraft,
                    key: counted(key, reservation.ticket),
                    cost,
                    id: None,
                };
                self.measure(&[surcharge], Intent::Charge, Decider::Memory);
            }
            Some(Correction::Longer(_)) | None => {}
        }
        RefundOutcome::Declined
    }

    /// Was the counter of this charge emptied since? The counter that all keys without room share is none that an
    /// operator empties. The record of an id is no count.
    fn is_stale(&self, limit: &Limit, key: &[u8], ticket: Ticket, charged: Timestamp) -> bool {
        !ticket.overflow
            && ticket.mark != Mark::Repeat
            && self.resets.is_since(limit.id, key, charged)
    }

    /// Counts slots of a request that is already in flight, even without room. The returned reservation frees them.
    pub fn count_slots(
        &self,
        limit: &Arc<Limit>,
        key: &[u8],
        cost: Cost,
        by: Decider,
    ) -> Option<Reservation> {
        let any = limit.of_any_number()?;
        let check = Check {
            limit: any,
            key,
            cost,
            id: None,
        };
        let answers = self.measure(&[check], Intent::Charge, by);
        let held = answers.reservations(&[check]).pop()?;
        Some(Reservation {
            limit: Arc::clone(limit),
            ..held
        })
    }

    /// Gives back the charge of `ticket`, in so far as no other charge depends on it. Returns whether anything was
    /// given back.
    pub fn refund(&self, limit: &Limit, key: &[u8], ticket: Ticket) -> bool {
        let outcome = self.refund_charge(limit, key, ticket, None);
        matches!(outcome, RefundOutcome::Refunded)
    }

    /// Like [`Self::refund`]. Of a charge made at `charged`, nothing comes back to a counter that was emptied since.
    fn refund_charge(
        &self,
        limit: &Limit,
        key: &[u8],
        ticket: Ticket,
        charged: Option<Timestamp>,
    ) -> RefundOutcome {
        let id = ticket.record.map(|record| record_key(key, record.id));
        let record = id.as_ref().map(|id| self.place(limit, id));
        let place = self.place(limit, counted(key, ticket));
        let mut guards = self.lock([&place].into_iter().chain(&record));
        if charged.is_some_and(|charged| self.is_stale(limit, key, ticket, charged)) {
            return RefundOutcome::Lost;
        }
        let remembered = record.and_then(|at| at.find(&guards)?.record());
        let now = self.instant(limit);
        if let (Some(at), Some(before)) = (&record, ticket.without_repeat(remembered, now)) {
            table_at(&mut guards, at.shard).put(at, before.change());
            return RefundOutcome::Refunded;
        }
        if !ticket.is_unrepeated(remembered) {
            return RefundOutcome::Declined;
        }
        let refund = limit
            .rule
            .refund(place.find(&guards).as_deref(), now, ticket);
        match refund {
            Refund::Nothing => return RefundOutcome::Declined,
            Refund::Left(change) => table_at(&mut guards, place.shard).put(&place, change),
            Refund::Gone => {
                table_at(&mut guards, place.shard).remove(&place);
            }
        }
        if let Some(record) = record {
            table_at(&mut guards, record.shard).remove(&record);
        }
        RefundOutcome::Refunded
    }
}

/// The key under which a charge of `key` was counted.
fn counted(key: &[u8], ticket: Ticket) -> &[u8] {
    if ticket.overflow { OVERFLOW } else { key }
}
