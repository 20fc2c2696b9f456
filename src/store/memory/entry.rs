//! One counter in memory: its limit and key, its state, and the instant until which it matters.

use crate::clock::Timestamp;
use crate::limit::FOREVER;
use crate::limit::{Change, LimitId, State, Update};
use smallvec::SmallVec;

/// An entry has a cache line of its own. A look-up costs as much as the fetch of a line, and most entries would
/// otherwise lie across two lines.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) limit: LimitId,
    /// The text of an IPv4 address fits in here; most other texts stand elsewhere.
    pub(super) key: SmallVec<[u8; 16]>,
    pub(super) state: State,
    life: Expiry,
}

/// An entry over two cache lines would cost twice as much to look up.
const _: () = assert!(size_of::<Entry>() <= 64);

impl Entry {
    /// A new counter.
    pub(super) fn new(limit: LimitId, key: &[u8], change: Change, aside: bool) -> Self {
        let change = kept(change);
        Self {
            limit,
            key: SmallVec::from_slice(key),
            state: change.update.after(None),
            life: Expiry::of(change.ends, aside),
        }
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
    pub(super) fn put(&mut self, change: Change, aside: bool) {
        let change = kept(change);
        match (change.update, &mut self.state) {
            (Update::Log(growth), State::Log(log)) => growth.apply(log),
            (Update::Slots(leasing), State::Slots(leases)) => leasing.apply(leases),
            (Update::Put(put), state) => *state = put,
            (update, state) => *state = update.after(None),
        }
        self.life = Expiry::of(change.ends, aside);
    }
}

/// The end of a counter, and whether its limit decides, in the one word that an entry has left.
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
fn kept(mut change: Change) -> Change {
    if let Update::Slots(leasing) = &mut change.update {
        leasing.until = FOREVER;
        change.ends = Timestamp::from_micros(FOREVER);
    }
    change
}
