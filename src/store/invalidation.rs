//! Changes of counters by this process, other than charges. A change invalidates the workers' earlier knowledge of its
//! counter. All workers share the table, without a lock.

use crate::clock::Timestamp;
use crate::limit::{Limit, LimitId};
use foldhash::quality::RandomState;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Several counters share a cell: after a change of one counter, a few others are read anew as well.
const CELLS: usize = 1024;
/// Most resets that are known exactly. Beyond this number the oldest are forgotten, whose permits have long ended.
const MOST_RESETS: usize = 16_384;

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
    /// Resets by the whole hash: what counters of the same cell hold stays theirs.
    exact: RwLock<HashMap<u64, ResetInstants>>,
    /// Every answer up to this instant is outdated, for all counters.
    all: AtomicU64,
}

/// When a counter was emptied.
#[derive(Debug, Clone, Copy)]
struct ResetInstants {
    /// The instant at which this gateway learned of it, by the gateway's clock.
    here: Timestamp,
    /// The instant by the store's clock, or 0.
    there: Timestamp,
}

impl Default for Invalidation {
    fn default() -> Self {
        Self(Arc::new(InvalidationTable {
            hasher: RandomState::default(),
            cells: cells(),
            resets: cells(),
            exact: RwLock::default(),
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
        self.reset_in_store(limit, key, at, Timestamp::default());
    }

    /// Notes that the counter was reset at the instant `there` of the store's clock, and that this gateway knows it
    /// since `here`: all charges of before are gone.
    pub fn reset_in_store(&self, limit: &Limit, key: &[u8], here: Timestamp, there: Timestamp) {
        let hash = self.hash(limit.id, key);
        let mut exact = self.0.exact.write();
        if exact.len() >= MOST_RESETS {
            let mut all: Vec<Timestamp> = exact.values().map(|reset| reset.here).collect();
            let (_, oldest, _) = all.select_nth_unstable(MOST_RESETS / 8);
            let oldest = *oldest;
            exact.retain(|_, reset| oldest < reset.here);
        }
        exact.insert(hash, ResetInstants { here, there });
        drop(exact);
        self.invalidate(limit, key, here);
        self.0.resets[cell(hash)].fetch_max(here.micros(), Ordering::Relaxed);
    }

    /// Was a charge, made at this instant of the store's clock, made before a reset of its counter that this gateway
    /// knows?
    #[cold]
    pub(super) fn is_charged_before_reset(
        &self,
        limit: &Limit,
        key: &[u8],
        charged: Timestamp,
    ) -> bool {
        let hash = self.hash(limit.id, key);
        let exact = self.0.exact.read();
        exact.get(&hash).is_some_and(|reset| charged <= reset.there)
    }

    /// Notes that the store is unavailable: after its return its counters may differ.
    pub fn invalidate_all(&self, now: Timestamp) {
        self.0.all.fetch_max(now.micros(), Ordering::Relaxed);
    }

    /// Was the counter with this hash reset since the instant `asked`?
    pub(super) fn is_reset(&self, hash: u64, asked: Timestamp) -> bool {
        let may_be = asked.micros() <= self.0.resets[cell(hash)].load(Ordering::Relaxed);
        may_be && self.is_exactly_reset(hash, asked)
    }

    #[cold]
    fn is_exactly_reset(&self, hash: u64, asked: Timestamp) -> bool {
        let exact = self.0.exact.read();
        exact.get(&hash).is_some_and(|reset| asked <= reset.here)
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
