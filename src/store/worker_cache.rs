//! What a worker can say without asking Redis.

use super::check::Check;
use super::invalidation::Invalidation;
use super::lease::Leases;
use super::redis::RedisStore;
use super::refusal_cache::{CachedRefusal, RefusalCache};
use crate::limit::Limit;
use crate::telemetry::metrics::{StoreMetrics, StoreReach};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often a refund may have to wait for the store before it is done or given up: for a lane, and for its answer.
const TURNS: u32 = 2;

/// What one worker knows of counters that all gateways share. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub struct WorkerCache {
    pub(super) known: Rc<RefusalCache>,
    pub(super) leases: Rc<Leases>,
    news: Invalidation,
    timeout: Duration,
}

impl WorkerCache {
    /// Knows nothing yet. `news` are those of all workers; `timeout` is the store's.
    #[must_use]
    pub fn new(news: Invalidation, timeout: Duration) -> Self {
        Self {
            known: Rc::new(RefusalCache::new(news.clone())),
            leases: Rc::new(Leases::new(news.clone())),
            news,
            timeout,
        }
    }

    /// Has `metrics` told of each change of `shared` at once, and forgets refusals when it goes, or
    /// another takes its place.
    pub fn follow(&self, shared: &RedisStore, metrics: &StoreMetrics) {
        metrics.set_reach(shared.reached());
        shared.stats().show(metrics);
        let (news, metrics) = (self.news.clone(), metrics.clone());
        shared.stats().when_changed(move |reach| {
            if let Some(reach) = reach {
                metrics.set_reach(reach);
            }
            if reach != Some(StoreReach::All) {
                news.lost();
            }
        });
    }

    /// What is known of a request that will be refused, as far as who serves its counters is there.
    pub(super) fn recall(
        &self,
        shared: &RedisStore,
        checks: &[Check<'_>],
    ) -> Option<CachedRefusal> {
        let is_there = |check: &Check<'_>| shared.serves(check.limit, check.key);
        let mut recalled = self.known.recall(checks, (Instant::now, is_there))?;
        self.leases.lengthen(checks, &mut recalled.half);
        Some(recalled)
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
        self.news.reset(limit, key, Instant::now());
    }

    /// Something is on its way back to the counter.
    pub(super) fn returns(&self, limit: &Limit, key: &[u8]) {
        self.news
            .changes(limit, key, Instant::now() + self.timeout * TURNS);
    }
}
