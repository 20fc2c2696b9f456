//! The host that servers are asked for, where it is not the one that the client has asked for.

use http::HeaderValue;

/// The host of requests to the servers of an upstream, where it is not the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerHost {
    /// Each server is asked for its own host, as its URL has it ([`ServerUrl::host`](crate::upstream::ServerUrl::host)).
    Own,
    /// All servers are asked for this host, which may have a port.
    Text(HeaderValue),
}
