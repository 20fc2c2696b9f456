//! The head of an answer: its fields, and the framing of its body (RFC 9112, sections 4 to 6).
//!
//! The tolerance equals that of hyper's client, whose parser is used: lines may end with a bare line feed. Folded
//! lines, control characters and invalid names are refused.

mod body_framing;
mod head_fault;

pub use body_framing::coding_fault;
pub(super) use body_framing::{BodyFraming, digits};
pub(super) use head_fault::BadHead;
pub use head_fault::HeadFault;

use crate::interim::{InterimCount, TooMany};
use crate::upstream::transport::head_bound::{FIELD, MOST_ANSWER_FIELDS, MOST_ANSWER_HEAD};
use body_framing::FramingFields;
use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;
use memchr::memchr_iter;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// The most fields of an answer for which a head is parsed without an allocation.
const MOST_USUAL: usize = 100;

/// The most fields of an answer whose positions need no allocation.
const USUAL_FIELDS: usize = 32;

/// The room for fields that the gateway adds to an answer.
const OURS: usize = 8;

/// The head of a final answer.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The answer without its body.
    pub(super) response: Response<()>,
    /// The framing of the body.
    pub(super) framing: BodyFraming,
    /// The server keeps the connection afterwards.
    pub(super) keeps: bool,
}

/// Drops the empty lines at the beginning of `bytes`, so that they are not parsed anew with each read.
///
/// # Errors
/// If there are too many.
#[cold]
fn drop_empty_lines(bytes: &mut BytesMut, interim: &mut InterimCount) -> Result<(), TooMany> {
    let mut whole = 0;
    loop {
        whole += match &bytes[whole..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            // A lone carriage return does not end a line, or its line feed is still to come.
            _ => break,
        };
    }
    bytes.advance(whole);
    interim.note_bytes(whole, MOST_ANSWER_HEAD)
}

/// Can no head begin with these bytes?
fn is_malformed(bytes: &[u8]) -> bool {
    HeadOutline::of(bytes, &mut FieldPlaces::new()).is_err()
}

/// The position of a field in the head.
struct FieldPlace {
    name: (usize, usize),
    value: (usize, usize),
}

/// The positions of all fields of a head. They are filled in place, since they are large to move.
type FieldPlaces = SmallVec<[FieldPlace; USUAL_FIELDS]>;

/// The first line of an answer, and the length of the head.
struct HeadOutline {
    length: usize,
    status: StatusCode,
    version: Version,
    reason: Option<ReasonPhrase>,
}

/// Can a head of which `seen` bytes have been searched without an end be complete now? A server that sends its head
/// byte by byte must not cause a new parse for each byte.
pub(super) fn may_be_whole(bytes: &[u8], seen: usize) -> bool {
    seen == 0
        || memchr_iter(b'\n', &bytes[seen..]).any(|at| {
            let before = &bytes[..seen + at];
            before.ends_with(b"\n") || before.ends_with(b"\n\r")
        })
}

/// Takes the head of the answer from `bytes`, and interim answers before it. `None` while it is incomplete.
///
/// The fields are put into `spare`, which is empty and has room. `to_head` means that the request's method is HEAD.
/// Everything before the head is counted in `interim`.
///
/// # Errors
/// If the bytes are not an answer of HTTP/1, the framing of its body is invalid, or too much comes before it.
pub(super) fn take_head(
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
        let outline = HeadOutline::of(bytes, &mut places);
        let Some(outline) = outline.map_err(|fault| BadHead::of(fault, bytes))? else {
            if bytes.len() >= MOST_ANSWER_HEAD {
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
        interim.note(lines.len(), MOST_ANSWER_HEAD)?;
        // The gateway's client has not requested an interim answer, and gets the final answer alone.
        *spare = head.response.into_parts().0.headers;
        spare.clear();
    }
    Ok(None)
}

impl HeadOutline {
    /// Parses the head at the beginning of `bytes`, and puts its fields' positions into `places`. `None` while it is
    /// incomplete.
    fn of(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_USUAL];
        match Self::read(bytes, places, &mut fields) {
            Err(HeadFault::TooLarge) => Self::of_many(bytes, places),
            read => read,
        }
    }

    /// Parses a head with more fields than usual.
    #[cold]
    fn of_many(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let lines = memchr_iter(b'\n', bytes).count();
        // The last line may be the beginning of a field.
        let mut fields = vec![MaybeUninit::uninit(); (lines + 1).min(MOST_ANSWER_FIELDS)];
        Self::read(bytes, places, &mut fields)
    }

    /// Parses a head with at most as many fields as fit into `fields`.
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
        if length + head.headers.len() * FIELD > MOST_ANSWER_HEAD
            && is_too_large(length, head.headers)
        {
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

    /// Reads the fields at `places` from `lines`, the bytes of the head.
    fn fill(
        self,
        places: &FieldPlaces,
        lines: &Bytes,
        to_head: bool,
        spare: &mut HeaderMap,
    ) -> Result<ResponseHead, HeadFault> {
        let mut fields = std::mem::take(spare);
        // The gateway adds its own fields to them.
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
            // A server that sends two framings may rely on the other one: nothing is read after such an answer.
            keeps: keeps && !framing.is_ambiguous() && self.status.as_u16() != 101,
        })
    }
}

/// Is a head of `length` bytes with these fields larger than the bound?
#[cold]
fn is_too_large(length: usize, fields: &[httparse::Header<'_>]) -> bool {
    let sizes = fields
        .iter()
        .map(|field| field.name.len() + field.value.len() + FIELD);
    length > MOST_ANSWER_HEAD || sizes.sum::<usize>() > MOST_ANSWER_HEAD
}

/// The fields without a `Connection: keep-alive` at their end, where many servers write it. It states the default of
/// HTTP/1.1, and is removed from every answer; elsewhere its removal would change the order of the fields.
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

/// A field's name. The common ones are recognised in their common spelling; only the others are parsed letter by
/// letter.
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
    reason.map(Some).map_err(|_| HeadFault::Reason)
}

/// Does this line of `Connection` announce the connection's end?
pub(super) fn says_close(value: &HeaderValue) -> bool {
    let mut options = value.as_bytes().split(|byte| *byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests;
