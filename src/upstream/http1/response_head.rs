//! The head of an answer: its fields, and the way in which the end of its body is known (RFC 9112, sections 4 to 6).
//!
//! The tolerance is that of hyper's client, whose parser this is: lines may end with a bare line feed. Folded lines,
//! control characters and odd names are refused.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;
use memchr::memchr_iter;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// The most fields of an answer.
pub(super) const MOST_FIELDS: usize = 100;

/// The most bytes of an answer's head.
pub(super) const MOST_BYTES: usize = 408 * 1024;

/// Fields of an answer for which no memory is taken while the head is read.
const USUAL_FIELDS: usize = 32;

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
    #[error("{0}")]
    Syntax(#[from] httparse::Error),
    /// The status is none.
    #[error("invalid status")]
    Status,
    /// A field has a name or value that is not valid.
    #[error("invalid field")]
    Field,
    /// The lengths are no numbers, or differ.
    #[error("invalid content-length")]
    Length,
    /// HTTP/1.0 has no transfer codings.
    #[error("transfer-encoding in an answer of HTTP/1.0")]
    Coding,
    /// The head has more bytes than are read.
    #[error("the head is too large")]
    TooLarge,
}

/// Where in the head a field stands.
struct FieldPlace {
    name: (usize, usize),
    value: (usize, usize),
}

/// The first line of an answer, and where its fields stand.
struct Outline {
    length: usize,
    status: StatusCode,
    version: Version,
    reason: Option<ReasonPhrase>,
    places: SmallVec<[FieldPlace; USUAL_FIELDS]>,
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
///
/// # Errors
/// When the bytes are no answer of HTTP/1, or the end of its body cannot be told.
pub(super) fn take(
    bytes: &mut BytesMut,
    to_head: bool,
    spare: &mut HeaderMap,
) -> Result<Option<ResponseHead>, HeadFault> {
    while !bytes.is_empty() {
        let Some(outline) = Outline::of(bytes)? else {
            if bytes.len() >= MOST_BYTES {
                return Err(HeadFault::TooLarge);
            }
            return Ok(None);
        };
        let lines = bytes.split_to(outline.length).freeze();
        let head = outline.fill(&lines, to_head, spare)?;
        let status = head.response.status();
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(head));
        }
        // The gateway's client has not asked for an interim answer, and gets the answer alone.
        *spare = head.response.into_parts().0.headers;
        spare.clear();
    }
    Ok(None)
}

impl Outline {
    fn of(bytes: &[u8]) -> Result<Option<Self>, HeadFault> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut head = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut head,
            bytes,
            &mut fields,
        )?;
        let httparse::Status::Complete(length) = parsed else {
            return Ok(None);
        };
        if length > MOST_BYTES {
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
            places: head
                .headers
                .iter()
                .map(|field| FieldPlace {
                    name: place(field.name.as_bytes()),
                    value: place(field.value),
                })
                .collect(),
        }))
    }

    /// Reads the fields out of `lines`, the bytes of the head.
    fn fill(
        self,
        lines: &Bytes,
        to_head: bool,
        spare: &mut HeaderMap,
    ) -> Result<ResponseHead, HeadFault> {
        let mut fields = std::mem::take(spare);
        fields.reserve(self.places.len());
        let mut framing = FramingFields::default();
        let mut keeps = self.version == Version::HTTP_11;
        for FieldPlace { name, value } in &self.places {
            let name = HeaderName::from_bytes(&lines[name.0..name.1]);
            let value = HeaderValue::from_maybe_shared(lines.slice(value.0..value.1));
            let (Ok(name), Ok(value)) = (name, value) else {
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
    /// Whether the last line of `Transfer-Encoding` ends with `chunked`.
    is_chunked: Option<bool>,
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
        let last = value.as_bytes().rsplit(|byte| *byte == b',').next();
        let last = last.unwrap_or_default().trim_ascii();
        self.is_chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
    }

    /// Are there both a length and a coding?
    fn is_ambiguous(&self) -> bool {
        self.is_chunked.is_some() && (self.length.is_some() || self.is_length_invalid)
    }

    /// The framing of the body (RFC 9112, section 6.3).
    fn of(
        &self,
        status: StatusCode,
        version: Version,
        to_head: bool,
    ) -> Result<BodyFraming, HeadFault> {
        if to_head || status.is_informational() || matches!(status.as_u16(), 204 | 304) {
            return Ok(BodyFraming::Empty);
        }
        match (self.is_chunked, self.length) {
            (Some(_), _) if version == Version::HTTP_10 => Err(HeadFault::Coding),
            (Some(true), _) => Ok(BodyFraming::Chunked),
            (Some(false), _) => Ok(BodyFraming::UntilClose),
            (None, _) if self.is_length_invalid => Err(HeadFault::Length),
            (None, Some(0)) => Ok(BodyFraming::Empty),
            (None, Some(length)) => Ok(BodyFraming::Length(length)),
            (None, None) => Ok(BodyFraming::UntilClose),
        }
    }
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
