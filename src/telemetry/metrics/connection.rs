//! What a full house does: who gave way, and who was turned away. Rare, so any thread may count.

use super::family::{Encoder, counters};
use super::instrument::{Counter, SharedCounter};
use super::label::Label;
use std::fmt::Result;

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

    pub(super) fn encode(&self, e: &mut Encoder<'_>) -> Result {
        let rows = Eviction::ALL.iter().zip(&self.evicted);
        let rows = rows.map(|(what, count)| ([("kind", what.word())], count.get()));
        let help =
            "Connections of clients closed to make room for new ones, by what they waited for.";
        counters(e, "tollgate_connections_gave_way", help, rows)?;
        let rows = Rejection::ALL.iter().zip(&self.rejected);
        let rows = rows.map(|(why, count)| ([("reason", why.word())], count.get()));
        let help = "New connections of clients that were not taken.";
        counters(e, "tollgate_connections_turned_away", help, rows)
    }
}
