//! The failures of an exchange on a connection to a server.

use super::chunk_decoder::ChunkFault;
use super::response_head::{self, BadHead, HeadFault};
use crate::interim::{InterimCount, TooMany};
use crate::upstream::dial::other_protocol::OtherProtocol;
use crate::upstream::transport::offending_line::OffendingLine;
use crate::upstream::transport::stream_fault::StreamFault;
use bytes::BytesMut;
use http::HeaderMap;
use std::error::Error;
use std::io;

/// Causes for which an exchange on a connection to a server fails.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The connection ended before the answer.
    #[error("the connection ended before the answer")]
    Incomplete,
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The connection ended inside the head of the answer; the value is the received part.
    #[error("the connection ended inside the answer's head")]
    CutHead(OffendingLine),
    /// The connection ended, or failed, inside the body of the answer.
    #[error("the connection ended inside the answer's body")]
    CutBody(#[source] Option<io::Error>),
    /// The server sent unrequested bytes.
    #[error("the server sent bytes that no request had asked for")]
    Unasked(OffendingLine),
    /// The head of the answer is malformed, in this line.
    #[error("the answer's head is malformed")]
    Head(#[source] HeadFault, OffendingLine),
    /// The server uses another protocol.
    #[error("the answer is in another protocol: {0}")]
    OtherProtocol(OtherProtocol),
    /// The server has not processed the request: it has closed the connection for it, or has refused its stream (RFC
    /// 9113, sections 6.8 and 8.7).
    #[error("the server has refused the request's stream: {}", .0.frame())]
    Refused(Box<StreamFault>),
    /// The stream failed, or its connection.
    #[error("{0}")]
    Http2(Box<StreamFault>),
    /// The body of the answer is malformed, in this line.
    #[error("the answer's body is malformed")]
    Chunks(#[source] ChunkFault, OffendingLine),
    /// The body of the request failed.
    #[error("the request's body failed")]
    Upload(#[source] Box<dyn Error + Send + Sync>),
    /// The body of the request is longer or shorter than its head states.
    #[error("the request's body has another length than its head says")]
    UploadLength,
    /// The server reads nothing of the connection's streams, and no byte of this request was sent.
    #[error("the connection's window stays empty")]
    Starved,
    /// The connection was abandoned, because the request's body could not be written to its end.
    #[error("the connection was given up")]
    GivenUp,
    /// The server uses HTTP/2 although a WebSocket was requested.
    #[error(
        "the server speaks HTTP/2 alone, and WebSockets need HTTP/1.1: give their route an upstream whose servers speak it"
    )]
    NoWebSocket,
    /// The connection of a request for a WebSocket failed.
    #[error("the connection for a WebSocket failed")]
    Tunnel(#[source] hyper::Error),
}

/// The failure of an answer to a request for a WebSocket, after its head.
impl From<hyper::Error> for AnswerError {
    fn from(error: hyper::Error) -> Self {
        let kind = io_error(&error).map(io::Error::kind);
        if kind == Some(io::ErrorKind::UnexpectedEof) || error.is_incomplete_message() {
            return Self::CutBody(None);
        }
        Self::Tunnel(error)
    }
}

/// No single line of the interim answers is the offending one.
impl From<TooMany> for AnswerError {
    fn from(fault: TooMany) -> Self {
        Self::Head(fault.into(), OffendingLine::of(b""))
    }
}

impl AnswerError {
    /// The fault of bytes that arrived before any request was sent.
    pub(super) fn unasked(bytes: &[u8]) -> Self {
        Self::by_first_bytes(bytes).unwrap_or_else(|| Self::Unasked(OffendingLine::of(bytes)))
    }

    /// The fault of an unreadable head, with the remaining bytes.
    #[cold]
    pub(super) fn of_head(bad: BadHead, bytes: &[u8]) -> Self {
        Self::by_first_bytes(bytes).unwrap_or(Self::Head(bad.fault, bad.line))
    }

    /// The fault of an unreadable body, with the remaining bytes, which begin with the malformed line.
    #[cold]
    pub(super) fn of_chunks(fault: ChunkFault, bytes: &[u8]) -> Self {
        let line = bytes.split(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Self::Chunks(fault, OffendingLine::of(line))
    }

    /// The fault of a connection's end after these bytes of a head.
    #[cold]
    pub(super) fn of_part(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Incomplete;
        }
        Self::by_first_bytes(bytes).unwrap_or_else(|| Self::CutHead(OffendingLine::of(bytes)))
    }

    /// The failure of a request for a WebSocket, which was answered with these bytes: they are parsed once more for the
    /// offending line.
    #[cold]
    pub(in crate::upstream) fn of_tunnel(error: hyper::Error, bytes: &[u8]) -> Self {
        if OtherProtocol::of(bytes) == Some(OtherProtocol::Http2) {
            return Self::NoWebSocket;
        }
        if error.is_incomplete_message() {
            return Self::of_part(bytes);
        }
        let mut rest = BytesMut::from(bytes);
        let (mut fields, mut interim) = (HeaderMap::new(), InterimCount::default());
        match response_head::take_head(&mut rest, false, &mut fields, &mut interim) {
            Err(bad) => Self::of_head(bad, &rest),
            Ok(_) => Self::Tunnel(error),
        }
    }

    fn by_first_bytes(bytes: &[u8]) -> Option<Self> {
        let other = OtherProtocol::of(bytes)?;
        (other != OtherProtocol::Http1).then_some(Self::OtherProtocol(other))
    }

    /// Has the server stated that it has not processed the request?
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// The I/O error beneath one of hyper's.
pub(in crate::upstream) fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}
