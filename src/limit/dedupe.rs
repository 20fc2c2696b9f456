//! The record of a charge with an id: during the record's life the id is charged once, and its repeats are free. Twin:
//! `lua/dedupe.lua`.

use super::rate::Cost;
use super::state::Ticket;
use super::verdict::{GrantedUnits, Measurement, Repeat, Wait};
use super::{Change, Limit, Mark, RecordState, State};
use crate::clock::Timestamp;
use crate::key::{IdField, Sameness};
use std::num::NonZeroU32;

/// A limit's treatment of requests with an id, which may be repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedupe {
    /// The field of the id.
    pub field: IdField,
    /// Time for which an id is remembered after its charge, in microseconds.
    pub ttl: u64,
    /// The number of repeats that are free in that time; later ones are charged.
    pub repeats: u32,
    /// The properties that a repeat shares with the request that it repeats.
    pub of: Sameness,
}

/// The result of a check with an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeCheck {
    /// The measurement, for the verdict.
    pub measured: Measurement,
    /// The change of the counter, as [`Limit::check`] returns it.
    pub change: Option<Change>,
    /// The record to store when every limit of the request admits.
    pub record: Option<RecordState>,
}

impl Dedupe {
    /// The record at `now`, if it is valid. An end beyond the limit's time from now is moved forward: the clock has
    /// stepped back, or the time was longer before.
    fn standing(&self, record: Option<RecordState>, now: Timestamp) -> Option<RecordState> {
        let record = record.filter(|record| record.ends > now.micros() && record.granted > 0)?;
        let ends = record.ends.min(now.plus(self.ttl).micros());
        Some(RecordState { ends, ..record })
    }
}

impl Limit {
    /// Would `cost` be admitted at `now`, given the record of its id? A free repeat takes no units, does not wait, and
    /// is granted as much as the first request. One repeat too many is charged like any other request, and leaves the
    /// record unchanged. Counts as one of `gateways`.
    #[must_use]
    pub fn check_with_id(
        &self,
        dedupe: &Dedupe,
        record: Option<RecordState>,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
        gateways: NonZeroU32,
    ) -> DedupeCheck {
        let standing = dedupe.standing(record, now);
        if let Some(record) = standing.filter(|record| record.free < dedupe.repeats) {
            let (peeked, _) = self.rule.check(state, now, Cost::ZERO);
            return DedupeCheck {
                measured: Measurement {
                    drains: None,
                    granted: GrantedUnits::of(Cost::new(record.granted)),
                    repeat: Repeat::Free,
                    ..peeked
                },
                change: None,
                record: Some(RecordState {
                    free: record.free + 1,
                    ..record
                }),
            };
        }
        let (mut measured, change) = self.check_as_one_of(state, now, cost, gateways);
        let mut left = None;
        if standing.is_none() && measured.wait == Wait::Micros(0) {
            let granted = measured.granted.map_or(cost, GrantedUnits::cost);
            left = Some(RecordState {
                ends: now.plus(dedupe.ttl).micros(),
                granted: granted.units(),
                free: 0,
            });
            measured.granted = GrantedUnits::of(granted);
            measured.repeat = Repeat::First;
        }
        DedupeCheck {
            measured,
            change,
            record: left,
        }
    }
}

impl Ticket {
    /// May the charge be given back, by its record? The charge stays if a repeat was free because of it, or if the
    /// record is gone: the repeat depends on the charge, too.
    #[must_use]
    pub fn is_unrepeated(&self, record: Option<RecordState>) -> bool {
        self.record.is_none_or(|mark| {
            record.is_some_and(|record| record.ends == mark.ends() && record.free == 0)
        })
    }

    /// The record as it was before this free repeat, while it is valid. A record with a later end belongs to a later
    /// charge.
    #[must_use]
    pub fn without_repeat(
        &self,
        record: Option<RecordState>,
        now: Timestamp,
    ) -> Option<RecordState> {
        let mark = self.record.filter(|_| self.mark == Mark::Repeat)?;
        let lasts = now.micros() + 1..=mark.ends();
        let record = record.filter(|record| lasts.contains(&record.ends))?;
        let free = record.free.checked_sub(1)?;
        Some(RecordState { free, ..record })
    }
}
