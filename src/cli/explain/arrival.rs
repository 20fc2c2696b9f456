//! The listener that a request uses: with TLS or without, or one that redirects all requests to `https`.

use crate::config::Compiled;
use crate::listen::listener::Listener;
use http::request::Parts;
use http::{header, uri};

/// Does a request use TLS? A request without a scheme uses TLS if the listener on its port has TLS, or if no listener
/// serves requests without TLS.
pub(super) fn comes_by_tls(compiled: &Compiled, parts: &Parts) -> bool {
    let has_tls = compiled.offers.iter().any(Option::is_some);
    has_tls
        && match parts.uri.scheme() {
            Some(scheme) => *scheme == uri::Scheme::HTTPS,
            None => match on_port(compiled, parts).next() {
                Some(listener) => listener.tls.is_some(),
                None => !plain(compiled).any(|listener| !listener.redirects),
            },
        }
}

/// Is a request without TLS redirected to `https`, by the listener on its port, or by all listeners?
pub(super) fn is_sent_on(compiled: &Compiled, parts: &Parts) -> bool {
    let mut there = on_port(compiled, parts).filter(|listener| listener.tls.is_none());
    if let Some(listener) = there.next() {
        return listener.redirects;
    }
    let mut all = plain(compiled).peekable();
    all.peek().is_some() && all.all(|listener| listener.redirects)
}

/// The listeners on the port that a request names.
fn on_port<'c>(compiled: &'c Compiled, parts: &Parts) -> impl Iterator<Item = &'c Listener> {
    let port = asked_port(parts);
    let all = compiled.boot.listen.listeners.iter();
    all.filter(move |listener| port.is_some_and(|port| is_on(listener, port)))
}

/// The listeners without TLS.
fn plain(compiled: &Compiled) -> impl Iterator<Item = &Listener> {
    let listeners = compiled.boot.listen.listeners.iter();
    listeners.filter(|listener| listener.tls.is_none())
}

/// The port that a request names: in its URI, or else behind its host. A request that names no port may go to any
/// listener: a proxy in front of the gateway may have the default port.
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
