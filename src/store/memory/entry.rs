//! One counter in memory: its limit and key, its state, and the instant until which it matters.

use super::packed_key::PackedKey;
use super::packed_state::PackedState;
use super::shard_limits::LimitIndex;
use crate::clock::Timestamp;
use crate::limit::FOREVER;
use crate::limit::{Change, State, Update};
use std::borrow::Cow;

/// A counter. Of a million counters most are such that nothing of them stands elsewhere.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: PackedKey,
    state: PackedState,
    life: Life,
}

/// A table of counters has an eighth to five ninths of empty places beside them.
const _: () = assert!(size_of::<Entry>() == 48);

impl Entry {
    /// A new counter.
    pub(super) fn new(limit: LimitIndex, key: &[u8], change: Change, aside: bool) -> Self {
        let change = kept(change);
        Self {
            key: PackedKey::of(key),
            state: PackedState::of(change.update.after(None)),
            life: Life::of(limit, aside, change.ends),
        }
    }

    /// The limit, as the shard knows it.
    #[inline]
    pub(super) fn limit(&self) -> LimitIndex {
        self.life.limit()
    }

    /// The state.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.state.state()
    }

    /// Does the state equal no state at `now`? Up to [`Life::UNIT`] later it may not be known yet.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.life.ends() <= now.micros()
    }

    /// Does the counter belong to a limit that does not decide?
    pub(super) fn is_aside(&self) -> bool {
        self.life.is_aside()
    }

    /// Stores a change.
    pub(super) fn put(&mut self, change: Change, aside: bool) {
        let change = kept(change);
        self.state.put(change.update);
        self.life = Life::of(self.life.limit(), aside, change.ends);
    }
}

/// The limit of a counter, whether that limit decides, and the counter's end: in one word.
///
/// The end is rounded up, since a state that equals no state may stay for a while.
#[derive(Debug, Clone, Copy)]
struct Life(u64);

impl Life {
    /// The unit of the end, in microseconds.
    const UNIT: u64 = 1 << 11;
    const ENDS: u32 = 63 - LimitIndex::BITS;
    const ASIDE: u64 = 1 << 63;

    fn of(limit: LimitIndex, aside: bool, ends: Timestamp) -> Self {
        let ends = ends.micros().div_ceil(Self::UNIT);
        let ends = ends.min((1 << Self::ENDS) - 1);
        let aside = if aside { Self::ASIDE } else { 0 };
        Self(ends | limit.bits() << Self::ENDS | aside)
    }

    fn ends(self) -> u64 {
        (self.0 & ((1 << Self::ENDS) - 1)) * Self::UNIT
    }

    fn limit(self) -> LimitIndex {
        LimitIndex::from_bits(self.0 >> Self::ENDS)
    }

    fn is_aside(self) -> bool {
        self.0 & Self::ASIDE != 0
    }
}

/// In this process no request is lost together with its release: a slot is taken until it is given back.
fn kept(mut change: Change) -> Change {
    if let Update::Slots(leasing) = &mut change.update {
        leasing.until = FOREVER;
        change.ends = Timestamp::from_micros(FOREVER);
    }
    change
}
