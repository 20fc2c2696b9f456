//! The entry point of a fuzzer: any bytes at the beginning of a connection. The target is in `fuzz/`; `tests/fuzzing`
//! calls the entry point with mutations of its own.

use super::{HeaderFault, HeaderReader, LONGEST_PAYLOAD, NamedClient};

/// Reads `bytes` at once, byte by byte and in pieces. Is there a header, or its beginning?
///
/// # Panics
/// If the division into pieces makes a difference, or a header is longer than allowed.
pub fn header(bytes: &[u8]) -> bool {
    let whole = in_pieces(bytes, bytes.len().max(1));
    for size in [1, 2, 7, 16] {
        assert_eq!(in_pieces(bytes, size), whole, "in pieces of {size}");
    }
    let (taken, read) = whole;
    assert!(taken <= bytes.len().min(16 + LONGEST_PAYLOAD));
    if let Ok(None) = read {
        assert_eq!(
            taken,
            bytes.len(),
            "bytes are left, and the header is not whole"
        );
    }
    read.is_ok()
}

/// The number of bytes taken, which has no meaning for a faulty header, and the client.
fn in_pieces(bytes: &[u8], size: usize) -> (usize, Result<Option<NamedClient>, HeaderFault>) {
    let mut reader = HeaderReader::default();
    let mut taken = 0;
    for piece in bytes.chunks(size) {
        match reader.read(piece) {
            Ok(progress) => {
                taken += progress.taken;
                if progress.client.is_some() {
                    return (taken, Ok(progress.client));
                }
            }
            Err(fault) => return (0, Err(fault)),
        }
    }
    (taken, Ok(None))
}
