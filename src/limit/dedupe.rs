//! The same id within its time is charged once: the record that a charge leaves, on which repeats go free.
//! Twin: `lua/dedupe.lua`.

use super::rate::Cost;
use super::state::Ticket;
use super::verdict::{Measurement, Repeat, Wait};
use super::{Change, Limit, Mark, RecordState, State};
use crate::clock::Timestamp;
use crate::key::{IdField, Sameness};
use std::num::NonZeroU32;

/// How a limit treats requests that say they are repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedupe {
    /// Where a request says its id.
    pub field: IdField,
    /// How long an id is remembered, in microseconds, from its charge on.
    pub ttl: u64,
    /// How many repeats go free in that time; those after them are charged.
    pub repeats: u32,
    /// What a repeat has in common with the request that it repeats.
    pub of: Sameness,
}

/// What a check with an id comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeCheck {
    /// What the store tells.
    pub measured: Measurement,
    /// As [`Limit::check`] has it.
    pub change: Option<Change>,
    /// The record to store when every limit of the request admits.
    pub record: Option<RecordState>,
}

impl Dedupe {
    /// The record as it counts at `now`, if it does. One that lasts longer than any: the clock has stepped back, or the
    /// time is shorter than it was.
    fn standing(&self, record: Option<RecordState>, now: Timestamp) -> Option<RecordState> {
        let record = record.filter(|record| record.ends > now.micros() && record.granted > 0)?;
        let ends = record.ends.min(now.plus(self.ttl).micros());
        Some(RecordState { ends, ..record })
    }
}

impl Limit {
    /// Would `cost` be admitted at `now`, given what is remembered of its id? A repeat that goes free takes nothing and
    /// waits for nothing, and is granted what the first was. One too many is charged like any other, and leaves
    /// what is remembered as it is. As one of so many gateways.
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
                    granted: Some(Cost::new(record.granted)),
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
            let granted = measured.granted.unwrap_or(cost);
            left = Some(RecordState {
                ends: now.plus(dedupe.ttl).micros(),
                granted: granted.units(),
                free: 0,
            });
            measured.granted = Some(granted);
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
    /// May the charge go back, as far as its record goes? Not when a repeat has gone free on it, or the record is
    /// gone: then the charge is the repeat's too.
    #[must_use]
    pub fn is_unrepeated(&self, record: Option<RecordState>) -> bool {
        self.record.is_none_or(|mark| {
            record.is_some_and(|record| record.ends == mark.ends && record.free == 0)
        })
    }

    /// The record as it was before this repeat went free. A record that lasts longer is of a charge that came after it.
    #[must_use]
    pub fn without_repeat(&self, record: Option<RecordState>) -> Option<RecordState> {
        let mark = self.record.filter(|_| self.mark == Mark::Repeat)?;
        let record = record.filter(|record| record.ends <= mark.ends)?;
        let free = record.free.checked_sub(1)?;
        Some(RecordState { free, ..record })
    }
}
