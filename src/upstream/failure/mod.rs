//! The failures of upstreams, and their classes in the metrics.
//!
//! In: the errors of connections and exchanges. Out: a class for metrics and log, and words for an operator.
//!
//! ```text
//! fault         why, in words
//! reachability  logged once, and once when it is back
//! ```

pub mod fault;
pub(super) mod reachability;

use super::transport::http1::{AnswerError, io_error};
use super::transport::unasked_upgrade::UnaskedUpgrade;
use super::{ConnectError, dial};
use crate::telemetry::metrics::Failure;
use std::io;
use std::time::Duration;

/// Causes for which an upstream has not answered a request, or not properly.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No server of the upstream could be reached.
    #[error("no connection to the upstream")]
    Connect(#[source] ConnectError),
    /// The connection ended before an answer, or the answer was not HTTP.
    #[error("the upstream's answer failed")]
    Answer(#[source] AnswerError),
    /// All servers have the most requests that they may have, and the queue is full or too slow.
    #[error("all servers of the upstream are busy")]
    Busy,
    /// No server is available, and the file does not let all be tried.
    #[error("no server of the upstream is available")]
    NoneLeft,
    /// No answer in time.
    #[error("no answer from the upstream within {0:?}")]
    Timeout(Duration),
    /// The server uses HTTP/1.1, which does not carry gRPC.
    #[error("the upstream speaks HTTP/1.1, and gRPC needs HTTP/2: write `h2c://` or `https://`")]
    NoHttp2,
    /// The upstream switched protocols, but not to the requested one.
    #[error("{0}")]
    UnaskedUpgrade(UnaskedUpgrade),
}

impl UpstreamError {
    /// Was no server tried at all?
    #[must_use]
    pub fn is_untried(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::NoneLeft
                | Self::Connect(ConnectError::NoServer { .. } | ConnectError::Busy { .. })
        )
    }

    /// The failure's class in the metrics.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Connect(ConnectError::NoServer { .. }) => Failure::NoServer,
            Self::Connect(ConnectError::Tls { .. }) => Failure::Tls,
            Self::Busy | Self::Connect(ConnectError::Busy { .. }) => Failure::Busy,
            Self::NoneLeft => Failure::NoneLeft,
            Self::Connect(ConnectError::Protocol { .. }) => Failure::Protocol,
            Self::Connect(_) => Failure::Connect,
            Self::Answer(error) => error.failure(),
            Self::Timeout(_) => Failure::Timeout,
            Self::UnaskedUpgrade(_) | Self::NoHttp2 => Failure::Protocol,
        }
    }
}

impl AnswerError {
    /// The class of the failure in the metrics: the connection ended, or its bytes were not HTTP.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Head(..) | Self::Chunks(..) | Self::OtherProtocol(_) | Self::NoWebSocket => {
                Failure::Protocol
            }
            Self::Tunnel(error) if error.is_parse() || is_misframed(error) => Failure::Protocol,
            Self::Http2(fault) if fault.is_malformed() => Failure::Protocol,
            Self::Io(_) | Self::Tunnel(_) if self.refused_certificate().is_some() => Failure::Tls,
            _ => Failure::Reset,
        }
    }

    /// The server's refusal of our certificate, or of the lack of one, in words, if that is the failure.
    #[cold]
    #[must_use]
    pub fn refused_certificate(&self) -> Option<String> {
        match self {
            Self::Io(error) => dial::refused_certificate(error),
            Self::Tunnel(error) => dial::refused_certificate(io_error(error)?),
            _ => None,
        }
    }
}

/// Is the framing of a body invalid? hyper reports this by the kind of an I/O error beneath its own.
#[must_use]
pub fn is_misframed(error: &hyper::Error) -> bool {
    io_error(error).is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        )
    })
}
