//! The host in requests to servers, if it is not the client's.

use http::HeaderValue;

/// The host of requests to the servers of an upstream, if it is not the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerHost {
    /// Each server gets its own host, from its URL ([`ServerUrl::host`](crate::upstream::ServerUrl::host)).
    Own,
    /// All servers get this host, which may have a port.
    Text(HeaderValue),
}
