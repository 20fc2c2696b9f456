//! One counter in memory: its limit and key, its state, and the instant until which it matters, by the clock of its
//! limit.

use super::packed_key::PackedKey;
use super::packed_state::PackedState;
use super::shard_limits::LimitIndex;
use crate::clock::{Clock, Timestamp};
use crate::limit::{Change, FOREVER, State, Update};
use std::borrow::Cow;

/// A counter. Of a million counters most need no further allocation.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: PackedKey,
    state: PackedState,
    life: Expiry,
}

/// A table of counters has an eighth to five ninths of empty places in addition.
const _: () = assert!(size_of::<Entry>() == 48);

impl Entry {
    /// A new counter.
    pub(super) fn new(limit: LimitIndex, key: &[u8], mut change: Change, kind: EntryKind) -> Self {
        keep_slots(&mut change);
        Self {
            key: PackedKey::of(limit, key),
            state: PackedState::of(change.update.after(None)),
            life: Expiry::of(change.ends, kind),
        }
    }

    /// The limit, by its number in the shard.
    #[inline]
    pub(super) fn limit(&self) -> LimitIndex {
        self.key.limit()
    }

    /// The state.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.state.state()
    }

    /// Does the state equal no state?
    #[inline]
    pub(super) fn has_ended(&self, present: Present) -> bool {
        self.life.ends() <= present.by(self.life.is_dated())
    }

    /// Does the counter belong to a limit that does not decide?
    pub(super) fn is_shadow(&self) -> bool {
        self.life.is_shadow()
    }

    /// Stores a change.
    pub(super) fn put(&mut self, mut change: Change, kind: EntryKind) {
        keep_slots(&mut change);
        self.state.put(change.update);
        self.life = Expiry::of(change.ends, kind);
    }
}

/// Properties of a counter's limit that decide how long the counter stays.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryKind {
    /// The limit only counts, without deciding.
    pub(super) is_shadow: bool,
    /// The limit uses the wall clock, and so does the counter's end.
    pub(super) dated: bool,
}

/// The current time by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present {
    pub(super) now: Timestamp,
    pub(super) wall: Timestamp,
}

impl Present {
    /// The current time of `clock`.
    pub(super) fn of(clock: &Clock) -> Self {
        Self {
            now: clock.now(),
            wall: clock.wall(),
        }
    }

    #[inline]
    fn by(self, dated: bool) -> Timestamp {
        if dated { self.wall } else { self.now }
    }
}

/// The end of a counter, and the kind of its limit, in one word.
#[derive(Debug, Clone, Copy)]
struct Expiry(u64);

impl Expiry {
    const SHADOW: u64 = 1 << 63;
    const DATED: u64 = 1 << 62;

    fn of(ends: Timestamp, kind: EntryKind) -> Self {
        let micros = ends.micros().min(Self::DATED - 1);
        let shadow = if kind.is_shadow { Self::SHADOW } else { 0 };
        let dated = if kind.dated { Self::DATED } else { 0 };
        Self(micros | shadow | dated)
    }

    fn ends(self) -> Timestamp {
        Timestamp::from_micros(self.0 & (Self::DATED - 1))
    }

    fn is_shadow(self) -> bool {
        self.0 & Self::SHADOW != 0
    }

    fn is_dated(self) -> bool {
        self.0 & Self::DATED != 0
    }
}

/// In this process no request is lost together with its release: a slot is taken until it is given back.
fn keep_slots(change: &mut Change) {
    if let Update::Slots(leasing) = &mut change.update {
        leasing.until = FOREVER;
        change.ends = Timestamp::from_micros(FOREVER);
    }
}
