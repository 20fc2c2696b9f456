//! The client, the host and the fields of a line.

use super::super::request::LoggedRequest;
use super::{LoggedHead, PolicySide, host};
use crate::key::client_ip::Trust;
use http::HeaderName;
use std::net::IpAddr;

impl LoggedHead {
    /// Does the line have this field?
    pub(in crate::replay) fn has(&self, name: &HeaderName) -> bool {
        self.fields.contains_key(name)
    }

    /// Does the line have a host, in one of its ways?
    pub(in crate::replay) fn names_host(&self, request: &LoggedRequest<'_>) -> bool {
        let (_, named) = request.path();
        !host(request, self, named).is_empty()
    }
}

impl PolicySide {
    /// The client's address: the line's, or, where that is the peer of another server, the one behind it as this file's
    /// `trust` has it.
    #[inline]
    pub(in crate::replay) fn address(
        &self,
        request: &LoggedRequest<'_>,
        head: &LoggedHead,
    ) -> Option<IpAddr> {
        match &request.proxy_fields {
            None => request.client,
            Some(_) => self.spoke_through(request, head),
        }
    }

    #[cold]
    fn spoke_through(&self, request: &LoggedRequest<'_>, head: &LoggedHead) -> Option<IpAddr> {
        let client = request.client?;
        Some(self.snapshot.trust.client(client, &head.fields))
    }

    /// Which peers are believed about a client's address.
    pub(in crate::replay) fn trust(&self) -> &Trust {
        &self.snapshot.trust
    }

    /// Does any route ask for a host?
    pub(in crate::replay) fn asks_for_hosts(&self) -> bool {
        self.snapshot.table.asks_for_hosts()
    }
}
