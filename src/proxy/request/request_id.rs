//! The request id: one name for a request in the response, the log and upstream.

use crate::clock::Timestamp;
use crate::proxy::answer::fields::X_REQUEST_ID;
use crate::proxy::answer::header_value;
use http::{HeaderMap, HeaderValue};

/// The longest id that is accepted.
const LONGEST: usize = 128;

/// The id of the received request, if its sender is trusted and the id has 1 to 128 visible ASCII characters; else a
/// new one.
#[must_use]
pub fn request_id(fields: &HeaderMap, trusted: bool, now: Timestamp) -> HeaderValue {
    let is_id = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let given = trusted.then(|| fields.get(X_REQUEST_ID).filter(is_id));
    given.flatten().cloned().unwrap_or_else(|| fresh(now))
}

/// Every byte in hexadecimal.
static HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// The positions of a UUID's bytes in its text, between the dashes.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// A UUID of version 7 (RFC 9562, section 5.7): sorted by time, unique by 74 random bits.
fn fresh(now: Timestamp) -> HeaderValue {
    let millis = (now.micros() / 1000).to_be_bytes();
    let mut bits = fastrand::u128(..).to_be_bytes();
    bits[..6].copy_from_slice(&millis[2..]);
    bits[6] = 0x70 | bits[6] & 0x0f;
    bits[8] = 0x80 | bits[8] & 0x3f;
    let mut text = [b'-'; 36];
    for (byte, place) in bits.into_iter().zip(PLACES) {
        [text[place], text[place + 1]] = HEX[usize::from(byte)];
    }
    header_value::cut(&text).unwrap_or(HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_fresh_id_is_a_version_7_uuid() {
        let id = fresh(clock::wall());
        let text = id.to_str().unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'7');
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_ne!(id, fresh(clock::wall()));
    }

    #[test]
    fn only_a_trusted_peer_names_a_request() {
        let mut fields = HeaderMap::new();
        fields.insert(X_REQUEST_ID, HeaderValue::from_static("abc"));
        assert_eq!(request_id(&fields, true, clock::wall()), "abc");
        assert_ne!(request_id(&fields, false, clock::wall()), "abc");
        fields.insert(X_REQUEST_ID, HeaderValue::from_static("with blank"));
        assert_ne!(request_id(&fields, true, clock::wall()), "with blank");
    }
}
