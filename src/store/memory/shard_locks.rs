//! The shards under their locks: where a counter is, and the locks of all counters of a request, in shard order.

use super::MemoryStore;
use super::entry::EntryKind;
use super::shard::{CounterLocation, CounterTable, hash};
use crate::limit::verdict::INLINE_LIMITS;
use crate::limit::{Limit, State};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shards are on separate cache lines, so that two workers on two shards do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard(Mutex<CounterTable>);

impl Shard {
    pub(super) fn new(table: CounterTable) -> Self {
        Self(Mutex::new(table))
    }
}

pub(super) type Guards<'a> = SmallVec<[(usize, MutexGuard<'a, CounterTable>); INLINE_LIMITS]>;

impl MemoryStore {
    pub(super) fn place<'a>(&self, of: &Limit, key: &'a [u8]) -> CounterLocation<'a> {
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

    pub(super) fn lock<'p>(
        &self,
        places: impl IntoIterator<Item = &'p CounterLocation<'p>>,
    ) -> Guards<'_> {
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
    pub(super) fn find<'g>(&self, guards: &'g Guards<'_>) -> Option<Cow<'g, State>> {
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

pub(super) fn table_at<'a>(guards: &'a mut Guards<'_>, shard: usize) -> &'a mut CounterTable {
    let at = position(guards, shard);
    &mut guards[at].1
}

/// The position of a shard's guard.
#[inline]
pub(super) fn position(guards: &Guards<'_>, shard: usize) -> usize {
    let at = guards.iter().position(|(locked, _)| *locked == shard);
    at.expect("every place's shard has been locked")
}

/// A panic while a shard was locked cannot leave an entry half-written: entries are replaced whole.
pub(super) fn lock(shard: &Shard) -> MutexGuard<'_, CounterTable> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
