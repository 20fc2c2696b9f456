//! Field values cut from shared blocks, and bodies: an allocation for each would cost more than everything else about
//! them.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use std::cell::RefCell;

/// The size of a block of values. It is small, since one kept value keeps its whole block.
const BLOCK: usize = 1024;

/// The size of a block of bodies: about ten refusals.
const BODIES: usize = 4096;

/// The number of cached numbers: a power of two. All seconds of a minute have places.
const REMEMBERED: usize = 64;

thread_local! {
    static VALUES: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BLOCK));
    static BLOCK_OF_BODIES: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BODIES));
    static NUMBERS: RefCell<Vec<(u64, HeaderValue)>> = const { RefCell::new(Vec::new()) };
}

/// The bytes that `write` writes. They share their memory with the pieces cut before and after them.
#[inline]
fn cut_from(rest: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    // The rest of the block is empty, unless a writer has panicked.
    rest.clear();
    write(rest);
    rest.split().freeze()
}

/// The bytes that `write` writes, as a body of the gateway's own.
#[must_use]
pub fn body(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    BLOCK_OF_BODIES.with_borrow_mut(|rest| cut_from(rest, write))
}

/// The text that `write` writes, as a field's value, if it can be one.
#[must_use]
pub fn written(write: impl FnOnce(&mut BytesMut)) -> Option<HeaderValue> {
    let bytes = VALUES.with_borrow_mut(|rest| cut_from(rest, write));
    HeaderValue::from_maybe_shared(bytes).ok()
}

/// A text as a field's value.
#[must_use]
pub fn cut(text: &[u8]) -> Option<HeaderValue> {
    written(|rest| rest.extend_from_slice(text))
}

/// A number in decimal.
#[must_use]
pub fn number(number: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    cut(digits.format(number).as_bytes()).unwrap_or(ZERO)
}

const ZERO: HeaderValue = HeaderValue::from_static("0");

/// A number in decimal that other requests probably need too: units, seconds, or the second of a day. It is written
/// once for all of them.
#[must_use]
pub fn usual_number(wanted: u64) -> HeaderValue {
    NUMBERS.with_borrow_mut(|numbers| {
        if numbers.is_empty() {
            numbers.resize(REMEMBERED, (0, ZERO));
        }
        let last = numbers.len() - 1;
        let (held, value) = &mut numbers[usize::try_from(wanted).unwrap_or(0) & last];
        if *held != wanted {
            (*held, *value) = (wanted, number(wanted));
        }
        value.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_what_they_are_while_others_are_cut() {
        let values: Vec<_> = (0..2_000).map(number).collect();
        for (number, value) in values.iter().enumerate() {
            assert_eq!(*value, number.to_string());
        }
        let long = "x".repeat(3 * BLOCK);
        assert_eq!(cut(long.as_bytes()).unwrap(), long);
        assert_eq!(cut(b"a\nb"), None);
    }

    #[test]
    fn usual_numbers_are_the_numbers_in_any_order() {
        let some = [
            0,
            1,
            64,
            0,
            128,
            1,
            1_780_000_000,
            u64::MAX,
            63,
            u64::MAX,
            64,
        ];
        for number in some.into_iter().chain(0..300).chain(0..300) {
            assert_eq!(usual_number(number), number.to_string());
        }
    }

    #[test]
    fn bodies_stay_what_they_are_while_others_are_cut() {
        let bodies: Vec<_> = (0..200_u8)
            .map(|byte| body(|out| out.extend_from_slice(&[byte; 100])))
            .collect();
        for (byte, body) in (0..200_u8).zip(bodies) {
            assert_eq!(body[..], [byte; 100]);
        }
    }
}
