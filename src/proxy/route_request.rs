//! A request as conditions of routes see it.

use super::forwarded::{self, ConnectionPeer};
use super::request::Target;
use super::route_members::RouteMembers;
use crate::client::Scheme;
use crate::key::client_ip::Trust;
use crate::route;
use http::HeaderMap;
use http::request::Parts;
use std::sync::Arc;

/// A request on its way to a route.
#[derive(Debug, Clone, Copy)]
pub struct RouteRequest<'a> {
    /// The request's head.
    pub parts: &'a Parts,
    /// The host that the request addresses.
    pub target: &'a Target,
    /// The far end of the request's connection.
    pub peer: ConnectionPeer,
    /// The peers that are believed about the scheme.
    pub trust: &'a Trust,
    /// What is known of the client, where routes ask for members of groups.
    pub members: Option<&'a RouteMembers<'a>>,
}

impl route::RequestView for RouteRequest<'_> {
    fn fields(&self) -> &HeaderMap {
        &self.parts.headers
    }

    fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }

    fn is_https(&self) -> bool {
        let fields = &self.parts.headers;
        forwarded::client_scheme(self.trust, self.peer, fields, self.target) == Scheme::Https
    }

    fn is_member(&self, groups: &[Arc<str>]) -> bool {
        self.members
            .is_some_and(|members| members.is_in(groups, self.target, self.parts))
    }
}
