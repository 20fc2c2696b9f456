//! The TLVs of a header of version 2 (section 2.2.1 to 2.2.7): their form and the checksum are checked, all their other
//! content is skipped.

use super::HeaderFault;
use super::crc32c::crc32c;

/// `PP2_TYPE_CRC32C`.
const CRC32C: u8 = 0x03;
/// Bytes of a TLV before its value: the type, and the value's length.
const BEFORE_VALUE: usize = 3;

/// Checks the TLVs that begin at `from` in a whole header.
pub(super) fn check_values(head: &[u8], from: usize) -> Result<(), HeaderFault> {
    let mut at = from;
    let mut checksum = None;
    while at < head.len() {
        let before = head.get(at..at + BEFORE_VALUE).ok_or(HeaderFault::Tlv)?;
        let value = at + BEFORE_VALUE;
        at = value + usize::from(u16::from_be_bytes([before[1], before[2]]));
        let bytes = head.get(value..at).ok_or(HeaderFault::Tlv)?;
        if before[0] == CRC32C {
            let written: [u8; 4] = bytes.try_into().map_err(|_| HeaderFault::Tlv)?;
            let is_second = checksum.replace((value, written)).is_some();
            if is_second {
                return Err(HeaderFault::Tlv);
            }
        }
    }
    let Some((value, written)) = checksum else {
        return Ok(());
    };
    // The checksum covers the whole header, with zeros in its own place (section 2.2.3).
    let computed = crc32c(&[&head[..value], &[0; 4], &head[value + 4..]]);
    if computed == u32::from_be_bytes(written) {
        Ok(())
    } else {
        Err(HeaderFault::Checksum)
    }
}
