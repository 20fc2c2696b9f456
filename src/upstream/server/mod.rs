//! A server of an upstream, as the file writes it.
//!
//! In: a table or a text of the file. Out: its address and protocol. No connection is made here.
//!
//! ```text
//! server_url    where a server listens, and what it speaks
//! server_host   the host that servers are asked for
//! server_tls    TLS towards servers
//! socket_fence  where sockets of included files' servers may stand
//! ```

pub(super) mod server_host;
pub(super) mod server_tls;
pub(super) mod server_url;
pub(super) mod socket_fence;

use super::{ServerUrl, SocketFence};
use std::fmt;
use std::num::NonZeroU32;

/// An entry of `servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The URL at which it listens.
    pub url: ServerUrl,
    /// Its share of the requests relative to other servers, 0 to 1,000. 0: it gets no new requests.
    pub weight: u16,
    /// The most concurrent requests, from all workers of this gateway.
    pub max_requests: Option<NonZeroU32>,
    /// The most connections to it, from all workers of this gateway.
    pub max_connections: Option<NonZeroU32>,
    /// The bound on the path of its socket, if the file may not use every socket.
    pub socket_fence: Option<SocketFence>,
}

#[cfg(test)]
impl Server {
    /// A server with default settings.
    pub(crate) fn plain(url: ServerUrl) -> Self {
        Self {
            url,
            weight: 1,
            max_requests: None,
            max_connections: None,
            socket_fence: None,
        }
    }
}

impl Server {
    /// The most concurrent requests, if there is a bound. A connection of HTTP/1.1 carries one.
    #[must_use]
    pub fn most_requests(&self) -> Option<u32> {
        let requests = self.max_requests.map(u32::from);
        let connections = self.max_connections.map(u32::from);
        match (
            requests,
            connections.filter(|_| !self.url.shares_connections()),
        ) {
            (Some(requests), Some(connections)) => Some(requests.min(connections)),
            (requests, connections) => requests.or(connections),
        }
    }
}

impl fmt::Display for Server {
    /// The form of the file: the URL alone, or a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        if self.weight != 1 {
            write!(f, " weight {}", self.weight)?;
        }
        if let Some(most) = self.max_requests {
            write!(f, " max_requests {most}")?;
        }
        if let Some(most) = self.max_connections {
            write!(f, " max_connections {most}")?;
        }
        Ok(())
    }
}
