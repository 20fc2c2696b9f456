//! The counts of one worker, as the scrape reads them.

use super::instrument::{
    Histogram, HistogramReading, OverheadBuckets, WaitBuckets, WorkerCounter, WorkerGauge,
};
use super::label::{
    CLASSES, ClientUnnamed, Combination, CostReport, DecidedBy, DecisionLabel, EndedBy, Failure,
    Flow, Handshake, Label, Labels, ModeLabel, RefusedHead,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Combinations of method, status and source that one route counts separately; the others share one status.
///
/// An upstream chooses its statuses freely. This bound keeps an upstream with ever new statuses from filling the
/// memory.
const COMBINATIONS: usize = 64;

/// All cells of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerCells {
    pub(super) totals: Totals,
    pub(super) overhead: Histogram<OverheadBuckets>,
    pub(super) routes: Family<Labels, RouteCells>,
    pub(super) calls: Family<Labels, CallCells>,
    pub(super) limits: Family<Labels, LimitCells>,
    pub(super) decisions: Family<DecisionKey, DecisionCells>,
    pub(super) upstreams: Family<Labels, UpstreamCells>,
    pub(super) servers: Family<Labels, ServerCells>,
    pub(super) queues: Family<Labels, Histogram<WaitBuckets>>,
    pub(super) retries: Family<Labels, WorkerCounter>,
    pub(super) handshakes: Family<Labels, HandshakeCells>,
    /// The one part that all workers share.
    pub(super) silences: Arc<Family<Labels, CostSilence>>,
}

/// Counts without a name of the configuration.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Totals {
    pub(super) connections: WorkerGauge,
    pub(super) accepted: WorkerCounter,
    pub(super) in_flight: WorkerGauge,
    pub(super) received: WorkerCounter,
    pub(super) sent: WorkerCounter,
    pub(super) busy: WorkerCounter,
    pub(super) keys_unread: WorkerCounter,
    pub(super) clients_unnamed: [WorkerCounter; ClientUnnamed::ALL.len()],
    pub(super) refused_heads: [WorkerCounter; RefusedHead::ALL.len()],
    pub(super) dropped_fields: WorkerCounter,
    pub(super) ended: [[WorkerCounter; EndedBy::ALL.len()]; Flow::ALL.len()],
}

/// Cells of one kind by their labels. The lock is taken when a handle is resolved and by the scrape, not while
/// counting.
#[derive(Debug)]
pub(super) struct Family<K, C>(Mutex<BTreeMap<K, Arc<C>>>);

impl<K, C> Default for Family<K, C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, C: Default> Family<K, C> {
    /// The cells under `key`. The same key gives the same cells, so that a reload continues the counts. A removed key
    /// keeps its cells, since a counter never decreases.
    pub(super) fn resolve(&self, key: K) -> Arc<C> {
        Arc::clone(self.0.lock().entry(key).or_default())
    }

    /// A copy of the list, so that the lock is free while the numbers are read.
    pub(super) fn copy(&self) -> BTreeMap<K, Arc<C>> {
        self.0.lock().clone()
    }
}

/// Requests of one route; one histogram for each combination seen, whose count is the number of requests.
#[derive(Debug, Default)]
pub(super) struct RouteCells(Mutex<Vec<CombinationTimes>>);

/// A combination and its times.
pub(super) type CombinationTimes = (Combination, Arc<Histogram<WaitBuckets>>);

impl RouteCells {
    /// The cells of a combination that is new to the worker, and the combination that they count: one without a status
    /// if there are too many already.
    pub(super) fn see(&self, wanted: Combination) -> CombinationTimes {
        let mut seen = self.0.lock();
        let key = if seen.len() < COMBINATIONS {
            wanted
        } else {
            wanted.any_status()
        };
        if let Some(known) = seen.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let new = (key, Arc::default());
        seen.push(CombinationTimes::clone(&new));
        new
    }

    /// The times of each combination.
    pub(super) fn read(&self) -> Vec<(Combination, HistogramReading<WaitBuckets>)> {
        let seen = self.0.lock().clone();
        let times = seen.into_iter();
        times.map(|(seen, times)| (seen, times.read())).collect()
    }
}

/// gRPC calls on one route: by their statuses 0 to 16, followed by calls with another status or without a status.
#[derive(Debug, Default)]
pub(super) struct CallCells(pub(super) [WorkerCounter; GRPC_STATUSES + 1]);

/// The number of statuses that gRPC defines.
pub(super) const GRPC_STATUSES: usize = 17;

/// One limit, on all of its routes.
#[derive(Debug, Default)]
pub(super) struct LimitCells {
    pub(super) costs: [WorkerCounter; CostReport::ALL.len()],
    pub(super) blocks: WorkerCounter,
    pub(super) delays: Histogram<WaitBuckets>,
    pub(super) held: HeldCount,
}

/// The consecutive answers without a cost for one limit, over all workers.
#[derive(Debug, Default)]
pub(super) struct CostSilence(AtomicU32);

/// This number of answers without a cost is hardly chance: the configured place of the cost is probably wrong.
pub(super) const SILENT_FOR: u32 = 20;

impl CostSilence {
    /// Notes an answer. Returns true when the answers in a row without a cost reach the bound, once until an answer has
    /// one.
    pub(super) fn heard(&self, said: bool) -> bool {
        let silent = self.0.load(Ordering::Relaxed);
        if said {
            if silent > 0 {
                self.0.store(0, Ordering::Relaxed);
            }
            return false;
        }
        // The count stays at its bound, so that it never overflows.
        silent < SILENT_FOR && self.0.fetch_add(1, Ordering::Relaxed) + 1 == SILENT_FOR
    }
}

/// Requests waiting for a limit.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct HeldCount(pub(super) WorkerGauge);

/// A limit on a route, in a mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DecisionKey {
    /// The labels of limit and route.
    pub(super) labels: Labels,
    pub(super) mode: ModeLabel,
}

/// Decisions of one limit on one route.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct DecisionCells(
    pub(super) [[WorkerCounter; DecidedBy::ALL.len()]; DecisionLabel::ALL.len()],
);

/// One upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct UpstreamCells {
    pub(super) opened: WorkerCounter,
    pub(super) failures: [WorkerCounter; Failure::ALL.len()],
    pub(super) answers: [Histogram<WaitBuckets>; CLASSES.len()],
}

/// One server of an upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ServerCells {
    pub(super) unreached: WorkerCounter,
    pub(super) in_flight: WorkerGauge,
    pub(super) answers: [WorkerCounter; CLASSES.len()],
}

/// Handshakes of one identity in one version of TLS.
#[derive(Debug, Default)]
pub(super) struct HandshakeCells(pub(super) [WorkerCounter; Handshake::ALL.len()]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::label::AnswerSource;

    #[test]
    fn an_upstream_that_invents_statuses_fills_a_bounded_list() {
        let cells = RouteCells::default();
        for status in 100..=999 {
            cells.see(Combination::new(
                &http::Method::GET,
                status,
                AnswerSource::Upstream,
            ));
        }
        assert_eq!(cells.read().len(), COMBINATIONS + 1);
        assert_eq!(cells.read()[COMBINATIONS].0.code(), "_OTHER");
    }
}
