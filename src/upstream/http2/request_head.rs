//! The head of a request as HTTP/2 carries it (RFC 9113, section 8.3.1): the host is a pseudo-field, and what belongs to
//! connections of HTTP/1.1 is gone.

use super::connection::OpenStream;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};

/// Fields of connections of HTTP/1.1 (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Adds lines as HTTP/1.1 writes them: whole lines, maybe in several parts.
pub(super) fn add(fields: &mut HeaderMap, lines: &[&[u8]]) {
    let text = lines.concat();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            fields.append(name, value);
        }
    }
}

/// The head of a request on `stream`.
pub(super) fn head(request: &Parts, has_body: bool, stream: &OpenStream) -> Request<()> {
    let mut fields = request.headers.clone();
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
    // Values that are secret never enter the table of the connection, which other clients' requests share (RFC 7541,
    // section 7.1).
    for name in [header::AUTHORIZATION, header::COOKIE] {
        if let header::Entry::Occupied(mut entry) = fields.entry(name) {
            entry.iter_mut().for_each(|value| value.set_sensitive(true));
        }
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
    // All parts are there, so they make a target.
    *head.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
    head
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
}
