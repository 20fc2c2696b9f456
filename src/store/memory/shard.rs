//! One shard: its counters, and their share of the whole room.

use super::capacity::{Capacity, OVERFLOW};
use super::entry::{Entry, EntryKind, Present};
use super::shard_limits::ShardLimits;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Change, LimitId, State};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Microseconds for which a shard is not searched again for ended counters, if the last search found none. Otherwise a
/// flood of keys in a full store would cause a search of the whole shard for every key.
const BARREN: u64 = 50_000;

/// The location of a check's counter, or of the record of its id.
#[derive(Clone, Copy)]
pub(super) struct CounterLocation<'a> {
    pub(super) hash: u64,
    pub(super) shard: usize,
    pub(super) limit: LimitId,
    pub(super) key: &'a [u8],
    pub(super) kind: EntryKind,
}

#[derive(Debug)]
pub(super) struct CounterTable {
    entries: HashTable<Entry>,
    limits: ShardLimits,
    room: Arc<Capacity>,
    hasher: RandomState,
    /// The instant of the last search for ended counters, if it found none.
    barren: Option<Timestamp>,
    /// May the shard hold counters of limits that do not decide?
    has_shadows: bool,
}

impl CounterTable {
    /// An empty table.
    pub(super) fn new(room: Arc<Capacity>, hasher: RandomState) -> Self {
        Self {
            entries: HashTable::new(),
            limits: ShardLimits::default(),
            room,
            hasher,
            barren: None,
            has_shadows: false,
        }
    }

    /// Takes over a room that was divided anew.
    pub(super) fn move_to(&mut self, room: Arc<Capacity>) {
        self.room = room;
        // Limits that decided before may only count from now on.
        self.has_shadows = true;
    }

    /// Adds to `counts` how many counters each limit has by keys of their own.
    pub(super) fn count(&self, counts: &mut HashMap<LimitId, usize>) {
        for entry in self.entries.iter().filter(|entry| !entry.key.is(OVERFLOW)) {
            *counts.entry(self.limits.id(entry.limit())).or_default() += 1;
        }
    }

    /// The position of the counter of `place`, valid until the next counter is added.
    pub(super) fn find(&self, place: &CounterLocation<'_>) -> Option<usize> {
        self.entries
            .find_bucket_index(place.hash, |entry| place.is(entry, &self.limits))
    }

    /// The entry at this position. It may have been evicted meanwhile.
    pub(super) fn at(&self, index: usize) -> Option<&Entry> {
        self.entries.get_bucket(index)
    }

    /// The entry at this position, to be changed.
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.entries.get_bucket_mut(index)
    }

    /// The state of `place`.
    pub(super) fn state(&self, place: &CounterLocation<'_>) -> Option<Cow<'_, State>> {
        let is = |entry: &Entry| place.is(entry, &self.limits);
        let entry = self.entries.find(place.hash, is)?;
        Some(entry.state())
    }

    /// Takes room for a new counter at `place`. If there is none, ended counters of this shard are removed at once,
    /// before the sweep. For limits that decide, counters of limits that do not decide are evicted next.
    pub(super) fn make_room(&mut self, place: &CounterLocation<'_>, clock: &Clock) -> bool {
        if self.room.take(place.limit) {
            return true;
        }
        let now = clock.now();
        let since = |barren: Timestamp| now.micros().checked_sub(barren.micros());
        let is_barren = self
            .barren
            .and_then(since)
            .is_some_and(|since| since < BARREN);
        if !is_barren {
            self.forget_ended(Present::of(clock));
            if self.room.take(place.limit) {
                return true;
            }
            self.barren = Some(now);
        }
        !place.kind.is_shadow && self.has_shadows && self.clear_shadows(place.limit)
    }

    /// Evicts counters of limits that do not decide.
    fn clear_shadows(&mut self, limit: LimitId) -> bool {
        let (room, limits, mut taken) = (&self.room, &mut self.limits, false);
        self.entries.retain(|entry| {
            let stays = taken || !entry.is_shadow();
            if !stays {
                room.left(limits.leave(entry.limit()), entry.key.is(OVERFLOW));
                taken = room.take(limit);
            }
            stays
        });
        self.has_shadows = taken;
        taken
    }

    /// Returns capacity that was taken for `limit` and is not needed.
    pub(super) fn give_back(&self, limit: LimitId) {
        self.room.give_back(limit);
    }

    /// Stores a change at `place`. A counter that does not exist is added if it has room; else the change is dropped.
    pub(super) fn put(&mut self, place: &CounterLocation<'_>, change: Change) {
        let is = |entry: &Entry| place.is(entry, &self.limits);
        match self.entries.find_mut(place.hash, is) {
            Some(entry) => entry.put(change, place.kind),
            None if *place.key == *OVERFLOW || self.room.take(place.limit) => {
                self.insert(place, change);
            }
            None => {}
        }
    }

    /// Stores a new counter, for which there is room.
    pub(super) fn insert(&mut self, place: &CounterLocation<'_>, change: Change) {
        let is_shared = *place.key == *OVERFLOW;
        let Some(limit) = self.limits.enter(place.limit) else {
            // Too many limits have counters in this shard.
            if !is_shared {
                self.room.give_back(place.limit);
            }
            return;
        };
        let entry = Entry::new(limit, place.key, change, place.kind);
        let (hasher, limits) = (&self.hasher, &self.limits);
        self.entries
            .insert_unique(place.hash, entry, |entry| rehash(hasher, limits, entry));
        self.has_shadows |= place.kind.is_shadow;
        if is_shared {
            self.room.share();
        }
    }

    /// Deletes the counter of `place`. Returns whether there was one.
    pub(super) fn remove(&mut self, place: &CounterLocation<'_>) -> bool {
        let is = |entry: &Entry| place.is(entry, &self.limits);
        let Ok(found) = self.entries.find_entry(place.hash, is) else {
            return false;
        };
        let (entry, _) = found.remove();
        self.limits.leave(entry.limit());
        self.room.left(place.limit, *place.key == *OVERFLOW);
        true
    }

    /// Drops ended counters, and frees memory that is hardly used.
    pub(super) fn sweep(&mut self, present: Present) {
        self.forget_ended(present);
        let entries = &mut self.entries;
        if entries.capacity() > 64 && entries.capacity() / 4 > entries.len() {
            let (hasher, limits) = (&self.hasher, &self.limits);
            entries.shrink_to(entries.len() * 2, |entry| rehash(hasher, limits, entry));
        }
    }

    /// Drops the counters of all limits but these.
    pub(super) fn forget_others(&mut self, stays: &HashSet<LimitId>) {
        let (room, limits) = (&self.room, &mut self.limits);
        self.entries.retain(|entry| {
            let is_kept = stays.contains(&limits.id(entry.limit()));
            if !is_kept {
                room.left(limits.leave(entry.limit()), entry.key.is(OVERFLOW));
            }
            is_kept
        });
    }

    fn forget_ended(&mut self, present: Present) {
        let (room, limits) = (&self.room, &mut self.limits);
        self.entries.retain(|entry| {
            let stays = !entry.has_ended(present);
            if !stays {
                room.left(limits.leave(entry.limit()), entry.key.is(OVERFLOW));
            }
            stays
        });
    }
}

impl CounterLocation<'_> {
    #[inline]
    fn is(&self, entry: &Entry, limits: &ShardLimits) -> bool {
        entry.key.is(self.key) && limits.is(entry.limit(), self.limit)
    }
}

/// The location of a counter among all.
pub(super) fn hash(hasher: &RandomState, limit: LimitId, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(limit.0);
    hasher.write(key);
    hasher.finish()
}

fn rehash(hasher: &RandomState, limits: &ShardLimits, entry: &Entry) -> u64 {
    let limit = limits.id(entry.limit());
    entry.key.read(|key| hash(hasher, limit, key))
}
