//! The head of an answer: its fields, and the way in which the end of its body is known (RFC 9112, sections 4 to 6).
//!
//! The tolerance is that of hyper's client, whose parser this is: lines may end with a bare line feed. Folded lines,
//! control characters and odd names are refused.

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

/// Fields of an answer for which a head is read without memory of its own.
const MOST_USUAL: usize = 100;

/// Fields of an answer for which no memory is taken while the head is read.
const USUAL_FIELDS: usize = 32;

/// The room for fields that the gateway adds to an answer.
const OURS: usize = 8;

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

/// Drops the empty lines that `bytes` begin with, so that they are not parsed anew with each read.
///
/// # Errors
/// When they are too many.
#[cold]
fn drop_empty_lines(bytes: &mut BytesMut, interim: &mut InterimCount) -> Result<(), TooMany> {
    let mut whole = 0;
    loop {
        whole += match &bytes[whole..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            // A carriage return alone is no end of a line, or its line feed is still to come.
            _ => break,
        };
    }
    bytes.advance(whole);
    interim.note_bytes(whole, MOST_ANSWER_HEAD)
}

/// Is this the beginning of no head?
fn is_malformed(bytes: &[u8]) -> bool {
    HeadOutline::of(bytes, &mut FieldPlaces::new()).is_err()
}

/// Where in the head a field stands.
struct FieldPlace {
    name: (usize, usize),
    value: (usize, usize),
}

/// The places of all fields of a head. They are filled where they lie: they are large to move.
type FieldPlaces = SmallVec<[FieldPlace; USUAL_FIELDS]>;

/// The first line of an answer, and its length with its fields.
struct HeadOutline {
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
        // The gateway's client has not asked for an interim answer, and gets the answer alone.
        *spare = head.response.into_parts().0.headers;
        spare.clear();
    }
    Ok(None)
}

impl HeadOutline {
    /// Reads the head that `bytes` begin with, and puts its fields' places into `places`. Nothing while it is not
    /// whole.
    fn of(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST_USUAL];
        match Self::read(bytes, places, &mut fields) {
            Err(HeadFault::TooLarge) => Self::of_many(bytes, places),
            read => read,
        }
    }

    /// Reads a head with more fields than usual.
    #[cold]
    fn of_many(bytes: &[u8], places: &mut FieldPlaces) -> Result<Option<Self>, HeadFault> {
        let lines = memchr_iter(b'\n', bytes).count();
        // The last line may be the beginning of a field.
        let mut fields = vec![MaybeUninit::uninit(); (lines + 1).min(MOST_ANSWER_FIELDS)];
        Self::read(bytes, places, &mut fields)
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
    length > MOST_ANSWER_HEAD || sizes.sum::<usize>() > MOST_ANSWER_HEAD
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

/// A field's name. The usual ones are recognised as they are usually spelled; only the others are read letter by
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

/// Does this line of `Connection` say that the connection ends?
pub(super) fn says_close(value: &HeaderValue) -> bool {
    let mut options = value.as_bytes().split(|byte| *byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests;
