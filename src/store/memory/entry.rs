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
    life: Expiry,
}

/// A table of counters has an eighth to five ninths of empty places beside them.
const _: () = assert!(size_of::<Entry>() == 48);

impl Entry {
    /// A new counter.
    pub(super) fn new(limit: LimitIndex, key: &[u8], mut change: Change, aside: bool) -> Self {
        keep_slots(&mut change);
        Self {
            key: PackedKey::of(limit, key),
            state: PackedState::of(change.update.after(None)),
            life: Expiry::of(change.ends, aside),
        }
    }

    /// The limit, as the shard knows it.
    #[inline]
    pub(super) fn limit(&self) -> LimitIndex {
        self.key.limit()
    }

    /// The state.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.state.state()
    }

    /// The instant from which on the state equals no state.
    pub(super) fn ends(&self) -> Timestamp {
        self.life.ends()
    }

    /// Does the counter belong to a limit that does not decide?
    pub(super) fn is_aside(&self) -> bool {
        self.life.is_aside()
    }

    /// Stores a change.
    pub(super) fn put(&mut self, mut change: Change, aside: bool) {
        keep_slots(&mut change);
        self.state.put(change.update);
        self.life = Expiry::of(change.ends, aside);
    }
}

/// The end of a counter, and whether its limit decides, in one word.
#[derive(Debug, Clone, Copy)]
struct Expiry(u64);

impl Expiry {
    const ASIDE: u64 = 1 << 63;

    fn of(ends: Timestamp, aside: bool) -> Self {
        let micros = ends.micros().min(Self::ASIDE - 1);
        Self(micros | if aside { Self::ASIDE } else { 0 })
    }

    fn ends(self) -> Timestamp {
        Timestamp::from_micros(self.0 & !Self::ASIDE)
    }

    fn is_aside(self) -> bool {
        self.0 & Self::ASIDE != 0
    }
}

/// In this process no request is lost together with its release: a slot is taken until it is given back.
fn keep_slots(change: &mut Change) {
    if let Update::Slots(leasing) = &mut change.update {
        leasing.until = FOREVER;
        change.ends = Timestamp::from_micros(FOREVER);
    }
}
