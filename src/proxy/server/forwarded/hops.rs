//! `Via`, the field that names a request's hops.

use crate::intake::hop_fields::tokens;
use http::{HeaderMap, HeaderValue, Version, header};

/// Our name in `Via`.
const PSEUDONYM: &[u8] = b"tollgate";

/// The most times that our own name may occur in `Via`: longer chains of gateways are loops.
const MOST_PASSES: usize = 10;

/// Has this request passed through here too often? Such a request is in a loop, and 508 ends it.
#[must_use]
pub fn is_loop(fields: &HeaderMap) -> bool {
    // Hardly any request has `Via`; comparing names is cheaper than a lookup.
    if !fields.keys().any(|name| *name == header::VIA) {
        return false;
    }
    let ours = tokens(fields, &header::VIA).filter(|member| {
        let mut words = member
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        words
            .nth(1)
            .is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM))
    });
    ours.count() > MOST_PASSES
}

/// Adds our name to `Via`, with the version of the received request (RFC 9110 section 7.6.3).
pub fn add_via(fields: &mut HeaderMap, version: Version) {
    fields.append(header::VIA, via(version));
}

/// Our member of `Via` in a request of this version.
pub(super) fn via(version: Version) -> HeaderValue {
    // Constants are validated at compile time.
    const HTTP_10: HeaderValue = HeaderValue::from_static("1.0 tollgate");
    const HTTP_11: HeaderValue = HeaderValue::from_static("1.1 tollgate");
    const HTTP_2: HeaderValue = HeaderValue::from_static("2 tollgate");
    match version {
        Version::HTTP_10 => HTTP_10,
        Version::HTTP_2 => HTTP_2,
        _ => HTTP_11,
    }
}
