//! Evicted and rejected connections of a gateway that is full. They are rare, so any thread may count.

use super::instrument::{Counter, SharedCounter};
use super::label::Label;

/// What a connection was doing when it was closed to make room for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// It was between two requests.
    Idle,
    /// It had sent nothing yet.
    Silent,
    /// It had sent a part of a head.
    HalfHead,
    /// It was between two requests, and its own client wanted another beyond its share.
    Own,
}

/// Why a new connection was closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// All connections have a request under way.
    Full,
    /// All that its client may have are taken.
    PerClient,
    /// The system gives no more descriptors; it waits to be accepted.
    Descriptors,
}

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
