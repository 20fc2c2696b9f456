//! Long or secret parts of a key are digested before they leave the process.

pub(super) mod cache;

use sha2::{Digest as _, Sha256};

/// The first 128 bits of SHA-256.
pub type Digest = [u8; 16];

/// Longest part that stays unchanged, in bytes after escaping. A longer part is replaced by a digest.
pub(super) const LONGEST: usize = 64;

/// The beginning of a digest's text.
const MARK: &[u8; 5] = b"%sha=";
const TEXT: usize = MARK.len() + 2 * size_of::<Digest>();

/// The form of a digest in a key: `%sha=`, and 32 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestText([u8; TEXT]);

impl DigestText {
    /// The text of `digest`.
    #[must_use]
    #[inline]
    pub fn of(digest: Digest) -> Self {
        // Sums instead of a table: sixteen digits are computed at once.
        let digit = |value: u8| value + b'0' + if value > 9 { b'a' - b'0' - 10 } else { 0 };
        let (high, low) = (digest.map(|byte| byte >> 4), digest.map(|byte| byte & 15));
        let (high, low) = (high.map(digit), low.map(digit));
        let mut text = [0; TEXT];
        let (mark, digits) = text.split_at_mut(MARK.len());
        mark.copy_from_slice(MARK);
        for (pair, digits) in digits
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(high.iter().zip(&low))
        {
            *pair = [*digits.0, *digits.1];
        }
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest with exactly this text.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Digest> {
        let text: &[u8; TEXT] = text.try_into().ok()?;
        let digits = text.strip_prefix(MARK)?;
        let (mut digest, mut is_hex) = (Digest::default(), true);
        for (byte, [high, low]) in digest.iter_mut().zip(digits.as_chunks::<2>().0) {
            let pair = [VALUES[usize::from(*high)], VALUES[usize::from(*low)]];
            is_hex &= pair[0] | pair[1] < 16;
            *byte = pair[0] << 4 | pair[1] & 15;
        }
        is_hex.then_some(digest)
    }
}

/// The values of hexadecimal digits in lower case; other bytes have higher values.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut digit = 0;
    while digit < 16 {
        let letter = if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        };
        values[letter as usize] = digit;
        digit += 1;
    }
    values
};

/// The digest of `value`.
pub(super) fn value_digest(value: &[u8]) -> Digest {
    shortened(&Sha256::digest(value).into())
}

/// The kept part of a whole SHA-256.
pub(super) fn shortened(sha256: &[u8; 32]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&sha256[..16]);
    digest
}
