//! The beginning of a refused head of HTTP/1.1, read leniently: the request that was meant, and the fault for which it
//! was refused.

use crate::intake::head::BadRequest;
use crate::telemetry::metrics::RefusedHead;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

/// The fields that are read: the log's, and the one that chooses the form of the answer.
const READ: [HeaderName; 3] = [header::HOST, header::USER_AGENT, header::ACCEPT];
/// The first line of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// The part of a head whose bytes could be read.
#[derive(Debug, Default)]
pub(super) struct HeadBeginning<'a> {
    /// The first line, without its end.
    line: &'a [u8],
    /// The complete lines of fields.
    lines: Vec<&'a [u8]>,
    pub(super) method: Option<Method>,
    pub(super) version: Option<Version>,
    /// The target's path, without a query.
    pub(super) path: Option<&'a [u8]>,
    /// Those fields that are read.
    pub(super) fields: HeaderMap,
}

impl<'a> HeadBeginning<'a> {
    pub(super) fn read(beginning: &'a [u8]) -> Self {
        let mut lines = beginning.split(|byte| *byte == b'\n').map(|line| {
            // The line's end may be either of the two (RFC 9112, section 2.2).
            line.strip_suffix(b"\r").unwrap_or(line)
        });
        let mut head = Self {
            line: lines.next().unwrap_or_default(),
            ..Self::default()
        };
        head.read_line();
        // The text after the last line end is incomplete.
        let mut lines = lines.peekable();
        while let Some(line) = lines.next() {
            if line.is_empty() || lines.peek().is_none() {
                break;
            }
            head.lines.push(line);
            head.read_field(line);
        }
        head
    }

    fn read_line(&mut self) {
        let mut parts = self.line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let version = match version {
            b"HTTP/1.1" => Version::HTTP_11,
            b"HTTP/1.0" => Version::HTTP_10,
            _ => return,
        };
        let Ok(method) = Method::from_bytes(method) else {
            return;
        };
        if target.is_empty() {
            return;
        }
        self.method = Some(method);
        self.version = Some(version);
        self.path = target.split(|byte| matches!(byte, b'?' | b'#')).next();
    }

    fn read_field(&mut self, line: &[u8]) {
        let Some((name, value)) = parted(line) else {
            return;
        };
        let mut read = READ.iter();
        let known = read.find(|known| name.eq_ignore_ascii_case(known.as_str().as_bytes()));
        if let (Some(name), Ok(value)) = (known, HeaderValue::from_bytes(value)) {
            self.fields.entry(name).or_insert(value);
        }
    }

    /// The fault for which hyper refuses the head, for the metrics and for the client.
    pub(super) fn fault(&self) -> (RefusedHead, BadRequest) {
        if self.line == PREFACE {
            return (RefusedHead::Line, BadRequest::Preface);
        }
        let mut parts = self.line.splitn(2, |byte| *byte == b' ');
        let method = parts.next().unwrap_or_default();
        let Some(rest) = parts.next().filter(|_| Method::from_bytes(method).is_ok()) else {
            return (RefusedHead::Line, BadRequest::Line);
        };
        let version = rest.iter().rposition(|byte| *byte == b' ');
        let target = &rest[..version.unwrap_or(rest.len())];
        if let Some(fault) = fault_of_target(target) {
            return (RefusedHead::Target, fault);
        }
        if self.version.is_none() {
            return (RefusedHead::Line, BadRequest::Line);
        }
        self.fault_of_framing()
            .unwrap_or((RefusedHead::Fields, BadRequest::Field))
    }

    fn fault_of_framing(&self) -> Option<(RefusedHead, BadRequest)> {
        let mut length = None;
        for (name, value) in self.lines.iter().filter_map(|line| parted(line)) {
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                return Some((RefusedHead::Length, BadRequest::BadCoding));
            }
            if name.eq_ignore_ascii_case(b"content-length") {
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                if !is_number || length.replace(value).is_some_and(|other| other != value) {
                    return Some((RefusedHead::Length, BadRequest::BadLength));
                }
            }
        }
        None
    }
}

/// Name and value of a field's line.
fn parted(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// The fault of a target as received, if hyper refuses the head for its target.
#[must_use]
pub fn fault_of_target(target: &[u8]) -> Option<BadRequest> {
    let text = match str::from_utf8(target) {
        Ok(text) => text,
        Err(error) => {
            let byte = target.get(error.valid_up_to());
            return Some(BadRequest::TargetByte(byte.copied().unwrap_or_default()));
        }
    };
    // The bytes after the authority that are encoded before hyper reads them are not faults.
    let authority = text.find("://").map_or(0, |at| at + 3);
    let path = if text.starts_with('/') {
        0
    } else {
        let path = text[authority..].find(['/', '?']);
        path.map_or(text.len(), |at| authority + at)
    };
    let passed = text[path..].replace(['"', '<', '>', '`'], "_");
    if Uri::try_from(format!("{}{passed}", &text[..path])).is_ok() {
        return None;
    }
    let is_control = |byte: &u8| matches!(byte, 0..=b' ' | 0x7f);
    let is_odd = |byte: &u8| is_control(byte) || b"\"<>\\^`{|}".contains(byte);
    let mut authority = text[..path].bytes().filter(is_odd);
    let mut others = passed.bytes().filter(is_control);
    let byte = authority.next().or_else(|| others.next());
    Some(byte.map_or(BadRequest::NoTarget, BadRequest::TargetByte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_one_is_read_without_its_query() {
        let head = HeadBeginning::read(
            b"GET /a?secret HTTP/1.1\r\nhost: a\r\nUser-Agent: b\r\nHost: c\r\nAcc",
        );
        assert_eq!(
            (head.method.as_ref(), head.path),
            (Some(&Method::GET), Some(&b"/a"[..]))
        );
        assert_eq!(head.fields[header::HOST], "a");
        assert_eq!(head.fields[header::USER_AGENT], "b");
        let body = HeadBeginning::read(b"GET / HTTP/1.1\r\n\r\nHost: no\r\n\r\n");
        assert!(body.fields.is_empty());
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
            assert_eq!(HeadBeginning::read(line).method, None, "{line:?}");
        }
    }

    #[test]
    fn the_fault_is_named() {
        use BadRequest as Bad;
        for (head, fault) in [
            (&b"GET /a b HTTP/1.1\r\n\r\n"[..], Bad::TargetByte(b' ')),
            (b"GET /a\x7f HTTP/1.1\r\n\r\n", Bad::TargetByte(0x7f)),
            (b"GET /a\xff HTTP/1.1\r\n\r\n", Bad::TargetByte(0xff)),
            (b"GET http://a\"/ HTTP/1.1\r\n\r\n", Bad::TargetByte(b'"')),
            (b"GET http:/// HTTP/1.1\r\n\r\n", Bad::NoTarget),
            (b"GET /a HTTP/3.0\r\n\r\n", Bad::Line),
            (b"G(T /a HTTP/1.1\r\n\r\n", Bad::Line),
            (b"hello\r\n", Bad::Line),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Bad::Preface),
            (b"GET /`?\"<> HTTP/1.1\r\na b: c\r\n\r\n", Bad::Field),
            (
                b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                Bad::BadLength,
            ),
            (
                b"GET / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
                Bad::BadCoding,
            ),
        ] {
            let named = HeadBeginning::read(head).fault().1;
            assert_eq!(named, fault, "{}", head.escape_ascii());
        }
    }
}
