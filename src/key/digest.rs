//! Long or secret parts of a key are digested before they leave the process.

use sha2::{Digest, Sha256};

/// Longest part that stays as it is, in bytes after escaping; beyond it a digest stands for it.
pub(super) const LONGEST: usize = 64;

/// Appends the first 128 bits of SHA-256 over `value` as 32 hexadecimal digits.
pub(super) fn append(value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in &Sha256::digest(value)[..16] {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}
