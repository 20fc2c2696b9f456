//! A request in the form that conditions of routes see.

use super::head::Target;
use super::members::RouteMembers;
use super::peer::{self, ConnectionPeer};
use crate::client::Scheme;
use crate::key::client_ip::Trust;
use crate::route::{self, OpenSearch, RoutePositions, Table};
use http::HeaderMap;
use http::request::Parts;
use std::sync::Arc;

/// A request before its route is known.
#[derive(Debug, Clone, Copy)]
pub struct RouteRequest<'a> {
    /// The request's head.
    pub parts: &'a Parts,
    /// The host that the request addresses.
    pub target: &'a Target,
    /// The far end of the request's connection.
    pub peer: ConnectionPeer,
    /// The peers that are trusted to report the scheme.
    pub trust: &'a Trust,
    /// The known facts about the client, if routes have conditions about members of groups.
    pub members: Option<&'a RouteMembers<'a>>,
}

impl RouteRequest<'_> {
    /// The route in `table` that matches the request if its token makes the client a member of no group, and the routes
    /// that would have precedence over that one because of the token. `host` and `path` are the ones for route
    /// matching.
    #[must_use]
    pub fn routes_before_token(
        &self,
        members: &RouteMembers<'_>,
        table: &Table,
        host: &str,
        path: &str,
    ) -> (Option<usize>, RoutePositions) {
        let without = members.without_token();
        let known = RouteRequest {
            members: Some(&without),
            ..*self
        };
        let may_be_member = |groups: &[Arc<str>]| members.depend_on_token(groups);
        let search = OpenSearch::new(&known, &may_be_member);
        let last = table.find(host, path, &self.parts.method, &search);
        (last, search.possible())
    }
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
        peer::client_scheme(self.trust, self.peer, fields, self.target) == Scheme::Https
    }

    fn is_member(&self, groups: &[Arc<str>]) -> bool {
        self.members.is_some_and(|members| members.is_in(groups))
    }
}
