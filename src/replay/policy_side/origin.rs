//! The client, the host and the fields of a line.

use super::PolicySide;
use crate::key::client_ip::Trust;
use crate::replay::request::LoggedRequest;
use crate::route::RequestView;
use http::HeaderMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A logged request, as the conditions of routes see it.
impl RequestView for LoggedRequest<'_> {
    fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    fn query(&self) -> Option<&str> {
        self.target().query
    }

    fn is_https(&self) -> bool {
        let proxy_fields = self.proxy_fields.as_ref();
        self.is_encrypted
            || proxy_fields.is_some_and(|fields| fields.is_https)
            || self.target.starts_with("https://")
    }

    fn is_member(&self, groups: &[Arc<str>]) -> bool {
        groups.iter().any(|group| self.is_logged_in(group))
    }
}

impl PolicySide {
    /// The client's address. If the line has only the peer of another server, the client behind that peer is found by
    /// this file's `trust`.
    #[inline]
    pub(in crate::replay) fn address(&self, request: &LoggedRequest<'_>) -> Option<IpAddr> {
        match &request.proxy_fields {
            None => request.client,
            Some(_) => self.spoke_through(request),
        }
    }

    #[cold]
    fn spoke_through(&self, request: &LoggedRequest<'_>) -> Option<IpAddr> {
        let trust = &self.snapshot.trust;
        trust.client(Some(request.client?), &request.fields)
    }

    /// The peers that are trusted to report a client's address.
    pub(in crate::replay) fn trust(&self) -> &Trust {
        &self.snapshot.trust
    }

    /// Does any route have a condition about the host?
    pub(in crate::replay) fn asks_for_hosts(&self) -> bool {
        self.snapshot.table.asks_for_hosts()
    }
}
