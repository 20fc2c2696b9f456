//! The client of a request, in the form that keys, groups and identity fields read.

use crate::admission::destination::RequestDestination;
use crate::key::cookie::Cookies;
use crate::key::{Caller, Content, CustomerSearch, Identity, ShownCertificate};
use crate::route::PathPattern;
use crate::snapshot::Service;
use http::{HeaderMap, Method};
use std::net::IpAddr;

/// The facts of a request from which keys are made, before its route adds the pattern of the path.
#[derive(Debug, Clone, Copy)]
pub struct CallerFacts<'a> {
    /// The client's address, after trusted hops.
    pub address: Option<IpAddr>,
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// The host with its port, as the client spells it; empty when the client names none.
    pub host: &'a str,
    /// The path, in any spelling.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// The known facts about the request's body.
    pub content: Content,
    /// The verified certificate of the connection's client.
    pub certificate: Option<ShownCertificate<'a>>,
}

impl CallerFacts<'_> {
    /// The result of `reader` for the client of a request to `service`, with the known `identity`.
    #[inline]
    pub fn read<R>(
        &self,
        service: &Service,
        identity: &dyn Identity,
        reader: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        let customers = CustomerSearch::of(service.customers.as_deref());
        self.read_searching(service, identity, &customers, reader)
    }

    /// The same, with a lookup of the client's customer whose result is kept.
    #[inline]
    pub fn read_searching<R>(
        &self,
        service: &Service,
        identity: &dyn Identity,
        customers: &CustomerSearch<'_>,
        reader: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        self.read_on(&service.name, &service.path, identity, customers, reader)
    }

    /// The result of `reader` for the client of a request whose route is not known yet.
    pub(super) fn read_unrouted<R>(
        &self,
        identity: &dyn Identity,
        customers: &CustomerSearch<'_>,
        reader: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        self.read_on("", &PathPattern::default(), identity, customers, reader)
    }

    #[inline]
    fn read_on<R>(
        &self,
        route: &str,
        pattern: &PathPattern,
        identity: &dyn Identity,
        customers: &CustomerSearch<'_>,
        reader: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        reader(&Caller {
            address: self.address,
            route,
            method: self.method,
            fields: self.fields,
            location: &RequestDestination {
                authority: self.host,
                path: self.path,
                query: self.query,
                pattern,
            },
            cookies: &Cookies::of(self.fields),
            identity,
            customers,
            content: self.content,
            certificate: self.certificate,
        })
    }
}
