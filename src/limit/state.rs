//! The states of counters, what is done to them, and what a refund presents.

use super::bucket::BucketState;
use super::concurrency::{LeasesState, Leasing};
use super::dedupe::RecordState;
use super::fixed_window::WindowState;
use super::rate::Cost;
use super::sliding_log::{Growth, LogState};
use super::sliding_window::PartsState;
use super::trail::{TrailMark, TrailedState};
use crate::clock::Timestamp;
use crate::key::RepeatId;

/// The state of one counter, as it is stored. The larger ones stand elsewhere: a million counters are mostly small ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Of either bucket.
    Bucket(BucketState),
    /// Of either bucket where charges are settled.
    Trailed(Box<TrailedState>),
    /// Of a window, wherever it is anchored.
    Window(WindowState),
    /// Of a sliding window.
    Parts(Box<PartsState>),
    /// Of a sliding log.
    Log(Box<LogState>),
    /// Of a limit on what is in flight.
    Leases(Box<LeasesState>),
    /// Of an id that has been charged.
    Record(RecordState),
}

impl State {
    pub(super) fn bucket(&self) -> Option<BucketState> {
        match self {
            Self::Bucket(state) => Some(*state),
            Self::Trailed(state) => Some(state.bucket),
            _ => None,
        }
    }

    pub(super) fn window(&self) -> Option<WindowState> {
        match self {
            Self::Window(state) => Some(*state),
            _ => None,
        }
    }

    pub(super) fn parts(&self) -> Option<&PartsState> {
        match self {
            Self::Parts(state) => Some(state),
            _ => None,
        }
    }

    pub(super) fn leases(&self) -> Option<&LeasesState> {
        match self {
            Self::Leases(state) => Some(state),
            _ => None,
        }
    }

    /// What is remembered of an id.
    #[must_use]
    pub fn record(&self) -> Option<RecordState> {
        match self {
            Self::Record(state) => Some(*state),
            _ => None,
        }
    }

    pub(super) fn log(&self) -> Option<&LogState> {
        match self {
            Self::Log(state) => Some(state),
            _ => None,
        }
    }
}

/// What a check would have done to the stored state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Replaced by this one.
    Put(State),
    /// A log grows at one end and is pruned at the other: it is not copied for one instant.
    Grow(Growth),
    /// Slots are taken beside others.
    Lease(Leasing),
}

impl Update {
    /// The state that follows `before`.
    #[must_use]
    pub fn after(self, before: Option<State>) -> State {
        match (self, before) {
            (Self::Put(state), _) => state,
            (Self::Grow(growth), Some(State::Log(mut log))) => {
                growth.apply(&mut log);
                State::Log(log)
            }
            (Self::Lease(leasing), Some(State::Leases(mut leases))) => {
                leasing.apply(&mut leases);
                State::Leases(leases)
            }
            (Self::Lease(leasing), _) => {
                let mut leases = Box::<LeasesState>::default();
                leasing.apply(&mut leases);
                State::Leases(leases)
            }
            (Self::Grow(growth), _) => {
                let mut log = Box::<LogState>::default();
                growth.apply(&mut log);
                State::Log(log)
            }
        }
    }
}

/// A state to store, and the instant from which it equals no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What to store.
    pub update: Update,
    /// Until when it matters.
    pub ends: Timestamp,
}

impl Change {
    /// The whole state, replaced.
    #[must_use]
    pub fn put(state: State, ends: Timestamp) -> Self {
        let update = Update::Put(state);
        Self { update, ends }
    }
}

/// What a refund presents: which charge it takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Where the charge is.
    pub mark: Mark,
    /// What was charged.
    pub cost: Cost,
    /// What is remembered of it, if it had an id.
    pub record: Option<RecordMark>,
    /// It was counted where all count for whose keys there was no room.
    pub overflow: bool,
}

/// Which record a charge has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordMark {
    /// What it is filed under, beside the key.
    pub id: RepeatId,
    /// Its end, microseconds since the epoch: another of the same id has another.
    pub ends: u64,
}

/// Where a charge is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The state right after the charge.
    Bucket(BucketState),
    /// The same where the charge is settled later.
    Trailed(TrailMark),
    /// The window, or the part of one, that it was counted in.
    Window {
        /// Its start, microseconds since the epoch.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// The instant it was logged under, microseconds since the epoch.
    Instant(u64),
    /// The number of the first slot that it took.
    Slot(u64),
}

impl Mark {
    /// Where charges of one bucket stand towards each other; all alike where they stand in no queue.
    #[must_use]
    pub fn order(self) -> (u64, u32) {
        match self {
            Self::Bucket(was) | Self::Trailed(TrailMark { was, .. }) => (was.at, was.part),
            Self::Window { .. } | Self::Instant(_) | Self::Slot(_) => (0, 0),
        }
    }
}

/// What follows from a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refunded {
    /// Nothing may go back.
    Nothing,
    /// Something did, and this is what remains.
    Left(Change),
    /// Something did, and nothing remains.
    Gone,
}
