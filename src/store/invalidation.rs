//! Changes of counters by this process, other than charges. A change invalidates the workers' earlier knowledge of its
//! counter. All workers share the table, without a lock.

use crate::clock::Timestamp;
use crate::limit::{Limit, LimitId};
use foldhash::quality::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Several counters share a cell: after a change of one counter, a few others are read anew as well.
const CELLS: usize = 1024;

/// For each counter, the instant up to which knowledge of it is outdated. Clones share the table.
#[derive(Debug, Clone)]
pub struct Invalidation(Arc<InvalidationTable>);

#[derive(Debug)]
struct InvalidationTable {
    hasher: RandomState,
    /// Microseconds of the gateway's clock, for each cell.
    cells: Box<[AtomicU64]>,
    /// Microseconds of resets, for each cell.
    resets: Box<[AtomicU64]>,
    /// Every answer up to this instant is outdated, for all counters.
    all: AtomicU64,
}

impl Default for Invalidation {
    fn default() -> Self {
        Self(Arc::new(InvalidationTable {
            hasher: RandomState::default(),
            cells: cells(),
            resets: cells(),
            all: AtomicU64::new(0),
        }))
    }
}

impl Invalidation {
    /// The hash that selects a counter's cell.
    pub(super) fn hash(&self, limit: LimitId, key: &[u8]) -> u64 {
        let mut hasher = self.0.hasher.build_hasher();
        hasher.write_u64(limit.0);
        hasher.write(key);
        hasher.finish()
    }

    /// Notes that the counter is changed at some time before the instant `before`: an earlier answer may no longer be
    /// true.
    pub(super) fn invalidate(&self, limit: &Limit, key: &[u8], before: Timestamp) {
        let hash = self.hash(limit.id, key);
        self.0.cells[cell(hash)].fetch_max(before.micros(), Ordering::Relaxed);
    }

    /// Notes that the counter has been reset: all earlier charges are gone.
    pub(super) fn reset(&self, limit: &Limit, key: &[u8], at: Timestamp) {
        self.invalidate(limit, key, at);
        let hash = self.hash(limit.id, key);
        self.0.resets[cell(hash)].fetch_max(at.micros(), Ordering::Relaxed);
    }

    /// Notes that the store is unavailable: after its return its counters may differ.
    pub(super) fn invalidate_all(&self, now: Timestamp) {
        self.0.all.fetch_max(now.micros(), Ordering::Relaxed);
    }

    /// Was the counter with this hash reset since the instant `asked`?
    pub(super) fn is_reset(&self, hash: u64, asked: Timestamp) -> bool {
        asked.micros() <= self.0.resets[cell(hash)].load(Ordering::Relaxed)
    }

    /// Is an answer about the counter with this hash, requested at the instant `asked`, still true as far as this
    /// process knows?
    pub(super) fn is_valid(&self, hash: u64, asked: Timestamp) -> bool {
        let asked = asked.micros();
        asked > self.0.cells[cell(hash)].load(Ordering::Relaxed)
            && asked > self.0.all.load(Ordering::Relaxed)
    }
}

fn cells() -> Box<[AtomicU64]> {
    (0..CELLS).map(|_| AtomicU64::new(0)).collect()
}

fn cell(hash: u64) -> usize {
    usize::try_from(hash >> 32).unwrap_or(0) % CELLS
}
