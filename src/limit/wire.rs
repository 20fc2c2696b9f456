//! Parameters as bytes: the arguments of the scripts, and the forms of the states that scripts store. Tests alone read
//! and write states in Rust (`tests/support/stored_state`).
//!
//! Big-endian, integers as doubles below 2^53, no number as text.
//!
//! | state | bytes |
//! |---|---|
//! | bucket without a fraction | `at` f64, then its numbers |
//! | bucket with one | `at` f64, `part` u32, `den` u32, then its numbers |
//! | bucket whose charges are settled | the same, with `found` f64, `back` f64 in front of its numbers |
//! | its numbers | -P f64, N u32, the most units u32; none where requests wait, and in older states |
//! | its numbers, above 2^32 - 1 units | -P f64, N u32, the most units f64 |
//! | window | `start` f64, `count` u32, or f64 above 2^32 - 1 |
//! | sliding window | `start` f64, the counts of the newest k + 1 parts u32, newest first |
//! | one with a count above 2^32 - 1 | the same with the counts f64, and a byte 0 at the end |
//! | sliding log | a list: each instant f64, oldest first |
//! | concurrency | a sorted set: each slot's number f64, scored by its lease's end; in a row: number, end f64 |
//! | block of a key | `ends` f64, its length f64 |
//! | record of an id | `ends` f64, the granted units u32, or f64 above 2^32 - 1; the repeats that went free u32 |

use super::bucket::Bucket;
use super::bucket::Numbers;
use super::clock_window::Anchor;
use super::dedupe::Dedupe;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Span, narrow};
use super::token_bucket::TokenBucket;
use super::{BlockRule, Rule};
use crate::clock::Timestamp;
use smallvec::SmallVec;

/// One limit's parameters for one request, as the scripts read them.
pub type Block = SmallVec<[u8; 80]>;

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
const BLOCKING: u8 = 14;
const LARGE_BUCKET: u8 = 15;

/// Number of bytes before a block that may be granted in part.
const PARTIAL_HEAD: usize = 65;

/// Can the short script decide this block? It handles the three algorithms that most limits use, and costs less. It
/// counts in four bytes.
#[must_use]
pub fn is_plain(block: &[u8]) -> bool {
    match block {
        [TOKEN_BUCKET | LEAKY_BUCKET, ..] => true,
        [FIXED_WINDOW, numbers @ ..] => numbers.get(8..16).is_some_and(is_of_four_bytes),
        _ => false,
    }
}

/// Is the number at most 2^32 - 1? Doubles that are not negative have the order of their bytes.
fn is_of_four_bytes(number: &[u8]) -> bool {
    const MOST: [u8; 8] = 4_294_967_295_f64.to_be_bytes();
    number <= MOST.as_slice()
}

/// Can this block be used in one call to the scripts for several equal requests? Slots have individual numbers, and
/// grants, ids and histories belong to one request. Numbers above 2^32 - 1 are rare.
#[must_use]
pub fn is_countable(block: &[u8]) -> bool {
    // The limit's number of windows; the others have none above four bytes.
    let limit = match block.first() {
        Some(&FIXED_WINDOW) => 9,
        Some(&(CLOCK_WINDOW | CALENDAR_WINDOW)) => 1,
        Some(&SLIDING_WINDOW) => 18,
        first => return matches!(first, Some(&(TOKEN_BUCKET | LEAKY_BUCKET | SLIDING_LOG))),
    };
    block.get(limit..limit + 8).is_some_and(is_of_four_bytes)
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
    let units = cost.units();
    match rule {
        Rule::TokenBucket(TokenBucket { bucket, .. })
        | Rule::LeakyBucket(LeakyBucket { bucket, .. }) => put_bucket(&mut bytes, bucket, units),
        Rule::FixedWindow(rule) => {
            let numbers = [rule.window, rule.limit, units];
            put_all(&mut bytes, FIXED_WINDOW, &numbers);
        }
        Rule::ClockWindow(rule) => {
            let limit = rule.limit;
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
            let (parts, limit) = (u64::from(rule.parts), rule.limit);
            let numbers = [rule.part, parts, limit, units];
            put_all(&mut bytes, u8::from(rule.strict), &numbers);
        }
        Rule::Concurrency(rule) => {
            let numbers = [u64::from(rule.max.get()), rule.ttl, units, 0];
            put_all(&mut bytes, CONCURRENCY, &numbers);
        }
        Rule::SlidingLog(rule) => {
            let numbers = [rule.window, rule.limit, units];
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
    if let Some(large) = large_numbers(bucket.numbers) {
        bytes.push(LARGE_BUCKET);
        put_span(bytes, charge);
        put_span(bytes, ceiling);
        put(bytes, u64::from(interval.den.get()));
        bytes.extend_from_slice(&large);
        put_span(bytes, latest.unwrap_or(ceiling));
        return;
    }
    bytes.push(match latest {
        Some(_) => LEAKY_BUCKET,
        None => TOKEN_BUCKET,
    });
    put_span(bytes, charge);
    put_span(bytes, ceiling);
    put(bytes, u64::from(interval.den.get()));
    bytes.extend_from_slice(&numbers(bucket.numbers));
    if let Some(latest) = latest {
        put_span(bytes, latest);
    }
}

/// The numbers of a bucket in a block, which a state ends with; zeros where states carry none. Of a bucket that holds
/// more than 2^32 - 1 units, the size is cut to so many: see [`large_numbers`].
///
/// -P is negative: an older version takes the place for a history, and knows no negative one.
#[must_use]
pub fn numbers(numbers: Option<Numbers>) -> [u8; 16] {
    let mut bytes = [0; 16];
    if let Some(numbers) = numbers {
        let (_, _, size) = numbers.parts();
        let (rate, most) = bytes.split_at_mut(12);
        rate.copy_from_slice(&rate_bytes(numbers));
        most.copy_from_slice(&narrow(size).to_be_bytes());
    }
    bytes
}

/// The longer form of the numbers of a bucket that holds more than 2^32 - 1 units.
#[must_use]
pub fn large_numbers(numbers: Option<Numbers>) -> Option<[u8; 20]> {
    let numbers = numbers.filter(|numbers| numbers.is_large())?;
    let (_, _, size) = numbers.parts();
    let mut bytes = [0; 20];
    let (rate, most) = bytes.split_at_mut(12);
    rate.copy_from_slice(&rate_bytes(numbers));
    most.copy_from_slice(&double(size));
    Some(bytes)
}

/// -P and N.
fn rate_bytes(numbers: Numbers) -> [u8; 12] {
    let (period, count, _) = numbers.parts();
    let mut bytes = [0; 12];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&double(period));
    first[0] |= 0x80;
    second.copy_from_slice(&count.to_be_bytes());
    bytes
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
    put(&mut bytes, cost.units());
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
    put(&mut bytes, cost.units());
    for block in [inner, none] {
        bytes.push(u8::try_from(block.len()).unwrap_or(u8::MAX));
    }
    bytes.extend_from_slice(inner);
    bytes.extend_from_slice(none);
    bytes
}

/// `inner`, the block of a limit for a request, changed for a limit whose refusals block the key.
#[must_use]
pub fn blocking(rule: BlockRule, inner: &[u8]) -> Block {
    let mut bytes = Block::new();
    put_all(&mut bytes, BLOCKING, &[rule.shortest(), rule.longest()]);
    bytes.extend_from_slice(inner);
    bytes
}

/// A byte, and the numbers after it.
fn put_all(bytes: &mut Block, first: u8, numbers: &[u64]) {
    bytes.push(first);
    for number in numbers {
        put(bytes, *number);
    }
}

fn put_span(bytes: &mut Block, span: Span) {
    put(bytes, span.whole);
    put(bytes, span.part);
}

fn put(bytes: &mut Block, value: u64) {
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
