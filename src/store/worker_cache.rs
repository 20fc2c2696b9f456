//! One worker's knowledge that answers without a call to Redis.

use super::invalidation::Invalidation;
use super::lease::Leases;
use super::redis::RedisStore;
use super::refusal_cache::RefusalCache;
use super::reservation::Reservation;
use crate::clock::{self, Clock};
use crate::limit::Limit;
use crate::telemetry::metrics::{StoreMetrics, StoreReach};
use std::rc::Rc;
use std::time::Duration;

/// The waits of a refund in the store, before it is done or abandoned: one for a lane, one for the answer.
const TURNS: u32 = 2;

/// One worker's knowledge of counters that all gateways share. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub struct WorkerCache {
    pub(super) refusals: Rc<RefusalCache>,
    pub(super) leases: Rc<Leases>,
    invalidation: Invalidation,
    timeout: Duration,
    /// The clock that measures all of it.
    pub(super) clock: Clock,
}

impl WorkerCache {
    /// An empty cache. All workers share `invalidation`; `timeout` is the store's.
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

    /// Reports each change of `shared` to `metrics` at once. Drops refusals when the store becomes unavailable, or is
    /// replaced by another.
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

    /// The longest wait of a request for another's answer, before it makes its own call.
    pub(super) fn patience(&self) -> Duration {
        self.timeout / 10
    }

    /// The longest time that a call takes.
    pub(super) fn longest(&self) -> Duration {
        self.timeout
    }

    /// Notes that the counter has been reset.
    pub(super) fn reset(&self, limit: &Limit, key: &[u8]) {
        self.invalidation.reset(limit, key, self.clock.now());
    }

    /// Was a charge, made at this instant of the store's clock, made before a reset of its counter that this gateway
    /// knows?
    pub(super) fn is_charged_before_reset(&self, charge: &Reservation) -> bool {
        let Reservation { limit, key, at, .. } = charge;
        self.invalidation.is_charged_before_reset(limit, key, *at)
    }

    /// Notes that a refund of the counter is pending.
    pub(super) fn refund_pending(&self, limit: &Limit, key: &[u8]) {
        let longest = clock::micros(self.timeout * TURNS);
        let before = self.clock.now().plus(longest);
        self.invalidation.invalidate(limit, key, before);
    }
}
