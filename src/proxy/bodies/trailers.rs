//! The choice of trailers that are relayed.
//!
//! Trailers come after all decisions, so that no trailer may influence one (RFC 9110 section 6.5.1): no framing, no
//! routing, no credentials, no identity, no controls. Trailers are never merged into the head. `grpc-status`, checksums
//! and the like pass.

use crate::intake::claimed_fields::claim;
use crate::intake::stripped_fields;
use crate::proxy::server::{forwarded, hop};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;

/// Removes the trailers that may not be relayed.
pub fn filter(trailers: &mut HeaderMap) {
    hop::remove_all(trailers, |name| !may_relay(name));
}

/// The frame without the trailers that may not be relayed.
pub(in crate::proxy) fn filtered(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(fields) = frame.trailers_mut() {
        filter(fields);
    }
    frame
}

/// May a trailer of this name be relayed, in either direction?
#[must_use]
pub fn may_relay(name: &HeaderName) -> bool {
    const FAMILIES: [&str; 8] = [
        // Pseudo-fields, in case one is ever passed to us (RFC 9113 section 8.1).
        ":",
        "content-",
        "if-",
        "proxy-",
        "access-control-",
        "sec-",
        // The gateway's own fields of the head.
        "ratelimit",
        "x-ratelimit-",
    ];
    // A field that is removed from the head may not return as a trailer.
    if hop::ends_here(name) || forwarded::is_of_proxies(name) {
        return false;
    }
    let name = name.as_str();
    if claim(name).is_some() || stripped_fields::asks_for_method(name) {
        return false;
    }
    let is_odd = name.bytes().any(|byte| matches!(byte, b'_' | b'"'));
    let is_of_family = || FAMILIES.iter().any(|family| name.starts_with(family));
    !is_odd && !is_of_family() && !is_of_the_head(name)
}

fn is_of_the_head(name: &str) -> bool {
    matches!(
        name,
        // Fields of framing.
        "trailer"
        // Fields of routing.
        | "host" | "max-forwards" | "via" | "location"
        // Fields with credentials.
        | "authorization" | "www-authenticate" | "authentication-info" | "cookie" | "set-cookie"
        // A field of identity.
        | "x-request-id"
        // Fields of control.
        | "age" | "cache-control" | "date" | "expires" | "pragma" | "range" | "retry-after"
        | "retry-after-ms" | "strict-transport-security" | "vary" | "warning"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_something_is_not_relayed() {
        for name in [
            "content-length",
            "transfer-encoding",
            "content-encoding",
            "trailer",
            "host",
            "authorization",
            "proxy-authorization",
            "cookie",
            "set-cookie",
            "x-forwarded-for",
            "forwarded",
            "x-real-ip",
            "x_real_ip",
            "x-original-url",
            "x-rewrite-url",
            "tollgate-granted",
            "keep-alive",
            "te",
            "upgrade",
            "http2-settings",
            "expect",
            "cache-control",
            "if-match",
            "connection",
            "ratelimit-policy",
        ] {
            assert!(!may_relay(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn what_reports_is() {
        let names = [
            "grpc-status",
            "grpc-message",
            "grpc-status-details-bin",
            "x-checksum",
            "etag",
        ];
        let mut trailers = HeaderMap::new();
        for name in names.into_iter().chain(["set-cookie", "host"]) {
            trailers.append(name, "x".parse().unwrap());
            trailers.append(name, "y".parse().unwrap());
        }
        filter(&mut trailers);
        assert_eq!(trailers.keys_len(), names.len());
        assert_eq!(trailers.len(), names.len() * 2);
    }
}
