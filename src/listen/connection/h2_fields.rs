//! Fields of responses that HPACK does not index: fields with a different value in nearly every response.
//!
//! Indexed, each value would displace a useful one from the client's table (RFC 7541, section 2.3.2) and never be
//! referenced again. h2 keeps the values of one name in a chain, starting with the oldest, and compares each new value
//! with all of them.

use http::HeaderMap;
use std::cell::Cell;

/// The fields of one connection's responses.
#[derive(Debug, Default)]
pub(super) struct IndexedFields {
    /// The names of fields are in the client's table.
    has_names: Cell<bool>,
}

impl IndexedFields {
    /// Prepares the fields of a response: values that are not worth an index are sent as literals.
    ///
    /// The first response is left unchanged, since its values put the names into the client's table.
    pub(super) fn prepare(&self, fields: &mut HeaderMap) {
        if !self.has_names.replace(true) {
            return;
        }
        for (name, value) in fields {
            if varies(name.as_str()) {
                value.set_sensitive(true);
            }
        }
    }
}

/// Is the field's value likely to differ in the next response? h2 itself handles the length, `ETag`, `Location` and the
/// cookies.
fn varies(name: &str) -> bool {
    // The length is compared first: most names need no further comparison.
    match name.len() {
        4 => name == "date",
        9 => name == "ratelimit",
        11 => name == "retry-after" || name == "traceparent",
        12 => name == "x-request-id",
        13 => name == "server-timing" || name == "last-modified",
        14 => name == "retry-after-ms",
        16 => name == "x-correlation-id",
        17 => name == "x-ratelimit-reset",
        21 => name == "x-ratelimit-remaining",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_changes_is_not_indexed_and_what_stays_is() {
        let mut fields = HeaderMap::new();
        for name in ["date", "x-request-id", "ratelimit", "x-ratelimit-reset"] {
            fields.append(name, HeaderValue::from_static("changes"));
        }
        for name in ["content-type", "server", "ratelimit-policy", "vary"] {
            fields.append(name, HeaderValue::from_static("stays"));
        }
        fields.append("server-timing", HeaderValue::from_static("changes"));
        fields.append("server-timing", HeaderValue::from_static("changes"));
        let indexed = IndexedFields::default();
        indexed.prepare(&mut fields);
        assert!(fields.values().all(|value| !value.is_sensitive()));
        indexed.prepare(&mut fields);
        for (name, value) in &fields {
            assert_eq!(value.is_sensitive(), value == "changes", "{name}");
        }
    }
}
