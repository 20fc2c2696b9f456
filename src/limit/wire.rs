//! States and parameters as bytes: the values that Redis stores, and the arguments of the scripts.
//!
//! Big-endian, integers as doubles below 2^53, no number as text (notes: `algorithms`, sections 3.1 and 4.4).
//!
//! | state | bytes |
//! |---|---|
//! | bucket without a fraction | `at` f64 |
//! | bucket with one | `at` f64, `part` u32, `den` u32 |
//! | bucket whose charges are settled | one of these, then `found` f64, `back` f64 |
//! | window | `start` f64, `count` u32 |
//! | sliding window | `start` f64, the counts of the newest k + 1 parts u32, newest first |
//! | sliding log | a list: each instant f64, oldest first |
//! | concurrency | a sorted set: each slot's number f64, scored by its lease's end; in a row: number, end f64 |
//! | record of an id | `ends` f64, the granted units u32, the repeats that went free u32 |

use super::bucket::Bucket;
use super::clock_window::Anchor;
use super::dedupe::Dedupe;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Span};
use super::sliding_window::MAX_PARTS;
use super::token_bucket::TokenBucket;
use super::{
    BucketState, History, LogState, PartsState, RecordState, Rule, SlotsState, State, WindowState,
};
use crate::clock::Timestamp;
use smallvec::SmallVec;

/// A state as stored.
pub type StateBytes = SmallVec<[u8; 16]>;
/// One limit's parameters for one request, as the scripts read them.
pub type Block = SmallVec<[u8; 64]>;

/// First byte of a parameter block: the algorithm that reads the rest.
const TOKEN_BUCKET: u8 = 1;
const LEAKY_BUCKET: u8 = 2;
const FIXED_WINDOW: u8 = 3;
const CLOCK_WINDOW: u8 = 4;
const CALENDAR_WINDOW: u8 = 5;
const SLIDING_WINDOW: u8 = 6;
const SLIDING_LOG: u8 = 7;
const CONCURRENCY: u8 = 8;
const PARTIAL: u8 = 9;
const DEDUPE: u8 = 10;
const REFUSED: u8 = 11;
const SHADOW: u8 = 12;
const WITH_HISTORY: u8 = 13;

/// Number of bytes before a block that may be granted in part.
const PARTIAL_HEAD: usize = 65;

/// Can the short script decide this block? It handles the three algorithms that most limits use, and costs less.
#[must_use]
pub fn is_plain(block: &[u8]) -> bool {
    matches!(block.first(), Some(&(TOKEN_BUCKET..=FIXED_WINDOW)))
}

/// Can this block be used in one call to the scripts for several equal requests? Slots have individual numbers, and
/// grants, ids and histories belong to one request.
#[must_use]
pub fn is_countable(block: &[u8]) -> bool {
    matches!(block.first(), Some(&(TOKEN_BUCKET..=SLIDING_LOG)))
}

impl State {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> StateBytes {
        let mut bytes = StateBytes::new();
        match self {
            Self::Bucket(state) => put_bucket_state(&mut bytes, *state),
            Self::History(state) => {
                put_bucket_state(&mut bytes, state.bucket);
                put(&mut bytes, state.history.found);
                put(&mut bytes, state.history.back);
            }
            Self::Window(state) => {
                put(&mut bytes, state.start);
                bytes.extend_from_slice(&state.count.to_be_bytes());
            }
            Self::Parts(state) => {
                put(&mut bytes, state.start);
                for count in &state.counts {
                    bytes.extend_from_slice(&count.to_be_bytes());
                }
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
            Self::Record(state) => {
                put(&mut bytes, state.ends);
                bytes.extend_from_slice(&state.granted.to_be_bytes());
                bytes.extend_from_slice(&state.free.to_be_bytes());
            }
        }
        bytes
    }

    /// Reads a state that `rule` could have stored. Any other value is invalid: it is overwritten, not trusted.
    #[must_use]
    pub fn decode(rule: &Rule, bytes: &[u8]) -> Option<Self> {
        match (rule, bytes.len()) {
            (Rule::TokenBucket(_) | Rule::LeakyBucket(_), 8 | 16 | 24 | 32) => bucket(bytes),
            (Rule::FixedWindow(_) | Rule::ClockWindow(_), 12) => Some(Self::Window(WindowState {
                start: whole(bytes, 0)?,
                count: small(bytes, 8)?,
            })),
            (Rule::SlidingWindow(_), length @ 16..) if length % 4 == 0 => {
                let counts = (8..length).step_by(4).map(|at| small(bytes, at));
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

/// A bucket's state, followed by the history. Without a history, earlier charges are unknown.
fn bucket(bytes: &[u8]) -> Option<State> {
    let (at, behind) = (whole(bytes, 0)?, if bytes.len() % 16 == 8 { 8 } else { 16 });
    let (part, den) = match behind {
        8 => (0, 1),
        _ => (small(bytes, 8)?, small(bytes, 12)?),
    };
    if behind == 16 && !(0 < part && part < den) {
        return None;
    }
    let history = match (whole(bytes, behind), whole(bytes, behind + 8)) {
        (Some(found), Some(back)) => Some(History { found, back }),
        _ => None,
    };
    Some(State::of_bucket(BucketState { at, part, den }, history))
}

fn put_bucket_state(bytes: &mut StateBytes, state: BucketState) {
    put(bytes, state.at);
    if state.part > 0 {
        bytes.extend_from_slice(&state.part.to_be_bytes());
        bytes.extend_from_slice(&state.den.to_be_bytes());
    }
}

/// The parameter block of `rule` for a request of `cost`, if it is the same at all times.
#[must_use]
pub fn block(rule: &Rule, cost: Cost) -> Block {
    block_around(rule, cost, Timestamp::default())
}

/// The parameter block of `rule` for a request of `cost` at about `now`, since scripts know no calendar.
#[must_use]
pub fn block_around(rule: &Rule, cost: Cost, now: Timestamp) -> Block {
    let mut bytes = Block::new();
    let units = u64::from(cost.units());
    match rule {
        Rule::TokenBucket(TokenBucket { bucket, .. })
        | Rule::LeakyBucket(LeakyBucket { bucket, .. }) => put_bucket(&mut bytes, bucket, units),
        Rule::FixedWindow(rule) => {
            let numbers = [rule.window, u64::from(rule.limit), units];
            put_all(&mut bytes, FIXED_WINDOW, &numbers);
        }
        Rule::ClockWindow(rule) => {
            let limit = u64::from(rule.limit);
            match &rule.anchor {
                Anchor::Clock { window, offset } => {
                    put_all(&mut bytes, CLOCK_WINDOW, &[limit, units, *window, *offset]);
                }
                Anchor::Calendar(calendar) => {
                    put_all(&mut bytes, CALENDAR_WINDOW, &[limit, units]);
                    for boundary in calendar.around(now) {
                        put(&mut bytes, boundary);
                    }
                }
            }
        }
        Rule::SlidingWindow(rule) => {
            bytes.push(SLIDING_WINDOW);
            let (parts, limit) = (u64::from(rule.parts), u64::from(rule.limit));
            let numbers = [rule.part, parts, limit, units];
            put_all(&mut bytes, u8::from(rule.strict), &numbers);
        }
        Rule::Concurrency(rule) => {
            let numbers = [u64::from(rule.max.get()), rule.ttl, units, 0];
            put_all(&mut bytes, CONCURRENCY, &numbers);
        }
        Rule::SlidingLog(rule) => {
            let numbers = [rule.window, u64::from(rule.limit), units];
            put_all(&mut bytes, SLIDING_LOG, &numbers);
        }
    }
    bytes
}

/// A bucket with a possible debt is a queue up to its debt ceiling. No charge is admitted while the level leaves no
/// room for it below the capacity.
fn put_bucket(bytes: &mut Block, bucket: &Bucket, units: u64) {
    let (interval, charge) = (bucket.interval, bucket.interval.times(units));
    let has_debt = bucket.debt_ceiling > bucket.capacity;
    let (ceiling, latest) = match interval.sub(bucket.capacity, charge) {
        _ if !has_debt => (bucket.capacity, bucket.latest),
        Some(latest) => (bucket.debt_ceiling, Some(latest)),
        None => (bucket.capacity, Some(bucket.capacity)),
    };
    bytes.push(match latest {
        Some(_) => LEAKY_BUCKET,
        None => TOKEN_BUCKET,
    });
    put_span(bytes, charge);
    put_span(bytes, ceiling);
    put(bytes, u64::from(interval.den.get()));
    if let Some(latest) = latest {
        put_span(bytes, latest);
    }
}

/// `own`, the block of `rule` at `cost`, changed for a limit that may grant a part.
#[must_use]
pub fn partial(rule: &Rule, cost: Cost, inner: &[u8]) -> Block {
    // The position of the cost in the limit's own block.
    let at = match rule {
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => 1,
        Rule::ClockWindow(_) => 9,
        Rule::FixedWindow(_) | Rule::SlidingLog(_) | Rule::Concurrency(_) => 17,
        Rule::SlidingWindow(_) => 26,
    };
    let mut bytes = Block::new();
    bytes.push(PARTIAL);
    put(&mut bytes, u64::from(cost.units()));
    put(&mut bytes, rule.most());
    put(&mut bytes, at);
    let (unit, den, capacity) = rule.bucket().map_or_else(Default::default, |bucket| {
        let one = bucket.interval;
        (one.span, u64::from(one.den.get()), bucket.capacity)
    });
    put_span(&mut bytes, unit);
    put(&mut bytes, den);
    put_span(&mut bytes, capacity);
    bytes.extend_from_slice(inner);
    bytes
}

/// Numbers the slots that the block of a concurrency limit takes, from `first` on.
pub fn number(block: &mut [u8], first: u64) {
    let inner = match block.first() {
        Some(&PARTIAL) => block.get_mut(PARTIAL_HEAD..),
        _ => Some(block),
    };
    if let Some([CONCURRENCY, inner @ ..]) = inner
        && let Some(number) = inner.get_mut(24..32)
    {
        number.copy_from_slice(&double(first));
    }
}

/// The block that refuses every request, and reads no key.
#[must_use]
pub fn refused() -> Block {
    Block::from_slice(&[REFUSED])
}

/// The bytes before the block of a limit that does not decide. The limit is charged with the others of its group.
#[must_use]
pub fn shadow(group: u8) -> [u8; 2] {
    [SHADOW, group]
}

/// `own`, the block of a limit, changed for charges that are settled later.
#[must_use]
pub fn with_history(inner: &[u8]) -> Block {
    let mut bytes = Block::new();
    bytes.push(WITH_HISTORY);
    bytes.extend_from_slice(inner);
    bytes
}

/// `own`, the block of a limit at `cost`, changed for a request whose id may have been charged. `none` is the same
/// block at no cost.
#[must_use]
pub fn deduped(dedupe: &Dedupe, cost: Cost, inner: &[u8], none: &[u8]) -> Block {
    let mut bytes = Block::new();
    bytes.push(DEDUPE);
    put(&mut bytes, dedupe.ttl);
    put(&mut bytes, u64::from(dedupe.repeats));
    put(&mut bytes, u64::from(cost.units()));
    for block in [inner, none] {
        bytes.push(u8::try_from(block.len()).unwrap_or(u8::MAX));
    }
    bytes.extend_from_slice(inner);
    bytes.extend_from_slice(none);
    bytes
}

impl RecordState {
    /// Reads a record. Any other value is invalid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == 16).then_some(Self {
            ends: whole(bytes, 0)?,
            granted: small(bytes, 8)?,
            free: small(bytes, 12)?,
        })
    }
}

/// A byte, and the numbers after it.
fn put_all(bytes: &mut Block, first: u8, numbers: &[u64]) {
    bytes.push(first);
    for number in numbers {
        put(bytes, *number);
    }
}

fn put_span<A: smallvec::Array<Item = u8>>(bytes: &mut SmallVec<A>, span: Span) {
    put(bytes, span.whole);
    put(bytes, u64::from(span.part));
}

fn put<A: smallvec::Array<Item = u8>>(bytes: &mut SmallVec<A>, value: u64) {
    bytes.extend_from_slice(&double(value));
}

/// A number in the form that scripts read and write.
#[allow(
    clippy::cast_precision_loss,
    reason = "every number that a script meets is below 2^53, `rate::MAX_SPAN`"
)]
#[must_use]
pub fn double(value: u64) -> [u8; 8] {
    (value as f64).to_be_bytes()
}

/// A double that is a whole number below 2^53, or `None`.
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

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
