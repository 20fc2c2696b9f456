//! The memory store: sharded maps over the pure functions of `limit`, bounded, swept without losing live state.
//!
//! The one thing workers share under a lock. A decision takes the shards of all its limits in shard order and holds
//! them for a few hundred nanoseconds, never across an await.

use super::batch::{Check, Decided, Half, measures_admit};
use crate::clock::{Clock, Timestamp};
use crate::key::RepeatId;
use crate::limit::concurrency::FOREVER;
use crate::limit::dedupe::RecordState;
use crate::limit::verdict::{INLINE_LIMITS, Measured, Repeat, Wait};
use crate::limit::{Change, Limit, LimitId, Mark, Refunded, State, Ticket, Update};
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shards; a power of two, far more than cores.
pub const SHARDS: usize = 64;
/// The key all keys without room share; no written key contains a bare `%` followed by this.
const OVERFLOW: &[u8] = b"%overflow";

/// Counters of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Shard]>,
    hasher: foldhash::quality::RandomState,
    clock: Clock,
    live: AtomicUsize,
    max_keys: usize,
    overflowed: AtomicU64,
}

/// Kept on cache lines of its own, so that two workers on two shards do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<HashTable<Entry>>);

/// On a cache line of its own: looking one up costs what fetching it costs, and most would lie across two.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    limit: LimitId,
    key: Box<[u8]>,
    state: State,
    ends: Timestamp,
}

/// Stands between a key and an id in what records are filed under; no key has this byte.
const BEFORE_ID: u8 = 0;

/// Where a check's counter is, or what is remembered of its id.
#[derive(Clone, Copy)]
struct Place<'a> {
    hash: u64,
    shard: usize,
    limit: LimitId,
    key: &'a [u8],
}

type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, HashTable<Entry>>); INLINE_LIMITS]>;

impl MemoryStore {
    /// An empty store for at most `max_keys` live counters.
    #[must_use]
    pub fn new(clock: Clock, max_keys: usize) -> Self {
        let shards = (0..SHARDS)
            .map(|_| Shard(Mutex::new(HashTable::new())))
            .collect();
        Self {
            shards,
            hasher: foldhash::quality::RandomState::default(),
            clock,
            live: AtomicUsize::new(0),
            max_keys,
            overflowed: AtomicU64::new(0),
        }
    }

    /// Decides all checks of one request: charged all or none.
    pub fn decide(&self, checks: &[Check<'_>]) -> Decided {
        self.decide_at(checks, None)
    }

    /// The same, with the instant given: for tests and replays.
    pub fn decide_at(&self, checks: &[Check<'_>], now: Option<Timestamp>) -> Decided {
        let Half { at, measured } = self.measure(checks, now, false);
        Decided::of(checks, at, measured)
    }

    /// The same before it is given a meaning. Of a request that is `refused` elsewhere nothing is charged.
    pub(super) fn measure(
        &self,
        checks: &[Check<'_>],
        now: Option<Timestamp>,
        refused: bool,
    ) -> Half {
        let mut places: SmallVec<[Place<'_>; INLINE_LIMITS]> = checks
            .iter()
            .map(|check| self.place(check.limit.id, check.key))
            .collect();
        // Nothing is made where no request has an id.
        let mut ids = Vec::new();
        if checks.iter().any(|check| check.repeats().is_some()) {
            ids.extend(checks.iter().map(|check| {
                let (_, id) = check.repeats()?;
                Some(record_key(check.key, id))
            }));
        }
        let records: Vec<Option<Place<'_>>> = ids
            .iter()
            .zip(checks)
            .map(|(id, check)| Some(self.place(check.limit.id, id.as_deref()?)))
            .collect();
        loop {
            match self.attempt(checks, &places, &records, (now, refused)) {
                Ok(half) => return half,
                // No room for a new key: it counts on its limit's overflow key, which may live in another shard,
                // so all locks are let go and the decision starts again. At most once for each check.
                Err(index) => {
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                    places[index] = self.place(checks[index].limit.id, OVERFLOW);
                }
            }
        }
    }

    fn attempt(
        &self,
        checks: &[Check<'_>],
        places: &[Place<'_>],
        records: &[Option<Place<'_>>],
        (now, refused): (Option<Timestamp>, bool),
    ) -> Result<Half, usize> {
        let mut guards = self.lock(places.iter().chain(records.iter().flatten()));
        // Read under the locks: a later holder of the same shard never sees an earlier instant.
        let now = now.unwrap_or_else(|| self.clock.now());
        let mut measured: SmallVec<[Measured; INLINE_LIMITS]> = SmallVec::new();
        let mut changes: SmallVec<[Option<Change>; INLINE_LIMITS]> = SmallVec::new();
        let mut remembered: Vec<(usize, Place<'_>, RecordState)> = Vec::new();
        for (index, (check, place)) in checks.iter().zip(places).enumerate() {
            let table = table(&mut guards, place.shard);
            if self.is_full()
                && place.key != OVERFLOW
                && table.find(place.hash, |entry| place.is(entry)).is_none()
                && !self.has_room(table, now)
            {
                return Err(index);
            }
            let (outcome, change) = match (records.get(index), check.repeats()) {
                (Some(Some(at)), Some((dedupe, _))) => {
                    let record = at.find(&guards).and_then(State::record);
                    let state = place.find(&guards);
                    let limit = check.limit;
                    let found = limit.check_with_id(dedupe, record, state, now, check.cost);
                    remembered.extend(found.record.map(|record| (index, *at, record)));
                    (found.measured, found.change)
                }
                _ => {
                    let held = table.find(place.hash, |entry| place.is(entry));
                    let state = held.map(|entry| &entry.state);
                    check.limit.check(state, now, check.cost)
                }
            };
            measured.push(outcome);
            changes.push(change);
        }
        let charged = !refused && measures_admit(&measured);
        for ((place, measured), change) in places.iter().zip(&measured).zip(changes) {
            // A change beside a refusal only mends an impossible state; it is stored whatever the others say.
            if let Some(change) = change.filter(|_| charged || measured.wait != Wait::Micros(0)) {
                self.write(table(&mut guards, place.shard), *place, change);
            }
        }
        for (index, place, record) in remembered {
            if !charged {
                break;
            }
            let table = table(&mut guards, place.shard);
            if self.is_full() && !place.is_in(table) && !self.has_room(table, now) {
                // Its repeats will be charged.
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                measured[index].repeat = Repeat::No;
                continue;
            }
            self.write(table, place, record.change());
        }
        drop(guards);
        Ok(Half { at: now, measured })
    }

    /// Gives back what `ticket` was charged, as far as nobody counts on it.
    pub fn refund(&self, limit: &Limit, key: &[u8], ticket: Ticket) {
        self.refund_at(limit, key, ticket, self.clock.now());
    }

    /// The same, with the instant given.
    pub fn refund_at(&self, limit: &Limit, key: &[u8], ticket: Ticket, now: Timestamp) {
        self.give_back((limit, key), ticket, |state| {
            limit.rule.refund(state, now, ticket)
        });
    }

    /// Takes back what `check` was charged at `at` for a request that another limit then refused.
    pub(super) fn undo(&self, check: &Check<'_>, at: Timestamp, measured: Measured) {
        let Check { limit, key, .. } = *check;
        let now = self.clock.now();
        if measured.repeat == Repeat::Free {
            return self.undo_repeat(check, at);
        }
        if let Some(ticket) = check.ticket(at, measured) {
            self.give_back((limit, key), ticket, |state| {
                limit.rule.undo(state, (at, now), ticket)
            });
        }
    }

    /// The repeat at `at` has not gone free after all.
    fn undo_repeat(&self, check: &Check<'_>, at: Timestamp) {
        let Some((dedupe, id)) = check.repeats() else {
            return;
        };
        let name = record_key(check.key, id);
        let place = self.place(check.limit.id, &name);
        let mut guards = self.lock([&place]);
        // One that lasts longer is of a charge that came after it.
        let last = at.plus(dedupe.ttl).micros();
        let record = place.find(&guards).and_then(State::record);
        if let Some(record) = record.filter(|record| record.ends <= last && record.free > 0) {
            let free = record.free - 1;
            let change = RecordState { free, ..record }.change();
            self.write(table(&mut guards, place.shard), place, change);
        }
    }

    fn give_back(
        &self,
        (limit, key): (&Limit, &[u8]),
        ticket: Ticket,
        left: impl Fn(Option<&State>) -> Refunded,
    ) {
        let id = ticket.record.map(|record| record_key(key, record.id));
        let record = id.as_ref().map(|id| self.place(limit.id, id));
        let mut place = self.place(limit.id, key);
        let mut guards = self.lock([&place].into_iter().chain(&record));
        if matches!(ticket.mark, Mark::Slot(_)) && place.find(&guards).is_none() {
            // Taken when there was no room for the key: a slot must come back, or it is lost for good.
            drop(guards);
            place = self.place(limit.id, OVERFLOW);
            guards = self.lock([&place].into_iter().chain(&record));
        }
        let remembered = record.and_then(|at| at.find(&guards)?.record());
        if !ticket.is_unrepeated(remembered) {
            return;
        }
        match left(place.find(&guards)) {
            Refunded::Nothing => return,
            Refunded::Left(change) => self.write(table(&mut guards, place.shard), place, change),
            Refunded::Gone => {
                self.remove(table(&mut guards, place.shard), place);
            }
        }
        if let Some(record) = record {
            self.remove(table(&mut guards, record.shard), record);
        }
    }

    /// Forgets one counter. Was there anything? Ids that have been charged stay remembered.
    pub fn reset(&self, limit: &Limit, key: &[u8]) -> bool {
        let place = self.place(limit.id, key);
        self.remove(&mut lock(&self.shards[place.shard]), place)
    }

    fn remove(&self, table: &mut HashTable<Entry>, place: Place<'_>) -> bool {
        let Ok(entry) = table.find_entry(place.hash, |entry| place.is(entry)) else {
            return false;
        };
        entry.remove();
        self.live.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Forgets the states of one shard that equal no state. Called in turn for all of them, off the request path.
    pub fn sweep(&self, turn: usize) {
        let now = self.clock.now();
        let mut table = lock(&self.shards[turn % SHARDS]);
        self.forget_ended(&mut table, now);
        if table.capacity() > 64 && table.capacity() / 4 > table.len() {
            let room = table.len() * 2;
            table.shrink_to(room, |entry| self.hash(entry.limit, &entry.key));
        }
    }

    /// How many counters are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Is nothing held?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many decisions fell back to a limit's overflow key, or left an id unremembered for want of room.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The stored state of one counter, as it is: for the conformance suite.
    #[must_use]
    pub fn stored(&self, limit: &Limit, key: &[u8]) -> Option<State> {
        let place = self.place(limit.id, key);
        let table = lock(&self.shards[place.shard]);
        table
            .find(place.hash, |entry| place.is(entry))
            .map(|entry| entry.state.clone())
    }

    fn place<'a>(&self, limit: LimitId, key: &'a [u8]) -> Place<'a> {
        let hash = self.hash(limit, key);
        // The table uses the low and the top bits; the shard is chosen by bits in between.
        let shard = usize::try_from((hash >> 40) % SHARDS as u64).unwrap_or(0);
        Place {
            hash,
            shard,
            limit,
            key,
        }
    }

    fn hash(&self, limit: LimitId, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(limit.0);
        hasher.write(key);
        hasher.finish()
    }

    fn lock<'p>(&self, places: impl IntoIterator<Item = &'p Place<'p>>) -> Guards<'_> {
        let mut order: SmallVec<[usize; INLINE_LIMITS]> =
            places.into_iter().map(|place| place.shard).collect();
        order.sort_unstable();
        order.dedup();
        order
            .into_iter()
            .map(|shard| (shard, lock(&self.shards[shard])))
            .collect()
    }

    fn is_full(&self) -> bool {
        self.len() >= self.max_keys
    }

    /// What has ended in this shard makes room at once, without waiting for the sweep.
    fn has_room(&self, table: &mut HashTable<Entry>, now: Timestamp) -> bool {
        self.forget_ended(table, now);
        !self.is_full()
    }

    fn forget_ended(&self, table: &mut HashTable<Entry>, now: Timestamp) {
        let before = table.len();
        table.retain(|entry| entry.ends > now);
        self.live.fetch_sub(before - table.len(), Ordering::Relaxed);
    }

    fn write(&self, table: &mut HashTable<Entry>, place: Place<'_>, mut change: Change) {
        if let Update::Lease(leasing) = &mut change.update {
            // Nobody can be lost here without the counter: a slot is taken until it is given back.
            leasing.until = FOREVER;
            change.ends = Timestamp::from_micros(FOREVER);
        }
        if let Some(entry) = table.find_mut(place.hash, |entry| place.is(entry)) {
            match (change.update, &mut entry.state) {
                (Update::Grow(growth), State::Log(log)) => growth.apply(log),
                (Update::Lease(leasing), State::Leases(leases)) => leasing.apply(leases),
                (update, state) => *state = update.after(None),
            }
            entry.ends = change.ends;
            return;
        }
        let entry = Entry {
            limit: place.limit,
            key: Box::from(place.key),
            state: change.update.after(None),
            ends: change.ends,
        };
        table.insert_unique(place.hash, entry, |entry| {
            self.hash(entry.limit, &entry.key)
        });
        self.live.fetch_add(1, Ordering::Relaxed);
    }
}

impl Place<'_> {
    fn is(&self, entry: &Entry) -> bool {
        entry.limit == self.limit && *entry.key == *self.key
    }

    fn is_in(&self, table: &HashTable<Entry>) -> bool {
        table.find(self.hash, |entry| self.is(entry)).is_some()
    }

    /// The state there; its shard is locked.
    fn find<'g>(&self, guards: &'g Guards<'_>) -> Option<&'g State> {
        let at = guards
            .iter()
            .position(|(locked, _)| *locked == self.shard)?;
        let entry = guards[at].1.find(self.hash, |entry| self.is(entry))?;
        Some(&entry.state)
    }
}

/// What is remembered of `id` for `key` is filed under.
fn record_key(key: &[u8], id: RepeatId) -> Vec<u8> {
    [key, &[BEFORE_ID], id.bytes()].concat()
}

fn table<'a>(guards: &'a mut Guards<'_>, shard: usize) -> &'a mut HashTable<Entry> {
    let at = guards.iter().position(|(locked, _)| *locked == shard);
    &mut guards[at.expect("every place's shard has been locked")].1
}

/// A panic while a shard was held cannot leave it half-written: entries are replaced whole.
fn lock(shard: &Shard) -> MutexGuard<'_, HashTable<Entry>> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
