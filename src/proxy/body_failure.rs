//! How bodies break, on either side.

use std::time::Duration;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Nothing came for too long, or too little.
    #[error("nothing came for {0:?}, or too little")]
    Idle(Duration),
    /// No client is left to read it.
    #[error("the client is gone")]
    ClientGone,
    /// The connection it came on failed.
    #[error("the connection failed")]
    Lost(#[from] hyper::Error),
}

/// Why a request's body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadFailure {
    /// Nothing came for too long, or too little.
    Stopped,
    /// The client left.
    ClientGone,
    /// It is not framed as HTTP frames bodies.
    Malformed,
}

/// What hyper's error on a request's body comes from: it tells by the kind of an I/O error beneath.
pub(super) fn broken_by(error: &hyper::Error) -> UploadFailure {
    use std::io::ErrorKind::{InvalidData, InvalidInput};
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return match error.kind() {
                InvalidData | InvalidInput => UploadFailure::Malformed,
                _ => UploadFailure::ClientGone,
            };
        }
        cause = error.source();
    }
    UploadFailure::ClientGone
}

/// Is it not a failure of the connection, but something that is no HTTP?
#[must_use]
pub(super) fn is_malformed(error: &hyper::Error) -> bool {
    error.is_parse() || broken_by(error) == UploadFailure::Malformed
}
