//! The decision of several checks, under the locks of all their shards.

use super::capacity::OVERFLOW;
use super::entry::Entry;
use super::shard::CounterLocation;
use super::shard_locks::{Guards, position, table_at};
use super::side_states::{SideChange, SideStates, SideStep};
use super::{Measured, MemoryStore};
use crate::limit::Change;
use crate::limit::verdict::{INLINE_LIMITS, Measurement};
use crate::store::answers::{Evidence, LimitAnswer, LimitAnswers};
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::shadow::Charges;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// One check during a decision.
struct CheckStep<'a> {
    place: CounterLocation<'a>,
    /// The position of its shard's guard.
    guard: usize,
    /// The position of its counter in the table.
    found: Option<usize>,
    /// The change to be stored.
    change: Option<Change>,
    /// Is there room for the counter, if it is new?
    has_room: bool,
}

type CheckSteps<'a> = SmallVec<[CheckStep<'a>; INLINE_LIMITS]>;

impl MemoryStore {
    #[inline(never)]
    pub(super) fn measure_with(
        &self,
        checks: &[Check<'_>],
        side_states: &[SideStates<'_>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Measured {
        // Filled where they stay: they are many bytes to move.
        let mut steps = CheckSteps::new();
        steps.extend(checks.iter().map(|check| CheckStep {
            place: self.place(check.limit, check.key),
            guard: 0,
            found: None,
            change: None,
            has_room: false,
        }));
        loop {
            match self.attempt(checks, &mut steps, side_states, intent, by, answers) {
                Ok(measured) => return measured,
                Err(index) => {
                    // There is no room for a new key: the key counts on its limit's overflow key, which may be in
                    // another shard. So all locks are released and the decision starts again, at most once for each
                    // check.
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                    steps[index].place = self.place(checks[index].limit, OVERFLOW);
                }
            }
        }
    }

    /// Writes the result of each check into `answers`.
    ///
    /// # Errors
    /// If a check has no room, its position.
    fn attempt(
        &self,
        checks: &[Check<'_>],
        steps: &mut CheckSteps<'_>,
        side_states: &[SideStates<'_>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Result<Measured, usize> {
        answers.clear();
        let gateways = by.gateways();
        let places = steps.iter().map(|step| &step.place);
        let mut guards = self.lock(places.chain(side_states.iter().flat_map(SideStates::places)));
        // The clock is read under the locks: a later holder of a shard never sees an earlier instant.
        let now = self.clock.now();
        // All entries are looked up before the first computation, so that the processor waits for their memory once.
        for step in steps.iter_mut() {
            step.guard = position(&guards, step.place.shard);
            step.found = guards[step.guard].1.find(&step.place);
        }
        let answer = |limit, at, measured| LimitAnswer {
            limit,
            by,
            at,
            evidence: Evidence::Measured(measured),
        };
        let mut changes: Vec<SideChange<'_>> = Vec::new();
        for (index, (check, step)) in checks.iter().zip(steps.iter_mut()).enumerate() {
            let place = step.place;
            let at = self.instant_for(check.limit, now);
            if step.found.is_none() && place.key != OVERFLOW {
                step.has_room = guards[step.guard].1.make_room(&place, &self.clock);
                if !step.has_room && place.kind.is_shadow {
                    // Counters of limits that do not decide are evicted for deciding limits.
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                    answers.push(answer(place.limit, at, Measurement::SPOILT));
                    continue;
                }
                if !step.has_room {
                    give_back(steps, &mut guards);
                    return Err(index);
                }
            }
            let (mut outcome, change) = match side_states.get(index) {
                Some(states) => {
                    let step = SideStep {
                        index,
                        check,
                        place: &place,
                        at,
                        gateways,
                    };
                    states.check(&step, &guards, &mut changes)
                }
                None => {
                    // The counter has just been evicted for another; its state had no value.
                    let table = &guards[step.guard].1;
                    let held = step.found.and_then(|index| table.at(index));
                    let state = held.map(Entry::state);
                    let limit = check.limit;
                    limit.check_as_one_of(state.as_deref(), at, check.cost, gateways)
                }
            };
            outcome.overflow = place.key == OVERFLOW;
            answers.push(answer(place.limit, at, outcome));
            step.change = change;
        }
        let charges = Charges::of(checks, answers, intent);
        self.write(steps, answers, &charges, &mut guards);
        if !changes.is_empty() {
            self.write_side_states(changes, answers, &charges, &mut guards);
        }
        Ok(Measured { at: now, charges })
    }

    /// Stores the changes of a decision.
    fn write(
        &self,
        steps: &mut CheckSteps<'_>,
        answers: &[LimitAnswer],
        charges: &Charges,
        guards: &mut Guards<'_>,
    ) {
        let mut new = false;
        for (index, (step, answer)) in steps.iter_mut().zip(answers).enumerate() {
            // A change that accompanies a refusal only repairs an impossible state. It is stored for any answers of the
            // other limits.
            let stays = charges.has(index) || !answer.admits();
            let Some(change) = step.change.take().filter(|_| stays) else {
                continue;
            };
            let table = &mut guards[step.guard].1;
            match step.found.and_then(|index| table.at_mut(index)) {
                Some(entry) => entry.put(change, step.place.kind),
                None => {
                    step.change = Some(change);
                    new = true;
                }
            }
        }
        if new {
            return Self::write_new(steps, guards);
        }
        give_back(steps, guards);
    }

    /// Stores new counters. They move others in the table, so that they are stored after all changes of existing ones.
    #[inline(never)]
    fn write_new(steps: &mut CheckSteps<'_>, guards: &mut Guards<'_>) {
        for step in steps.iter_mut() {
            if let Some(change) = step.change.take() {
                let table = &mut guards[step.guard].1;
                if std::mem::take(&mut step.has_room) {
                    table.insert(&step.place, change);
                } else {
                    // The counter belongs to an overflow key; or it existed and was evicted for another counter of the
                    // request.
                    table.put(&step.place, change);
                }
            }
        }
        give_back(steps, guards);
    }
}

/// Returns capacity that was taken for an entry that is not stored after all.
fn give_back(steps: &mut CheckSteps<'_>, guards: &mut Guards<'_>) {
    for step in steps.iter_mut().filter(|step| step.has_room) {
        step.has_room = false;
        table_at(guards, step.place.shard).give_back(step.place.limit);
    }
}
