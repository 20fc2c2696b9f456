//! What requests under way hold: slots of limits on what is in flight, renewed as the gateway renews them and given back
//! when the logged request ended; and charges that come back at that end.

use super::counters::Counters;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::store::{Charge, StoreError};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What requests under way hold, by when something is to be done about it.
#[derive(Debug, Default)]
pub(super) struct OpenReservations {
    due: BinaryHeap<DueReservation>,
    /// Tells apart what is due at one instant: the first taken is the first looked at.
    taken: u64,
}

#[derive(Debug)]
struct DueReservation {
    at: Timestamp,
    number: u64,
    ends: Timestamp,
    charge: Charge,
    /// What the request turns out to have cost then; else its charge comes back.
    truth: Option<Cost>,
}

impl OpenReservations {
    /// Holds `charge` from `now` until `ends`, when it comes back; slots are renewed until then.
    pub(super) fn hold(&mut self, charge: Charge, now: Timestamp, ends: Timestamp) {
        let reservation = self.reservation(charge, None, ends);
        self.schedule(reservation, now);
    }

    /// Makes `charge` one of `truth` at `ends`.
    pub(super) fn settle(&mut self, charge: Charge, truth: Cost, ends: Timestamp) {
        let reservation = self.reservation(charge, Some(truth), ends);
        self.due.push(reservation);
    }

    fn reservation(
        &mut self,
        charge: Charge,
        truth: Option<Cost>,
        ends: Timestamp,
    ) -> DueReservation {
        self.taken += 1;
        DueReservation {
            at: ends,
            number: self.taken,
            ends,
            charge,
            truth,
        }
    }

    /// Looks at `reservation` again after `now` as the gateway does: every third of the time after which its slot would
    /// lapse.
    fn schedule(&mut self, mut reservation: DueReservation, now: Timestamp) {
        let rule = reservation.charge.limit.rule.holds();
        let third = rule.map_or(u64::MAX, |rule| rule.ttl / 3);
        reservation.at = now.plus(third.max(1)).min(reservation.ends);
        self.due.push(reservation);
    }

    /// Does what is due by `now`.
    pub(super) fn pass(
        &mut self,
        counters: &mut Counters,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        while self.due.peek().is_some_and(|due| due.at <= now) {
            let Some(due) = self.due.pop() else {
                break;
            };
            if let Some(truth) = due.truth {
                counters.correct(&due.charge, truth, due.at)?;
            } else if due.at == due.ends {
                counters.refund(&due.charge, due.at)?;
            } else {
                counters.renew(&due.charge, due.at)?;
                let now = due.at;
                self.schedule(due, now);
            }
        }
        Ok(())
    }
}

impl Ord for DueReservation {
    /// The earliest is the greatest: it stands on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for DueReservation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DueReservation {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DueReservation {}
