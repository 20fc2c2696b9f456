//! The failures of bodies, on either side.

use crate::upstream::failure;
use crate::upstream::http1::AnswerError;

/// Causes for which a body ends early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// No bytes arrived for too long, or too few.
    #[error("no bytes came for too long, or too few")]
    Idle,
    /// No client is left to read the body.
    #[error("the client is gone")]
    ClientGone,
    /// The connection that brought the body failed.
    #[error("the connection failed")]
    Lost(#[from] hyper::Error),
    /// The answer breaks.
    #[error("the answer failed")]
    Answer(#[from] AnswerError),
}

/// Causes for which a request's body ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadFailure {
    /// No bytes arrived for too long.
    Stopped,
    /// Too few bytes arrived for the minimum rate.
    TooSlow,
    /// The client left.
    ClientGone,
    /// The body's framing is invalid.
    Malformed,
}

/// The cause behind hyper's error on a request's body.
pub(in crate::proxy) fn broken_by(error: &hyper::Error) -> UploadFailure {
    if failure::is_misframed(error) {
        UploadFailure::Malformed
    } else {
        UploadFailure::ClientGone
    }
}
