//! Where a request goes, as limits may count it: host, parameters of the path, query; and what conditions of routes see.

use super::forwarded;
use super::request::Target;
use crate::key::Location;
use crate::key::client_ip::Trust;
use crate::route::{self, PathPattern, host_key, path};
use http::HeaderMap;
use http::request::Parts;
use std::borrow::Cow;
use std::net::IpAddr;

/// Where one request goes. Nothing is worked out before a limit asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The host with its port, as the client spells it; empty when it names none.
    pub authority: &'a str,
    /// The path, in any spelling.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// The path of the route that recognised it.
    pub pattern: &'a PathPattern,
}

impl Location for Destination<'_> {
    fn host(&self) -> Cow<'_, str> {
        host_key(self.authority)
    }

    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        // The path has been found to have a normal form, or no route would have recognised it.
        let path = path::normalize(self.path).ok()?;
        let taken = self.pattern.taken(path.to_match(), name)?;
        Some(Cow::Owned(taken.to_owned()))
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        let path = path::normalize(self.path).ok()?;
        Some(Cow::Owned(path.to_match().to_owned()))
    }

    fn query(&self) -> Option<&str> {
        self.query
    }
}

/// A request on its way to a route.
#[derive(Debug, Clone, Copy)]
pub struct RouteRequest<'a> {
    /// Its head.
    pub parts: &'a Parts,
    /// Whom it addresses.
    pub target: &'a Target,
    /// The far end of its connection.
    pub peer: IpAddr,
    /// Whose word on the scheme is believed.
    pub trust: &'a Trust,
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
