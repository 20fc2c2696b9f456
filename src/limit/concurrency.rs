//! Concurrency: at most `max` requests at once. A slot is a lease that is renewed while its request lives, ends with
//! the request, and lapses without a renewal. Twin: `lua/concurrency.lua`.

use super::rate::{Cost, Span, narrow};
use super::state::Update;
use super::verdict::{Measurement, Verdict, Wait};
use super::{Change, FOREVER, Refund, SlotUpdate, SlotsState, State};
use crate::clock::Timestamp;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The wait of a refused request. A hint, since the instant at which a slot becomes free is unknown.
pub const HINT: u64 = 1_000_000;

/// The numbers of a limit on requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// The number of requests that may be in flight at once.
    pub max: NonZeroU32,
    /// The life of a lease without a renewal, in microseconds.
    pub ttl: u64,
}

impl Concurrency {
    fn most(&self) -> u64 {
        u64::from(self.max.get())
    }

    /// Would `cost` slots be taken at `now`, and which state would then be stored?
    #[must_use]
    pub fn check(
        &self,
        state: Option<&SlotsState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        self.check_numbered(state, now, cost, now.micros())
    }

    /// Like [`Self::check`], with the slots numbered from `number` on, or with the next free numbers.
    #[must_use]
    pub fn check_numbered(
        &self,
        state: Option<&SlotsState>,
        now: Timestamp,
        cost: Cost,
        number: u64,
    ) -> (Measurement, Option<Change>) {
        let none = SlotsState::default();
        let leases = &state.unwrap_or(&none).0;
        let (present, until) = (now.micros(), now.plus(self.ttl).micros());
        let held = leases.values().filter(|until| **until > present).count();
        let standing = |whole: u64, held: usize| Span {
            whole,
            part: held as u64,
        };
        if let Some(measured) = Measurement::uncounted(self.most(), cost, standing(0, held)) {
            return (measured, None);
        }
        let change = |first: u64, count: u32| Change {
            update: Update::Slots(SlotUpdate {
                now: present,
                until,
                first,
                count,
            }),
            ends: now.plus(self.ttl),
        };
        // No more than the limit, which is small.
        let count = narrow(cost.units());
        let taken = held + count as usize;
        if taken <= self.max.get() as usize {
            let first = free(leases, number, cost);
            let measured = Measurement::admitted(standing(first, taken));
            return (measured, Some(change(first, count)));
        }
        let ahead = |lease: &u64| *lease > until && *lease != FOREVER;
        let mended = leases.values().any(ahead).then(|| change(0, 0));
        let wait = Wait::Micros(HINT);
        (Measurement::refused(wait, standing(0, held)), mended)
    }

    /// Interprets either store's reply. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
        Verdict {
            reset: 0,
            ..measured.verdict(self.most(), cost, charged, 0)
        }
    }

    /// Frees the slots from `first` on, after the end of their request.
    #[must_use]
    pub fn release(&self, state: &SlotsState, first: u64, cost: Cost, now: Timestamp) -> Refund {
        let mut left = state.clone();
        let slots = first..first.saturating_add(cost.units());
        left.0.retain(|slot, _| !slots.contains(slot));
        if left.0.len() == state.0.len() {
            return Refund::Nothing;
        }
        kept(left, now)
    }

    /// Renews the slots from `first` on, while their request lives. Lapsed slots are taken anew, even without room,
    /// since the request is in flight. No other request is admitted until enough have ended.
    #[must_use]
    pub fn renew(
        &self,
        state: Option<&SlotsState>,
        first: u64,
        cost: Cost,
        now: Timestamp,
    ) -> Refund {
        let mut left = state.cloned().unwrap_or_default();
        let until = now.plus(self.ttl).micros();
        let mut renewed = false;
        for slot in first..first.saturating_add(cost.units()) {
            let lease = left.0.entry(slot).or_insert(until);
            if *lease != FOREVER {
                *lease = until;
                renewed = true;
            }
        }
        if !renewed {
            return Refund::Nothing;
        }
        kept(left, now)
    }
}

/// The first of `cost` consecutive numbers that no slot has, from `number` on, so that no number is used twice.
fn free(leases: &BTreeMap<u64, u64>, number: u64, cost: Cost) -> u64 {
    let (mut first, mut found) = (number, 0);
    while found < cost.units() {
        if leases.contains_key(&(first + found)) {
            (first, found) = (first + found + 1, 0);
        } else {
            found += 1;
        }
    }
    first
}

fn kept(left: SlotsState, now: Timestamp) -> Refund {
    match left.0.values().max().copied().map(Timestamp::from_micros) {
        Some(ends) if ends > now => Refund::Left(Change::put(State::Slots(left), ends)),
        _ => Refund::Gone,
    }
}
