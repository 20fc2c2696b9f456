//! States in the bytes that Redis stores. In a running gateway scripts read and write these bytes, so only tests need
//! them in Rust. `limit::wire` describes the forms. The unit tests of the store include this file as well.

use smallvec::SmallVec;
use tollgate::limit::sliding_window::MAX_PARTS;
use tollgate::limit::wire::{self, double};
use tollgate::limit::{
    BlockState, BucketState, History, LogState, Numbers, PartsState, RecordState, Rule, SlotsState,
    State, WindowState,
};

/// A state as stored.
pub(crate) type StateBytes = SmallVec<[u8; 16]>;

/// Converts states to bytes, and back.
pub(crate) trait StoredState: Sized {
    /// The stored form.
    fn encode(&self) -> StateBytes;

    /// Reads a state that `rule` could have stored. Any other value is no state: it is overwritten, not trusted.
    fn decode(rule: &Rule, bytes: &[u8]) -> Option<Self>;
}

impl StoredState for State {
    fn encode(&self) -> StateBytes {
        let mut bytes = StateBytes::new();
        match self {
            Self::Bucket(state) => {
                put_bucket_state(&mut bytes, *state);
                put_numbers(&mut bytes, *state);
            }
            Self::History(state) => {
                put_bucket_state(&mut bytes, state.bucket);
                put(&mut bytes, state.history.found);
                put(&mut bytes, state.history.back);
                put_numbers(&mut bytes, state.bucket);
            }
            Self::Window(state) => {
                put(&mut bytes, state.start);
                put_number(&mut bytes, state.count, is_large(state.count));
            }
            Self::Parts(state) => {
                put(&mut bytes, state.start);
                let has_large = state.counts.iter().any(|count| is_large(*count));
                for count in &state.counts {
                    put_number(&mut bytes, *count, has_large);
                }
                bytes.extend(has_large.then_some(0));
            }
            Self::Slots(state) => {
                let mut leases: Vec<_> =
                    state.0.iter().map(|(slot, until)| (until, slot)).collect();
                leases.sort_unstable();
                for (until, slot) in leases {
                    put(&mut bytes, *slot);
                    put(&mut bytes, *until);
                }
            }
            Self::Log(state) => {
                for instant in &state.0 {
                    put(&mut bytes, *instant);
                }
            }
            Self::Block(state) => {
                put(&mut bytes, state.ends);
                put(&mut bytes, state.length);
            }
            Self::Record(state) => {
                put(&mut bytes, state.ends);
                put_number(&mut bytes, state.granted, is_large(state.granted));
                bytes.extend_from_slice(&state.free.to_be_bytes());
            }
        }
        bytes
    }

    fn decode(rule: &Rule, bytes: &[u8]) -> Option<Self> {
        match (rule, bytes.len()) {
            (
                Rule::TokenBucket(_) | Rule::LeakyBucket(_),
                8 | 16 | 24 | 32 | 40 | 48 | 28 | 36 | 44 | 52,
            ) => bucket(bytes),
            (Rule::FixedWindow(_) | Rule::ClockWindow(_), 12 | 16) => {
                Some(Self::Window(WindowState {
                    start: whole(bytes, 0)?,
                    count: number(bytes, 8, bytes.len() == 16)?,
                }))
            }
            (Rule::SlidingWindow(_), length @ 25..) if length % 8 == 1 => {
                let counts = (8..length - 1).step_by(8).map(|at| whole(bytes, at));
                let known = u32::try_from((length - 17) / 8).is_ok_and(|held| held <= MAX_PARTS);
                Some(Self::Parts(PartsState {
                    start: whole(bytes, 0).filter(|_| known)?,
                    counts: counts.collect::<Option<_>>()?,
                }))
            }
            (Rule::SlidingWindow(_), length @ 16..) if length % 4 == 0 => {
                let counts = (8..length).step_by(4).map(|at| number(bytes, at, false));
                let held = (length - 12) / 4;
                let known = u32::try_from(held).is_ok_and(|held| held <= MAX_PARTS);
                Some(Self::Parts(PartsState {
                    start: whole(bytes, 0).filter(|_| known)?,
                    counts: counts.collect::<Option<_>>()?,
                }))
            }
            (Rule::SlidingLog(_), length @ 8..) if length % 8 == 0 => {
                let instants = (0..length).step_by(8).map(|at| whole(bytes, at));
                Some(Self::Log(LogState(instants.collect::<Option<_>>()?)))
            }
            (Rule::Concurrency(_), length @ 16..) if length % 16 == 0 => {
                let leases = (0..length).step_by(16).map(|at| {
                    let (slot, until) = (whole(bytes, at)?, whole(bytes, at + 8)?);
                    Some((slot, until))
                });
                Some(Self::Slots(SlotsState(leases.collect::<Option<_>>()?)))
            }
            _ => None,
        }
    }
}

/// A bucket's state, with the history behind it and its numbers. What is no history, or no numbers, is not known.
fn bucket(bytes: &[u8]) -> Option<State> {
    let has_large = bytes.len() % 8 == 4;
    let length = bytes.len() - if has_large { 4 } else { 0 };
    let (at, behind) = (whole(bytes, 0)?, if length % 16 == 8 { 8 } else { 16 });
    let (part, den) = match behind {
        8 => (0, 1),
        _ => (small(bytes, 8)?, small(bytes, 12)?),
    };
    if behind == 16 && !(0 < part && part < den) {
        return None;
    }
    let history = match (whole(bytes, behind), whole(bytes, behind + 8)) {
        (Some(found), Some(back)) if length >= 40 => Some(History { found, back }),
        _ => None,
    };
    let numbers = numbers(bytes, has_large).filter(|numbers| part == 0 || numbers.parts().1 == den);
    let bucket = BucketState {
        at,
        part,
        den,
        numbers,
    };
    Some(State::of_bucket(bucket, history))
}

/// The numbers that the last bytes of a state are, if they are numbers.
fn numbers(bytes: &[u8], has_large: bool) -> Option<Numbers> {
    let length = if has_large { 20 } else { 16 };
    let start = bytes
        .len()
        .checked_sub(length)
        .filter(|start| *start >= 8)?;
    let mut period: [u8; 8] = bytes.get(start..start + 8)?.try_into().ok()?;
    // -P: its sign is the first bit.
    let sign = period[0] & 0x80;
    period[0] ^= sign;
    let period = whole(&period, 0).filter(|_| sign > 0)?;
    let size = number(bytes, start + 12, has_large).filter(|size| is_large(*size) == has_large)?;
    Numbers::of_parts(period, small(bytes, start + 8)?, size)
}

fn put_numbers(bytes: &mut StateBytes, state: BucketState) {
    if let Some(numbers) = state.numbers {
        match wire::large_numbers(Some(numbers)) {
            Some(large) => bytes.extend_from_slice(&large),
            None => bytes.extend_from_slice(&wire::numbers(Some(numbers))),
        }
    }
}

fn put_bucket_state(bytes: &mut StateBytes, state: BucketState) {
    put(bytes, state.at);
    if state.part > 0 {
        bytes.extend_from_slice(&state.part.to_be_bytes());
        bytes.extend_from_slice(&state.den.to_be_bytes());
    }
}

/// Reads a record. Any other value is no record.
pub(crate) fn record(bytes: &[u8]) -> Option<RecordState> {
    let has_large = bytes.len() == 20;
    (bytes.len() == 16 || has_large).then_some(RecordState {
        ends: whole(bytes, 0)?,
        granted: number(bytes, 8, has_large)?,
        free: small(bytes, bytes.len() - 4)?,
    })
}

/// Reads a block. Any other value is no block.
pub(crate) fn block(bytes: &[u8]) -> Option<BlockState> {
    (bytes.len() == 16).then_some(BlockState {
        ends: whole(bytes, 0)?,
        length: whole(bytes, 8).filter(|length| *length > 0)?,
    })
}

fn put(bytes: &mut StateBytes, value: u64) {
    bytes.extend_from_slice(&double(value));
}

/// A double that is a whole number below 2^53, or nothing.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only what is whole, not negative and below 2^53 is cast"
)]
fn whole(bytes: &[u8], at: usize) -> Option<u64> {
    let value = f64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
    ((0.0..9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0)
        .then_some(value as u64)
}

/// Has the number no place in four bytes?
fn is_large(number: u64) -> bool {
    u32::try_from(number).is_err()
}

/// A number in four bytes, or a double.
fn number(bytes: &[u8], at: usize, is_double: bool) -> Option<u64> {
    if is_double {
        return whole(bytes, at);
    }
    small(bytes, at).map(u64::from)
}

fn put_number(bytes: &mut StateBytes, number: u64, as_double: bool) {
    match u32::try_from(number) {
        Ok(number) if !as_double => bytes.extend_from_slice(&number.to_be_bytes()),
        _ => put(bytes, number),
    }
}

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
