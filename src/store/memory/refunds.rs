//! What comes back: charges that are given back, and repeats that have not gone free after all.

use super::{MemoryStore, OVERFLOW, record_key, shelf};
use crate::clock::Timestamp;
use crate::limit::RecordState;
use crate::limit::verdict::{Measurement, Repeat};
use crate::limit::{Limit, Refund, State, Ticket};
use crate::store::Check;

impl MemoryStore {
    /// Gives back what `ticket` was charged, as far as nobody counts on it. Was that anything?
    pub fn refund(&self, limit: &Limit, key: &[u8], ticket: Ticket) -> bool {
        self.refund_at(limit, key, ticket, self.clock.now())
    }

    /// The same, with the instant given.
    pub fn refund_at(&self, limit: &Limit, key: &[u8], ticket: Ticket, now: Timestamp) -> bool {
        self.give_back((limit, key), ticket, |state| {
            limit.rule.refund(state, now, ticket)
        })
    }

    /// Gives back what a charge was too much.
    pub fn correct_at(&self, limit: &Limit, key: &[u8], ticket: Ticket, now: Timestamp) {
        self.give_back((limit, key), ticket, |state| {
            limit.rule.refund(state, now, ticket)
        });
    }

    /// The same, now.
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
        let ticket = check.ticket(at, measured);
        ticket.is_none_or(|ticket| {
            self.give_back((limit, key), ticket, |state| {
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

    fn give_back(
        &self,
        (limit, key): (&Limit, &[u8]),
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
