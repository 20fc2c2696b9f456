//! The work of one worker's Redis store so far. That worker alone writes, and the metrics read.

use crate::telemetry::metrics::{CallOutcome, Operation, Redirect, StoreMetrics, StoreReach};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that one thread increments and others may read.
#[derive(Debug, Default)]
pub struct StatsCounter(AtomicU64);

impl StatsCounter {
    /// The number so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only the owning worker adds, so that a load and a store are enough: no locked instruction on the request path.
    pub(in crate::store::redis) fn add(&self, more: u64) {
        self.0
            .store(self.get().wrapping_add(more), Ordering::Relaxed);
    }
}

/// Counters of one worker, since its start.
#[derive(Debug, Default)]
pub struct Stats {
    tell: OnceLock<ReachListener>,
    metrics: OnceLock<StoreMetrics>,
    /// Script calls that decided something.
    pub calls: StatsCounter,
    /// Decisions answered by Redis.
    pub decisions: StatsCounter,
    /// Decisions that Redis answered with an error for that request alone.
    pub errors: StatsCounter,
    /// Calls that failed as a whole, including timeouts.
    pub failures: StatsCounter,
    /// Calls without an answer in time.
    pub timeouts: StatsCounter,
    /// Decisions rejected because too many waited.
    pub overloaded: StatsCounter,
    /// Decisions answered at once because Redis was unavailable, or became so while they waited.
    pub down: StatsCounter,
    /// Number of times that Redis became unavailable.
    pub falls: StatsCounter,
    /// Refunds that Redis has answered.
    pub refunds: StatsCounter,
    /// Abandoned releases, refunds and settlements: too many waited, or Redis was unavailable for too long.
    pub refunds_lost: StatsCounter,
}

impl Stats {
    pub(in crate::store::redis) fn sent(&self, decisions: usize) {
        self.calls.add(1);
        if let Some(metrics) = self.metrics.get() {
            metrics.call_sizes(decisions);
        }
    }

    /// The outcome, after `time`, of an update that no request waited for.
    pub(in crate::store::redis) fn updated(
        &self,
        operation: Operation,
        outcome: CallOutcome,
        time: Duration,
    ) {
        if outcome == CallOutcome::Lost {
            self.refunds_lost.add(1);
        }
        if let Some(metrics) = self.metrics.get() {
            metrics.called(operation, outcome, time);
        }
    }

    pub(in crate::store::redis) fn redirected(&self, to: Redirect) {
        if let Some(metrics) = self.metrics.get() {
            metrics.redirected(to);
        }
    }

    /// Counts the figures that only metrics show into `metrics` from now on.
    pub(in crate::store) fn show(&self, metrics: &StoreMetrics) {
        let _ = self.metrics.set(metrics.clone());
    }

    pub(in crate::store::redis) fn set_reach(&self, reach: StoreReach) {
        if let Some(tell) = self.tell.get() {
            (tell.0)(Some(reach));
        }
    }

    /// Reports that the same part of Redis is available as before, though its counters may have changed.
    pub(in crate::store::redis) fn counters_changed(&self) {
        if let Some(tell) = self.tell.get() {
            (tell.0)(None);
        }
    }

    /// Calls `tell` from now on at each change: with the available part of Redis, or with `None` if only its counters
    /// may have changed.
    pub(in crate::store) fn when_changed(
        &self,
        tell: impl Fn(Option<StoreReach>) + Send + Sync + 'static,
    ) {
        let _ = self.tell.set(ReachListener(Box::new(tell)));
    }
}

/// Called at each change.
struct ReachListener(Box<dyn Fn(Option<StoreReach>) + Send + Sync>);

impl fmt::Debug for ReachListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}
