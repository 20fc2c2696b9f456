//! Follows the framing of an HTTP/1.1 connection in the bytes that hyper reads, for facts that hyper does not report.
//!
//! hyper drops a `Content-Length` if there is a `Transfer-Encoding`, and the http crate cuts a `#fragment` off. Both
//! make a request look harmless here that other servers refuse. hyper does not report the heads that it refuses by
//! itself either. This tracker therefore runs in step with hyper's parser, byte for byte. If the tracker is stricter or
//! laxer than hyper, hyper decides: a head that hyper refuses is the connection's last one, and a tracker that has lost
//! its position reports no further fault.

use super::chunk_framing::{ChunkFramingState, ChunkProgress};
use super::raw_target::{self, TargetPlace};
use bytes::BytesMut;
use memchr::memchr;

/// The most bytes of a head that are kept: enough to recognise a request in the log, and its client.
const KEPT: usize = 1024;
/// The most pipelined heads whose beginnings are kept.
const MOST_SHELVED: usize = 16;

/// The fault of a head that hyper accepts nevertheless. This tracker finds it in HTTP/1.1, the streams find it in
/// HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingFault {
    /// The head has `Content-Length` and `Transfer-Encoding` (RFC 9112, section 6.1).
    LengthAndCoding,
    /// The target has a `#` (RFC 9112, section 3.2.1).
    Fragment,
    /// A head has more bytes than allowed. The gateway finds this fault in HTTP/2 alone; `explain` in any version.
    TooLarge,
}

/// The position in the bytes of one connection, starting at its beginning.
#[derive(Debug, Default)]
pub(super) struct FramingTracker {
    at: FramingState,
    head: HeadFields,
    /// The number of heads that have ended.
    ended: u64,
    /// The latest fault, and the number of its head.
    fault: Option<(u64, FramingFault)>,
    /// The kept beginning of the latest head.
    kept: Vec<u8>,
    /// The beginnings of earlier heads that did not become requests yet, with their numbers.
    earlier: Vec<(u64, Vec<u8>)>,
    /// The positions of bytes to encode in the target, in the bytes that were read last.
    raw: Vec<usize>,
    /// Heads that became requests.
    taken: u64,
    /// Line ends were skipped before the next head.
    is_padded: bool,
    /// The beginning of a line that may matter and was cut by the end of a read.
    cut: Vec<u8>,
    /// Bytes followed so far.
    seen: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    /// Before a head.
    #[default]
    Before,
    /// In the first line of a head.
    First,
    /// At the start of a field line, of which `cut` may hold a part.
    Field,
    /// In a field line that does not matter.
    Other,
    /// In a body, with this number of bytes left.
    Body(u64),
    /// In a chunked body.
    ChunkState(ChunkFramingState),
    /// In bytes that are no longer followed.
    Lost,
}

/// The framing fields of the head being read.
#[derive(Debug, Default)]
struct HeadFields {
    length: Option<u64>,
    /// A length that hyper refuses, unless a coding makes hyper ignore the length.
    odd_length: bool,
    coded: bool,
    target: TargetPlace,
    fragment: bool,
}

impl FramingTracker {
    /// The fault of the head that ended as the `nth`, counted from 1.
    pub(in crate::listen) fn fault(&self, nth: u64) -> Option<FramingFault> {
        let (head, fault) = self.fault?;
        (head == nth).then_some(fault)
    }

    /// The beginning of the first head that did not become a request yet.
    pub(in crate::listen) fn kept(&self) -> &[u8] {
        let next = self.taken + 1;
        let earlier = self.earlier.iter().find(|(number, _)| *number == next);
        earlier.map_or(&self.kept, |(_, kept)| kept)
    }

    /// The head that ended as the `nth`, counted from 1, became a request.
    pub(in crate::listen) fn takes(&mut self, nth: u64) {
        self.taken = nth;
        if !self.earlier.is_empty() {
            self.earlier.retain(|(number, _)| *number > nth);
        }
    }

    /// Saves the latest head, which did not become a request yet, since another one begins.
    #[cold]
    fn shelve(&mut self) {
        if self.earlier.len() < MOST_SHELVED {
            let kept = std::mem::take(&mut self.kept);
            self.earlier.push((self.ended, kept));
        }
    }

    /// Have bytes arrived that belong to no request yet? Only then can hyper have refused a head.
    pub(super) fn is_ahead(&self) -> bool {
        self.is_padded
            || self.ended != self.taken
            || !matches!(
                self.at,
                FramingState::Before | FramingState::Body(_) | FramingState::ChunkState(_)
            )
    }

    /// Frees the kept bytes of an answered head.
    pub(in crate::listen) fn rest(&mut self) {
        self.kept = Vec::new();
        self.raw = Vec::new();
    }

    /// `read`, which was followed last, with those bytes of its target encoded that hyper refuses. `None` if there are
    /// none.
    #[inline]
    pub(in crate::listen) fn encoded(&self, read: &[u8]) -> Option<BytesMut> {
        (!self.raw.is_empty()).then(|| raw_target::encoded(read, &self.raw))
    }

    /// The number of bytes followed so far, while in a body.
    pub(in crate::listen) fn in_body(&self) -> Option<u64> {
        matches!(self.at, FramingState::Body(_) | FramingState::ChunkState(_)).then_some(self.seen)
    }

    /// Are the bytes no longer followed, since a head or a body was malformed?
    pub(in crate::listen) fn is_lost(&self) -> bool {
        self.at == FramingState::Lost
    }

    /// Is the next byte the first one of a head, or of an empty line before it?
    pub(super) fn is_before_head(&self) -> bool {
        self.at == FramingState::Before
    }

    /// Has a head begun and not ended?
    pub(in crate::listen) fn in_head(&self) -> bool {
        matches!(
            self.at,
            FramingState::First | FramingState::Field | FramingState::Other
        )
    }

    /// Follows the connection over bytes that were read from it.
    pub(in crate::listen) fn advance(&mut self, read: &[u8]) {
        self.seen += read.len() as u64;
        if !self.raw.is_empty() {
            self.raw.clear();
        }
        if self.in_head() {
            self.keep(read);
        }
        let mut bytes = read;
        while !bytes.is_empty() {
            bytes = match self.at {
                FramingState::Lost => return,
                FramingState::Before => self.before(bytes),
                FramingState::First => self.first(bytes, read.len() - bytes.len()),
                FramingState::Field => self.field(bytes),
                FramingState::Other => self.other(bytes),
                FramingState::Body(left) => self.body(left, bytes),
                FramingState::ChunkState(place) => self.chunks(place, bytes),
            };
        }
    }

    /// Empty lines before a head are skipped, as in hyper (RFC 9112, section 2.2).
    fn before<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(start) = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else {
            self.is_padded = true;
            return &[];
        };
        self.is_padded = false;
        if self.ended != self.taken {
            self.shelve();
        }
        self.head = HeadFields::default();
        self.kept.clear();
        self.at = FramingState::First;
        self.keep(&bytes[start..]);
        &bytes[start..]
    }

    /// Keeps the beginning of a head, of which `bytes` have arrived.
    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(KEPT.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&bytes[..kept]);
    }

    /// Reads the first line, from position `at` of the read bytes on.
    fn first<'a>(&mut self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        let end = memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        // Most lines are complete and have no byte that matters.
        if end.is_none()
            || self.head.target != TargetPlace::default()
            || raw_target::may_matter(part)
        {
            self.head.fragment |= self.head.target.follow(part, at, &mut self.raw);
        }
        let Some(end) = end else {
            return &[];
        };
        self.at = FramingState::Field;
        &bytes[end + 1..]
    }

    fn field<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        if self.cut.is_empty() {
            // Most lines are complete and do not matter.
            while let Some(&first) = bytes.first()
                && !matches!(first, b'\r' | b'\n')
                && !matters(first)
                && let Some(end) = memchr(b'\n', bytes)
            {
                bytes = &bytes[end + 1..];
            }
            if bytes.is_empty() {
                return bytes;
            }
        }
        if let (Some(rest), true) = (bytes.strip_prefix(b"\r\n"), self.cut.is_empty()) {
            self.end_of_head();
            return rest;
        }
        let Some(end) = memchr(b'\n', bytes) else {
            let first = *self.cut.first().unwrap_or(&bytes[0]);
            // Only the fields that matter are read, and a line that may be the empty one.
            if matters(first) || first == b'\r' {
                self.cut.extend_from_slice(bytes);
            } else {
                self.at = FramingState::Other;
            }
            return &[];
        };
        if self.cut.is_empty() {
            self.line_of_head(&bytes[..end]);
        } else {
            let mut line = std::mem::take(&mut self.cut);
            line.extend_from_slice(&bytes[..end]);
            self.line_of_head(&line);
        }
        &bytes[end + 1..]
    }

    fn other<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr(b'\n', bytes) else {
            return &[];
        };
        self.at = FramingState::Field;
        &bytes[end + 1..]
    }

    fn body<'a>(&mut self, left: u64, bytes: &'a [u8]) -> &'a [u8] {
        let passed = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - passed as u64;
        self.at = if left == 0 {
            FramingState::Before
        } else {
            FramingState::Body(left)
        };
        &bytes[passed..]
    }

    fn chunks<'a>(&mut self, place: ChunkFramingState, bytes: &'a [u8]) -> &'a [u8] {
        let (at, rest) = match place.advance(bytes) {
            ChunkProgress::Within(place) => (FramingState::ChunkState(place), &[][..]),
            ChunkProgress::EndReason(with) => (FramingState::Before, &bytes[with..]),
            ChunkProgress::Broken => (FramingState::Lost, &[][..]),
        };
        self.at = at;
        rest
    }

    /// Reads a complete line after the first one.
    fn line_of_head(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(first) = line.first() else {
            return self.end_of_head();
        };
        if !matters(*first) {
            return;
        }
        if let Some(value) = value_of(line, b"content-length") {
            self.head.length_is(value);
        } else if value_of(line, b"transfer-encoding").is_some() {
            self.head.coded = true;
        }
    }

    fn end_of_head(&mut self) {
        self.ended += 1;
        let head = &self.head;
        let has_length = head.length.is_some() || head.odd_length;
        let fault = if head.coded && has_length {
            Some(FramingFault::LengthAndCoding)
        } else if head.fragment {
            Some(FramingFault::Fragment)
        } else {
            None
        };
        self.fault = fault.map(|fault| (self.ended, fault));
        self.at = if fault.is_some() || head.odd_length {
            FramingState::Lost
        } else if head.coded {
            FramingState::ChunkState(ChunkFramingState::Start)
        } else {
            match head.length {
                Some(length) if length > 0 => FramingState::Body(length),
                _ => FramingState::Before,
            }
        };
    }
}

impl HeadFields {
    fn length_is(&mut self, value: &[u8]) {
        let number = std::str::from_utf8(value)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok());
        self.odd_length |=
            number.is_none() || self.length.is_some_and(|known| Some(known) != number);
        self.length = number;
    }
}

/// Could a line with this first byte be one of the two fields that matter?
fn matters(first: u8) -> bool {
    matches!(first | 0x20, b'c' | b't')
}

/// The value of a field line with that name, without the blanks around it.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (field, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests;
