//! What one worker has counted, as the scrape sees it.

use super::instrument::{Histogram, OverheadBuckets, WaitBuckets, WorkerCounter, WorkerGauge};
use super::label::{CLASSES, Combination, CostReport, DecidedBy, Decision, Failure, Label, Mode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Combinations of method, status and source that one route counts apart; the rest share one status.
///
/// An upstream chooses its statuses freely. This keeps one that counts upwards from filling the memory.
const COMBINATIONS: usize = 64;

/// All cells of one worker. The locks are taken when a name is first seen and by the scrape, not while counting.
#[derive(Debug, Default)]
pub(super) struct WorkerCells {
    pub(super) totals: Totals,
    pub(super) overhead: Histogram<OverheadBuckets>,
    pub(super) routes: Mutex<Vec<Arc<RouteCells>>>,
    pub(super) limits: Mutex<Vec<Arc<LimitCells>>>,
    pub(super) decisions: Mutex<Vec<Arc<DecisionCells>>>,
    pub(super) upstreams: Mutex<Vec<Arc<UpstreamCells>>>,
    pub(super) servers: Mutex<Vec<Arc<ServerCells>>>,
}

/// What has no name.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Totals {
    pub(super) connections: WorkerGauge,
    pub(super) accepted: WorkerCounter,
    pub(super) in_flight: WorkerGauge,
    pub(super) received: WorkerCounter,
    pub(super) sent: WorkerCounter,
    pub(super) busy: WorkerCounter,
}

/// Requests of one route; one histogram for each combination seen, whose count is the number of requests.
#[derive(Debug)]
pub(super) struct RouteCells {
    pub(super) route: Box<str>,
    seen: Mutex<Vec<CombinationTimes>>,
}

/// A combination and its times.
pub(super) type CombinationTimes = (Combination, Arc<Histogram<WaitBuckets>>);

impl RouteCells {
    pub(super) fn new(route: &str) -> Self {
        Self {
            route: route.into(),
            seen: Mutex::default(),
        }
    }

    /// The cells of a combination that the worker has not met yet, and what they are counted as: when there are too
    /// many already, as no status in particular.
    pub(super) fn see(&self, wanted: Combination) -> CombinationTimes {
        let mut seen = lock(&self.seen);
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

    pub(super) fn seen(&self) -> Vec<CombinationTimes> {
        lock(&self.seen).clone()
    }
}

/// One limit, whichever route it stands on.
#[derive(Debug)]
pub(super) struct LimitCells {
    pub(super) limit: Box<str>,
    pub(super) costs: [WorkerCounter; CostReport::ALL.len()],
    pub(super) delays: Histogram<WaitBuckets>,
    pub(super) held: HeldCount,
}

/// Requests waiting for a limit.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct HeldCount(pub(super) WorkerGauge);

impl LimitCells {
    pub(super) fn new(limit: &str) -> Self {
        Self {
            limit: limit.into(),
            costs: Default::default(),
            delays: Histogram::default(),
            held: HeldCount::default(),
        }
    }
}

/// Decisions of one limit on one route.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct DecisionCells {
    counts: [[WorkerCounter; DecidedBy::ALL.len()]; Decision::ALL.len()],
    pub(super) limit: Box<str>,
    pub(super) route: Box<str>,
    pub(super) mode: Mode,
}

impl DecisionCells {
    pub(super) fn new(limit: &str, route: &str, mode: Mode) -> Self {
        Self {
            counts: Default::default(),
            limit: limit.into(),
            route: route.into(),
            mode,
        }
    }

    pub(super) fn count(&self, decision: Decision, by: DecidedBy) -> &WorkerCounter {
        &self.counts[decision.position()][by.position()]
    }
}

/// One upstream.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct UpstreamCells {
    pub(super) opened: WorkerCounter,
    failures: [WorkerCounter; Failure::ALL.len()],
    pub(super) answers: [Histogram<WaitBuckets>; CLASSES.len()],
    pub(super) upstream: Box<str>,
}

impl UpstreamCells {
    pub(super) fn new(upstream: &str) -> Self {
        Self {
            opened: WorkerCounter::default(),
            failures: Default::default(),
            answers: Default::default(),
            upstream: upstream.into(),
        }
    }

    pub(super) fn failures(&self, reason: Failure) -> &WorkerCounter {
        &self.failures[reason.position()]
    }
}

/// One server of one upstream.
#[derive(Debug)]
pub(super) struct ServerCells {
    pub(super) unreached: WorkerCounter,
    pub(super) upstream: Box<str>,
    pub(super) server: Box<str>,
}

impl ServerCells {
    pub(super) fn new(upstream: &str, server: &str) -> Self {
        Self {
            unreached: WorkerCounter::default(),
            upstream: upstream.into(),
            server: server.into(),
        }
    }
}

/// Locks; what a panic elsewhere left behind is still a list of cells.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy of the list, so that the lock is free while the numbers are read.
pub(super) fn copy<T>(list: &Mutex<Vec<Arc<T>>>) -> Vec<Arc<T>> {
    lock(list).clone()
}

#[cfg(test)]
mod tests {
    use super::super::label::AnswerSource;
    use super::*;

    #[test]
    fn an_upstream_that_invents_statuses_fills_a_bounded_list() {
        let cells = RouteCells::new("orders");
        for status in 100..=999 {
            cells.see(Combination::new(
                &http::Method::GET,
                status,
                AnswerSource::Upstream,
            ));
        }
        assert_eq!(cells.seen().len(), COMBINATIONS + 1);
        assert_eq!(cells.seen()[COMBINATIONS].0.code(), "_OTHER");
    }
}
