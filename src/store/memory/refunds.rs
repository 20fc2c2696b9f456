//! Charges that are given back, and repeats that were not free after all.

use super::shard_locks::table_at;
use super::side_states::record_key;
use super::{MemoryStore, OVERFLOW};
use crate::limit::rate::Cost;
use crate::limit::{Limit, Refund, Ticket};
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::reservation::{Amendment, Correction, RefundOutcome, Reservation};
use std::sync::Arc;

impl MemoryStore {
    /// Amends a charge, in so far as no other charge depends on it. In this process no slot lapses, and none is
    /// renewed.
    pub fn amend(&self, reservation: &Reservation, amendment: Amendment) -> RefundOutcome {
        let Reservation { limit, key, .. } = reservation;
        let is_refunded = match reservation.correction(amendment) {
            Some(Correction::Less(ticket)) => self.refund(limit, key, ticket),
            Some(Correction::More(overdraft, cost)) => {
                let surcharge = Check {
                    limit: &overdraft,
                    key: counted(key, reservation.ticket),
                    cost,
                    id: None,
                };
                self.measure(&[surcharge], Intent::Charge, Decider::Memory);
                false
            }
            Some(Correction::Longer(_)) | None => false,
        };
        if is_refunded {
            RefundOutcome::Refunded
        } else {
            RefundOutcome::Declined
        }
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
        let id = ticket.record.map(|record| record_key(key, record.id));
        let record = id.as_ref().map(|id| self.place(limit, id));
        let place = self.place(limit, counted(key, ticket));
        let mut guards = self.lock([&place].into_iter().chain(&record));
        let remembered = record.and_then(|at| at.find(&guards)?.record());
        let now = self.instant(limit);
        if let (Some(at), Some(before)) = (&record, ticket.without_repeat(remembered, now)) {
            table_at(&mut guards, at.shard).put(at, before.change());
            return true;
        }
        if !ticket.is_unrepeated(remembered) {
            return false;
        }
        let refund = limit
            .rule
            .refund(place.find(&guards).as_deref(), now, ticket);
        match refund {
            Refund::Nothing => return false,
            Refund::Left(change) => table_at(&mut guards, place.shard).put(&place, change),
            Refund::Gone => {
                table_at(&mut guards, place.shard).remove(&place);
            }
        }
        if let Some(record) = record {
            table_at(&mut guards, record.shard).remove(&record);
        }
        true
    }
}

/// The key under which a charge of `key` was counted.
fn counted(key: &[u8], ticket: Ticket) -> &[u8] {
    if ticket.overflow { OVERFLOW } else { key }
}
