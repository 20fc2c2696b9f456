//! Field values cut from shared blocks: an allocation for each would cost more than all the rest of them.

use bytes::BytesMut;
use http::HeaderValue;
use std::cell::RefCell;

/// The size of a block. It is small, since one value that is kept keeps its whole block.
const BLOCK: usize = 1024;

thread_local! {
    static REST: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(BLOCK));
}

/// The text that `write` writes, as a field's value, if it can be one. The value shares its memory with those cut
/// before and after it.
#[must_use]
pub fn written(write: impl FnOnce(&mut BytesMut)) -> Option<HeaderValue> {
    let bytes = REST.with_borrow_mut(|rest| {
        // The block has nothing left in it, unless a writer has panicked.
        rest.clear();
        write(rest);
        rest.split().freeze()
    });
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
    cut(digits.format(number).as_bytes()).unwrap_or(HeaderValue::from_static("0"))
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
}
