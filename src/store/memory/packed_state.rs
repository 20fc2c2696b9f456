//! A state in its stored form: in sixteen bytes if it is common, else boxed.

use super::known_numbers::{self, NumbersIndex};
use crate::limit::{BlockState, BucketState, PartsState, RecordState, State, Update, WindowState};
use std::borrow::Cow;

/// The bytes of an instant, without the eighth that is always zero: an instant is in microseconds since the epoch.
const INSTANT: usize = 7;

/// Microseconds since the epoch, before the year 4253.
type Instant = [u8; INSTANT];

/// A state in as few bytes as it needs. A state that fits into none of the small forms is boxed, unchanged.
#[derive(Debug)]
pub(super) enum PackedState {
    /// A bucket without numbers.
    Bucket(Instant, u32, u32),
    /// A bucket with numbers, whose N is the fraction's denominator.
    Numbered(Instant, u32, NumbersIndex),
    Window(Instant, u32),
    /// A sliding window's newest part, the only one.
    Part(Instant, u32),
    /// A sliding window's newest part, and the one before.
    Parts(Instant, [u32; 2]),
    Record(Instant, u32, u32),
    /// A block's end, and its length.
    Block(Instant, Instant),
    Other(Box<State>),
}

const _: () = assert!(size_of::<PackedState>() == 16);

impl PackedState {
    pub(super) fn of(state: State) -> Self {
        Self::small(&state, None).unwrap_or_else(|| Self::Other(Box::new(state)))
    }

    /// The small form of the state. Numbers that are those at the index `held` keep it, without a look-up.
    fn small(state: &State, held: Option<NumbersIndex>) -> Option<Self> {
        let place = |numbers| match held.filter(|held| known_numbers::at(*held) == Some(numbers)) {
            None => known_numbers::index(numbers),
            same => same,
        };
        Some(match state {
            State::Bucket(BucketState {
                at,
                part,
                den,
                numbers: None,
            }) => Self::Bucket(packed(*at)?, *part, *den),
            State::Bucket(BucketState {
                at,
                part,
                numbers: Some(numbers),
                ..
            }) => Self::Numbered(packed(*at)?, *part, place(*numbers)?),
            State::Window(WindowState { start, count }) => {
                Self::Window(packed(*start)?, small(*count)?)
            }
            State::Parts(PartsState { start, counts }) => match counts[..] {
                [newest] => Self::Part(packed(*start)?, small(newest)?),
                [newest, before] => Self::Parts(packed(*start)?, [small(newest)?, small(before)?]),
                _ => return None,
            },
            State::Record(RecordState {
                ends,
                granted,
                free,
            }) => Self::Record(packed(*ends)?, small(*granted)?, *free),
            State::Block(BlockState { ends, length }) => {
                Self::Block(packed(*ends)?, packed(*length)?)
            }
            State::History(_) | State::Log(_) | State::Slots(_) => return None,
        })
    }

    /// The state.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        Cow::Owned(match self {
            Self::Bucket(at, part, den) => State::Bucket(BucketState {
                at: instant(*at),
                part: *part,
                den: *den,
                numbers: None,
            }),
            Self::Numbered(at, part, index) => {
                let numbers = known_numbers::at(*index);
                let count = || numbers.map_or(1, |numbers| numbers.parts().1);
                State::Bucket(BucketState {
                    at: instant(*at),
                    part: *part,
                    den: if *part == 0 { 1 } else { count() },
                    numbers,
                })
            }
            Self::Window(start, count) => State::Window(WindowState {
                start: instant(*start),
                count: u64::from(*count),
            }),
            Self::Part(start, count) => State::Parts(PartsState {
                start: instant(*start),
                counts: [u64::from(*count)].as_slice().into(),
            }),
            Self::Parts(start, counts) => State::Parts(PartsState {
                start: instant(*start),
                counts: counts.map(u64::from).as_slice().into(),
            }),
            Self::Record(ends, granted, free) => State::Record(RecordState {
                ends: instant(*ends),
                granted: u64::from(*granted),
                free: *free,
            }),
            Self::Block(ends, length) => State::Block(BlockState {
                ends: instant(*ends),
                length: instant(*length),
            }),
            Self::Other(state) => return Cow::Borrowed(state),
        })
    }

    /// Stores the result of an update on the state.
    #[inline]
    pub(super) fn put(&mut self, update: Update) {
        let held = match self {
            Self::Numbered(.., index) => Some(*index),
            _ => None,
        };
        if let Update::Put(state) = &update
            && let Some(small) = Self::small(state, held)
        {
            *self = small;
            return;
        }
        self.put_large(update);
    }

    /// Like [`Self::put`], if the next state is not small. A boxed state is changed in place.
    fn put_large(&mut self, update: Update) {
        let Self::Other(held) = self else {
            *self = Self::of(update.after(None));
            return;
        };
        match (update, &mut **held) {
            (Update::Log(growth), State::Log(log)) => growth.apply(log),
            (Update::Slots(leasing), State::Slots(leases)) => leasing.apply(leases),
            (update, held) => *held = update.after(None),
        }
    }
}

/// A count above 2^32 - 1 is rare: its state is boxed.
fn small(count: u64) -> Option<u32> {
    u32::try_from(count).ok()
}

fn packed(micros: u64) -> Option<Instant> {
    let [bytes @ .., 0] = micros.to_le_bytes() else {
        return None;
    };
    Some(bytes)
}

fn instant(packed: Instant) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    bytes[..INSTANT].copy_from_slice(&packed);
    u64::from_le_bytes(bytes)
}
