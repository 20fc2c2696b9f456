//! The causes for which the head of an answer is refused, in words, and the offending line.

use crate::interim::TooMany;
use crate::upstream::transport::offending_line::{Blame, OffendingLine};

/// Causes for which the head of an answer is refused.
#[derive(Debug, thiserror::Error)]
pub enum HeadFault {
    /// The first line is not one of HTTP/1.
    #[error("the first line is not one of HTTP/1.1 or HTTP/1.0")]
    FirstLine,
    /// The status is not valid.
    #[error("the status is not valid")]
    Status,
    /// The reason phrase after the status has a control character.
    #[error("the reason phrase after the status has a control character")]
    Reason,
    /// A field's name is invalid.
    #[error("a field's name is not valid, or a line is folded")]
    FieldName,
    /// A field's value is invalid.
    #[error("a field's value has a control character")]
    FieldValue,
    /// The end of a line is invalid.
    #[error("a line does not end as it must")]
    LineEnd,
    /// A character is at a place where it is not allowed.
    #[error("a character is at a place where it is not allowed")]
    Character,
    /// A field has an invalid name or value.
    #[error("a field's name or value is not valid")]
    Field,
    /// The lengths are not numbers, or differ.
    #[error("the lengths are no numbers, or differ")]
    Length,
    /// HTTP/1.0 has no transfer codings.
    #[error("transfer-encoding in an answer of HTTP/1.0")]
    Coding,
    /// The answer has a transfer coding that the gateway did not request, and whose end only its decoder finds.
    #[error("a transfer coding that the gateway did not ask for")]
    UnaskedCoding,
    /// `chunked` occurs more than once (RFC 9112, section 6.1).
    #[error("the transfer coding `chunked` is there twice")]
    CodingTwice,
    /// The head has more bytes than allowed.
    #[error("the head is too large")]
    TooLarge,
    /// More interim answers arrive than allowed, or more bytes of them than a head may have.
    #[error("{0}")]
    Interim(#[from] TooMany),
}

/// The cause for which a head is refused, and its line.
#[derive(Debug)]
pub(in crate::upstream::transport::http1) struct BadHead {
    pub(in crate::upstream::transport::http1) fault: HeadFault,
    pub(in crate::upstream::transport::http1) line: OffendingLine,
}

impl BadHead {
    #[cold]
    pub(super) fn of(fault: HeadFault, head: &[u8]) -> Self {
        let line = OffendingLine::of_head(&fault.blame(), head);
        let fault = match fault {
            HeadFault::Status if has_status(head) => HeadFault::Reason,
            other => other,
        };
        Self { fault, line }
    }
}

/// No single line of the interim answers is the offending one.
impl From<TooMany> for BadHead {
    fn from(fault: TooMany) -> Self {
        Self::of(fault.into(), b"")
    }
}

impl HeadFault {
    /// The rule that finds the offending line.
    fn blame(&self) -> Blame {
        match self {
            Self::FirstLine
            | Self::FieldName
            | Self::FieldValue
            | Self::LineEnd
            | Self::Character => Blame::Unreadable(super::is_malformed),
            Self::Status | Self::Reason | Self::Interim(_) => Blame::First,
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
        match error {
            httparse::Error::Version => Self::FirstLine,
            httparse::Error::Status => Self::Status,
            httparse::Error::HeaderName => Self::FieldName,
            httparse::Error::HeaderValue => Self::FieldValue,
            httparse::Error::NewLine => Self::LineEnd,
            httparse::Error::TooManyHeaders => Self::TooLarge,
            httparse::Error::Token => Self::Character,
        }
    }
}

/// Does a head begin with a version and a status, followed by anything?
fn has_status(head: &[u8]) -> bool {
    let status = head.get(b"HTTP/1.1 ".len()..);
    let status = status.and_then(|rest| rest.split_first_chunk::<3>());
    status.is_some_and(|(digits, rest)| {
        digits.iter().all(u8::is_ascii_digit) && !rest.first().is_some_and(u8::is_ascii_digit)
    })
}
