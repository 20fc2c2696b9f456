//! The states of counters, what is done to them, and what a refund presents.

use super::rate::{Cost, Interval, Span};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// The state of one counter, as it is stored. The larger ones stand elsewhere: a million counters are mostly small ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Of either bucket.
    Bucket(BucketState),
    /// Of either bucket where charges are settled.
    History(Box<HistoryState>),
    /// Of a window, wherever it is anchored.
    Window(WindowState),
    /// Of a sliding window.
    Parts(Box<PartsState>),
    /// Of a sliding log.
    Log(Box<LogState>),
    /// Of a limit on what is in flight.
    Slots(Box<SlotsState>),
    /// Of an id that has been charged.
    Record(RecordState),
}

/// The state of either bucket: empty at `at + part/den` microseconds. Absent or past is the same as empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    /// Whole microseconds since the epoch.
    pub at: u64,
    /// Fraction of a microsecond over `den`; 0 for most rates, and then `den` is 1.
    pub part: u32,
    /// Denominator that `part` was written under: another rate's fraction is recognised, never misread.
    pub den: u32,
}

impl BucketState {
    /// The state that empties `level` after `now`.
    #[must_use]
    pub fn at_level(now: Timestamp, level: Span, interval: Interval) -> Self {
        let den = if level.part == 0 {
            1
        } else {
            interval.den.get()
        };
        Self {
            at: now.plus(level.whole).micros(),
            part: level.part,
            den,
        }
    }

    /// The instant as the time since the epoch.
    pub(super) fn span(self) -> Span {
        Span {
            whole: self.at,
            part: self.part,
        }
    }

    /// The first instant at which this state equals no state.
    #[must_use]
    pub fn ends(self) -> Timestamp {
        Timestamp::from_micros(self.at).plus(u64::from(self.part > 0))
    }
}

/// A window's state: its own start, so that expiry is never its boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowState {
    /// Start of the window, microseconds since the epoch.
    pub start: u64,
    /// How much has been taken in it.
    pub count: u32,
}

/// A sliding window's state: the counts of the newest k + 1 parts. The newest has counted something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsState {
    /// Start of the newest part, microseconds since the epoch.
    pub start: u64,
    /// Newest first.
    pub counts: Counts,
}

/// Up to three parts without an allocation.
pub(super) type Counts = SmallVec<[u32; 4]>;

/// A sliding log's state: the instants, microseconds since the epoch, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogState(pub VecDeque<u64>);

/// What a grant does to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogUpdate {
    /// The present instant, microseconds since the epoch.
    pub now: u64,
    /// From this position on instants lie ahead of a clock that has stepped back, and become the present.
    pub ahead: usize,
    /// So many are entered under the present.
    pub enter: u32,
    /// So many of the oldest have left, and go.
    pub drop: usize,
}

impl LogUpdate {
    /// Changes the log.
    pub fn apply(self, log: &mut LogState) {
        for instant in log.0.range_mut(self.ahead.min(log.0.len())..) {
            *instant = self.now;
        }
        log.0
            .extend(std::iter::repeat_n(self.now, self.enter as usize));
        log.0.drain(..self.drop.min(log.0.len()));
    }
}

/// A lease that does not lapse: its holder cannot be lost without the counter.
pub const FOREVER: u64 = u64::MAX;

/// Until when each slot is taken, in microseconds since the epoch, by the slot's number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotsState(pub BTreeMap<u64, u64>);

/// What taking slots does to the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUpdate {
    /// The present instant, microseconds since the epoch.
    pub now: u64,
    /// Until when what is taken now is taken. What lies further ahead is brought back to it: the clock has stepped
    /// back, or leases have become shorter.
    pub until: u64,
    /// The first slot that is taken.
    pub first: u64,
    /// How many are.
    pub count: u32,
}

impl SlotUpdate {
    /// Changes the leases. Those that have lapsed go where some are taken.
    pub fn apply(self, leases: &mut SlotsState) {
        for until in leases.0.values_mut() {
            if *until != FOREVER {
                *until = (*until).min(self.until);
            }
        }
        if self.count > 0 {
            leases.0.retain(|_, until| *until > self.now);
        }
        let taken = (0..u64::from(self.count)).map(|slot| (self.first + slot, self.until));
        leases.0.extend(taken);
    }
}

/// What is remembered of a charge that had an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordState {
    /// Until when, microseconds since the epoch. The record's own: expiry only frees memory.
    pub ends: u64,
    /// What was granted, at least 1.
    pub granted: u32,
    /// How many repeats have gone free.
    pub free: u32,
}

impl RecordState {
    /// The record as something to store.
    #[must_use]
    pub fn change(self) -> Change {
        Change::put(State::Record(self), Timestamp::from_micros(self.ends))
    }
}

/// What a bucket has gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The last instant at which it was found empty, microseconds since the epoch.
    pub found: u64,
    /// How many microseconds have been given back since, rounded up.
    pub back: u64,
}

/// The state of such a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryState {
    /// The bucket's own.
    pub bucket: BucketState,
    /// What stands behind it.
    pub history: History,
}

/// Where a charge that will be settled is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// The state right after it.
    pub was: BucketState,
    /// When it was made.
    pub at: Timestamp,
    /// How much had been given back until then.
    pub back: u64,
    /// All of it.
    pub cost: Cost,
}

impl State {
    pub(super) fn bucket(&self) -> Option<BucketState> {
        match self {
            Self::Bucket(state) => Some(*state),
            Self::History(state) => Some(state.bucket),
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

    pub(super) fn slots(&self) -> Option<&SlotsState> {
        match self {
            Self::Slots(state) => Some(state),
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
    Log(LogUpdate),
    /// Slots are taken beside others.
    Slots(SlotUpdate),
}

impl Update {
    /// The state that follows `before`.
    #[must_use]
    pub fn after(self, before: Option<State>) -> State {
        match self {
            Self::Put(state) => state,
            Self::Log(update) => {
                let mut log = match before {
                    Some(State::Log(log)) => log,
                    _ => Box::default(),
                };
                update.apply(&mut log);
                State::Log(log)
            }
            Self::Slots(update) => {
                let mut leases = match before {
                    Some(State::Slots(leases)) => leases,
                    _ => Box::default(),
                };
                update.apply(&mut leases);
                State::Slots(leases)
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
    History(HistoryMark),
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
    /// Nowhere but in the record of its id: it went free, as a repeat.
    Repeat,
}

impl Mark {
    /// Where charges of one bucket stand towards each other; all alike where they stand in no queue.
    #[must_use]
    pub fn order(self) -> (u64, u32) {
        match self {
            Self::Bucket(was) | Self::History(HistoryMark { was, .. }) => (was.at, was.part),
            Self::Window { .. } | Self::Instant(_) | Self::Slot(_) | Self::Repeat => (0, 0),
        }
    }
}

/// What follows from a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refund {
    /// Nothing may go back.
    Nothing,
    /// Something did, and this is what remains.
    Left(Change),
    /// Something did, and nothing remains.
    Gone,
}
