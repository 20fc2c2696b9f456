//! The request id: one name for a request in the response, the log and upstream.

use crate::clock::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue};

/// `X-Request-Id`.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over.
const LONGEST: usize = 128;

/// The id the request came with, if its sender is trusted and it is 1 to 128 visible ASCII characters; else a new one.
#[must_use]
pub fn of(fields: &HeaderMap, trusted: bool, now: Timestamp) -> HeaderValue {
    let given = fields.get(X_REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given
        .filter(|_| trusted)
        .cloned()
        .unwrap_or_else(|| fresh(now))
}

/// A UUID of version 7 (RFC 9562, section 5.7): sorted by time, unique by 74 random bits.
fn fresh(now: Timestamp) -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    const DASHES: [usize; 4] = [4, 6, 8, 10];
    let millis = (now.micros() / 1000).to_be_bytes();
    let mut bits = fastrand::u128(..).to_be_bytes();
    bits[..6].copy_from_slice(&millis[2..]);
    bits[6] = 0x70 | bits[6] & 0x0f;
    bits[8] = 0x80 | bits[8] & 0x3f;
    let mut text = [b'-'; 36];
    let mut place = 0;
    for (index, byte) in bits.into_iter().enumerate() {
        place += usize::from(DASHES.contains(&index));
        text[place] = HEX[usize::from(byte >> 4)];
        text[place + 1] = HEX[usize::from(byte & 15)];
        place += 2;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("none"))
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
        assert_eq!(of(&fields, true, clock::wall()), "abc");
        assert_ne!(of(&fields, false, clock::wall()), "abc");
        fields.insert(X_REQUEST_ID, HeaderValue::from_static("with blank"));
        assert_ne!(of(&fields, true, clock::wall()), "with blank");
    }
}
