//! The limits that have counters in one shard, each with a number that is shorter than its name.

use crate::limit::LimitId;
use std::collections::HashMap;

/// The number of a limit within one shard, in three bytes: sixteen million limits can have counters in one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitIndex([u8; 3]);

impl LimitIndex {
    pub(super) fn of(position: usize) -> Option<Self> {
        let [number @ .., 0] = u32::try_from(position).ok()?.to_le_bytes() else {
            return None;
        };
        Some(Self(number))
    }

    #[inline]
    fn get(self) -> usize {
        let [low, middle, high] = self.0.map(usize::from);
        low | middle << 8 | high << 16
    }
}

/// One limit, and the number of its counters in the shard.
#[derive(Debug)]
struct ShardLimit {
    id: LimitId,
    counters: u32,
}

/// The limits of a shard. A limit without counters there has no number.
#[derive(Debug, Default)]
pub(super) struct ShardLimits {
    each: Vec<ShardLimit>,
    /// Numbers of limits that have no counters any more.
    free: Vec<LimitIndex>,
    by_id: HashMap<LimitId, LimitIndex, foldhash::fast::RandomState>,
}

impl ShardLimits {
    /// Is `index` the number of `limit`?
    #[inline]
    pub(super) fn is(&self, index: LimitIndex, limit: LimitId) -> bool {
        let here = self.each.get(index.get());
        here.is_some_and(|here| here.id == limit)
    }

    /// The limit of this number.
    pub(super) fn id(&self, index: LimitIndex) -> LimitId {
        self.each[index.get()].id
    }

    /// Counts a new counter of `limit`, which gets a number if it has none; `None` if no number is left.
    pub(super) fn enter(&mut self, limit: LimitId) -> Option<LimitIndex> {
        let index = match self.by_id.get(&limit) {
            Some(index) => *index,
            None => self.number(limit)?,
        };
        self.each[index.get()].counters += 1;
        Some(index)
    }

    #[cold]
    fn number(&mut self, id: LimitId) -> Option<LimitIndex> {
        let limit = ShardLimit { id, counters: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.each[index.get()] = limit;
                index
            }
            None => {
                let index = LimitIndex::of(self.each.len())?;
                self.each.push(limit);
                index
            }
        };
        self.by_id.insert(id, index);
        Some(index)
    }

    /// Notes that a counter of this limit is gone, and returns the limit.
    pub(super) fn leave(&mut self, index: LimitIndex) -> LimitId {
        let limit = &mut self.each[index.get()];
        limit.counters -= 1;
        if limit.counters == 0 {
            self.by_id.remove(&limit.id);
            self.free.push(index);
        }
        limit.id
    }
}
