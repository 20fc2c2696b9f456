//! A request as conditions of routes see it.

use super::forwarded;
use super::request::Target;
use crate::key::client_ip::Trust;
use crate::route;
use http::HeaderMap;
use http::request::Parts;
use std::net::IpAddr;

/// A request on its way to a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteRequest<'a> {
    /// Its head.
    pub(super) parts: &'a Parts,
    /// Whom it addresses.
    pub(super) target: &'a Target,
    /// The far end of its connection.
    pub(super) peer: IpAddr,
    /// Whose word on the scheme is believed.
    pub(super) trust: &'a Trust,
}

impl route::RequestView for RouteRequest<'_> {
    fn fields(&self) -> &HeaderMap {
        &self.parts.headers
    }

    fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }

    fn is_https(&self) -> bool {
        forwarded::is_https(self.trust, self.peer, &self.parts.headers, self.target)
    }
}
