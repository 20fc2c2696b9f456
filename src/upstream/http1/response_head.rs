//! The head of an answer: its fields, and the way in which the end of its body is known (RFC 9112, sections 4 to 6).
//!
//! The tolerance is that of hyper's client, whose parser this is: lines may end with a bare line feed. Folded lines,
//! control characters and odd names are refused.

use super::offending_line::{Blame, OffendingLine};
use crate::interim::{InterimCount, TooMany};
use crate::upstream::head_bound::{FIELD, MOST_FIELDS, MOST_HEAD};
use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;
use memchr::memchr_iter;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Most bytes in front of the end of a head: a field has fewer on the wire than it counts.
pub(super) const MOST_BYTES: usize = MOST_HEAD;

/// Fields of an answer for which a head is read without memory of its own.
const MOST_USUAL: usize = 100;

/// Fields of an answer for which no memory is taken while the head is read.
const USUAL_FIELDS: usize = 32;

/// The room for fields that the gateway adds to an answer.
const OURS: usize = 8;

/// The longest body that can be announced: the two numbers above it are no lengths for hyper either.
const LONGEST_BODY: u64 = u64::MAX - 2;

/// The head of an answer that is no interim one.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The answer without its body.
    pub(super) response: Response<()>,
    /// The way in which the body's end is known.
    pub(super) framing: BodyFraming,
    /// The server keeps the connection afterwards.
    pub(super) keeps: bool,
}

/// The way in which the end of an answer's body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The answer has no body, or an empty one.
    Empty,
    /// The body has this many bytes.
    Length(u64),
    /// The body comes in chunks, of which the last is empty.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Causes for which the head of an answer is refused.
#[derive(Debug, thiserror::Error)]
pub enum HeadFault {
    /// The bytes are no head of HTTP/1.
    #[error("{}", in_words(*.0))]
    Syntax(httparse::Error),
    /// The status is none.
    #[error("the status is none")]
    Status,
    /// A field has a name or value that is not valid.
    #[error("a field's name or value is not valid")]
    Field,
    /// The lengths are no numbers, or differ.
    #[error("the lengths are no numbers, or differ")]
    Length,
    /// HTTP/1.0 has no transfer codings.
    #[error("transfer-encoding in an answer of HTTP/1.0")]
    Coding,
    /// The answer has a transfer coding that the gateway did not ask for, and an end that only its decoder finds.
    #[error("a transfer coding that the gateway did not ask for")]
    UnaskedCoding,
    /// The one coding that is always understood stands there more than once (RFC 9112, section 6.1).
    #[error("the transfer coding `chunked` stands there twice")]
    CodingTwice,
    /// The head has more bytes than are read.
    #[error("the head is too large")]
    TooLarge,
    /// More interim answers come than are heard, or more bytes of them than a head may have.
    #[error("{0}")]
    Interim(#[from] TooMany),
}

/// Drops the empty lines that `bytes` begin with, so that they are not parsed anew with each read.
///
/// # Errors
/// When they are too many.
#[cold]
fn drop_empty_lines(bytes: &mut BytesMut, interim: &mut InterimCount) -> Result<(), TooMany> {
    let empty = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    // A carriage return whose line feed is still to come stays.
    let whole = empty - usize::from(bytes[..empty].ends_with(b"\r"));
    bytes.advance(whole);
    interim.note_bytes(whole, MOST_BYTES)
}

/// The cause for which a head is refused, and the line of it.
#[derive(Debug)]
pub(super) struct BadHead {
    pub(super) fault: HeadFault,
    pub(super) line: OffendingLine,
}

impl BadHead {
    #[cold]
    fn of(fault: HeadFault, head: &[u8]) -> Self {
        Self {
            line: OffendingLine::of_head(&fault.blame(), head),
            fault,
        }
    }
}

/// No line of interim answers is worse than the others.
impl From<TooMany> for BadHead {
    fn from(fault: TooMany) -> Self {
        Self::of(fault.into(), b"")
    }
}

impl HeadFault {
    /// What tells the line that is to blame.
    fn blame(&self) -> Blame {
        match self {
            Self::Syntax(_) => Blame::Unreadable(is_malformed),
            Self::Status | Self::Interim(_) => Blame::First,
            Self::Field => Blame::Field,
            Self::Length => Blame::Named("content-length"),
            Self::Coding | Self::UnaskedCoding | Self::CodingTwice => {
                Blame::Named("transfer-encoding")
            }
            Self::TooLarge => Blame::Longest,
        }
    }
}

impl From<httparse::Error> for HeadFault {
    fn from(error: httparse::Error) -> Self {
        Self::Syntax(error)
    }
}

/// The parser's error in words that the authors of servers know.
fn in_words(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a field's name is not valid, or a line is folded",
        httparse::Error::HeaderValue => "a field's value has a control character",
        httparse::Error::NewLine => "a line does not end as it must",
        httparse::Error::Status => "the status is none",
        httparse::Error::TooManyHeaders => "too many fields",
        httparse::Error::Version => "the first line is none of HTTP/1.1 or HTTP/1.0",
        httparse::Error::Token => "a character stands where it may not",
    }
}

/// Is this the beginning of no head?
fn is_malformed(bytes: &[u8]) -> bool {
    Outline::of(bytes, &mut FieldPlaces::new()).is_err()
}

/// Where in the head a field stands.
struct FieldPlace {
    name: (usize, usize),
    value: (usize, usize),
}

/// The places of all fields of a head. They are filled where they lie: they are large to move.
type FieldPlaces = SmallVec<[FieldPlace; USUAL_FIELDS]>;

/// The first line of an answer, and its length with its fields.
struct Outline {
    length: usize,
    status: StatusCode,
    version: Version,
    reason: Option<ReasonPhrase>,
}

/// Can a head of which `seen` bytes have been looked at without an end be whole now? A server that sends its head byte
/// by byte must not have it parsed anew for each.
pub(super) fn may_be_whole(bytes: &[u8], seen: usize) -> bool {
    seen == 0
        || memchr_iter(b'\n', &bytes[seen..]).any(|at| {
            let before = &bytes[..seen + at];
            before.ends_with(b"\n") || before.ends_with(b"\n\r")
        })
}

/// Takes the head of the answer from `bytes`, and interim answers before it. Nothing while it is not whole.
///
/// The fields are put into `spare`, which is empty and has room. `to_head` means that the request's method is HEAD.
/// What comes before the head is counted in `interim`.
///
/// # Errors
/// When the bytes are no answer of HTTP/1, the end of its body cannot be told, or too much comes before it.
pub(super) fn take(
    bytes: &mut BytesMut,
    to_head: bool,
    spare: &mut HeaderMap,
    interim: &mut InterimCount,
) -> Result<Option<ResponseHead>, BadHead> {
    while let Some(first) = bytes.first() {
        if matches!(first, b'\r' | b'\n') && bytes.len() > 1 {
            drop_empty_lines(bytes, interim)?;
        }
        let mut places = FieldPlaces::new();
        let outline = Outline::of(bytes, &mut places);
        let Some(outline) = outline.map_err(|fault| BadHead::of(fault, bytes))? else {
            if bytes.len() >= MOST_BYTES {
                return Err(BadHead::of(HeadFault::TooLarge, bytes));
            }
            return Ok(None);
        };
        let lines = bytes.split_to(outline.length).freeze();
        let head = outline.fill(&places, &lines, to_head, spare);
        let head = head.map_err(|fault| BadHead::of(fault, &lines))?;
        let status = head.response.status();
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(head));
        }
        interim.note(lines.len(), MOST_BYTES)?;
        // The gateway's client has not asked for an interim answer, and gets the answer alone.
        *spare = head.response.into_parts().0.headers;
        spare.clear();
    }
    Ok(None)
}

impl Outline {
    /// Reads the head that `bytes` begin with, and puts its fields' places into `places`. Nothing while it is not whole.
    fn of(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_USUAL];
        match Self::read(bytes, places, &mut fields) {
            Err(HeadFault::Syntax(httparse::Error::TooManyHeaders)) => Self::of_many(bytes, places),
            read => read,
        }
    }

    /// Reads a head with more fields than usual.
    #[cold]
    fn of_many(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let lines = memchr_iter(b'\n', bytes).count();
        // The last line may be the beginning of a field.
        let mut fields = vec![MaybeUninit::uninit(); (lines + 1).min(MOST_FIELDS)];
        match Self::read(bytes, places, &mut fields) {
            Err(HeadFault::Syntax(httparse::Error::TooManyHeaders)) => Err(HeadFault::TooLarge),
            read => read,
        }
    }

    /// Reads a head with at most as many fields as `fields` has room for.
    #[inline]
    fn read<'b>(
        bytes: &'b [u8],
        places: &mut FieldPlaces,
        fields: &mut [MaybeUninit<httparse::Header<'b>>],
    ) -> Result<Option<Self>, HeadFault> {
        let mut head = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut head, bytes, fields)?;
        let httparse::Status::Complete(length) = parsed else {
            return Ok(None);
        };
        if length + head.headers.len() * FIELD > MOST_HEAD && is_too_large(length, head.headers) {
            return Err(HeadFault::TooLarge);
        }
        let start = bytes.as_ptr().addr();
        let place = |part: &[u8]| {
            let from = part.as_ptr().addr() - start;
            (from, from + part.len())
        };
        let status = StatusCode::from_u16(head.code.unwrap_or_default());
        let status = status.map_err(|_| HeadFault::Status)?;
        let reason = head.reason.unwrap_or_default();
        places.extend(head.headers.iter().map(|field| FieldPlace {
            name: place(field.name.as_bytes()),
            value: place(field.value),
        }));
        Ok(Some(Self {
            length,
            status,
            version: match head.version {
                Some(1) => Version::HTTP_11,
                _ => Version::HTTP_10,
            },
            reason: match status.canonical_reason() {
                Some(usual) if usual == reason => None,
                _ => unusual_reason(reason)?,
            },
        }))
    }

    /// Reads the fields at `places` out of `lines`, the bytes of the head.
    fn fill(
        self,
        places: &FieldPlaces,
        lines: &Bytes,
        to_head: bool,
        spare: &mut HeaderMap,
    ) -> Result<ResponseHead, HeadFault> {
        let mut fields = std::mem::take(spare);
        // The gateway's own fields come to them.
        fields.reserve(places.len() + OURS);
        let mut framing = FramingFields::default();
        let mut keeps = self.version == Version::HTTP_11;
        for FieldPlace { name, value } in without_last_keep_alive(places, lines) {
            let name = field_name(&lines[name.0..name.1]);
            let value = HeaderValue::from_maybe_shared(lines.slice(value.0..value.1));
            let (Some(name), Ok(value)) = (name, value) else {
                return Err(HeadFault::Field);
            };
            match name {
                header::CONNECTION => keeps &= !says_close(&value),
                header::CONTENT_LENGTH => framing.read_length(&value),
                header::TRANSFER_ENCODING => framing.read_coding(&value),
                _ => {}
            }
            fields.append(name, value);
        }
        let body = framing.of(self.status, self.version, to_head)?;
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.version_mut() = self.version;
        *response.headers_mut() = fields;
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(reason);
        }
        Ok(ResponseHead {
            response,
            framing: body,
            // Who sends two framings may hold another one to be true than we do: nothing is read after such an answer.
            keeps: keeps && !framing.is_ambiguous() && self.status.as_u16() != 101,
        })
    }
}

/// Is a head of `length` bytes with these fields larger than one may be?
#[cold]
fn is_too_large(length: usize, fields: &[httparse::Header<'_>]) -> bool {
    let sizes = fields
        .iter()
        .map(|field| field.name.len() + field.value.len() + FIELD);
    length > MOST_BYTES || sizes.sum::<usize>() > MOST_HEAD
}

/// The fields without a `Connection: keep-alive` at their end, where many servers write it. It says what HTTP/1.1 does
/// anyway, and every answer loses it; elsewhere it would leave another order of the fields behind.
fn without_last_keep_alive<'a>(places: &'a [FieldPlace], lines: &[u8]) -> &'a [FieldPlace] {
    match places.split_last() {
        Some((FieldPlace { name, value }, others))
            if &lines[value.0..value.1] == b"keep-alive"
                && matches!(&lines[name.0..name.1], b"Connection" | b"connection") =>
        {
            others
        }
        _ => places,
    }
}

/// A field's name. The usual ones are recognised as they are usually spelled; only the others are read letter by letter.
fn field_name(spelled: &[u8]) -> Option<HeaderName> {
    let is = |one: &[u8], other: &[u8]| spelled == one || spelled == other;
    Some(match spelled.len() {
        4 if is(b"Date", b"date") => header::DATE,
        4 if is(b"ETag", b"etag") => header::ETAG,
        4 if is(b"Vary", b"vary") => header::VARY,
        6 if is(b"Server", b"server") => header::SERVER,
        10 if is(b"Connection", b"connection") => header::CONNECTION,
        12 if is(b"Content-Type", b"content-type") => header::CONTENT_TYPE,
        13 if is(b"Cache-Control", b"cache-control") => header::CACHE_CONTROL,
        13 if is(b"Last-Modified", b"last-modified") => header::LAST_MODIFIED,
        14 if is(b"Content-Length", b"content-length") => header::CONTENT_LENGTH,
        17 if is(b"Transfer-Encoding", b"transfer-encoding") => header::TRANSFER_ENCODING,
        _ => return HeaderName::from_bytes(spelled).ok(),
    })
}

/// A reason phrase that the status does not imply is passed on.
#[cold]
fn unusual_reason(reason: &str) -> Result<Option<ReasonPhrase>, HeadFault> {
    let reason = ReasonPhrase::try_from(reason.as_bytes());
    reason.map(Some).map_err(|_| HeadFault::Status)
}

/// The fields that frame an answer's body, as far as they have been read.
#[derive(Default)]
struct FramingFields {
    length: Option<u64>,
    is_length_invalid: bool,
    /// What the lines of `Transfer-Encoding` name together.
    coding: Option<Coding>,
}

/// The transfer coding of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    ChunkedTwice,
    Other,
}

impl Coding {
    /// The coding with one more member.
    fn with(before: Option<Self>, member: &[u8]) -> Self {
        let is_chunked = member.trim_ascii().eq_ignore_ascii_case(b"chunked");
        match before {
            None if is_chunked => Self::Chunked,
            Some(Self::Chunked | Self::ChunkedTwice) if is_chunked => Self::ChunkedTwice,
            _ => Self::Other,
        }
    }
}

impl FramingFields {
    /// Reads a line of `Content-Length`: several lengths are one, if they are equal.
    fn read_length(&mut self, value: &HeaderValue) {
        for number in value.as_bytes().split(|byte| *byte == b',') {
            let number = digits(number.trim_ascii()).filter(|length| *length <= LONGEST_BODY);
            self.is_length_invalid |= match (number, self.length) {
                (None, _) => true,
                (Some(number), Some(before)) => number != before,
                (Some(_), None) => false,
            };
            self.length = number;
        }
    }

    fn read_coding(&mut self, value: &HeaderValue) {
        for member in value.as_bytes().split(|byte| *byte == b',') {
            self.coding = Some(Coding::with(self.coding, member));
        }
    }

    /// Are there both a length and a coding?
    fn is_ambiguous(&self) -> bool {
        self.coding.is_some() && (self.length.is_some() || self.is_length_invalid)
    }

    /// The framing of the body (RFC 9112, section 6.3).
    fn of(
        &self,
        status: StatusCode,
        version: Version,
        to_head: bool,
    ) -> Result<BodyFraming, HeadFault> {
        let is_bodiless = to_head || matches!(status.as_u16(), 204 | 304);
        match self.coding {
            _ if status.is_informational() => return Ok(BodyFraming::Empty),
            Some(Coding::ChunkedTwice) => return Err(HeadFault::CodingTwice),
            Some(Coding::Other) => return Err(HeadFault::UnaskedCoding),
            _ if is_bodiless => return Ok(BodyFraming::Empty),
            Some(Coding::Chunked) if version == Version::HTTP_10 => return Err(HeadFault::Coding),
            Some(Coding::Chunked) => return Ok(BodyFraming::Chunked),
            None => {}
        }
        match self.length {
            _ if self.is_length_invalid => Err(HeadFault::Length),
            Some(0) => Ok(BodyFraming::Empty),
            Some(length) => Ok(BodyFraming::Length(length)),
            None => Ok(BodyFraming::UntilClose),
        }
    }
}

/// The fault of the transfer coding that the fields of an answer name, where there is one.
#[must_use]
pub fn coding_fault(fields: &HeaderMap) -> Option<(HeadFault, OffendingLine)> {
    let mut framing = FramingFields::default();
    let lines = fields.get_all(header::TRANSFER_ENCODING);
    lines.iter().for_each(|line| framing.read_coding(line));
    let fault = framing.of(StatusCode::OK, Version::HTTP_11, true).err()?;
    let last = lines
        .iter()
        .next_back()
        .map_or(&b""[..], HeaderValue::as_bytes);
    Some((
        fault,
        OffendingLine::of(&[b"transfer-encoding: ", last].concat()),
    ))
}

/// Does this line of `Connection` say that the connection ends?
pub(super) fn says_close(value: &HeaderValue) -> bool {
    let mut options = value.as_bytes().split(|byte| *byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The number that is written in `text` with digits alone.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_spelled() {
        for name in [
            "Date",
            "ETag",
            "Vary",
            "Server",
            "Connection",
            "Content-Type",
            "Cache-Control",
            "Last-Modified",
            "Content-Length",
            "Transfer-Encoding",
            "X-Other",
        ] {
            let expected = HeaderName::from_bytes(name.as_bytes()).ok();
            for spelled in [
                name.to_owned(),
                name.to_ascii_lowercase(),
                name.to_ascii_uppercase(),
            ] {
                assert_eq!(field_name(spelled.as_bytes()), expected, "{spelled}");
            }
        }
        assert_eq!(field_name(b""), None);
        assert_eq!(field_name(b"a b"), None);
    }

    #[test]
    fn keep_alive_is_left_out_where_it_stands_last() {
        for (sent, left) in [
            ("Connection: keep-alive\r\nb: 1\r\n", "connection b"),
            ("b: 1\r\nConnection: keep-alive\r\n", "b"),
            ("b: 1\r\nConnection: close\r\n", "b connection"),
            ("b: 1\r\nConnection: keep-alive, b\r\n", "b connection"),
        ] {
            let mut bytes = BytesMut::from(format!("HTTP/1.1 204 No\r\n{sent}\r\n").as_str());
            let mut fields = HeaderMap::new();
            let head = take(&mut bytes, false, &mut fields, &mut InterimCount::default()).unwrap();
            let head = head.unwrap();
            let names: Vec<_> = head
                .response
                .headers()
                .keys()
                .map(HeaderName::as_str)
                .collect();
            assert_eq!(names.join(" "), left);
            assert_eq!(head.keeps, !sent.contains("close"));
        }
    }

    /// The outcome of reading `sent` in pieces of `size` bytes.
    fn taken(sent: &[u8], size: usize) -> Result<Option<ResponseHead>, HeadFault> {
        let (mut bytes, mut interim) = (BytesMut::new(), InterimCount::default());
        for piece in sent.chunks(size) {
            bytes.extend_from_slice(piece);
            let head = take(&mut bytes, false, &mut HeaderMap::new(), &mut interim);
            let head = head.map_err(|bad| bad.fault)?;
            if head.is_some() {
                return Ok(head);
            }
        }
        Ok(None)
    }

    #[test]
    fn what_comes_before_an_answer_is_bounded_however_it_is_cut() {
        const INTERIM: &[u8] = b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n";
        const ANSWER: &[u8] = b"HTTP/1.1 204 No\r\n\r\n";
        let long = format!("HTTP/1.1 103 E\r\nLink: {}\r\n\r\n", "a".repeat(50_000));
        for size in [7, 100, 100_000] {
            let after =
                |interim: &[u8], times| taken(&[&interim.repeat(times), ANSWER].concat(), size);
            assert!(after(INTERIM, 100).unwrap().is_some());
            assert!(matches!(after(INTERIM, 101), Err(HeadFault::Interim(_))));
            assert!(after(long.as_bytes(), 8).unwrap().is_some());
            assert!(matches!(
                after(long.as_bytes(), 9),
                Err(HeadFault::Interim(_))
            ));
            assert!(after(b"\r\n", 1000).unwrap().is_some());
            assert!(after(b"\n", 1000).unwrap().is_some());
            assert!(after(b"\r\n", MOST_BYTES).is_err());
            assert!(after(b"\r", 2).is_err());
        }
    }

    fn shown(head: &[u8]) -> (String, String) {
        let mut bytes = BytesMut::from(head);
        let (mut spare, mut interim) = (HeaderMap::new(), InterimCount::default());
        let taken = take(&mut bytes, false, &mut spare, &mut interim);
        let bad = taken.expect_err("a fault");
        (bad.fault.to_string(), bad.line.to_string())
    }

    #[test]
    fn the_line_that_is_to_blame_is_found() {
        let large = format!(
            "a: {}\r\nb: {}\r\n",
            "x".repeat(300),
            "y".repeat(MOST_BYTES)
        );
        for (lines, line) in [
            (
                "good: 1\r\nbad name: 2\r\nbad too: 3\r\n\r\n",
                "bad name: 2",
            ),
            ("good: 1\r\n folded\r\n\r\n", " folded"),
            ("good: 1\r\nx: a\x01b\r\ngood: 2\r\n\r\n", "x: a\\x01b"),
            ("good: 1\r\nno colon\r\n\r\n", "no colon"),
            (
                "content-length: 3\r\nContent-Length: 4\r\n\r\n",
                "Content-Length: 4",
            ),
            (
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
                "transfer-encoding: chunked",
            ),
            (
                "Transfer-Encoding: gzip, chunked\r\n\r\n",
                "Transfer-Encoding: gzip, chunked",
            ),
            (&large, &format!("b: {}", "y".repeat(125))),
        ] {
            let (fault, found) = shown(format!("HTTP/1.1 200 OK\r\n{lines}").as_bytes());
            assert_eq!(found, line, "{fault}");
        }
        for garbage in [&b"garbage"[..], b"garbage\r\nmore\r\n"] {
            assert_eq!(shown(garbage).1, "garbage");
        }
        assert_eq!(shown(b"HTTP/1.1 2000 OK\r\n\r\n").1, "HTTP/1.1 2000 OK");
    }

    #[test]
    fn a_coding_that_stands_twice_is_told_apart() {
        let fault = |lines: &str| shown(format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes()).0;
        for twice in [
            "transfer-encoding: chunked, chunked\r\n",
            "transfer-encoding: chunked\r\nTransfer-Encoding: Chunked\r\n",
        ] {
            assert_eq!(
                fault(twice),
                "the transfer coding `chunked` stands there twice"
            );
        }
        for other in ["gzip", "gzip, chunked", "chunked, gzip", "", "chunked,"] {
            let words = fault(&format!("transfer-encoding: {other}\r\n"));
            assert!(words.contains("did not ask for"), "{other}: {words}");
        }
    }
}
