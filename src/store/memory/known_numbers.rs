//! The numbers of buckets in memory, each kept once, so that a state names its numbers in four bytes.
//!
//! The places are never freed: a process has as many different numbers as its files had. Where no place is left, a state
//! carries its numbers itself, in more bytes.

use crate::limit::Numbers;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::OnceLock;

/// The number of places, a power of two. Pages of places that were never used take no memory.
const PLACES: usize = 1 << 16;
/// Places at which the same numbers may be.
const TRIES: usize = 8;

static KNOWN: [OnceLock<Numbers>; PLACES] = [const { OnceLock::new() }; PLACES];

/// The place of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumbersIndex(u32);

/// The place of `numbers`; `None` if there is none left for them.
#[inline]
pub(super) fn index(numbers: Numbers) -> Option<NumbersIndex> {
    let first = first_place(numbers);
    (first..first + TRIES).find_map(|place| {
        let place = place % PLACES;
        let is_same = KNOWN.get(place)?.get_or_init(|| numbers) == &numbers;
        is_same.then_some(NumbersIndex(u32::try_from(place).ok()?))
    })
}

/// The numbers at a place.
#[inline]
pub(super) fn at(index: NumbersIndex) -> Option<Numbers> {
    KNOWN.get(index.0 as usize)?.get().copied()
}

fn first_place(numbers: Numbers) -> usize {
    let (period, count, size) = numbers.parts();
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write_u64(period);
    hasher.write_u64(u64::from(count) << 32 ^ size);
    usize::try_from(hasher.finish() % PLACES as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_at_their_place_and_again_at_the_same() {
        for size in 1..5_000 {
            let numbers = Numbers::of_parts(1_000_000, 7, size).unwrap();
            let place = index(numbers).expect("most places are free");
            assert_eq!(at(place), Some(numbers));
            assert_eq!(index(numbers), Some(place));
        }
    }
}
