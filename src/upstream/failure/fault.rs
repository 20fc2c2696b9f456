//! The reason why a server has given no valid answer: in words, by its cause, and with the offending line.

use super::UpstreamError;
use crate::upstream::transport::http1::{AnswerError, ChunkFault, HeadFault};
use crate::upstream::transport::offending_line::OffendingLine;
use crate::upstream::transport::stream_fault::{StreamEnd, StreamFault};
use std::error::Error;
use std::fmt::{self, Write as _};

/// The reason why a server has given no valid answer.
#[derive(Debug)]
pub struct UpstreamFault<'a> {
    /// The words, without the line, which may hold a secret.
    pub words: String,
    /// The cause by which the log has one line a minute for each server; `None` if another line is written.
    pub(in crate::upstream) cause: Option<FaultCause>,
    /// The offending line, if there is one.
    pub(in crate::upstream) line: Option<&'a OffendingLine>,
}

impl fmt::Display for UpstreamFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}: \"{line}\"", self.words),
            None => f.write_str(&self.words),
        }
    }
}

/// The causes that have separate lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum FaultCause {
    Ended,
    Cut,
    CutBody,
    Broken,
    Certificate,
    Unasked,
    OtherProtocol,
    Syntax,
    FieldName,
    FieldValue,
    FirstLine,
    TooLarge,
    Length,
    Coding,
    CodingTwice,
    Interim,
    ChunkSize,
    ChunkEnd,
    Trailers,
    Refused,
    Stream,
    StreamReset,
    GoAway,
    Silent,
    StreamHead,
    StreamBody,
    Frames,
    Starved,
    Upload,
    Tunnel,
    UnaskedUpgrade,
    NoHttp2,
}

impl FaultCause {
    /// The number of causes.
    pub(super) const COUNT: usize = Self::NoHttp2 as usize + 1;
}

impl UpstreamError {
    /// The reason why no server has given a valid answer.
    #[cold]
    #[must_use]
    pub fn fault(&self) -> UpstreamFault<'_> {
        let cause = match self {
            Self::Answer(error) => return error.fault(),
            Self::UnaskedUpgrade(switch) => {
                return UpstreamFault {
                    words: switch.to_string(),
                    cause: Some(FaultCause::UnaskedUpgrade),
                    line: switch.line(),
                };
            }
            Self::NoHttp2 => Some(FaultCause::NoHttp2),
            Self::Connect(_) | Self::Busy | Self::NoneLeft | Self::Timeout(_) => None,
        };
        let words = match self {
            Self::Connect(error) => error.in_full(),
            error => in_full(error),
        };
        UpstreamFault {
            words,
            cause,
            line: None,
        }
    }
}

impl AnswerError {
    /// The reason why the answer is invalid.
    #[cold]
    #[must_use]
    pub fn fault(&self) -> UpstreamFault<'_> {
        let line = match self {
            Self::Head(_, line)
            | Self::CutHead(line)
            | Self::Unasked(line)
            | Self::Chunks(_, line) => Some(line),
            Self::Refused(fault) | Self::Http2(fault) => fault.debug_data(),
            _ => None,
        };
        UpstreamFault {
            words: self.refused_certificate().unwrap_or_else(|| in_full(self)),
            cause: Some(self.cause()),
            line: line.filter(|line| !line.is_empty()),
        }
    }

    fn cause(&self) -> FaultCause {
        match self {
            Self::Incomplete => FaultCause::Ended,
            Self::CutHead(_) => FaultCause::Cut,
            Self::CutBody(_) => FaultCause::CutBody,
            Self::Io(_) if self.refused_certificate().is_some() => FaultCause::Certificate,
            Self::Io(_) => FaultCause::Broken,
            Self::Unasked(_) => FaultCause::Unasked,
            Self::OtherProtocol(_) | Self::NoWebSocket => FaultCause::OtherProtocol,
            Self::Head(fault, _) => cause_of_head(fault),
            Self::Chunks(ChunkFault::Size | ChunkFault::Extension, _) => FaultCause::ChunkSize,
            Self::Chunks(ChunkFault::End, _) => FaultCause::ChunkEnd,
            Self::Chunks(ChunkFault::Trailers, _) => FaultCause::Trailers,
            Self::Refused(_) => FaultCause::Refused,
            Self::Http2(fault) => cause_of_stream(fault),
            Self::Starved => FaultCause::Starved,
            Self::Upload(_) | Self::UploadLength | Self::GivenUp => FaultCause::Upload,
            Self::Tunnel(_) => FaultCause::Tunnel,
        }
    }
}

fn cause_of_stream(fault: &StreamFault) -> FaultCause {
    match fault.end() {
        StreamEnd::Reset => FaultCause::StreamReset,
        StreamEnd::GoAway => FaultCause::GoAway,
        StreamEnd::Silent => FaultCause::Silent,
        StreamEnd::Ended => FaultCause::Ended,
        StreamEnd::CutBody => FaultCause::CutBody,
        StreamEnd::Head => FaultCause::StreamHead,
        StreamEnd::Body => FaultCause::StreamBody,
        StreamEnd::Frames => FaultCause::Frames,
        StreamEnd::Other => FaultCause::Stream,
    }
}

fn cause_of_head(fault: &HeadFault) -> FaultCause {
    match fault {
        HeadFault::FieldName | HeadFault::Field => FaultCause::FieldName,
        HeadFault::FieldValue => FaultCause::FieldValue,
        HeadFault::FirstLine | HeadFault::Status | HeadFault::Reason => FaultCause::FirstLine,
        HeadFault::LineEnd | HeadFault::Character => FaultCause::Syntax,
        HeadFault::TooLarge => FaultCause::TooLarge,
        HeadFault::Length => FaultCause::Length,
        HeadFault::Coding | HeadFault::UnaskedCoding => FaultCause::Coding,
        HeadFault::CodingTwice => FaultCause::CodingTwice,
        HeadFault::Interim(_) => FaultCause::Interim,
    }
}

/// An error followed by its causes.
fn in_full(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.ends_with(&cause_words) {
            // Writing into a string cannot fail.
            let _ = write!(words, ": {cause_words}");
        }
        source = cause.source();
    }
    words
}
