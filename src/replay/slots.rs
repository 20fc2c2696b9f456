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
pub(super) struct Slots {
    due: BinaryHeap<Due>,
    /// Tells apart what is due at one instant: the first taken is the first looked at.
    taken: u64,
}

#[derive(Debug)]
struct Due {
    at: Timestamp,
    number: u64,
    ends: Timestamp,
    charge: Charge,
    /// What the request turns out to have cost then; else its charge comes back.
    truth: Option<Cost>,
}

impl Slots {
    /// Holds `charge` from `now` until `ends`, when it comes back; slots are renewed until then.
    pub(super) fn hold(&mut self, charge: Charge, now: Timestamp, ends: Timestamp) {
        self.taken += 1;
        let number = self.taken;
        self.push((charge, None), now, ends, number);
    }

    /// Makes `charge` one of `truth` at `ends`.
    pub(super) fn settle(&mut self, charge: Charge, truth: Cost, ends: Timestamp) {
        self.taken += 1;
        let number = self.taken;
        self.push((charge, Some(truth)), ends, ends, number);
    }

    fn push(
        &mut self,
        (charge, truth): (Charge, Option<Cost>),
        now: Timestamp,
        ends: Timestamp,
        number: u64,
    ) {
        // As the gateway does: every third of the time after which they would lapse.
        let third = charge
            .limit
            .rule
            .holds()
            .map_or(u64::MAX, |rule| rule.ttl / 3);
        self.due.push(Due {
            at: now.plus(third.max(1)).min(ends),
            number,
            ends,
            charge,
            truth,
        });
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
                counters.give_back(&due.charge, due.at)?;
            } else {
                counters.renew(&due.charge, due.at)?;
                self.push((due.charge, None), due.at, due.ends, due.number);
            }
        }
        Ok(())
    }
}

impl Ord for Due {
    /// The earliest is the greatest: it stands on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}
