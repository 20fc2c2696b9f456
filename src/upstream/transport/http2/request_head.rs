//! The head of a request in HTTP/2 (RFC 9113, section 8.3.1): the host is a pseudo-field, and connection-specific
//! fields of HTTP/1.1 are removed.

use super::connection::OpenStream;
use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};
use memchr::memchr;

/// Fields of connections of HTTP/1.1 (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The usual number of lines that the gateway adds.
const ADDED: usize = 8;

/// Adds lines in the form of HTTP/1.1: whole lines, possibly in several parts.
pub(super) fn add(fields: &mut HeaderMap, lines: &[&[u8]]) {
    // All values share one block: a separate block for a value would cost an allocation, and another when it is copied.
    let text = Bytes::from(lines.concat());
    if !text.is_empty() {
        fields.reserve(ADDED);
    }
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let length = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        if let Some((name, value)) = field(&text, &rest[..length]) {
            fields.append(name, value);
        }
        start += length;
    }
}

/// The field in a line of `text`.
fn field(text: &Bytes, line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = memchr(b':', line)?;
    let value = line[colon + 1..].trim_ascii();
    let name = match &line[..colon] {
        b"x-forwarded-for" => X_FORWARDED_FOR,
        b"x-real-ip" => X_REAL_IP,
        b"forwarded" => header::FORWARDED,
        b"x-forwarded-proto" => X_FORWARDED_PROTO,
        b"x-forwarded-host" => X_FORWARDED_HOST,
        b"via" => header::VIA,
        b"host" => header::HOST,
        b"x-request-id" => X_REQUEST_ID,
        other => HeaderName::from_bytes(other).ok()?,
    };
    let value = HeaderValue::from_maybe_shared(text.slice_ref(value)).ok()?;
    Some((name, value))
}

/// The head of a request on `stream`.
pub(super) fn head(request: &Parts, has_body: bool, stream: &OpenStream) -> Request<()> {
    let mut fields = request.headers.clone();
    if prepare(&mut fields, stream.is_reused) {
        remove_of_connections(&mut fields, has_body);
    }
    let host = fields.remove(header::HOST);
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if stream.is_encrypted() {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    });
    uri.authority = host.or_else(|| stream.authority());
    let path = request.uri.path_and_query().cloned();
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    let mut head = Request::new(());
    *head.method_mut() = request.method.clone();
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = fields;
    // All parts are present, so that they form a target.
    *head.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
    head
}

/// Marks the values that HPACK does not index. Returns whether one of the fields must differ in HTTP/2, or be removed.
///
/// Secret values never enter the table of the connection, which other clients' requests share (RFC 7541, section 7.1).
/// Values that hardly recur would only displace others from the table, and h2 compares each value with all values of
/// its name. The first request of a connection puts their names into the table.
fn prepare(fields: &mut HeaderMap, has_names: bool) -> bool {
    let mut has_others = false;
    for (name, value) in fields {
        match name.as_str() {
            "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection"
            | "content-length" => has_others = true,
            "authorization" | "cookie" => value.set_sensitive(true),
            "x-request-id" | "traceparent" | "x-forwarded-for" | "x-real-ip" | "forwarded" => {
                value.set_sensitive(has_names || value.is_sensitive());
            }
            _ => {}
        }
    }
    has_others
}

/// Removes connection-specific fields of HTTP/1.1, and a length that does not fit.
fn remove_of_connections(fields: &mut HeaderMap, has_body: bool) {
    let is_coded = fields.contains_key(header::TRANSFER_ENCODING);
    for name in OF_CONNECTIONS {
        fields.remove(name);
    }
    // The frames end the body; a length that does not fit them makes the request malformed.
    if is_coded
        || !has_body
        || fields
            .get_all(header::CONTENT_LENGTH)
            .iter()
            .nth(1)
            .is_some()
    {
        let is_nothing = |length: &HeaderValue| !is_coded && length.as_bytes() == b"0";
        if !fields.get(header::CONTENT_LENGTH).is_some_and(is_nothing) {
            fields.remove(header::CONTENT_LENGTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_parts_become_fields() {
        let mut fields = HeaderMap::new();
        add(
            &mut fields,
            &[b"via: 1.1 gateway\r\nx-request-id: ", b"a-b", b"\r\n"],
        );
        assert_eq!(fields["via"], "1.1 gateway");
        assert_eq!(fields["x-request-id"], "a-b");
        assert_eq!(fields.len(), 2);
        add(&mut fields, &[b"", b"", b""]);
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn secrets_are_never_indexed_and_what_differs_is_not_behind_the_first_request() {
        for has_names in [false, true] {
            let mut fields = HeaderMap::new();
            for name in ["cookie", "x-request-id", "forwarded", "accept"] {
                fields.append(name, HeaderValue::from_static("value"));
            }
            assert!(!prepare(&mut fields, has_names));
            let unindexed: Vec<_> = fields
                .iter()
                .filter(|(_, value)| value.is_sensitive())
                .map(|(name, _)| name.as_str())
                .collect();
            match has_names {
                false => assert_eq!(unindexed, ["cookie"]),
                true => assert_eq!(unindexed, ["cookie", "x-request-id", "forwarded"]),
            }
        }
    }

    #[test]
    fn what_belongs_to_a_connection_is_gone_and_a_length_that_fits_stays() {
        let mut fields = HeaderMap::new();
        for name in OF_CONNECTIONS {
            fields.append(name, HeaderValue::from_static("x"));
        }
        fields.append("content-length", HeaderValue::from_static("3"));
        assert!(prepare(&mut fields, true));
        remove_of_connections(&mut fields, true);
        assert!(
            fields.is_empty(),
            "a coding makes the length void: {fields:?}"
        );
        for (has_body, left) in [(true, 1), (false, 0)] {
            fields.insert("content-length", HeaderValue::from_static("3"));
            assert!(prepare(&mut fields, true));
            remove_of_connections(&mut fields, has_body);
            assert_eq!(fields.len(), left);
        }
    }
}
