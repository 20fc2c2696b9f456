//! The fields of one hop that are handled before the route lookup: fields that `Connection` names, and `Max-Forwards`.

use super::head::BadRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use smallvec::SmallVec;

/// Most names in the `Connection` of a request.
const MOST_NAMED: usize = 100;

/// Removes the fields that a request's `Connection` names. Those fields end at this hop, so that no request is counted,
/// admitted or routed by a field that the upstream never sees. Each removed field is reported.
///
/// # Errors
/// If there are more than [`MOST_NAMED`] names: each needs a lookup, and no honest client sends so many.
pub fn drop_named(
    fields: &mut HeaderMap,
    report: impl FnMut(&HeaderName),
) -> Result<(), BadRequest> {
    let mut lines = fields
        .iter()
        .filter(|(name, _)| **name == header::CONNECTION);
    if lines.any(|(_, value)| !says_nothing(value)) {
        if tokens(fields, &header::CONNECTION)
            .nth(MOST_NAMED)
            .is_some()
        {
            return Err(BadRequest::ManyConnectionNames);
        }
        strip_named(fields, report);
    }
    Ok(())
}

/// Removes the fields that any `Connection` line names, and reports each removed field.
pub fn strip_named(fields: &mut HeaderMap, mut report: impl FnMut(&HeaderName)) {
    let named: SmallVec<[HeaderName; 4]> = tokens(fields, &header::CONNECTION)
        .filter(|token| !is_usual(token))
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in named {
        if fields.remove(&name).is_some() {
            report(&name);
        }
    }
}

/// Is this a common line of `Connection` that names no field?
#[must_use]
pub fn says_nothing(line: &HeaderValue) -> bool {
    matches!(
        line.as_bytes(),
        b"keep-alive" | b"close" | b"Keep-Alive" | b"Close"
    )
}

/// Is this a connection option that names no field, or a field that is removed anyway?
fn is_usual(token: &[u8]) -> bool {
    const USUAL: [&[u8]; 5] = [b"", b"keep-alive", b"close", b"upgrade", b"te"];
    USUAL.iter().any(|usual| token.eq_ignore_ascii_case(usual))
}

/// Is this a field for every recipient, which `Connection` cannot remove (RFC 9110 section 7.6.1)? A client that could
/// have the field removed here would remove a fact that a proxy in front vouches for, or the framing or routing of the
/// message.
fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded-")
        || name.starts_with("content-")
        || matches!(
            name,
            "host"
                | "authorization"
                | "cookie"
                | "set-cookie"
                | "cache-control"
                | "date"
                | "via"
                | "forwarded"
                | "x-real-ip"
                | "x-request-id"
                | "max-forwards"
        )
}

/// The members of a comma-separated field, over all its lines.
pub fn tokens<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = fields.get_all(name).into_iter();
    let members = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    members.map(<[u8]>::trim_ascii)
}

/// The result of `Max-Forwards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hops {
    /// The request may be forwarded.
    Left,
    /// The request is answered here, since it may not be forwarded further.
    Spent,
}

/// Counts `Max-Forwards` down, for TRACE and OPTIONS (RFC 9110 section 7.6.2). A value that is not a number stays
/// unchanged.
pub fn count_hop(method: &Method, fields: &mut HeaderMap) -> Hops {
    if !matches!(*method, Method::TRACE | Method::OPTIONS) {
        return Hops::Left;
    }
    let field = fields.get(header::MAX_FORWARDS);
    let text = field.and_then(|value| value.to_str().ok()).map(str::trim);
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(left) = text
        .filter(is_number)
        .and_then(|text| text.parse::<u64>().ok())
    else {
        return Hops::Left;
    };
    let Some(less) = left.checked_sub(1) else {
        return Hops::Spent;
    };
    fields.insert(header::MAX_FORWARDS, HeaderValue::from(less));
    Hops::Left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_counted_for_trace_and_options() {
        let count = |method: Method, value: &str| {
            let mut fields = HeaderMap::new();
            fields.insert("max-forwards", HeaderValue::from_str(value).unwrap());
            let hops = count_hop(&method, &mut fields);
            (hops, fields["max-forwards"].to_str().unwrap().to_owned())
        };
        assert_eq!(count(Method::OPTIONS, "0"), (Hops::Spent, "0".into()));
        assert_eq!(count(Method::TRACE, "2"), (Hops::Left, "1".into()));
        assert_eq!(count(Method::GET, "0"), (Hops::Left, "0".into()));
        assert_eq!(count(Method::OPTIONS, "x"), (Hops::Left, "x".into()));
        assert_eq!(count(Method::OPTIONS, "+1"), (Hops::Left, "+1".into()));
        assert_eq!(
            count_hop(&Method::OPTIONS, &mut HeaderMap::new()),
            Hops::Left
        );
    }
}
