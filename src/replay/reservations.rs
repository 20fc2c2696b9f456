//! What requests under way hold: slots of limits on what is in flight, renewed as the gateway renews them and given back
//! when the logged request ended; and charges that come back or are settled at that end.

use super::counters::Counters;
use crate::clock::Timestamp;
use crate::store::{Amendment, Reservation, StoreError};
use std::collections::BTreeMap;

/// What requests under way hold, by when something is to be done about it.
#[derive(Debug, Default)]
pub(super) struct OpenReservations {
    /// What is due at one instant is looked at in the order in which it was taken.
    due: BTreeMap<(Timestamp, u64), DueReservation>,
    taken: u64,
}

#[derive(Debug)]
struct DueReservation {
    reservation: Reservation,
    ends: Timestamp,
    /// What becomes of it then.
    amendment: Amendment,
}

impl OpenReservations {
    /// Holds `reservation` from `now` until `ends`, when it is amended; slots are renewed until then.
    pub(super) fn hold(
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

    /// Looks at reservation `number` again after `now` as the gateway does: every third of the time after which its slot
    /// would lapse.
    fn schedule(&mut self, due: DueReservation, now: Timestamp, number: u64) {
        let rule = due.reservation.limit.rule.holds();
        let third = rule.map_or(u64::MAX, |rule| rule.ttl / 3);
        let at = now.plus(third.max(1)).min(due.ends);
        self.due.insert((at, number), due);
    }

    /// Does what is due by `now`.
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
