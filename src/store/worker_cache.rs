//! What a worker can say without asking Redis.

use super::invalidation::Invalidation;
use super::lease::Leases;
use super::redis::RedisStore;
use super::refusal_cache::RefusalCache;
use crate::clock::Clock;
use crate::limit::Limit;
use crate::telemetry::metrics::{StoreMetrics, StoreReach};
use std::rc::Rc;
use std::time::Duration;

/// How often a refund may have to wait for the store before it is done or given up: for a lane, and for its answer.
const TURNS: u32 = 2;

/// What one worker knows of counters that all gateways share. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub struct WorkerCache {
    pub(super) refusals: Rc<RefusalCache>,
    pub(super) leases: Rc<Leases>,
    invalidation: Invalidation,
    timeout: Duration,
    /// The clock that all of it is measured by.
    pub(super) clock: Clock,
}

impl WorkerCache {
    /// Knows nothing yet. `invalidation` are those of all workers; `timeout` is the store's.
    #[must_use]
    pub fn new(invalidation: Invalidation, timeout: Duration, clock: Clock) -> Self {
        Self {
            refusals: Rc::new(RefusalCache::new(invalidation.clone())),
            leases: Rc::new(Leases::new(invalidation.clone(), clock.clone())),
            invalidation,
            timeout,
            clock,
        }
    }

    /// Shows `metrics` each change of `shared` at once, and forgets refusals when it goes, or
    /// another takes its place.
    pub fn follow(&self, shared: &RedisStore, metrics: &StoreMetrics) {
        metrics.set_reach(shared.reached());
        shared.stats().show(metrics);
        let (invalidation, clock) = (self.invalidation.clone(), self.clock.clone());
        let metrics = metrics.clone();
        shared.stats().when_changed(move |reach| {
            if let Some(reach) = reach {
                metrics.set_reach(reach);
            }
            if reach != Some(StoreReach::All) {
                invalidation.invalidate_all(clock.now());
            }
        });
    }

    /// How long a request waits for the answer of another at most, before it asks for itself.
    pub(super) fn patience(&self) -> Duration {
        self.timeout / 10
    }

    /// How long a call takes at most.
    pub(super) fn longest(&self) -> Duration {
        self.timeout
    }

    /// The counter has been reset.
    pub(super) fn reset(&self, limit: &Limit, key: &[u8]) {
        self.invalidation.reset(limit, key, self.clock.now());
    }

    /// Something is on its way back to the counter.
    pub(super) fn refund_pending(&self, limit: &Limit, key: &[u8]) {
        let longest = u64::try_from((self.timeout * TURNS).as_micros()).unwrap_or(u64::MAX);
        let before = self.clock.now().plus(longest);
        self.invalidation.invalidate(limit, key, before);
    }
}
