//! Evicted and rejected connections of a gateway that is full. They are rare, so any thread may count.

use super::instrument::{Counter, SharedCounter};
use super::label::{Eviction, Label, Rejection};

/// The counts.
#[derive(Debug, Default)]
pub(super) struct ConnectionCells {
    evicted: [SharedCounter; Eviction::ALL.len()],
    rejected: [SharedCounter; Rejection::ALL.len()],
}

impl ConnectionCells {
    pub(super) fn evicted(&self, what: Eviction) {
        self.evicted[what.position()].add(1);
    }

    pub(super) fn rejected(&self, why: Rejection) {
        self.rejected[why.position()].add(1);
    }

    pub(super) fn evictions(&self, what: Eviction) -> u64 {
        self.evicted[what.position()].get()
    }

    pub(super) fn rejections(&self, why: Rejection) -> u64 {
        self.rejected[why.position()].get()
    }
}
