//! A store built from the pure functions alone: the reference for Redis and the scripts.

use super::stored_state::{self, StoredState as _};
use crate::clock::Timestamp;
use crate::limit::dedupe::DedupeCheck;
use crate::limit::rate::Cost;
use crate::limit::verdict::{GrantedUnits, Measurement, Wait};
use crate::limit::{
    BlockCheck, BlockPhase, BlockState, Change, Limit, Mode, RecordState, Refund, State, Ticket,
};
use crate::store::answers::Measurements;
use crate::store::check::Check;
use std::collections::HashMap;

/// A check, with the name of its counter and of its record, if it has one.
pub(super) type Asked<'a> = (Vec<u8>, Option<Vec<u8>>, Check<'a>);

/// The use of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Refund,
    Renew,
    Settle,
}

/// The correct state of the store, by the pure functions.
#[derive(Default)]
pub(super) struct Model {
    pub(super) stored: HashMap<Vec<u8>, (Vec<u8>, u64)>,
}

/// The limit's own answer, with its slots numbered from `chosen` on.
fn checked(
    limit: &Limit,
    state: Option<&State>,
    (now, cost): (Timestamp, Cost),
    chosen: Option<u64>,
) -> (Measurement, Option<Change>) {
    let (measured, change) = limit.check(state, now, cost);
    let takes = measured.wait == Wait::Micros(0) && cost > Cost::ZERO;
    let (Some(rule), Some(chosen), true) = (limit.rule.concurrency(), chosen, takes) else {
        return (measured, change);
    };
    let granted = measured.granted;
    let taken = granted.map_or(cost, GrantedUnits::cost);
    let leases = match state {
        Some(State::Slots(leases)) => Some(leases),
        _ => None,
    };
    let (numbered, change) = rule.check_numbered(leases, now, taken, chosen);
    (
        Measurement {
            granted,
            ..numbered
        },
        change,
    )
}

/// The name of the block beside this counter.
fn block_of(counter: &[u8]) -> Vec<u8> {
    [counter, b":b"].concat()
}

impl Model {
    fn state(&self, key: &[u8], limit: &Limit) -> Option<State> {
        let (bytes, _) = self.stored.get(key)?;
        State::decode(&limit.rule, bytes)
    }

    /// The answer of the limit's count, and what becomes of it by the block of its key.
    fn blocked(
        &self,
        key: &[u8],
        limit: &Limit,
        now: Timestamp,
        by_count: DedupeCheck,
    ) -> (DedupeCheck, Option<BlockState>) {
        let Some(rule) = limit.blocking else {
            return (by_count, None);
        };
        let held = self.stored.get(&block_of(key));
        let held = held.and_then(|(bytes, _)| stored_state::block(bytes));
        let BlockCheck { measured, block } = rule.check(held, now, by_count.measured);
        // Only a charge is dropped, and not the repair of an impossible state.
        let is_charged = by_count.measured.wait == Wait::Micros(0);
        let by_count = DedupeCheck {
            measured,
            change: by_count
                .change
                .filter(|_| !is_charged || measured.block == BlockPhase::No),
            ..by_count
        };
        (by_count, block)
    }

    /// Was the counter emptied since a charge at this instant?
    pub(super) fn is_emptied_since(&self, counter: &[u8], charged: Timestamp) -> bool {
        let mark = self.stored.get(&[counter, b":z"].concat());
        let at = mark.and_then(|(bytes, _)| bytes.first_chunk());
        at.is_some_and(|at| charged.micros() as f64 <= f64::from_be_bytes(*at))
    }

    fn record(&self, name: &[u8]) -> Option<RecordState> {
        stored_state::record(&self.stored.get(name)?.0)
    }

    fn remember(&mut self, name: &[u8], now: Timestamp, record: RecordState) {
        let life = (record.ends - now.micros()).div_ceil(1000);
        let bytes = State::Record(record).encode().to_vec();
        self.stored.insert(name.to_vec(), (bytes, life));
    }

    fn keep(&mut self, key: &[u8], limit: &Limit, now: Timestamp, change: Change) {
        let life = change.ends.since(now).div_ceil(1000);
        assert!(life > 0, "a state that is stored matters");
        let before = self.state(key, limit);
        let bytes = change.update.after(before).encode().to_vec();
        self.stored.insert(key.to_vec(), (bytes, life));
    }

    /// Checks all limits, and charges them if all admit. Slots are numbered from `chosen` on, else by the clock.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        checks: &[Asked<'_>],
        chosen: Option<u64>,
    ) -> Measurements {
        let checked: Vec<(DedupeCheck, Option<BlockState>)> = checks
            .iter()
            .map(|(key, record, check)| {
                let Check { limit, cost, .. } = *check;
                let state = self.state(key, limit);
                if let (Some(record), Some((dedupe, _))) = (record, check.repeats()) {
                    let record = self.record(record);
                    let by_count = limit.check_with_id(
                        dedupe,
                        record,
                        state.as_ref(),
                        now,
                        cost,
                        std::num::NonZeroU32::MIN,
                    );
                    return self.blocked(key, limit, now, by_count);
                }
                let (measured, change) = checked(limit, state.as_ref(), (now, cost), chosen);
                let by_count = DedupeCheck {
                    measured,
                    change,
                    record: None,
                };
                self.blocked(key, limit, now, by_count)
            })
            .collect();
        let admitted = |measured: &Measurement| measured.wait == Wait::Micros(0);
        let all_admit = |of: &dyn Fn(&Limit) -> bool| {
            let mut all = checks.iter().zip(&checked);
            all.all(|((.., check), (one, _))| !of(check.limit) || admitted(&one.measured))
        };
        let request = all_admit(&|limit| limit.mode == Mode::Enforce);
        let is_charged = |limit: &Limit| {
            let is_with = |other: &Limit| other.id == limit.id || other.is_sibling_of(limit);
            request && (limit.mode == Mode::Enforce || all_admit(&is_with))
        };
        let charges: Vec<bool> = checks
            .iter()
            .map(|(.., check)| is_charged(check.limit))
            .collect();
        let mut all = Measurements::new();
        for (((key, record, check), (one, block)), charged) in
            checks.iter().zip(checked).zip(charges)
        {
            let stored = charged || !admitted(&one.measured);
            if let Some(change) = one.change.filter(|_| stored) {
                self.keep(key, check.limit, now, change);
            }
            if let (Some(name), Some(record)) = (record, one.record.filter(|_| charged)) {
                self.remember(name, now, record);
            }
            if let (Some(block), Some(rule)) = (block, check.limit.blocking) {
                let Change { ends, .. } = rule.change(block);
                let life = ends.since(now).div_ceil(1000);
                let bytes = State::Block(block).encode().to_vec();
                self.stored.insert(block_of(key), (bytes, life));
            }
            all.push(one.measured);
        }
        all
    }

    /// The byte that the script should answer.
    pub(super) fn refund(
        &mut self,
        now: Timestamp,
        (key, record): (&[u8], Option<&[u8]>),
        limit: &Limit,
        ticket: Ticket,
        how: How,
    ) -> u8 {
        let remembered = record.and_then(|record| self.record(record));
        if let (Some(name), Some(before)) = (record, ticket.without_repeat(remembered, now)) {
            self.remember(name, now, before);
            return 1;
        }
        if !ticket.is_unrepeated(remembered) {
            return 0;
        }
        let state = self.state(key, limit);
        let refunded = match how {
            How::Renew => limit.rule.renew(state.as_ref(), now, ticket),
            How::Refund | How::Settle => limit.rule.refund(state.as_ref(), now, ticket),
        };
        if refunded != Refund::Nothing
            && let Some(record) = record
        {
            self.stored.remove(record);
        }
        match refunded {
            Refund::Nothing => 0,
            Refund::Left(change) => {
                self.keep(key, limit, now, change);
                1
            }
            Refund::Gone => {
                self.stored.remove(key);
                2
            }
        }
    }
}
