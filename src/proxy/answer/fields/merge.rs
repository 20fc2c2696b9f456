//! Merging with an upstream that has limits of its own: its fields stay in addition to the gateway's.

use crate::limit::Limit;
use crate::proxy::answer::fields::{X_LIMIT, X_REMAINING, set};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The fields that the upstream has written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UpstreamFields {
    /// `RateLimit` or `RateLimit-Policy`.
    pub(super) standard: bool,
    /// `X-RateLimit-Remaining`.
    pub(super) legacy: bool,
}

/// Puts our items before the upstream's, in one list. An upstream's value that is not a list of named items is dropped:
/// it would make the whole field invalid (RFC 9651, section 4.2).
pub(super) fn lead(
    fields: &mut HeaderMap,
    name: HeaderName,
    ours: HeaderValue,
    theirs: UpstreamFields,
) {
    if !theirs.standard || !fields.contains_key(&name) {
        return set(fields, name, ours);
    }
    join(fields, name, ours);
}

/// Joins our items and the upstream's.
#[cold]
fn join(fields: &mut HeaderMap, name: HeaderName, ours: HeaderValue) {
    let mut all = BytesMut::from(ours.as_bytes());
    for line in fields.get_all(&name) {
        if is_list(line.as_bytes()) {
            all.extend_from_slice(b", ");
            all.extend_from_slice(line.as_bytes().trim_ascii());
        }
    }
    let all = HeaderValue::from_maybe_shared(all.freeze()).unwrap_or(ours);
    fields.insert(name, all);
}

/// Lets pages of other origins read the fields in `ours`, a list of names. The answer gets one such field: the names of
/// the upstream or the file, followed by those of ours that are not among them.
#[inline(never)]
pub(super) fn expose(fields: &mut HeaderMap, ours: &'static str) {
    const NAME: HeaderName = header::ACCESS_CONTROL_EXPOSE_HEADERS;
    if !fields.contains_key(NAME) {
        return set(fields, NAME, HeaderValue::from_static(ours));
    }
    let mut names: Vec<&[u8]> = Vec::new();
    let theirs = fields.get_all(NAME).into_iter().map(HeaderValue::as_bytes);
    for line in theirs.chain([ours.as_bytes()]) {
        for name in line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let is_there = names.iter().any(|known| known.eq_ignore_ascii_case(name));
            if !name.is_empty() && !is_there {
                names.push(name);
            }
        }
    }
    if let Ok(all) = HeaderValue::from_bytes(&names.join(&b", "[..])) {
        set(fields, NAME, all);
    }
}

/// Is the text a list of strings with parameters, judging without reading every parameter? A parameter may be a string
/// itself, as the unit of a quota is.
fn is_list(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(comma) = end_of_item(rest) {
        if !is_item(&rest[..comma]) {
            return false;
        }
        rest = &rest[comma + 1..];
    }
    is_item(rest)
}

fn is_item(text: &[u8]) -> bool {
    let Some(inside) = text.trim_ascii().strip_prefix(b"\"") else {
        return false;
    };
    end_of_string(inside).is_some_and(|end| {
        let parameters = inside[end + 1..].trim_ascii();
        parameters.is_empty() || parameters.starts_with(b";")
    })
}

/// The position of the comma after the first item.
fn end_of_item(items: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    items.iter().position(|byte| {
        quoted ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && quoted && !escaped;
        *byte == b',' && !quoted
    })
}

/// The position of the closing quote.
fn end_of_string(inside: &[u8]) -> Option<usize> {
    let mut escaped = false;
    inside.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

/// Has the upstream a smaller fraction of its quota left than `left` is of our limit's capacity? If so, all of its
/// fields stay. If the upstream does not name its quota, the numbers left are compared.
pub(super) fn is_tighter(fields: &HeaderMap, limit: &Limit, left: u64) -> bool {
    // Some upstreams write `100, 100;w=60`: the applying quota, then all of them with their windows.
    let number = |name: &HeaderName| -> Option<u64> {
        let text = fields.get(name)?.to_str().ok()?;
        text.split([',', ';']).next()?.trim().parse().ok()
    };
    let Some(remaining) = number(&X_REMAINING) else {
        return false;
    };
    let Some(quota) = number(&X_LIMIT) else {
        return remaining < left.min(limit.quota);
    };
    let ours = u128::from(left) * u128::from(quota);
    u128::from(remaining) * u128::from(limit.quota) < ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_strings_is_told_from_everything_else() {
        for (text, is) in [
            ("\"a\";r=1;t=2", true),
            ("\"a\"", true),
            ("\"a\";r=1, \"b,\\\"c\";r=2", true),
            ("\"a\";q=1;qu=\"concurrent-requests\", \"b\"", true),
            ("\"a\";pk=\"b, c\\\", d\";q=1, \"e\"", true),
            ("\"a\";pk=\"b\", c", false),
            ("limit=10, remaining=3, reset=5", false),
            ("10", false),
            ("\"a", false),
            ("\"a\" b", false),
            ("\"a\",", false),
            ("", false),
        ] {
            assert_eq!(is_list(text.as_bytes()), is, "{text}");
        }
    }
}
