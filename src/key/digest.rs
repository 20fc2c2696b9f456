//! Long or secret parts of a key are digested before they leave the process.

use sha2::{Digest as _, Sha256};

/// The first 128 bits of SHA-256.
pub type Digest = [u8; 16];

/// Longest part that stays unchanged, in bytes after escaping. A digest stands for a longer one.
pub(super) const LONGEST: usize = 64;

/// The digest of `value`.
pub(super) fn of(value: &[u8]) -> Digest {
    shortened(&Sha256::digest(value).into())
}

/// The kept part of a whole SHA-256.
pub(super) fn shortened(sha256: &[u8; 32]) -> Digest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&sha256[..16]);
    digest
}

/// Appends the first 128 bits of SHA-256 over `value` as 32 hexadecimal digits.
pub(super) fn append(value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in of(value) {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}
