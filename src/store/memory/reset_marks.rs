//! When counters of this process were emptied: what was charged before gives nothing back to a counter that began anew.

use super::MemoryStore;
use super::shard_locks::table_at;
use super::side_states::block_key;
use crate::clock::Timestamp;
use crate::limit::{Limit, LimitId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most marks at once. Beyond this number the ones that end first are dropped.
const MOST: usize = 16_384;

/// The limit and the key of a counter.
type CounterKey = (LimitId, Box<[u8]>);

/// The marks of one process.
#[derive(Debug, Default)]
pub(super) struct ResetMarks {
    /// Is there any? Nearly always there is none, and a refund looks no further.
    has_any: AtomicBool,
    marks: Mutex<HashMap<CounterKey, ResetMark>>,
}

#[derive(Debug, Clone, Copy)]
struct ResetMark {
    at: Timestamp,
    ends: Timestamp,
}

impl ResetMarks {
    /// Was the counter emptied since this charge was made?
    pub(super) fn is_since(&self, limit: LimitId, key: &[u8], charged: Timestamp) -> bool {
        if !self.has_any.load(Ordering::Acquire) {
            return false;
        }
        let marks = self.marks.lock();
        let mark = marks.get(&(limit, Box::from(key)));
        mark.is_some_and(|mark| charged <= mark.at)
    }

    fn set(&self, limit: &Limit, key: &[u8], at: Timestamp) {
        let mut marks = self.marks.lock();
        if marks.len() >= MOST {
            // Limits by the wall clock and others have instants that are close enough for this.
            marks.retain(|_, mark| at < mark.ends);
        }
        if marks.len() >= MOST {
            let mut ends: Vec<Timestamp> = marks.values().map(|mark| mark.ends).collect();
            let (_, median, _) = ends.select_nth_unstable(MOST / 8);
            let median = *median;
            marks.retain(|_, mark| median < mark.ends);
        }
        let ends = at.plus(limit.mark_life());
        marks.insert((limit.id, key.into()), ResetMark { at, ends });
        self.has_any.store(true, Ordering::Release);
    }
}

impl MemoryStore {
    /// Deletes one counter, and ends the block of its key. Returns whether there was either. Charged ids stay
    /// remembered. Charges of before give nothing back from now on.
    pub fn reset(&self, limit: &Limit, key: &[u8]) -> bool {
        let block = block_key(key);
        let places = [self.place(limit, key), self.place(limit, &block)];
        let mut guards = self.lock(&places);
        let removed = places.map(|place| table_at(&mut guards, place.shard).remove(&place));
        // Under the locks, so that no refund comes between.
        if limit.rule.concurrency().is_none() {
            self.resets.set(limit, key, self.instant(limit));
        }
        removed.contains(&true)
    }
}
