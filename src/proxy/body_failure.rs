//! How bodies break, on either side.

use crate::upstream::failure;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Nothing came for too long, or too little.
    #[error("nothing came for too long, or too little")]
    Idle,
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

/// What hyper's error on a request's body comes from.
pub(super) fn broken_by(error: &hyper::Error) -> UploadFailure {
    if failure::is_misframed(error) {
        UploadFailure::Malformed
    } else {
        UploadFailure::ClientGone
    }
}
