//! The states of counters, the changes of states, and the tickets for refunds.

use super::bucket::Numbers;
use super::rate::{Cost, Interval, Span, narrow};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

/// The state of one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The state of either bucket.
    Bucket(BucketState),
    /// The state of either bucket, with the history that settlements need.
    History(HistoryState),
    /// The state of a window, with any anchor.
    Window(WindowState),
    /// The state of a sliding window.
    Parts(PartsState),
    /// The state of a sliding log.
    Log(LogState),
    /// The state of a limit on requests in flight.
    Slots(SlotsState),
    /// The state of an id that has been charged.
    Record(RecordState),
    /// The state of a key's block.
    Block(BlockState),
}

/// The state of either bucket: empty at `at + part/den` microseconds. An absent state, or an instant in the past, means
/// empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    /// Whole microseconds since the epoch.
    pub at: u64,
    /// Fraction of a microsecond over `den`; 0 for most rates, and then `den` is 1.
    pub part: u32,
    /// Denominator of `part`, by which a fraction of another rate is recognised.
    pub den: u32,
    /// The numbers that the state was written with. A bucket in which requests wait for a turn keeps its instant under
    /// any numbers; the state of an older version has none either.
    pub numbers: Option<Numbers>,
}

impl BucketState {
    /// The state of a bucket that has drained `level` after `now`.
    #[must_use]
    pub fn at_level(
        now: Timestamp,
        level: Span,
        interval: Interval,
        numbers: Option<Numbers>,
    ) -> Self {
        let den = if level.part == 0 {
            1
        } else {
            interval.den.get()
        };
        Self {
            at: now.plus(level.whole).micros(),
            part: narrow(level.part),
            den,
            numbers,
        }
    }

    /// The instant as the time since the epoch.
    pub(super) fn span(self) -> Span {
        Span {
            whole: self.at,
            part: u64::from(self.part),
        }
    }

    /// The first instant at which this state equals no state.
    #[must_use]
    pub fn ends(self) -> Timestamp {
        Timestamp::from_micros(self.at).plus(u64::from(self.part > 0))
    }
}

/// A window's state. Its start is stored, so that expiry is never the window's boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowState {
    /// Start of the window, microseconds since the epoch.
    pub start: u64,
    /// The units taken in it.
    pub count: u64,
}

/// A sliding window's state: the counts of the newest k + 1 parts. The newest part has a count above 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsState {
    /// Start of the newest part, microseconds since the epoch.
    pub start: u64,
    /// The counts, newest first.
    pub counts: Counts,
}

/// Up to three parts without an allocation.
pub(super) type Counts = SmallVec<[u64; 4]>;

/// A sliding log's state: the instants, microseconds since the epoch, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogState(pub VecDeque<u64>);

/// The effect of a grant on a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogUpdate {
    /// The present instant, microseconds since the epoch.
    pub now: u64,
    /// Instants from this position on are in the future, since the clock has stepped back, and become the present.
    pub ahead: usize,
    /// The number of entries to add at the present instant.
    pub enter: u32,
    /// The number of oldest entries that have left, and are removed.
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

/// A lease that does not expire: in this process a request and its counter end together.
pub const FOREVER: u64 = u64::MAX;

/// For each slot's number, the instant until which the slot is taken, in microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotsState(pub BTreeMap<u64, u64>);

/// The effect of taken slots on the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUpdate {
    /// The present instant, microseconds since the epoch.
    pub now: u64,
    /// The end of leases that begin now. A lease that ends later is reduced to this instant: the clock has stepped
    /// back, or leases have become shorter.
    pub until: u64,
    /// The first slot that is taken.
    pub first: u64,
    /// The number of slots that are taken.
    pub count: u32,
}

impl SlotUpdate {
    /// Changes the leases. Lapsed leases are removed when others are taken.
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

/// The record of a charge with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordState {
    /// The end of the record, in microseconds since the epoch. The record stores its end, since expiry only frees
    /// memory.
    pub ends: u64,
    /// The granted units, at least 1.
    pub granted: u64,
    /// The number of repeats that were free.
    pub free: u32,
}

impl RecordState {
    /// The record as a change to be stored.
    #[must_use]
    pub fn change(self) -> Change {
        Change::put(State::Record(self), Timestamp::from_micros(self.ends))
    }
}

/// The state of a key's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockState {
    /// The end of the block, in microseconds since the epoch. Before it the key is refused.
    pub ends: u64,
    /// The length of the block, in microseconds.
    pub length: u64,
}

impl BlockState {
    /// A block that begins at `now`.
    #[must_use]
    pub fn from(now: Timestamp, length: u64) -> Self {
        Self {
            ends: now.plus(length).micros(),
            length,
        }
    }
}

/// The history of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The last instant at which the bucket was found empty, in microseconds since the epoch.
    pub found: u64,
    /// The microseconds given back since then, rounded up.
    pub back: u64,
}

/// The state of a bucket with a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryState {
    /// The bucket's own state.
    pub bucket: BucketState,
    /// Its history.
    pub history: History,
}

/// The trace of a charge that will be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// The bucket's state right after the charge.
    pub was: BucketState,
    /// The instant of the charge.
    pub at: Timestamp,
    /// The instant from which the bucket's history must be known. It is later than `at` where the charge counts as an
    /// older one ([`super::Limit::abandoned`]).
    pub charged: Timestamp,
    /// The amount that had been given back until then.
    pub back: u64,
    /// The whole charge.
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

    /// The record, if the state is one.
    #[must_use]
    pub fn record(&self) -> Option<RecordState> {
        match self {
            Self::Record(state) => Some(*state),
            _ => None,
        }
    }

    /// The block, if the state is one.
    #[must_use]
    pub fn block(&self) -> Option<BlockState> {
        match self {
            Self::Block(state) => Some(*state),
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

/// The effect of a check on the stored state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The state is replaced by this one.
    Put(State),
    /// A log grows at one end and is pruned at the other, so that the log is not copied for one instant.
    Log(LogUpdate),
    /// Slots are taken in addition to others.
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
                    _ => LogState::default(),
                };
                update.apply(&mut log);
                State::Log(log)
            }
            Self::Slots(update) => {
                let mut leases = match before {
                    Some(State::Slots(leases)) => leases,
                    _ => SlotsState::default(),
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
    /// The effect on the stored state.
    pub update: Update,
    /// The instant until which the state matters.
    pub ends: Timestamp,
}

impl Change {
    /// The replacement of the whole state.
    #[must_use]
    pub fn put(state: State, ends: Timestamp) -> Self {
        let update = Update::Put(state);
        Self { update, ends }
    }
}

/// A refund's ticket: the charge that it takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The mark of the charge.
    pub mark: Mark,
    /// The units of the charge.
    pub cost: Cost,
    /// The record of the charge, if it had an id.
    pub record: Option<RecordMark>,
    /// Was the charge counted on the overflow key, which all keys without room share?
    pub overflow: bool,
}

/// The record that a charge has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordMark {
    /// The id of the record, which together with the key names it.
    pub id: RepeatId,
    /// A ticket without a record has no room for the end.
    ends: NonZeroU64,
}

impl RecordMark {
    /// The record of `id` that ends at `ends`, which is after the epoch.
    #[must_use]
    pub fn new(id: RepeatId, ends: Timestamp) -> Self {
        let ends = NonZeroU64::new(ends.micros()).unwrap_or(NonZeroU64::MIN);
        Self { id, ends }
    }

    /// The record's end, in microseconds since the epoch. Another record of the same id has another end.
    #[must_use]
    pub fn ends(self) -> u64 {
        self.ends.get()
    }
}

// A ticket is kept for each charge of a request.
const _: () = assert!(size_of::<Ticket>() == 112);

/// The place at which a charge is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The state right after the charge.
    Bucket(BucketState),
    /// The trace of a charge that is settled later.
    History(HistoryMark),
    /// The window, or the part of a window, in which the charge was counted.
    Window {
        /// Its start, microseconds since the epoch.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// The instant of the log entry, in microseconds since the epoch.
    Instant(u64),
    /// The number of the first slot that the charge took.
    Slot(u64),
    /// Only in the record of its id: the request was free, as a repeat.
    Repeat,
}

impl Mark {
    /// The order of charges of one bucket. All other tickets, which are in no queue, compare as equal.
    #[must_use]
    pub fn order(self) -> (u64, u32) {
        match self {
            Self::Bucket(was) | Self::History(HistoryMark { was, .. }) => (was.at, was.part),
            Self::Window { .. } | Self::Instant(_) | Self::Slot(_) | Self::Repeat => (0, 0),
        }
    }
}

/// The outcome of a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refund {
    /// No charge may be given back.
    Nothing,
    /// A charge was given back, and this state remains.
    Left(Change),
    /// A charge was given back, and no state remains.
    Gone,
}
