//! The properties that a connection to a server depends on. Connections to equal destinations are interchangeable.

use crate::upstream::server::server_tls::ServerTls;
use crate::upstream::state::upstream_state::Member;
use crate::upstream::{ServerUrl, SocketFence, Upstream};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The protocol of requests to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServerProtocol {
    /// The protocol that the TLS handshake selects; HTTP/1.1 without TLS, except for `h2c:`.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The target of a connection, and the way it is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The server.
    pub url: ServerUrl,
    /// The bound on the path of its socket, if there is one.
    pub socket_fence: Option<SocketFence>,
    /// Its address, if it is reached by TCP.
    pub address: Option<SocketAddr>,
    /// The encryption, if there is any.
    pub tls: Option<ServerTls>,
    /// The protocol.
    pub protocol: ServerProtocol,
    /// The age from which a connection takes no further request, if configured.
    pub max_age: Option<Duration>,
}

impl Destination {
    /// The destination of a member of `upstream`.
    #[must_use]
    pub fn of(upstream: &Upstream, member: &Member) -> Self {
        let url = member.server.url.clone();
        let protocol = match (&url, upstream.protocol) {
            (ServerUrl::H2c { .. }, _) => ServerProtocol::Http2,
            (ServerUrl::Https { .. }, protocol) => protocol,
            (ServerUrl::Demo, _) => ServerProtocol::Http1,
            (_, ServerProtocol::Http2) => ServerProtocol::Http2,
            _ => ServerProtocol::Http1,
        };
        Self {
            tls: upstream.tls.clone().filter(|_| url.is_encrypted()),
            url,
            socket_fence: member.server.socket_fence.clone(),
            address: member.address,
            protocol,
            max_age: upstream.max_age,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.filter(|_| self.url.name().is_some()) {
            Some(address) => write!(f, "{} ({})", self.url, address.ip()),
            None => write!(f, "{}", self.url),
        }
    }
}
