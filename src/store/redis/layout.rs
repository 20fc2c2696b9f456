//! Where counters live: `PREFIX:VERSION:limit:KIND:{key}`.
//!
//! The name is the identity, so that edited numbers keep the counters. The braces make the key alone choose the cluster
//! slot: what counts the same client lives together.

use crate::limit::Limit;
use std::fmt::Write;

/// Of the bytes behind the keys. States of another version are left to expire.
pub(super) const VERSION: u32 = 1;

/// Everything in front of the key, built once for each limit.
///
/// A name may hold any character. Those that mean something in a key are escaped, so that no two limits share one.
#[must_use]
pub(super) fn key_prefix(prefix: &str, limit: &Limit) -> Box<[u8]> {
    let mut text = format!("{prefix}:{VERSION}:");
    for character in limit.name.chars() {
        match character {
            ':' | '{' | '}' | '%' => {
                let _ = write!(text, "%{:02X}", u32::from(character));
            }
            other => text.push(other),
        }
    }
    let _ = write!(text, ":{}:{{", limit.kind);
    text.into_bytes().into()
}

/// The key that a probe counts on, up to its closing brace. No limit has it: it has no kind.
#[must_use]
pub(super) fn probe_key(prefix: &str) -> Vec<u8> {
    format!("{prefix}:{VERSION}:probe:{{").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::tests::support::{limit, token_bucket};

    #[test]
    fn a_name_with_marks_in_it_cannot_be_taken_for_another() {
        let plain = limit("per-key", token_bucket(10, 1_000_000, 10));
        assert_eq!(&*key_prefix("tollgate", &plain), b"tollgate:1:per-key:tb:{");
        let odd = limit("a:{b}%", token_bucket(10, 1_000_000, 10));
        assert_eq!(&*key_prefix("x", &odd), b"x:1:a%3A%7Bb%7D%25:tb:{");
    }
}
