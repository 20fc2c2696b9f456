//! The spelling of a host under which routes are stored.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// A host without port and final dot, in lower case; an IPv6 address in its shortest spelling, in brackets.
///
/// Allocates only if the host has another spelling. DNS names are case-insensitive (RFC 9110 section 4.2.3), and
/// `example.com.` is `example.com` (RFC 1034 section 3.1).
#[must_use]
pub fn host_key(authority: &str) -> Cow<'_, str> {
    if authority.starts_with('[') {
        return address_key(authority);
    }
    let mut is_mixed = false;
    let port = authority.bytes().position(|byte| {
        is_mixed |= byte.is_ascii_uppercase();
        byte == b':'
    });
    let host = &authority[..port.unwrap_or(authority.len())];
    let host = host.strip_suffix('.').unwrap_or(host);
    if is_mixed {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

fn address_key(authority: &str) -> Cow<'_, str> {
    let end = authority.find(']').map_or(authority.len(), |at| at + 1);
    let host = &authority[..end];
    let inside = host.trim_start_matches('[').trim_end_matches(']');
    match inside.parse::<Ipv6Addr>() {
        Ok(address) => Cow::Owned(format!("[{address}]")),
        Err(_) => Cow::Borrowed(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (authority, key) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.com:8080", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("api.example.com.:80", "api.example.com"),
            ("[::1]:8080", "[::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("", ""),
            ("[", "["),
        ] {
            assert_eq!(host_key(authority), key, "{authority}");
        }
    }

    #[test]
    fn the_usual_spelling_is_not_copied() {
        assert!(matches!(
            host_key("api.example.com:8080"),
            Cow::Borrowed("api.example.com")
        ));
    }
}
