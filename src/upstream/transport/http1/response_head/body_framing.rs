//! The framing of an answer's body, by the fields of its head (RFC 9112, section 6).

use super::HeadFault;
use crate::upstream::transport::offending_line::OffendingLine;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

/// The longest body that can be announced: the two numbers above it are not lengths for hyper either.
const LONGEST_BODY: u64 = u64::MAX - 2;

/// The framing of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream::transport::http1) enum BodyFraming {
    /// The answer has no body, or an empty one.
    Empty,
    /// The body has this many bytes.
    Length(u64),
    /// The body is chunked; the last chunk is empty.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// The fields read so far that frame an answer's body.
#[derive(Default)]
pub(super) struct FramingFields {
    length: Option<u64>,
    is_length_invalid: bool,
    /// The codings of all lines of `Transfer-Encoding` together.
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
    pub(super) fn read_length(&mut self, value: &HeaderValue) {
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

    pub(super) fn read_coding(&mut self, value: &HeaderValue) {
        for member in value.as_bytes().split(|byte| *byte == b',') {
            self.coding = Some(Coding::with(self.coding, member));
        }
    }

    /// Are there both a length and a coding?
    pub(super) fn is_ambiguous(&self) -> bool {
        self.coding.is_some() && (self.length.is_some() || self.is_length_invalid)
    }

    /// The framing of the body (RFC 9112, section 6.3).
    pub(super) fn of(
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

/// The fault of the transfer coding in the fields of an answer, if there is one.
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

/// The number that is written in `text` with digits alone.
pub(in crate::upstream::transport::http1) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
