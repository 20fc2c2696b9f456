//! The request id: one name for a request in the response, the log and upstream.

use crate::clock;
use http::{HeaderMap, HeaderName, HeaderValue};

/// `X-Request-Id`.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over.
const LONGEST: usize = 128;

/// The id the request came with, if its sender is trusted and it is 1 to 128 visible ASCII characters; else a new one.
#[must_use]
pub fn of(fields: &HeaderMap, trusted: bool) -> HeaderValue {
    let given = fields.get(X_REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.filter(|_| trusted).cloned().unwrap_or_else(fresh)
}

/// A UUID of version 7 (RFC 9562, section 5.7): sorted by time, unique by 74 random bits.
fn fresh() -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let millis = u128::from(clock::wall().micros() / 1000);
    let random = fastrand::u128(..);
    let bits = (millis << 80) | (random & !(u128::MAX << 80));
    let bits = (bits & !(0xf << 76)) | (0x7 << 76);
    let bits = (bits & !(0x3 << 62)) | (0x2 << 62);
    let mut text = [b'-'; 36];
    let places = (0..36).filter(|place| ![8, 13, 18, 23].contains(place));
    for (digit, place) in places.enumerate() {
        text[place] = HEX[usize::try_from(bits >> (124 - 4 * digit) & 0xf).unwrap_or(0)];
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_is_a_version_7_uuid() {
        let id = fresh();
        let text = id.to_str().unwrap();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'7');
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_ne!(id, fresh());
    }

    #[test]
    fn only_a_trusted_peer_names_a_request() {
        let mut fields = HeaderMap::new();
        fields.insert(X_REQUEST_ID, HeaderValue::from_static("abc"));
        assert_eq!(of(&fields, true), "abc");
        assert_ne!(of(&fields, false), "abc");
        fields.insert(X_REQUEST_ID, HeaderValue::from_static("with blank"));
        assert_ne!(of(&fields, true), "with blank");
    }
}
