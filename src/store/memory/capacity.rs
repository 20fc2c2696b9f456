//! Which limit may still add a counter: a quarter of the room is kept in equal parts for the limits in force, the rest is
//! everybody's.
//!
//! What a limit has beyond its part lies in the common room, so that a flood of invented keys of one
//! limit takes nothing of what is kept for the others. The last place of a part is for the limit's overflow key. What is
//! counted changes only where a counter comes or goes, and under the lock of its shard.

use crate::limit::{Limit, LimitId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key all keys without room share; no written key contains a bare `%` followed by this.
pub(in crate::store) const OVERFLOW: &[u8] = b"%overflow";

/// One part in this many of the whole room is kept.
const KEPT: usize = 4;

/// The room of one store under one reading of the file.
#[derive(Debug)]
pub(super) struct Capacity {
    /// Counters by keys of their own, at most and now.
    most: usize,
    keys: AtomicUsize,
    /// Counters that keys without room share: each limit has one at most.
    shared: AtomicUsize,
    /// Places kept for each limit, without that of its overflow key.
    part: usize,
    /// The common room, and how many counters lie there.
    common: usize,
    beyond: AtomicUsize,
    /// By limits in force, and by those that were when their counters came.
    held: HashMap<LimitId, LimitCapacity, foldhash::fast::RandomState>,
    /// By limits that were in force longer ago than the file before this one.
    strangers: LimitCapacity,
}

/// How many counters a limit has by keys of their own.
#[derive(Debug, Default)]
struct LimitCapacity {
    part: usize,
    keys: AtomicUsize,
}

impl Capacity {
    /// Room for so many counters, and nothing kept for anyone.
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            keys: AtomicUsize::default(),
            shared: AtomicUsize::default(),
            part: 0,
            common: most,
            beyond: AtomicUsize::default(),
            held: HashMap::default(),
            strangers: LimitCapacity::default(),
        }
    }

    /// This room of `whole` places, shared out to the limits that are in force from now on, with what is in it.
    /// Every shard is locked: nothing comes or goes meanwhile. `count` says anew what each limit has.
    pub(super) fn shared_out(
        &self,
        whole: usize,
        limits: &[LimitId],
        count: impl FnOnce() -> HashMap<LimitId, usize>,
    ) -> Self {
        let part = (whole / KEPT).checked_div(limits.len()).unwrap_or(0);
        let before = match self.strangers.keys.load(Ordering::Relaxed) {
            0 => self.counts(),
            // Only the counters say to which limits they belong.
            _ => count(),
        };
        let mut room = Self {
            keys: AtomicUsize::new(load(&self.keys)),
            shared: AtomicUsize::new(load(&self.shared)),
            part: part.saturating_sub(1),
            common: whole - part * limits.len(),
            most: whole - part.min(1) * limits.len(),
            ..Self::of(whole)
        };
        for id in limits {
            room.held.entry(*id).or_default().part = room.part;
        }
        // One that leaves may still be asked by requests under way.
        for (id, keys) in before {
            *room.held.entry(id).or_default().keys.get_mut() = keys;
        }
        let beyond = room
            .held
            .values()
            .map(|held| load(&held.keys).saturating_sub(held.part));
        *room.beyond.get_mut() = beyond.sum();
        room
    }

    /// What each limit has that is in force or has any.
    fn counts(&self) -> HashMap<LimitId, usize> {
        let held = self.held.iter();
        let counts = held.map(|(id, held)| (*id, held.part, load(&held.keys)));
        let counts = counts.filter(|(_, part, keys)| *part > 0 || *keys > 0);
        counts.map(|(id, _, keys)| (id, keys)).collect()
    }

    /// How many counters there are.
    pub(super) fn len(&self) -> usize {
        load(&self.keys) + load(&self.shared)
    }

    /// Takes a place for a new key of `limit`, if there is one.
    pub(super) fn take(&self, limit: LimitId) -> bool {
        let held = self.held(limit);
        if self.is_out_of_room(held) {
            return false;
        }
        let is_own = held.keys.fetch_add(1, Ordering::Relaxed) < held.part;
        let is_room = is_own || self.beyond.fetch_add(1, Ordering::Relaxed) < self.common;
        let fits = self.keys.fetch_add(1, Ordering::Relaxed) < self.most && is_room;
        // Another worker was there first.
        if !fits {
            self.give_back(limit);
        }
        fits
    }

    /// Gives a place back that was taken for a key of `limit`.
    pub(super) fn give_back(&self, limit: LimitId) {
        let held = self.held(limit);
        if held.keys.fetch_sub(1, Ordering::Relaxed) > held.part {
            self.beyond.fetch_sub(1, Ordering::Relaxed);
        }
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// A counter that keys without room share comes.
    pub(super) fn share(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// The counter of `key` has gone.
    pub(super) fn left(&self, limit: LimitId, key: &[u8]) {
        if key == OVERFLOW {
            self.shared.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.give_back(limit);
        }
    }

    fn is_out_of_room(&self, held: &LimitCapacity) -> bool {
        let is_beyond = load(&held.keys) >= held.part && load(&self.beyond) >= self.common;
        is_beyond || load(&self.keys) >= self.most
    }

    fn held(&self, limit: LimitId) -> &LimitCapacity {
        self.held.get(&limit).unwrap_or(&self.strangers)
    }
}

/// The limits among `limits`, and their tiers, that have a part of the room: those that decide.
pub(super) fn entitled<'a>(limits: impl Iterator<Item = &'a Arc<Limit>>) -> Vec<LimitId> {
    let tiers = |limit: &'a Arc<Limit>| limit.tiers.iter().map(|tier| &tier.limit);
    let all = limits.flat_map(|limit| std::iter::once(limit).chain(tiers(limit)));
    let mut ids: Vec<LimitId> = all
        .filter(|limit| limit.mode.decides())
        .map(|limit| limit.id)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn load(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}
