//! Long or secret parts of a key that does not leave the process: a hash under a key of the process's own.
//!
//! A digest that is the same in every process is SHA-256, which is dear where the processor does not help. A key that is
//! neither sent to Redis nor logged needs less: no client may find two values that are counted as one. For that, 102 bits of a
//! keyed hash are as good, and they say nothing of the value to one who has not the process's key.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// The form in which keys hold values that are secret, or long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// `%sha=`, the form of keys that other processes read.
    Digest,
    /// `%k`, for keys that stay in this process.
    Sealed,
}

/// The beginning of a sealed value.
const MARK: &[u8; 2] = b"%k";
/// Letters of six bits each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Letters from one hash of 64 bits.
const ROW: usize = 10;
/// Seventeen letters: with them the memory store holds the key in place.
const TEXT: usize = MARK.len() + 17;

/// The process's own key, which is drawn at random. SipHash is made for keys that nobody knows.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The text that stands for `value` in this process.
pub(super) fn of(value: &[u8]) -> [u8; TEXT] {
    let mut text = [0; TEXT];
    let (mark, rows) = text.split_at_mut(MARK.len());
    mark.copy_from_slice(MARK);
    // The rows are hashes of different texts under one key.
    for (number, row) in (0_u8..).zip(rows.chunks_mut(ROW)) {
        let mut hasher = KEY.build_hasher();
        hasher.write_u8(number);
        hasher.write(value);
        let mut bits = hasher.finish();
        for letter in row {
            *letter = LETTERS[(bits % 64) as usize];
            bits >>= 6;
        }
    }
    text
}

/// Is a part of a key a sealed value? No other part begins so.
pub(super) fn is_one(piece: &[u8]) -> bool {
    piece.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_text_and_no_other_value_has_it() {
        let values = [
            "",
            "a",
            "b",
            "ab",
            "secret",
            "secret-",
            &"long".repeat(1000),
        ];
        for value in values {
            let text = of(value.as_bytes());
            assert!(is_one(&text));
            for other in values {
                assert_eq!(
                    text == of(other.as_bytes()),
                    value == other,
                    "{value} {other}"
                );
            }
        }
    }
}
