//! The head of a request as bytes, and the framing of its body (RFC 9112, sections 3 and 6).

use super::response_head::{digits, says_close};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use std::io::Write as _;

/// The usual length of a field's line.
const USUAL_LINE: usize = 48;

/// The framing of a request's body.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// There is no body.
    Bodiless,
    /// This number of bytes follows.
    After(u64),
    /// Chunks follow; after them come the trailers that `Trailer` has announced.
    Chunks(Vec<HeaderName>),
}

/// A head that has been written.
#[derive(Debug)]
pub(super) struct WrittenHead {
    /// The framing of the body.
    pub(super) end: BodyEnd,
    /// The connection may be used again.
    pub(super) keeps: bool,
}

/// Writes the head of `request` to `line`, and `added` after its fields: whole lines, none of which frames the body. A
/// body without a valid length is chunked.
pub(super) fn write(
    request: &Parts,
    added: &[&[u8]],
    is_bodiless: bool,
    line: &mut Vec<u8>,
) -> WrittenHead {
    let fields = &request.headers;
    let more: usize = added.iter().map(|part| part.len()).sum();
    line.reserve((fields.len() + 3) * USUAL_LINE + more);
    line.extend_from_slice(request.method.as_str().as_bytes());
    line.push(b' ');
    match (request.uri.path_and_query(), request.uri.authority()) {
        (Some(target), None) => line.extend_from_slice(target.as_str().as_bytes()),
        // Writing to memory cannot fail.
        _ => drop(write!(line, "{}", request.uri)),
    }
    line.extend_from_slice(b" HTTP/1.1\r\n");

    let end = if is_bodiless {
        BodyEnd::Bodiless
    } else {
        body_end(fields)
    };
    let mut keeps = true;
    for (name, value) in fields {
        match *name {
            // The writer sets the framing itself.
            header::TRANSFER_ENCODING => continue,
            header::CONTENT_LENGTH => match end {
                BodyEnd::Chunks(_) => continue,
                BodyEnd::After(_) => {}
                // A server would wait for the bytes that a head without a body announces.
                BodyEnd::Bodiless => keeps &= value.as_bytes() == b"0",
            },
            header::CONNECTION => keeps &= !says_close(value),
            _ => {}
        }
        write_field(name, value, line);
    }
    for part in added {
        line.extend_from_slice(part);
    }
    if is_bodiless && may_mean_a_body(request) {
        line.extend_from_slice(b"content-length: 0\r\n");
    }
    if let BodyEnd::Chunks(_) = end {
        line.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    line.extend_from_slice(b"\r\n");
    WrittenHead { end, keeps }
}

/// Does the method usually have bodies, so that a request without one must state so (RFC 9110, section 8.6)?
#[inline]
fn may_mean_a_body(request: &Parts) -> bool {
    request.method != Method::GET
        && [Method::POST, Method::PUT, Method::PATCH].contains(&request.method)
        && !request.headers.contains_key(header::CONTENT_LENGTH)
}

/// Writes one line of a head.
pub(super) fn write_field(name: &HeaderName, value: &HeaderValue, line: &mut Vec<u8>) {
    line.extend_from_slice(name.as_str().as_bytes());
    line.extend_from_slice(b": ");
    line.extend_from_slice(value.as_bytes());
    line.extend_from_slice(b"\r\n");
}

/// The framing of a body whose head has these fields: a valid length counts, else the body is chunked.
fn body_end(fields: &HeaderMap) -> BodyEnd {
    let lines = fields.get_all(header::CONTENT_LENGTH).into_iter();
    let mut numbers = lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(|number| digits(number.trim_ascii()));
    match numbers.next().flatten() {
        Some(length)
            if numbers.all(|number| number == Some(length))
                && !fields.contains_key(header::TRANSFER_ENCODING) =>
        {
            BodyEnd::After(length)
        }
        _ => BodyEnd::Chunks(announced_trailers(fields)),
    }
}

/// The trailers that the head announces.
fn announced_trailers(fields: &HeaderMap) -> Vec<HeaderName> {
    let lines = fields.get_all(header::TRAILER).into_iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(may_trail)
        .collect()
}

/// May a field of this name be a trailer, if announced?
pub(in crate::upstream) fn may_trail(name: &HeaderName) -> bool {
    !matches!(
        *name,
        header::AUTHORIZATION
            | header::CACHE_CONTROL
            | header::CONTENT_ENCODING
            | header::CONTENT_LENGTH
            | header::CONTENT_RANGE
            | header::CONTENT_TYPE
            | header::HOST
            | header::MAX_FORWARDS
            | header::SET_COOKIE
            | header::TRAILER
            | header::TRANSFER_ENCODING
            | header::TE
    )
}
