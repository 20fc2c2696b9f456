//! Heads that are refused before they are requests, by hyper or for being late: they are counted and logged too.

use super::{Worker, handshake_facts, request_id};
use crate::clock;
use crate::listen::Peer;
use crate::listen::handler::RejectedHead;
use crate::telemetry::access_log::{AccessRecord, Reason};
use crate::telemetry::metrics::AnswerSource;
use http::{HeaderMap, Method, StatusCode, Version};
use std::time::Duration;

/// Counts a refused head and writes its line.
pub(super) fn note(worker: &Worker, head: &RejectedHead<'_>, peer: &Peer) {
    let line = RequestLine::read(head.line);
    let method = line.as_ref().map(|line| &line.method);
    let unknown = Method::from_bytes(b"-").unwrap_or_default();
    let status = head.status.as_u16();
    worker.current().unrouted.request(
        // A method that cannot be read is counted as an unknown one.
        method.unwrap_or(&unknown),
        status,
        AnswerSource::Gateway,
        Duration::ZERO,
    );
    if !worker.access.is_on() {
        return;
    }
    let now = clock::wall();
    worker.access.record(&AccessRecord {
        ts: now.micros(),
        // Only the log has this id: hyper's answer has none of our fields.
        request_id: request_id::of(&HeaderMap::new(), false, now).as_bytes(),
        client: peer.ip(),
        peer: peer.ip(),
        method: method.map(Method::as_str),
        path: line.as_ref().map(|line| line.path),
        proto: line.as_ref().map(|line| line.version),
        status,
        reason: match head.status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Reason::TooLarge,
            StatusCode::REQUEST_TIMEOUT => Reason::ClientTimeout,
            _ => Reason::BadRequest,
        },
        tls: peer.tls().map(|tls| handshake_facts::logged(tls, None)),
        ..AccessRecord::default()
    });
}

/// A request line, as far as the bytes make one.
#[derive(Debug, PartialEq, Eq)]
struct RequestLine<'a> {
    method: Method,
    path: &'a [u8],
    version: Version,
}

impl<'a> RequestLine<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match version {
            b"HTTP/1.1" => Version::HTTP_11,
            b"HTTP/1.0" => Version::HTTP_10,
            _ => return None,
        };
        if target.is_empty() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            method: Method::from_bytes(method).ok()?,
            path: target.split(|byte| matches!(byte, b'?' | b'#')).next()?,
            version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_one_is_read_without_its_query() {
        let line = RequestLine::read(b"GET /a?secret HTTP/1.1").unwrap();
        assert_eq!((line.method, line.path), (Method::GET, &b"/a"[..]));
    }

    #[test]
    fn half_a_line_and_garbage_are_nothing() {
        for line in [
            &b""[..],
            b"GET",
            b"GET /a",
            b"GET /a HTTP/2.0",
            b"GET  HTTP/1.1",
            b"GET /a b HTTP/1.1",
            b"\x16\x03\x01 / HTTP/1.1",
        ] {
            assert_eq!(RequestLine::read(line), None, "{line:?}");
        }
    }
}
