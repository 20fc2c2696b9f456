//! What is counted about the store: round trips, whether it is there, and who answered when it was not.

use super::cell::{Cell, Histogram, Reading, RoundTrip, Total};
use super::label::{DecidedBy, Label, Operation, Outcome};
use std::sync::Arc;
use std::time::Duration;

/// One worker's numbers about its way to a remote store. May cross threads, as a connection pool's parts do.
#[derive(Debug, Clone)]
pub struct StoreMetrics(Arc<StoreCells>);

/// Any thread may write here: a call to the store costs far more than an atomic addition.
#[derive(Debug, Default)]
pub(super) struct StoreCells {
    calls: [[Histogram<RoundTrip, Total>; Outcome::ALL.len()]; Operation::ALL.len()],
    fallbacks: [Total; DecidedBy::ALL.len()],
    up: Total,
}

impl StoreCells {
    pub(super) fn calls(&self, operation: Operation, outcome: Outcome) -> Reading {
        self.calls[operation.position()][outcome.position()].read()
    }

    pub(super) fn fallbacks(&self, by: DecidedBy) -> u64 {
        self.fallbacks[by.position()].get()
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.get() != 0
    }
}

impl StoreMetrics {
    pub(super) fn new(cells: Arc<StoreCells>) -> Self {
        Self(cells)
    }

    /// A call ended, or was spared because the store is known to be away.
    pub fn called(&self, operation: Operation, outcome: Outcome, time: Duration) {
        self.0.calls[operation.position()][outcome.position()].observe(time);
    }

    /// Whether this worker reaches the store. It does not until it says so.
    pub fn set_up(&self, up: bool) {
        self.0.up.set(u64::from(up));
    }

    /// A request was decided without the store.
    pub fn fallback(&self, by: DecidedBy) {
        self.0.fallbacks[by.position()].add(1);
    }
}
