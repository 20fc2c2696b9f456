//! What is counted about the store: round trips, whether it is there, and what stood in for it when it was not.

use super::instrument::{Counter, Histogram, HistogramReading, RoundTripBuckets, SharedCounter};
use super::label::{CallOutcome, DecidedBy, Label, Operation, Permits, Redirect};
use std::sync::Arc;
use std::time::Duration;

/// One worker's numbers about its way to a remote store. May cross threads, as a connection pool's parts do.
#[derive(Debug, Clone)]
pub struct StoreMetrics(Arc<StoreCells>);

/// How much of a store a worker reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreReach {
    /// Nothing of it.
    #[default]
    None,
    /// Some of a cluster: a master is away, or some of the slots have no master.
    Part,
    /// All of it.
    All,
}

/// How the store that all gateways share stands, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreStatus {
    /// Workers, each with a way of its own to it.
    pub workers: usize,
    /// How many of them reach all of it.
    pub reaching: usize,
    /// How many of them reach some of it: it is a cluster, and some of it is away.
    pub partly: usize,
    /// Gateways that count together, this one included, as last heard.
    pub gateways: u64,
}

impl StoreStatus {
    /// Do all workers reach all of it?
    #[must_use]
    pub fn is_up(self) -> bool {
        self.reaching == self.workers
    }

    /// Is some of it reached, and some not?
    #[must_use]
    pub fn is_partly_up(self) -> bool {
        !self.is_up() && self.reaching + self.partly > 0
    }
}

/// Any thread may write here: a call to the store costs far more than an atomic addition.
#[derive(Debug, Default)]
pub(super) struct StoreCells {
    calls: [[Histogram<RoundTripBuckets, SharedCounter>; CallOutcome::ALL.len()];
        Operation::ALL.len()],
    fallbacks: [SharedCounter; DecidedBy::ALL.len()],
    permits: [SharedCounter; Permits::ALL.len()],
    redirects: [SharedCounter; Redirect::ALL.len()],
    call_sizes: CallSizes,
    reach: SharedCounter,
    gateways: SharedCounter,
}

/// Up to how many decisions in a call are counted together.
const ENDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Calls by how many decisions they carried.
#[derive(Debug, Default)]
struct CallSizes {
    calls: [SharedCounter; ENDS.len() + 1],
    decisions: SharedCounter,
}

/// The calls of several workers by how many decisions they carried.
#[derive(Debug)]
pub(super) struct CallSizeReading {
    /// Under the most that each carried.
    pub(super) calls: [(f64, u64); ENDS.len() + 1],
    pub(super) decisions: u64,
}

impl CallSizeReading {
    /// Of no worker yet.
    pub(super) fn new() -> Self {
        let end = |at| ENDS.get(at).map_or(f64::INFINITY, |end| f64::from(*end));
        Self {
            calls: std::array::from_fn(|at| (end(at), 0)),
            decisions: 0,
        }
    }

    /// Takes one worker's in.
    pub(super) fn merge(&mut self, cells: &StoreCells) {
        for ((_, mine), theirs) in self.calls.iter_mut().zip(&cells.call_sizes.calls) {
            *mine += theirs.get();
        }
        self.decisions += cells.call_sizes.decisions.get();
    }
}

impl StoreCells {
    pub(super) fn redirects(&self, kind: Redirect) -> u64 {
        self.redirects[kind.position()].get()
    }

    pub(super) fn calls(&self, operation: Operation, outcome: CallOutcome) -> HistogramReading {
        self.calls[operation.position()][outcome.position()].read()
    }

    pub(super) fn fallbacks(&self, by: DecidedBy) -> u64 {
        self.fallbacks[by.position()].get()
    }

    pub(super) fn permits(&self, of: Permits) -> u64 {
        self.permits[of.position()].get()
    }

    pub(super) fn reach(&self) -> StoreReach {
        match self.reach.get() {
            0 => StoreReach::None,
            1 => StoreReach::Part,
            _ => StoreReach::All,
        }
    }

    pub(super) fn gateways(&self) -> u64 {
        self.gateways.get()
    }
}

impl StoreMetrics {
    pub(super) fn new(cells: Arc<StoreCells>) -> Self {
        Self(cells)
    }

    /// A call ended, or was spared because the store is known to be away.
    pub fn called(&self, operation: Operation, outcome: CallOutcome, time: Duration) {
        self.0.calls[operation.position()][outcome.position()].observe(time);
    }

    /// How much of the store this worker reaches. Nothing until it says so.
    pub fn set_reach(&self, reach: StoreReach) {
        self.0.reach.set(reach as u64);
    }

    /// How many gateways count together, as this worker has heard.
    pub fn set_gateways(&self, gateways: u32) {
        self.0.gateways.set(gateways.into());
    }

    /// A call with so many decisions was sent.
    pub fn call_sizes(&self, decisions: usize) {
        let many = u64::try_from(decisions).unwrap_or(u64::MAX);
        let end = ENDS.iter().filter(|end| many > u64::from(**end)).count();
        self.0.call_sizes.calls[end].add(1);
        self.0.call_sizes.decisions.add(many);
    }

    /// A node of a cluster did not run a call, and named the node that would.
    pub fn redirected(&self, to: Redirect) {
        self.0.redirects[to.position()].add(1);
    }

    /// So many permits were taken at once, or went back.
    pub fn permits(&self, of: Permits, many: u64) {
        self.0.permits[of.position()].add(many);
    }

    /// A request was decided without the store.
    pub fn fallback(&self, by: DecidedBy) {
        self.0.fallbacks[by.position()].add(1);
    }
}
