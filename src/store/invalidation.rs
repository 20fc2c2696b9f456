//! What this process has done to counters beside charging them: what a worker knows of such a counter from before is not
//! known any more. Shared by all workers, without a lock.

use crate::limit::{Limit, LimitId};
use foldhash::quality::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counters share cells: what is done to one makes a few others be asked anew as well.
const CELLS: usize = 1024;

/// Until when what is known of a counter is old. Clones share it.
#[derive(Debug, Clone)]
pub struct Invalidation(Arc<InvalidationTable>);

#[derive(Debug)]
struct InvalidationTable {
    origin: Instant,
    hasher: RandomState,
    /// Microseconds since the origin, for each cell.
    cells: Box<[AtomicU64]>,
    /// The same of those that were reset.
    resets: Box<[AtomicU64]>,
    /// What was told before this is not known any more, whatever it was about.
    all: AtomicU64,
}

impl Default for Invalidation {
    fn default() -> Self {
        Self(Arc::new(InvalidationTable {
            origin: Instant::now(),
            hasher: RandomState::default(),
            cells: cells(),
            resets: cells(),
            all: AtomicU64::new(0),
        }))
    }
}

impl Invalidation {
    /// What a counter is filed under.
    pub(super) fn hash(&self, limit: LimitId, key: &[u8]) -> u64 {
        let mut hasher = self.0.hasher.build_hasher();
        hasher.write_u64(limit.0);
        hasher.write(key);
        hasher.finish()
    }

    /// The counter is changed at some time before that: whoever asks earlier may learn what is no longer true.
    pub(super) fn changes(&self, limit: &Limit, key: &[u8], before: Instant) {
        let until = self.instant(before);
        let hash = self.hash(limit.id, key);
        self.0.cells[cell(hash)].fetch_max(until, Ordering::Relaxed);
    }

    /// The counter has been reset: nothing of what was charged is charged any more.
    pub(super) fn reset(&self, limit: &Limit, key: &[u8], at: Instant) {
        self.changes(limit, key, at);
        let hash = self.hash(limit.id, key);
        let at = self.instant(at);
        self.0.resets[cell(hash)].fetch_max(at, Ordering::Relaxed);
    }

    /// The store has gone: when it is back its counters may be others.
    pub(super) fn lost(&self) {
        let now = self.instant(Instant::now());
        self.0.all.fetch_max(now, Ordering::Relaxed);
    }

    /// Was the counter with this hash reset since it was asked at that instant?
    pub(super) fn is_reset(&self, hash: u64, asked: u64) -> bool {
        asked <= self.0.resets[cell(hash)].load(Ordering::Relaxed)
    }

    /// Is what was asked at that instant about the counter with this hash still true, as far as is known here?
    pub(super) fn holds(&self, hash: u64, asked: u64) -> bool {
        asked > self.0.cells[cell(hash)].load(Ordering::Relaxed)
            && asked > self.0.all.load(Ordering::Relaxed)
    }

    /// An instant as microseconds since the origin.
    pub(super) fn instant(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.0.origin);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

fn cells() -> Box<[AtomicU64]> {
    (0..CELLS).map(|_| AtomicU64::new(0)).collect()
}

fn cell(hash: u64) -> usize {
    usize::try_from(hash >> 32).unwrap_or(0) % CELLS
}
