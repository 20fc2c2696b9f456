//! States beside a counter: the record of a charged id, and the block of a key. Each is an entry of its own, in any shard.

use super::capacity::OVERFLOW;
use super::shard::CounterLocation;
use super::shard_locks::{Guards, table_at};
use super::{Measured, MemoryStore};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::verdict::{Measurement, Repeat, Wait};
use crate::limit::{BlockPhase, BlockState, Change, Limit};
use crate::store::answers::{LimitAnswer, LimitAnswers};
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::shadow::Charges;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

/// Separates the key from what follows in the key of a state beside its counter. No key has this byte.
const SIDE: u8 = 0;

/// The keys of the states beside the counter of one check.
struct SideKeys {
    record: Option<Vec<u8>>,
    block: Option<Vec<u8>>,
}

/// The states beside the counter of one check.
#[derive(Clone, Copy, Default)]
pub(super) struct SideStates<'a> {
    /// The record of the request's id, if the limit charges ids once and the request has one.
    pub(super) record: Option<CounterLocation<'a>>,
    /// The block of the key, if refusals of the limit block.
    pub(super) block: Option<CounterLocation<'a>>,
}

impl<'a> SideStates<'a> {
    /// Where the states are.
    pub(super) fn places(&self) -> impl Iterator<Item = &CounterLocation<'a>> {
        self.record.iter().chain(&self.block)
    }

    /// The answer of `step`. What its decision changes beside the counter is added to `changes`.
    #[inline(never)]
    pub(super) fn check(
        &self,
        step: &SideStep<'_>,
        guards: &Guards<'_>,
        changes: &mut Vec<SideChange<'a>>,
    ) -> (Measurement, Option<Change>) {
        let SideStep {
            index,
            check,
            place,
            at,
            gateways,
        } = *step;
        let (limit, cost) = (check.limit, check.cost);
        let state = place.find(guards);
        let state = state.as_deref();
        let (measured, change, record) = match (self.record, check.repeats()) {
            (Some(record_at), Some((dedupe, _))) => {
                let record = record_at.find(guards).and_then(|state| state.record());
                let found = limit.check_with_id(dedupe, record, state, at, cost, gateways);
                let record = found.record.map(|record| (record_at, record.change()));
                (found.measured, found.change, record)
            }
            _ => {
                let (measured, change) = limit.check_as_one_of(state, at, cost, gateways);
                (measured, change, None)
            }
        };
        changes.extend(record.map(|(place, change)| SideChange {
            index,
            place,
            change,
            by_count: None,
        }));
        let (Some(block_at), Some(rule)) = (self.block, limit.blocking) else {
            return (measured, change);
        };
        let held = block_at.find(guards).and_then(|state| state.block());
        let blocked = rule.check(held, at, measured);
        if place.key == OVERFLOW && blocked.measured.block == BlockPhase::Begins {
            // The counter is that of all keys without room, and its refusal says nothing about this one.
            return (measured, change);
        }
        changes.extend(blocked.block.map(|block| SideChange {
            index,
            place: block_at,
            change: rule.change(block),
            by_count: Some(measured),
        }));
        // A blocked key is charged nothing. A change beside a refusal is no charge.
        let is_charge = measured.wait == Wait::Micros(0);
        let change = change.filter(|_| !is_charge || blocked.measured.block == BlockPhase::No);
        (blocked.measured, change)
    }
}

/// A check of a counter that has states beside it.
pub(super) struct SideStep<'s> {
    /// The position of the check.
    pub(super) index: usize,
    pub(super) check: &'s Check<'s>,
    /// The place of the counter.
    pub(super) place: &'s CounterLocation<'s>,
    pub(super) at: Timestamp,
    pub(super) gateways: NonZeroU32,
}

/// A state beside a counter that a decision changes.
pub(super) struct SideChange<'a> {
    /// The position of the check.
    pub(super) index: usize,
    pub(super) place: CounterLocation<'a>,
    pub(super) change: Change,
    /// The answer of the count alone, if the change is a block: it applies where the block has no room.
    pub(super) by_count: Option<Measurement>,
}

/// Has the counter of this check a state beside it that counts?
#[inline]
pub(super) fn has_any(check: &Check<'_>) -> bool {
    check.limit.blocking.is_some() || check.repeats().is_some()
}

/// The key of the record of `id` for `key`.
pub(super) fn record_key(key: &[u8], id: RepeatId) -> Vec<u8> {
    [key, &[SIDE], id.bytes()].concat()
}

/// The key of the block of `key`. An id has some bytes, so that no record has the same.
pub(super) fn block_key(key: &[u8]) -> Vec<u8> {
    [key, &[SIDE]].concat()
}

impl MemoryStore {
    /// Like [`Self::measure_with`], for a request whose counters have states beside them.
    #[cold]
    #[inline(never)]
    pub(super) fn measure_with_side_states(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Measured {
        let keys = checks.iter().map(|check| SideKeys {
            record: check.repeats().map(|(_, id)| record_key(check.key, id)),
            block: check.limit.blocking.map(|_| block_key(check.key)),
        });
        let keys: Vec<SideKeys> = keys.collect();
        let places = checks.iter().zip(&keys).map(|(check, keys)| {
            let place = |key| self.place(check.limit, key);
            SideStates {
                record: keys.record.as_deref().map(place),
                block: keys.block.as_deref().map(place),
            }
        });
        let side_states: Vec<SideStates<'_>> = places.collect();
        self.measure_with(checks, &side_states, intent, by, answers)
    }

    /// Notes that the key of a limit that blocks is blocked elsewhere for `left` more microseconds, unless its block here
    /// lasts longer. Without room nothing is noted.
    #[cold]
    pub fn note_block(&self, limit: &Limit, key: &[u8], left: u64) {
        let Some(rule) = limit.blocking else {
            return;
        };
        let key = block_key(key);
        let place = self.place(limit, &key);
        let mut guards = self.lock([&place]);
        let held = place.find(&guards).and_then(|state| state.block());
        let mut block = BlockState::from(self.instant(limit), left);
        if let Some(held) = held {
            if held.ends >= block.ends {
                return;
            }
            // What is left is shorter than the block was: its length decides how long the next one lasts.
            block.length = block.length.max(held.length);
        }
        let table = table_at(&mut guards, place.shard);
        if held.is_some() {
            table.put(&place, rule.change(block));
        } else if table.make_room(&place, &self.clock) {
            table.insert(&place, rule.change(block));
        }
    }

    /// Stores the states beside the counters: blocks, and the records of ids that have been charged.
    #[cold]
    #[inline(never)]
    pub(super) fn write_side_states(
        &self,
        changes: Vec<SideChange<'_>>,
        answers: &mut [LimitAnswer],
        charges: &Charges,
        guards: &mut Guards<'_>,
    ) {
        for change in changes {
            let SideChange {
                index,
                place,
                change,
                by_count,
            } = change;
            if by_count.is_none() && !charges.has(index) {
                continue;
            }
            let table = table_at(guards, place.shard);
            let is_there = table.find(&place).is_some();
            if is_there {
                table.put(&place, change);
            } else if table.make_room(&place, &self.clock) {
                table.insert(&place, change);
            } else {
                // There is no room: repeats of the request will be charged, or the key is not blocked.
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                if let Some(measured) = answers[index].measured_mut() {
                    measured.repeat = Repeat::No;
                    *measured = by_count.unwrap_or(*measured);
                }
            }
        }
    }
}
