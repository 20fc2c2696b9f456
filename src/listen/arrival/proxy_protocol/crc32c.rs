//! CRC-32C, the Castagnoli checksum (RFC 3720, appendix B.4).

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder of every byte.
static REMAINDERS: [u32; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let is_odd = remainder & 1 == 1;
            remainder >>= 1;
            if is_odd {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        remainders[byte] = remainder;
        byte += 1;
    }
    remainders
};

/// The checksum of the concatenated `parts`.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut state = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        let [low, ..] = state.to_le_bytes();
        state = (state >> 8) ^ REMAINDERS[usize::from(low ^ byte)];
    }
    !state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, appendix B.4, and the check value of the catalogues.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 20], &[0xff; 12]]), 0x62a8_ab43);
        assert_eq!(crc32c(&[]), 0);
    }
}
