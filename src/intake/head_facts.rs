//! The walk's steps for a head that hyper has read, on a connection with known facts.

use super::caller::CallerFacts;
use super::early_answer::{IntakeError, https_location};
use super::facts::{ClientReadings, ConnectionFacts, EarlyLimits, RequestFacts};
use super::grpc_call::CallDeadline;
use super::head::{self, BadRequest, Target};
use super::hop_fields::{self, Hops};
use super::members::RouteMembers;
use super::recorder::Recorder;
use super::routing::RouteRequest;
use super::stripped_fields::{self, FieldTrust, StripCause};
use crate::admission::Plan;
use crate::key::token::Token;
use crate::key::{Caller, Content, CustomerSearch, NoIdentity};
use crate::limit::Limit;
use crate::listen::FramingFault;
use crate::route::{host_key, path};
use crate::snapshot::{Service, Snapshot};
use crate::tls::CHALLENGE_PATH;
use http::request::Parts;
use http::{HeaderValue, Method, Uri};
use std::borrow::Cow;
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;
use tokio::time::Instant;

/// A head on its connection.
#[derive(Debug)]
pub struct HeadFacts<'a, C> {
    /// The head. During the walk its fields are dropped, and its target becomes the one to forward.
    pub parts: &'a mut Parts,
    /// Its connection.
    pub connection: C,
    /// The host that the head addresses, after the head was checked.
    pub target: Target,
    /// The client's address, after trusted hops.
    pub client: Option<IpAddr>,
    /// The known facts about its body.
    pub content: Content,
    /// The arrival time of a gRPC call; `None` for another request.
    pub call_began: Option<Instant>,
}

/// The token at the end of a path that a certification authority requests (RFC 8555 section 8.3), as received: no token
/// contains an escape or a dot segment.
#[must_use]
pub fn challenge_token<'p>(method: &Method, path: &'p str) -> Option<&'p str> {
    let looks = *method == Method::GET || *method == Method::HEAD;
    path.strip_prefix(CHALLENGE_PATH).filter(|_| looks)
}

impl<C: ConnectionFacts> HeadFacts<'_, C> {
    /// The client, in the form that keys read.
    #[inline]
    pub fn caller(&self) -> CallerFacts<'_> {
        CallerFacts {
            address: self.client,
            method: &self.parts.method,
            fields: &self.parts.headers,
            host: self.target.host(),
            path: self.parts.uri.path(),
            query: self.parts.uri.query(),
            content: self.content,
            certificate: self.connection.certificate(),
        }
    }

    /// The lookup of the customer of a request to `service`.
    #[inline]
    pub fn customers<'s>(&self, service: &'s Service) -> CustomerSearch<'s> {
        let all = service.customers.as_deref();
        let assumed = self.connection.assumed_customer();
        let assumed = assumed.and_then(|name| Some(all?.assumed(name)));
        CustomerSearch::of(all).knowing(assumed)
    }

    /// Gives `reader` the client of a request to `service`, with the results of earlier lookups, and keeps the results.
    #[inline]
    fn read_knowing(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        readings: &mut ClientReadings,
        reader: impl FnOnce(&Caller<'_>),
    ) {
        let token = Token::new(snapshot.tokens.as_deref(), &self.parts.headers);
        let token = token.knowing(readings.token.take());
        let customers = match readings.customer.take() {
            None => self.customers(service),
            known => CustomerSearch::of(service.customers.as_deref()).knowing(known),
        };
        self.caller()
            .read_searching(service, &token, &customers, reader);
        readings.token = token.reading();
        readings.customer = customers.reading();
    }

    /// The client, where routes ask for members of groups.
    pub fn members<'s>(&'s self, snapshot: &'s Snapshot) -> Option<RouteMembers<'s>> {
        let assumed = self.connection.assumed_customer();
        RouteMembers::of(snapshot, assumed, || CallerFacts {
            content: Content::Absent,
            ..self.caller()
        })
    }

    /// The request, in the form that conditions of routes see.
    #[inline]
    pub fn request<'s>(
        &'s self,
        snapshot: &'s Snapshot,
        members: Option<&'s RouteMembers<'s>>,
    ) -> RouteRequest<'s> {
        RouteRequest {
            parts: self.parts,
            target: &self.target,
            peer: self.connection.peer(),
            trust: &snapshot.trust,
            members,
        }
    }

    /// The host for route matching, if any route has a condition about the host.
    #[inline]
    fn matched_host(&self, snapshot: &Snapshot) -> Cow<'_, str> {
        if snapshot.table.asks_for_hosts() {
            host_key(self.target.host())
        } else {
            Cow::Borrowed("")
        }
    }

    /// The route that takes the request, of which `members` are known.
    #[inline]
    fn find(
        &self,
        snapshot: &Snapshot,
        path: &str,
        members: Option<&RouteMembers<'_>>,
    ) -> Option<usize> {
        let request = self.request(snapshot, members);
        let (host, method) = (self.matched_host(snapshot), &self.parts.method);
        snapshot.table.find(&host, path, method, &request)
    }

    /// The route that takes the request, where routes ask for members of groups.
    #[cold]
    #[inline(never)]
    fn route_of_member(
        &self,
        snapshot: &Snapshot,
        path: &str,
        readings: &mut ClientReadings,
    ) -> Result<Option<usize>, IntakeError> {
        let members = self.members(snapshot);
        let found = self.find(snapshot, path, members.as_ref());
        if let Some(members) = members {
            members.are_known()?;
            readings.token = members.reading();
            readings.route_customer = members.customer();
            let customers = snapshot.customers.as_deref();
            if customers.is_some_and(|customers| !customers.depend_on_route()) {
                readings.customer.clone_from(&readings.route_customer);
            }
        }
        Ok(found)
    }

    #[cold]
    #[inline(never)]
    fn limits_before_token(&self, snapshot: &Snapshot, plan: &mut Plan) -> EarlyLimits {
        // The next step refuses an invalid path.
        let Ok(path) = path::normalize(self.parts.uri.path()) else {
            return EarlyLimits::Unneeded;
        };
        let members = self.members(snapshot);
        let Some(members) = members.as_ref().filter(|members| members.have_token()) else {
            return EarlyLimits::Unneeded;
        };
        let request = self.request(snapshot, Some(members));
        let (host, table) = (self.matched_host(snapshot), &snapshot.table);
        let (last, possible) = request.routes_before_token(members, table, &host, path.to_match());
        if possible.is_empty() {
            // A token may also take a customer away: it may be another one's, or not be trusted.
            let customers = snapshot.customers.as_ref();
            let contradicts = customers.is_some_and(|customers| customers.ask_token());
            return if contradicts {
                EarlyLimits::Unneeded
            } else {
                EarlyLimits::Decided(last)
            };
        }
        let Some(position) = last.or(snapshot.unrouted) else {
            return EarlyLimits::Unneeded;
        };
        let limits = snapshot.shared_early_limits(position, &possible);
        if limits.is_empty() {
            return EarlyLimits::Unneeded;
        }
        let is_one = |limit: &Limit| limits.iter().any(|one| ptr::eq(Arc::as_ptr(one), limit));
        let service = &snapshot.services[position];
        plan.make_room(service);
        self.caller().read(service, &NoIdentity, |caller| {
            plan.fill(service, caller, is_one);
        });
        EarlyLimits::Planned(position)
    }
}

impl<C: ConnectionFacts> RequestFacts for HeadFacts<'_, C> {
    #[inline]
    fn framing(&mut self, recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        let Some(&found) = self.parts.extensions.get::<FramingFault>() else {
            return Ok(());
        };
        recorder.host(head::named_host(&self.parts.uri, &self.parts.headers));
        Err(BadRequest::from(found).into())
    }

    #[inline]
    fn head(&mut self) -> Result<(), IntakeError> {
        let Parts {
            method,
            uri,
            version,
            headers,
            ..
        } = &*self.parts;
        let scheme = self.connection.peer().scheme;
        self.target = Target::read(method, uri, *version, scheme, headers)?;
        Ok(())
    }

    #[inline]
    fn call_deadline(&mut self, recorder: &mut impl Recorder) -> Result<(), IntakeError> {
        if let Some(began) = self.call_began {
            recorder.call_deadline(CallDeadline::read(&self.parts.headers, began)?);
        }
        Ok(())
    }

    #[inline]
    fn drop_fields(
        &mut self,
        snapshot: &Snapshot,
        recorder: &mut impl Recorder,
    ) -> Result<(), IntakeError> {
        let (fields, peer) = (&mut self.parts.headers, self.connection.peer());
        let trusted = FieldTrust::of(snapshot, || peer.is_trusted(&snapshot.trust));
        let misread =
            stripped_fields::tidy(fields, &trusted, |name, why| recorder.dropped(name, why));
        if let Some(names) = misread {
            recorder.misread(&names);
        }
        hop_fields::drop_named(fields, |name| recorder.dropped(name, StripCause::Named))?;
        recorder.host(self.target.authority().cloned());
        Ok(())
    }

    #[inline]
    fn spend_hop(&mut self) -> bool {
        self.target.is_asterisk()
            || hop_fields::count_hop(&self.parts.method, &mut self.parts.headers) == Hops::Spent
    }

    #[inline]
    fn looks_for_text(&self) -> bool {
        self.connection.may_have_texts()
            && challenge_token(&self.parts.method, self.parts.uri.path()).is_some()
    }

    #[inline]
    fn https_location(&self) -> Result<Option<HeaderValue>, IntakeError> {
        if !self.connection.redirects() {
            return Ok(None);
        }
        Ok(Some(https_location(&self.target, &self.parts.uri)?))
    }

    #[inline]
    fn is_on_its_connection(&self) -> bool {
        self.connection.may_serve(|| host_key(self.target.host()))
    }

    #[inline]
    fn early_limits(&mut self, snapshot: &Snapshot, plan: &mut Plan) -> EarlyLimits {
        if snapshot.route_groups.is_empty() || !self.has_token(snapshot) {
            return EarlyLimits::Unneeded;
        }
        self.limits_before_token(snapshot, plan)
    }

    #[inline]
    fn route(
        &mut self,
        snapshot: &Snapshot,
        early: EarlyLimits,
        readings: &mut ClientReadings,
        recorder: &mut impl Recorder,
    ) -> Result<Option<usize>, IntakeError> {
        let path = path::normalize(self.parts.uri.path()).map_err(BadRequest::from)?;
        recorder.path(&path, &self.parts.headers);
        let found = if let EarlyLimits::Decided(found) = early {
            found
        } else if !snapshot.route_groups.is_empty() {
            self.route_of_member(snapshot, path.to_match(), readings)?
        } else {
            self.find(snapshot, path.to_match(), None)
        };
        if !head::is_forward_target(&self.parts.uri, &path) {
            let forward_uri = head::forward_target(&self.parts.uri, &path)?;
            self.parts.uri = Uri::from(forward_uri);
        }
        Ok(found)
    }

    #[inline]
    fn lacks_certificate(&self) -> bool {
        self.connection.certificate().is_none()
    }

    #[inline]
    fn drop_identity(
        &mut self,
        service: &Service,
        readings: &mut ClientReadings,
        recorder: &mut impl Recorder,
    ) {
        if let Some(identity) = &service.identity {
            let fields = &mut self.parts.headers;
            identity.strip(fields, |name| {
                // The field may have named the customer.
                readings.customer = None;
                recorder.dropped(name, StripCause::Identity);
            });
        }
    }

    #[inline]
    fn has_body(&self) -> bool {
        !self.content.is_absent()
    }

    #[inline]
    fn has_token(&self, snapshot: &Snapshot) -> bool {
        Token::new(snapshot.tokens.as_deref(), &self.parts.headers).is_there()
    }

    #[inline]
    fn fill(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        readings: &mut ClientReadings,
        plan: &mut Plan,
        those: impl Fn(&Limit) -> bool,
    ) {
        self.read_knowing(snapshot, service, readings, |caller| {
            plan.fill(service, caller, those);
        });
    }

    #[cold]
    #[inline(never)]
    fn look_for_customer(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        readings: &mut ClientReadings,
        plan: &mut Plan,
    ) {
        let is_contradictory = readings.has_contradiction();
        self.read_knowing(snapshot, service, readings, |caller| {
            plan.look_for_customer(service, is_contradictory, caller);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_stands_behind_the_path_as_it_was_sent() {
        let asked = |path| challenge_token(&Method::GET, path);
        assert_eq!(asked("/.well-known/acme-challenge/abc"), Some("abc"));
        for other in [
            "/.well-known/acme-challenge",
            "/.well-known//acme-challenge/abc",
            "/x/../.well-known/acme-challenge/abc",
            "/.well-known/acme%2dchallenge/abc",
            "/.WELL-KNOWN/acme-challenge/abc",
        ] {
            assert_eq!(asked(other), None, "{other}");
        }
        assert_eq!(
            challenge_token(&Method::POST, "/.well-known/acme-challenge/abc"),
            None
        );
    }
}
