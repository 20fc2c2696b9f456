//! The memory store: sharded maps over the pure functions of `limit`, bounded, swept without loss of live state.
//!
//! The shards are the only data that workers share under a lock. A decision locks the shards of all its limits in shard
//! order, for a few hundred nanoseconds, and never across an await.
//!
//! In: checks. Out: answers, under the locks of its shards.
//!
//! ```text
//! check_steps   the decision of several checks
//! side_states   states beside a counter: records of ids, and blocks
//! shard_locks   the locks of shards, in their order
//! shard         one shard of counters
//! shard_limits  the limits with counters in it, each by a number
//! entry         one counter
//! packed_key    its name, in few bytes
//! packed_state  its state, in few bytes
//! known_numbers the numbers that states name
//! capacity      which limit may add a counter: a part for each, the rest in common
//! refunds       charges that come back
//! reset_marks   charges that do not, since their counter was emptied
//! ```

mod capacity;
mod check_steps;
mod entry;
mod known_numbers;
mod packed_key;
mod packed_state;
mod refunds;
mod reset_marks;
mod shard;
mod shard_limits;
mod shard_locks;
mod side_states;

use super::answers::{Answers, Evidence, LimitAnswer, LimitAnswers};
use super::check::{Check, Intent};
use super::decider::Decider;
use super::decision::StoreDecision;
use super::shadow::Charges;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Limit, LimitId, State};
use arc_swap::ArcSwap;
use capacity::Capacity;
pub(super) use capacity::OVERFLOW;
use entry::Present;
use reset_marks::ResetMarks;
use shard::CounterTable;
use shard_locks::{Shard, lock};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    resets: ResetMarks,
}

/// The instant of a measurement, and the checks that it charged.
struct Measured {
    at: Timestamp,
    charges: Charges,
}

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
        let shards = (0..shards).map(|_| Shard::new(new_table())).collect();
        Self {
            shards,
            hasher,
            clock,
            max_keys,
            room: ArcSwap::new(room),
            overflowed: AtomicU64::new(0),
            resets: ResetMarks::default(),
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
        if checks.iter().any(side_states::has_any) {
            self.measure_with_side_states(checks, intent, by, answers)
        } else {
            self.measure_with(checks, &[], intent, by, answers)
        }
    }

    /// The answer of the only check of a request, if its counter exists and has no state beside it: most requests
    /// need nothing that several checks require.
    fn measure_one(
        &self,
        check: &Check<'_>,
        intent: Intent,
        by: Decider,
        answers: &mut LimitAnswers,
    ) -> Option<Measured> {
        if !check.limit.mode.decides() || side_states::has_any(check) {
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

    /// Drops the states of one shard that equal no state. The sweep calls this for all shards in turn, off the request
    /// path.
    pub fn sweep(&self, turn: usize) {
        let present = Present::of(&self.clock);
        lock(&self.shards[turn % self.shards.len()]).sweep(present);
    }

    /// Deletes the counters of all limits but these.
    pub fn forget_others(&self, stays: &HashSet<LimitId>) {
        for shard in &self.shards {
            lock(shard).forget_others(stays);
        }
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
}
