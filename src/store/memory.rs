//! The memory store: sharded maps over the pure functions of `limit`, bounded, swept without loss of live state.
//!
//! The shards are the only data that workers share under a lock. A decision locks the shards of all its limits in shard
//! order, for a few hundred nanoseconds, and never across an await.
//!
//! In: checks. Out: answers, under the locks of its shards.
//!
//! ```text
//! shard         one shard of counters
//! shard_limits  the limits with counters in it, each by a number
//! entry         one counter
//! packed_key    its name, in few bytes
//! packed_state  its state, in few bytes
//! known_numbers the numbers that states name
//! capacity      which limit may add a counter: a part for each, the rest in common
//! refunds       charges that come back
//! ```

mod capacity;
mod entry;
mod known_numbers;
mod packed_key;
mod packed_state;
mod refunds;
mod shard;
mod shard_limits;

use super::answers::{Answers, Evidence, LimitAnswer, LimitAnswers};
use super::check::{Check, Intent};
use super::decider::Decider;
use super::decision::StoreDecision;
use super::shadow::Charges;
use crate::clock::{Clock, Timestamp};
use crate::key::RepeatId;
use crate::limit::verdict::{INLINE_LIMITS, Measurement, Repeat};
use crate::limit::{Change, Limit, RecordState, State};
use arc_swap::ArcSwap;
use capacity::Capacity;
pub(super) use capacity::OVERFLOW;
use entry::{Entry, EntryKind, Present};
use shard::{CounterLocation, CounterTable, hash};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards; a power of two, far more than cores.
pub const SHARDS: usize = 64;
/// Counters of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Shard]>,
    hasher: foldhash::quality::RandomState,
    clock: Clock,
    max_keys: usize,
    /// The capacity that every shard shares.
    room: ArcSwap<Capacity>,
    overflowed: AtomicU64,
}

/// Shards are on separate cache lines, so that two workers on two shards do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<CounterTable>);

/// Separates the key from the id in the key of a record. No key has this byte.
const BEFORE_ID: u8 = 0;

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

/// The instant of a measurement, and the checks that it charged.
struct Measured {
    at: Timestamp,
    charges: Charges,
}

type CheckSteps<'a> = SmallVec<[CheckStep<'a>; INLINE_LIMITS]>;

type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, CounterTable>); INLINE_LIMITS]>;

impl MemoryStore {
    /// An empty store for at most `max_keys` live counters.
    #[must_use]
    pub fn new(clock: Clock, max_keys: usize) -> Self {
        Self::sharded(SHARDS, clock, max_keys)
    }

    /// An empty store without a bound, for one thread that sweeps it in time. One shard is enough.
    #[must_use]
    pub fn for_one_thread(clock: Clock) -> Self {
        Self::sharded(1, clock, usize::MAX)
    }

    fn sharded(shards: usize, clock: Clock, max_keys: usize) -> Self {
        let hasher = foldhash::quality::RandomState::default();
        let room = Arc::new(Capacity::of(max_keys));
        let new_table = || CounterTable::new(Arc::clone(&room), hasher.clone());
        let shards = (0..shards)
            .map(|_| Shard(Mutex::new(new_table())))
            .collect();
        Self {
            shards,
            hasher,
            clock,
            max_keys,
            room: ArcSwap::new(room),
            overflowed: AtomicU64::new(0),
        }
    }

    /// Divides a quarter of the room among these limits and their tiers, which apply from now on. Must be called before
    /// the first check of a limit: a place that another limit fills meanwhile is not taken back.
    pub fn keep_room_for<'a>(&self, limits: impl Iterator<Item = &'a Arc<Limit>>) {
        let limits = capacity::entitled(limits);
        let mut tables: Vec<_> = self.shards.iter().map(lock).collect();
        let before = self.room.load();
        let room = Arc::new(before.shared_out(self.max_keys, &limits, || {
            let mut counts = HashMap::new();
            for table in &tables {
                table.count(&mut counts);
            }
            counts
        }));
        for table in &mut tables {
            table.move_to(Arc::clone(&room));
        }
        self.room.store(room);
    }

    /// This store at `now`. Its clock is moved by hand, for tests and replays.
    pub fn at(&self, now: Timestamp) -> &Self {
        self.clock.set(now);
        self
    }

    /// Decides all checks of one request: all or none are charged. The decision is made in its final place, since it is
    /// large.
    pub fn decide(&self, checks: &[Check<'_>]) -> Box<StoreDecision> {
        let mut decided = StoreDecision::undecided();
        let answers = &mut decided.answers;
        let measured = self.measure_into(checks, Intent::Charge, Decider::Memory, answers);
        decided.conclude(checks, measured.at, measured.charges);
        decided
    }

    /// The answers of all checks of one request, all or none charged, before a decision is derived from them. The store
    /// answers as `by`: one of several gateways charges each request several times its cost.
    #[inline]
    pub fn measure(&self, checks: &[Check<'_>], intent: Intent, by: Decider) -> Answers {
        let mut answers = Answers::measured(&[], by, Timestamp::default(), []);
        let measured = self.measure_into(checks, intent, by, &mut answers.each);
        answers.at = measured.at;
        answers
    }

    /// Like [`Self::measure`], with the answers written in place.
    fn measure_into(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Measured {
        if let [check] = checks
            && let Some(measured) = self.measure_one(check, intent, by, answers)
        {
            return measured;
        }
        if checks.iter().any(|check| check.repeats().is_some()) {
            self.measure_with_ids(checks, intent, by, answers)
        } else {
            self.measure_with(checks, &[], intent, by, answers)
        }
    }

    /// The answer of the only check of a request, if its counter exists and the request has no id: most requests need
    /// nothing that several checks require.
    fn measure_one(
        &self,
        check: &Check<'_>,
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Option<Measured> {
        if !check.limit.mode.decides() || check.repeats().is_some() {
            return None;
        }
        let place = self.place(check.limit, check.key);
        let mut table = lock(&self.shards[place.shard]);
        let found = table.find(&place)?;
        let entry = table.at_mut(found)?;
        // The clock is read under the lock, as for several checks.
        let now = self.instant(check.limit);
        let (mut measured, change) =
            check
                .limit
                .check_as_one_of(Some(&entry.state()), now, check.cost, by.gateways());
        measured.overflow = place.key == OVERFLOW;
        let answer = LimitAnswer {
            limit: place.limit,
            by,
            at: now,
            evidence: Evidence::Measured(measured),
        };
        let admits = answer.admits();
        let charged = admits && intent == Intent::Charge;
        // A change that accompanies a refusal only repairs an impossible state.
        if let Some(change) = change.filter(|_| charged || !admits) {
            entry.put(change, place.kind);
        }
        answers.push(answer);
        Some(Measured {
            at: now,
            charges: Charges::of_all(charged),
        })
    }

    /// Like [`Self::measure_into`], for a request with an id.
    #[cold]
    #[inline(never)]
    fn measure_with_ids(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Measured {
        let ids = checks.iter().map(|check| {
            let (_, id) = check.repeats()?;
            Some(record_key(check.key, id))
        });
        let ids: Vec<_> = ids.collect();
        let records: Vec<Option<CounterLocation<'_>>> = checks
            .iter()
            .zip(&ids)
            .map(|(check, id)| Some(self.place(check.limit, id.as_deref()?)))
            .collect();
        self.measure_with(checks, &records, intent, by, answers)
    }

    #[inline(never)]
    fn measure_with(
        &self,
        checks: &[Check<'_>],
        records: &[Option<CounterLocation<'_>>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Measured {
        let mut steps: CheckSteps<'_> = checks
            .iter()
            .map(|check| CheckStep {
                place: self.place(check.limit, check.key),
                guard: 0,
                found: None,
                change: None,
                has_room: false,
            })
            .collect();
        loop {
            match self.attempt(checks, &mut steps, records, intent, by, answers) {
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
        records: &[Option<CounterLocation<'_>>],
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Result<Measured, usize> {
        answers.clear();
        let gateways = by.gateways();
        let mut guards = self.lock(
            steps
                .iter()
                .map(|step| &step.place)
                .chain(records.iter().flatten()),
        );
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
        let mut remembered: Vec<(usize, CounterLocation<'_>, RecordState)> = Vec::new();
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
            let (mut outcome, change) =
                match (records.get(index).copied().flatten(), check.repeats()) {
                    (Some(record_at), Some((dedupe, _))) => {
                        let record = record_at.find(&guards).and_then(|state| state.record());
                        let state = place.find(&guards);
                        let (limit, state) = (check.limit, state.as_deref());
                        let found =
                            limit.check_with_id(dedupe, record, state, at, check.cost, gateways);
                        remembered.extend(found.record.map(|record| (index, record_at, record)));
                        (found.measured, found.change)
                    }
                    _ => {
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
        if !remembered.is_empty() {
            self.remember(&remembered, answers, &charges, &mut guards);
        }
        Ok(Measured { at: now, charges })
    }

    /// Stores the records of ids that have been charged.
    #[cold]
    #[inline(never)]
    fn remember(
        &self,
        remembered: &[(usize, CounterLocation<'_>, RecordState)],
        answers: &mut [LimitAnswer],
        charges: &Charges,
        guards: &mut Guards<'_>,
    ) {
        for &(index, place, record) in remembered {
            if !charges.has(index) {
                continue;
            }
            let table = table_at(guards, place.shard);
            let is_there = table.find(&place).is_some();
            if !is_there && !table.make_room(&place, &self.clock) {
                // There is no room for the record: repeats of the request will be charged.
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                if let Some(measured) = answers[index].measured_mut() {
                    measured.repeat = Repeat::No;
                }
            } else if is_there {
                table.put(&place, record.change());
            } else {
                table.insert(&place, record.change());
            }
        }
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

    /// Deletes one counter. Returns whether it existed. Charged ids stay remembered.
    pub fn reset(&self, limit: &Limit, key: &[u8]) -> bool {
        let place = self.place(limit, key);
        lock(&self.shards[place.shard]).remove(&place)
    }

    /// Drops the states of one shard that equal no state. The sweep calls this for all shards in turn, off the request
    /// path.
    pub fn sweep(&self, turn: usize) {
        let present = Present::of(&self.clock);
        lock(&self.shards[turn % self.shards.len()]).sweep(present);
    }

    /// The number of counters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.room.load().len()
    }

    /// Is the store empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of decisions that fell back to a limit's overflow key, or left an id unremembered for lack of room.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The stored state of one counter, unchanged: for the conformance suite.
    #[must_use]
    pub fn stored(&self, limit: &Limit, key: &[u8]) -> Option<State> {
        let place = self.place(limit, key);
        let table = lock(&self.shards[place.shard]);
        table.state(&place).map(Cow::into_owned)
    }

    fn place<'a>(&self, of: &Limit, key: &'a [u8]) -> CounterLocation<'a> {
        let limit = of.id;
        let hash = hash(&self.hasher, limit, key);
        let shard = shard_of(hash, self.shards.len());
        CounterLocation {
            hash,
            shard,
            limit,
            key,
            kind: EntryKind {
                is_shadow: !of.mode.decides(),
                dated: of.rule.follows_wall_clock(),
            },
        }
    }

    /// The current time by the clock of this limit.
    #[inline]
    fn instant(&self, of: &Limit) -> Timestamp {
        if of.rule.follows_wall_clock() {
            self.clock.wall()
        } else {
            self.clock.now()
        }
    }

    /// Like [`Self::instant`], if `now` has already been read.
    #[inline]
    fn instant_for(&self, of: &Limit, now: Timestamp) -> Timestamp {
        if of.rule.follows_wall_clock() {
            self.clock.wall()
        } else {
            now
        }
    }

    fn lock<'p>(&self, places: impl IntoIterator<Item = &'p CounterLocation<'p>>) -> Guards<'_> {
        if let [shard] = &*self.shards {
            let mut guards = Guards::new();
            guards.push((0, lock(shard)));
            return guards;
        }
        let mut order: SmallVec<[usize; INLINE_LIMITS]> = SmallVec::new();
        for place in places {
            // A few numbers are in order before a sort would have begun.
            let at = order.iter().position(|shard| *shard >= place.shard);
            match at {
                Some(at) if order[at] == place.shard => {}
                Some(at) => order.insert(at, place.shard),
                None => order.push(place.shard),
            }
        }
        let mut guards = Guards::new();
        for shard in order {
            guards.push((shard, lock(&self.shards[shard])));
        }
        guards
    }
}

impl CounterLocation<'_> {
    /// The state at this location; its shard is locked.
    fn find<'g>(&self, guards: &'g Guards<'_>) -> Option<Cow<'g, State>> {
        let mut guards = guards.iter();
        let (_, table) = guards.find(|(locked, _)| *locked == self.shard)?;
        table.state(self)
    }
}

/// The shard of a counter. The table uses the low and the top bits of the hash; the shard is chosen by bits in between.
///
/// The last shards get twice as many counters as the first, in even steps. A table doubles when it is full: so the
/// shards double one after another, and together they are never half empty, nor all slow at one time.
fn shard_of(hash: u64, shards: usize) -> usize {
    const ONE: u64 = 1 << 16;
    let even = hash >> 40 & (ONE - 1);
    // About the logarithm of 1 + x to the base of 2, for x from 0 to 1.
    let bent = even + (even * (ONE - even) / ONE) * 22_487 / ONE;
    usize::try_from(bent * shards as u64 / ONE).unwrap_or(0)
}

/// The key of the record of `id` for `key`.
fn record_key(key: &[u8], id: RepeatId) -> Vec<u8> {
    [key, &[BEFORE_ID], id.bytes()].concat()
}

/// Returns capacity that was taken for an entry that is not stored after all.
fn give_back(steps: &mut CheckSteps<'_>, guards: &mut Guards<'_>) {
    for step in steps.iter_mut().filter(|step| step.has_room) {
        step.has_room = false;
        table_at(guards, step.place.shard).give_back(step.place.limit);
    }
}

fn table_at<'a>(guards: &'a mut Guards<'_>, shard: usize) -> &'a mut CounterTable {
    let at = position(guards, shard);
    &mut guards[at].1
}

/// The position of a shard's guard.
#[inline]
fn position(guards: &Guards<'_>, shard: usize) -> usize {
    let at = guards.iter().position(|(locked, _)| *locked == shard);
    at.expect("every place's shard has been locked")
}

/// A panic while a shard was locked cannot leave an entry half-written: entries are replaced whole.
fn lock(shard: &Shard) -> MutexGuard<'_, CounterTable> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
