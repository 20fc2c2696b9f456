//! The failures of a connection to a server before any request is sent on it.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The failure of a connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The address could not be reached.
    #[error("cannot connect to {server}")]
    Io {
        /// The server that was tried.
        server: Arc<str>,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The server has not answered in time.
    #[error("no connection to {server} within {after:?}{hint}")]
    Timeout {
        /// The server that was tried.
        server: Arc<str>,
        /// The time for which the connection was tried.
        after: Duration,
        /// The unfinished step, with advice; empty if the connection itself was unfinished.
        hint: &'static str,
    },
    /// The server does not use the protocol of the request.
    #[error("no connection to {server}: {why}")]
    Protocol {
        /// The server that was tried.
        server: Arc<str>,
        /// The cause, in words that help an operator to fix it.
        why: Arc<str>,
    },
    /// The TLS handshake failed.
    #[error("no connection to {server}: {why}")]
    Tls {
        /// The server that was tried.
        server: Arc<str>,
        /// The cause, in words that help an operator to fix it.
        why: Arc<str>,
    },
    /// The server has as many connections as it takes.
    #[error("no connection to {server} became free")]
    Busy {
        /// The server.
        server: Arc<str>,
    },
    /// No server of the upstream has an address yet.
    #[error("no server of upstream {upstream} has an address yet")]
    NoServer {
        /// The name of the upstream.
        upstream: Arc<str>,
    },
}

impl ConnectError {
    /// The error and its source in one sentence.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}
