//! The failures of an exchange on a connection to a server.

use super::chunk_decoder::ChunkFault;
use super::response_head::HeadFault;
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
    /// The server sent bytes that no request had asked for.
    #[error("the server sent bytes that no request had asked for")]
    Unasked,
    /// The head of the answer is malformed.
    #[error("the answer's head is malformed")]
    Head(#[from] HeadFault),
    /// The body of the answer is malformed.
    #[error("the answer's body is malformed")]
    Chunks(#[from] ChunkFault),
    /// The body of the request failed.
    #[error("the request's body failed")]
    Upload(#[source] Box<dyn Error + Send + Sync>),
    /// The body of the request is longer or shorter than its head says.
    #[error("the request's body has another length than its head says")]
    UploadLength,
    /// The connection was given up, because the request's body could not be written to its end.
    #[error("the connection was given up")]
    GivenUp,
    /// The connection of a tunnel failed.
    #[error("the tunnel failed")]
    Tunnel(#[from] hyper::Error),
}
