//! Reservations of unfinished requests. Slots of `concurrency` limits are renewed like in the gateway, and refunded
//! when the logged request ended. Other charges are refunded or settled at that end.

use super::counters::Counters;
use crate::clock::Timestamp;
use crate::store::{Amendment, Reservation, StoreError};
use std::collections::BTreeMap;

/// The reservations of unfinished requests, by the instant at which each is due.
#[derive(Debug, Default)]
pub(super) struct OpenReservations {
    /// Reservations that are due at one instant are in the order in which they were made.
    due: BTreeMap<(Timestamp, u64), DueReservation>,
    taken: u64,
}

#[derive(Debug)]
struct DueReservation {
    reservation: Reservation,
    ends: Timestamp,
    /// The amendment of the reservation at its end.
    amendment: Amendment,
}

impl OpenReservations {
    /// Keeps `reservation` from `now` until `ends`, and amends it then. A slot is renewed until then.
    pub(super) fn keep(
        &mut self,
        reservation: Reservation,
        amendment: Amendment,
        now: Timestamp,
        ends: Timestamp,
    ) {
        self.taken += 1;
        let due = DueReservation {
            reservation,
            ends,
            amendment,
        };
        self.schedule(due, now, self.taken);
    }

    /// Schedules reservation `number`: its end, or a renewal before that. As in the gateway, a slot is renewed after a
    /// third of the time after which it would lapse.
    fn schedule(&mut self, due: DueReservation, now: Timestamp, number: u64) {
        let rule = due.reservation.limit.rule.concurrency();
        let third = rule.map_or(u64::MAX, |rule| rule.ttl / 3);
        let at = now.plus(third.max(1)).min(due.ends);
        self.due.insert((at, number), due);
    }

    /// Renews and amends the reservations that are due by `now`.
    pub(super) fn pass(
        &mut self,
        counters: &mut Counters,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        while let Some(first) = self.due.first_entry().filter(|due| due.key().0 <= now) {
            let ((at, number), due) = first.remove_entry();
            if at == due.ends {
                counters.amend(&due.reservation, due.amendment, at)?;
            } else {
                counters.amend(&due.reservation, Amendment::Renewal, at)?;
                self.schedule(due, at, number);
            }
        }
        Ok(())
    }
}
