//! The counts about the store: round trips, its reachability, and the fallbacks that decided while it was away.

use super::instrument::{Counter, Histogram, RoundTripBuckets, SharedCounter};
use super::label::{CallOutcome, DecidedBy, Label, Operation, Permits, Redirect};
use std::sync::Arc;
use std::time::Duration;

/// One worker's numbers about its connection to a remote store. They may be used on several threads, as the parts of a
/// connection pool are.
#[derive(Debug, Clone)]
pub struct StoreMetrics(pub(super) Arc<StoreCells>);

/// The part of a store that a worker reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreReach {
    /// The worker reaches no part of it.
    #[default]
    None,
    /// The worker reaches a part of a cluster: a master is unavailable, or some of the slots have no master.
    Part,
    /// The worker reaches all of it.
    All,
}

/// The state of the store that all gateways share, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreStatus {
    /// Workers, each with its own connection to the store.
    pub workers: usize,
    /// Workers that reach all of the store.
    pub reaching: usize,
    /// Workers that reach a part of the store: it is a cluster, and a part of it is unavailable.
    pub partly: usize,
    /// Gateways that count together, this one included, as last reported.
    pub gateways: u64,
}

impl StoreStatus {
    /// Do all workers reach all of the store?
    #[must_use]
    pub fn is_up(self) -> bool {
        self.reaching == self.workers
    }

    /// Is a part of the store reached, and another part not?
    #[must_use]
    pub fn is_partly_up(self) -> bool {
        !self.is_up() && self.reaching + self.partly > 0
    }
}

/// Any thread may write here: a call to the store costs far more than an atomic addition.
#[derive(Debug, Default)]
pub(super) struct StoreCells {
    pub(super) calls: [[Histogram<RoundTripBuckets, SharedCounter>; CallOutcome::ALL.len()];
        Operation::ALL.len()],
    pub(super) fallbacks: [SharedCounter; DecidedBy::ALL.len()],
    pub(super) permits: [SharedCounter; Permits::ALL.len()],
    pub(super) redirects: [SharedCounter; Redirect::ALL.len()],
    pub(super) call_sizes: CallSizes,
    pub(super) gateways: SharedCounter,
    reach: SharedCounter,
}

/// The upper bounds of the classes in which the sizes of calls are counted, in decisions.
pub(super) const CALL_SIZE_ENDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Calls by the number of decisions that they carried.
#[derive(Debug, Default)]
pub(super) struct CallSizes {
    pub(super) calls: [SharedCounter; CALL_SIZE_ENDS.len() + 1],
    pub(super) decisions: SharedCounter,
}

impl StoreCells {
    pub(super) fn reach(&self) -> StoreReach {
        match self.reach.get() {
            0 => StoreReach::None,
            1 => StoreReach::Part,
            _ => StoreReach::All,
        }
    }
}

impl StoreMetrics {
    /// Notes that a call ended, or was left out because the store is known to be unavailable.
    pub fn called(&self, operation: Operation, outcome: CallOutcome, time: Duration) {
        self.0.calls[operation as usize][outcome as usize].observe(time);
    }

    /// Sets the part of the store that this worker reaches. It is `None` before the first call.
    pub fn set_reach(&self, reach: StoreReach) {
        self.0.reach.set(reach as u64);
    }

    /// Sets the number of gateways that count together, as reported to this worker.
    pub fn set_gateways(&self, gateways: u32) {
        self.0.gateways.set(gateways.into());
    }

    /// Notes that a call with `decisions` decisions was sent.
    pub fn call_sizes(&self, decisions: usize) {
        let many = u64::try_from(decisions).unwrap_or(u64::MAX);
        let end = CALL_SIZE_ENDS
            .iter()
            .filter(|end| many > u64::from(**end))
            .count();
        self.0.call_sizes.calls[end].add(1);
        self.0.call_sizes.decisions.add(many);
    }

    /// Notes that a node of a cluster did not run a call, and named the right node.
    pub fn redirected(&self, to: Redirect) {
        self.0.redirects[to as usize].add(1);
    }

    /// Notes that `many` permits were taken at once, or given back.
    pub fn permits(&self, of: Permits, many: u64) {
        self.0.permits[of as usize].add(many);
    }

    /// Notes that a request was decided without the store.
    pub fn fallback(&self, by: DecidedBy) {
        self.0.fallbacks[by as usize].add(1);
    }
}
