//! The room for counters, and the limits that may still add one: a quarter of the room is reserved in equal parts for
//! the current limits, the rest is common.
//!
//! Counters of a limit beyond its part use the common room. A flood of invented keys of one limit therefore takes
//! nothing from the parts of other limits. The last place of a part is for the limit's overflow key. The figures change
//! only when a counter is added or removed, and under the lock of its shard.

use crate::limit::{Limit, LimitId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key that all keys without room share. No written key contains a bare `%` followed by this.
pub(in crate::store) const OVERFLOW: &[u8] = b"%overflow";

/// One place in this number is reserved for the limits' parts.
const KEPT: usize = 4;

/// The room of one store for one reading of the file.
#[derive(Debug)]
pub(super) struct Capacity {
    /// Counters with keys of their own: the bound, and the present number.
    most: usize,
    keys: AtomicUsize,
    /// Counters that keys without room share. Each limit has one at most.
    shared: AtomicUsize,
    /// Places reserved for each limit, without the place of its overflow key.
    part: usize,
    /// The places of the common room, and the number of counters in it.
    common: usize,
    beyond: AtomicUsize,
    /// Counters of current limits, and of limits that were current when their counters were added.
    held: HashMap<LimitId, LimitCapacity, foldhash::fast::RandomState>,
    /// Counters of limits that were current only before the previous file.
    unlisted: LimitCapacity,
}

/// The number of a limit's counters with keys of their own.
#[derive(Debug, Default)]
struct LimitCapacity {
    part: usize,
    keys: AtomicUsize,
}

impl Capacity {
    /// Room for this number of counters, without parts for limits.
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            keys: AtomicUsize::default(),
            shared: AtomicUsize::default(),
            part: 0,
            common: most,
            beyond: AtomicUsize::default(),
            held: HashMap::default(),
            unlisted: LimitCapacity::default(),
        }
    }

    /// This room of `whole` places, with its counters, divided among the limits that apply from now on. Every shard
    /// must be locked, so that no counter is added or removed meanwhile. `count` counts each limit's counters anew.
    pub(super) fn shared_out(
        &self,
        whole: usize,
        limits: &[LimitId],
        count: impl FnOnce() -> HashMap<LimitId, usize>,
    ) -> Self {
        let part = (whole / KEPT).checked_div(limits.len()).unwrap_or(0);
        let before = match self.unlisted.keys.load(Ordering::Relaxed) {
            0 => self.counts(),
            // Only the counters themselves name their limits.
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
        // Current requests may still check a limit that is being removed.
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

    /// The share of each limit that is current or has counters.
    fn counts(&self) -> HashMap<LimitId, usize> {
        let held = self.held.iter();
        let counts = held.map(|(id, held)| (*id, held.part, load(&held.keys)));
        let counts = counts.filter(|(_, part, keys)| *part > 0 || *keys > 0);
        counts.map(|(id, _, keys)| (id, keys)).collect()
    }

    /// The number of counters.
    pub(super) fn len(&self) -> usize {
        load(&self.keys) + load(&self.shared)
    }

    /// Takes a place for a new key of `limit`, if there is one.
    pub(super) fn take(&self, limit: LimitId) -> bool {
        let held = self.held(limit);
        if self.is_out_of_room(held) {
            return false;
        }
        let is_reserved = held.keys.fetch_add(1, Ordering::Relaxed) < held.part;
        let is_room = is_reserved || self.beyond.fetch_add(1, Ordering::Relaxed) < self.common;
        let fits = self.keys.fetch_add(1, Ordering::Relaxed) < self.most && is_room;
        // Another worker took the place first.
        if !fits {
            self.give_back(limit);
        }
        fits
    }

    /// Returns a place that was taken for a key of `limit`.
    pub(super) fn give_back(&self, limit: LimitId) {
        let held = self.held(limit);
        if held.keys.fetch_sub(1, Ordering::Relaxed) > held.part {
            self.beyond.fetch_sub(1, Ordering::Relaxed);
        }
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a new counter that keys without room share.
    pub(super) fn share(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a counter was removed: one that keys without room share, or one with its own key.
    pub(super) fn left(&self, limit: LimitId, is_shared: bool) {
        if is_shared {
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
        self.held.get(&limit).unwrap_or(&self.unlisted)
    }
}

/// The deciding limits among `limits`, their tiers and the numbers of customers, each of which has a part of the room.
pub(super) fn entitled<'a>(limits: impl Iterator<Item = &'a Arc<Limit>>) -> Vec<LimitId> {
    let tiers = |limit: &'a Arc<Limit>| limit.tiers.iter().map(|tier| &tier.limit);
    let of_customers = |limit: &'a Arc<Limit>| {
        let numbers = limit.customer_numbers.iter();
        // Most customers share the limit's counters, over the same time.
        let others = numbers.flat_map(|numbers| numbers.limits());
        others.filter(|one| one.id != limit.id)
    };
    let all = limits.flat_map(|limit| {
        let tiers = tiers(limit).chain(of_customers(limit));
        std::iter::once(limit).chain(tiers)
    });
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
