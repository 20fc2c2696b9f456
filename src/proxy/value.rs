//! Field values and numbers written by hand: a formatter and an allocation for each cost more than all the rest of them.

use bytes::BytesMut;
use http::HeaderValue;
use std::cell::RefCell;

/// Values are cut from blocks of this size. Small, since one value that is kept keeps its whole block.
const BLOCK: usize = 1024;

thread_local! {
    static REST: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BLOCK));
}

/// What `write` writes as a field's value, if it can be one. It shares its memory with those cut before and after it.
#[must_use]
pub fn written(write: impl FnOnce(&mut BytesMut)) -> Option<HeaderValue> {
    let bytes = REST.with_borrow_mut(|rest| {
        // Nothing is left in it, unless a writer has panicked.
        rest.clear();
        write(rest);
        rest.split().freeze()
    });
    HeaderValue::from_maybe_shared(bytes).ok()
}

/// The same of a text.
#[must_use]
pub fn cut(text: &[u8]) -> Option<HeaderValue> {
    written(|rest| rest.extend_from_slice(text))
}

/// The numbers below 100, two digits each.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0_u8;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// A number in decimal.
#[derive(Debug, Clone, Copy)]
pub struct Decimal {
    text: [u8; 20],
    start: usize,
}

impl Decimal {
    /// Writes `number`.
    #[must_use]
    pub fn of(mut number: u64) -> Self {
        let mut text = [b'0'; 20];
        let mut start = text.len();
        while number >= 100 {
            start -= 2;
            // Below 100.
            [text[start], text[start + 1]] = PAIRS[(number % 100) as usize];
            number /= 100;
        }
        start -= 2;
        [text[start], text[start + 1]] = PAIRS[number as usize];
        // A number below ten has one digit.
        start += usize::from(number < 10);
        Self { text, start }
    }

    /// Its digits.
    #[must_use]
    pub fn digits(&self) -> &[u8] {
        &self.text[self.start..]
    }

    /// As a field's value.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        cut(self.digits()).unwrap_or(HeaderValue::from_static("0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_formatter_writes_them() {
        for number in [
            0,
            1,
            9,
            10,
            99,
            100,
            3_600,
            1_000_000,
            u64::MAX - 1,
            u64::MAX,
        ] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
            assert_eq!(Decimal::of(number).value(), number.to_string());
        }
    }

    #[test]
    fn values_stay_what_they_are_while_others_are_cut() {
        let values: Vec<_> = (0..2_000)
            .map(|number| Decimal::of(number).value())
            .collect();
        for (number, value) in values.iter().enumerate() {
            assert_eq!(*value, number.to_string());
        }
        let long = "x".repeat(3 * BLOCK);
        assert_eq!(cut(long.as_bytes()).unwrap(), long);
        assert_eq!(cut(b"a\nb"), None);
    }
}
