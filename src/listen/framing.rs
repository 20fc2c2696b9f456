//! Follows the framing of an HTTP/1.1 connection in the bytes that hyper reads, for the facts that hyper does not
//! report.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding`, and the http crate cuts a `#fragment` off. Both make a
//! request that was refused elsewhere look harmless here. Nor does hyper report the heads that it refuses by itself.
//! This tracker therefore runs in step with hyper's parser, byte for byte. Where the tracker is stricter or laxer than
//! hyper, hyper decides: a head that hyper refuses is the connection's last one, and a tracker that has lost its
//! position finds no fault any more.

use super::chunk_framing::{ChunkProgress, ChunkState};
use memchr::memchr;

/// Most bytes of a first line that are kept: enough to recognise a request in the log.
const KEPT: usize = 1024;

/// The fault of a head that hyper takes nevertheless. This tracker finds it in HTTP/1.1, the streams find it in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingFault {
    /// The head has `Content-Length` and `Transfer-Encoding` (RFC 9112, section 6.1).
    LengthAndCoding,
    /// The target has a `#` (RFC 9112, section 3.2.1).
    Fragment,
    /// A head of HTTP/2 has more bytes than allowed.
    TooLarge,
}

/// The position in the bytes of one connection, which begins at its start.
#[derive(Debug, Default)]
pub(super) struct FramingTracker {
    at: FramingState,
    head: HeadFields,
    /// Heads that have ended.
    ended: u64,
    /// The latest fault, and the number of its head.
    fault: Option<(u64, FramingFault)>,
    /// The first line of the latest head, as far as it is kept.
    line: Vec<u8>,
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
    /// In a body, with this many bytes to come.
    Body(u64),
    /// In a body of chunks.
    ChunkState(ChunkState),
    /// In bytes that are not followed any more.
    Lost,
}

/// The framing fields of the head being read.
#[derive(Debug, Default)]
struct HeadFields {
    length: Option<u64>,
    /// A length that hyper refuses, except where a coding makes hyper ignore the length.
    odd_length: bool,
    coded: bool,
    /// The method has been read.
    in_target: bool,
    fragment: bool,
}

impl FramingTracker {
    /// The fault of the head that ended as the `nth`, counted from 1.
    pub(super) fn fault(&self, nth: u64) -> Option<FramingFault> {
        let (head, fault) = self.fault?;
        (head == nth).then_some(fault)
    }

    /// The beginning of the first line of the latest head.
    pub(super) fn line(&self) -> &[u8] {
        let line = &self.line;
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Bytes followed so far, while a body is on its way.
    pub(super) fn in_body(&self) -> Option<u64> {
        matches!(self.at, FramingState::Body(_) | FramingState::ChunkState(_)).then_some(self.seen)
    }

    /// Is the next byte the first one of a head, or of an empty line before it?
    pub(super) fn is_before_head(&self) -> bool {
        self.at == FramingState::Before
    }

    /// Has a head begun and not ended?
    pub(super) fn in_head(&self) -> bool {
        matches!(
            self.at,
            FramingState::First | FramingState::Field | FramingState::Other
        )
    }

    /// Follows the connection over bytes that were read from it.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        while !bytes.is_empty() {
            bytes = match self.at {
                FramingState::Lost => return,
                FramingState::Before => self.before(bytes),
                FramingState::First => self.first(bytes),
                FramingState::Field => self.field(bytes),
                FramingState::Other => self.other(bytes),
                FramingState::Body(left) => self.body(left, bytes),
                FramingState::ChunkState(place) => self.chunks(place, bytes),
            };
        }
    }

    /// Empty lines before a head are passed over, as hyper does (RFC 9112, section 2.2).
    fn before<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(start) = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else {
            return &[];
        };
        self.head = HeadFields::default();
        self.line.clear();
        self.at = FramingState::First;
        &bytes[start..]
    }

    fn first<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let kept = part.len().min(KEPT.saturating_sub(self.line.len()));
        self.line.extend_from_slice(&part[..kept]);
        let sign = memchr(b'#', part);
        // A method may contain the sign too.
        if sign.is_some() || end.is_none() {
            let blank = memchr(b' ', part);
            let target = if self.head.in_target { Some(0) } else { blank };
            self.head.in_target = target.is_some();
            let behind = target.map(|target| &part[target..]);
            self.head.fragment |= behind.is_some_and(|target| target.contains(&b'#'));
        }
        let Some(end) = end else {
            return &[];
        };
        self.at = FramingState::Field;
        &bytes[end + 1..]
    }

    fn field<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
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

    fn chunks<'a>(&mut self, place: ChunkState, bytes: &'a [u8]) -> &'a [u8] {
        let (at, rest) = match place.advance(bytes) {
            ChunkProgress::Within(place) => (FramingState::ChunkState(place), &[][..]),
            ChunkProgress::EndReason(with) => (FramingState::Before, &bytes[with..]),
            ChunkProgress::Broken => (FramingState::Lost, &[][..]),
        };
        self.at = at;
        rest
    }

    /// Reads a whole line below the first one.
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
            FramingState::ChunkState(ChunkState::Start)
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
    let (own, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    own.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests;
