//! The port that a request names, which selects the listeners that it may go to.

use crate::listen::listener::Listener;
use http::request::Parts;
use http::{header, uri};

/// The port that a request names: in its URI, or else after its host. A request without a port may go to any listener:
/// a proxy in front of the gateway may have the default port.
pub(super) fn asked_port(parts: &Parts) -> Option<u16> {
    let by_host = || {
        let host = parts.headers.get(header::HOST)?;
        let host: uri::Authority = host.to_str().ok()?.parse().ok()?;
        host.port_u16()
    };
    parts.uri.port_u16().or_else(by_host)
}

/// Is the listener on this port?
pub(super) fn is_on(listener: &Listener, port: u16) -> bool {
    let address = listener.address.socket_address();
    address.is_some_and(|address| address.port() == port)
}
