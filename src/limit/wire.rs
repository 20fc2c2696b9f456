//! States and parameters as bytes: what Redis stores and what the scripts are handed.
//!
//! Big-endian, integers as doubles below 2^53, no number ever as text (notes: `algorithms`, sections 3.1 and 4.4).
//!
//! | state | bytes |
//! |---|---|
//! | bucket without a fraction | `at` f64 |
//! | bucket with one | `at` f64, `part` u32, `den` u32 |
//! | window | `start` f64, `count` u32 |

use super::bucket::BucketState;
use super::fixed_window::WindowState;
use super::rate::{Cost, Span};
use super::{Rule, State};
use smallvec::SmallVec;

/// A state as stored.
pub type StateBytes = SmallVec<[u8; 16]>;
/// One limit's parameters for one request, as the scripts read them.
pub type Block = SmallVec<[u8; 64]>;

/// First byte of a parameter block: which algorithm reads the rest.
const TOKEN_BUCKET: u8 = 1;
const LEAKY_BUCKET: u8 = 2;
const FIXED_WINDOW: u8 = 3;

impl State {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> StateBytes {
        let mut bytes = StateBytes::new();
        match self {
            Self::Bucket(state) => {
                put(&mut bytes, state.at);
                if state.part > 0 {
                    bytes.extend_from_slice(&state.part.to_be_bytes());
                    bytes.extend_from_slice(&state.den.to_be_bytes());
                }
            }
            Self::Window(state) => {
                put(&mut bytes, state.start);
                bytes.extend_from_slice(&state.count.to_be_bytes());
            }
        }
        bytes
    }

    /// Reads what `rule` would have stored. Anything else is no state: a foreign value is overwritten, not trusted.
    #[must_use]
    pub fn decode(rule: &Rule, bytes: &[u8]) -> Option<Self> {
        match (rule, bytes.len()) {
            (Rule::TokenBucket(_) | Rule::LeakyBucket(_), 8) => Some(Self::Bucket(BucketState {
                at: whole(bytes, 0)?,
                part: 0,
                den: 1,
            })),
            (Rule::TokenBucket(_) | Rule::LeakyBucket(_), 16) => {
                let (at, part, den) = (whole(bytes, 0)?, small(bytes, 8)?, small(bytes, 12)?);
                (0 < part && part < den).then_some(Self::Bucket(BucketState { at, part, den }))
            }
            (Rule::FixedWindow(_), 12) => Some(Self::Window(WindowState {
                start: whole(bytes, 0)?,
                count: small(bytes, 8)?,
            })),
            _ => None,
        }
    }
}

/// The parameter block of `rule` for a request of `cost`.
#[must_use]
pub fn block(rule: &Rule, cost: Cost) -> Block {
    let mut bytes = Block::new();
    match rule {
        Rule::TokenBucket(rule) => {
            bytes.push(TOKEN_BUCKET);
            put_span(&mut bytes, rule.interval.times(u64::from(cost.units())));
            put_span(&mut bytes, rule.capacity);
            put(&mut bytes, u64::from(rule.interval.den.get()));
        }
        Rule::LeakyBucket(rule) => {
            bytes.push(LEAKY_BUCKET);
            put_span(&mut bytes, rule.interval.times(u64::from(cost.units())));
            put_span(&mut bytes, rule.capacity);
            put(&mut bytes, u64::from(rule.interval.den.get()));
            put_span(&mut bytes, rule.latest);
        }
        Rule::FixedWindow(rule) => {
            bytes.push(FIXED_WINDOW);
            put(&mut bytes, rule.window);
            put(&mut bytes, u64::from(rule.limit));
            put(&mut bytes, u64::from(cost.units()));
        }
    }
    bytes
}

fn put_span<A: smallvec::Array<Item = u8>>(bytes: &mut SmallVec<A>, span: Span) {
    put(bytes, span.whole);
    put(bytes, u64::from(span.part));
}

/// As scripts write numbers.
#[allow(
    clippy::cast_precision_loss,
    reason = "every number written here is below 2^53, `rate::MAX_SPAN`"
)]
fn put<A: smallvec::Array<Item = u8>>(bytes: &mut SmallVec<A>, value: u64) {
    bytes.extend_from_slice(&(value as f64).to_be_bytes());
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

fn small(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
