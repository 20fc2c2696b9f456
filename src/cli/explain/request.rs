//! The explanation of a request, worked out with the gateway's own parts: nothing is sent, counted or asked.

use super::arrival;
use super::candidates::{self, RouteQuery};
use super::explanation::{
    AppliedLimit, ChosenRoute, CountedKey, ExpectedAnswer, Explanation, KeyFault, KeyResult,
    Routing,
};
use super::handshake::{self, ClientHandshake, HandshakeOutlook};
use super::outlook;
use super::server_choice::ServerChoice;
use super::stripped_fields::{self, StrippedField};
use crate::admission::destination::Destination;
use crate::admission::stripped_fields::StripCause;
use crate::admission::{Plan, RefusalCause};
use crate::client::Scheme;
use crate::clock;
use crate::config::{Compiled, describe, leases};
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::key::{Caller, Content, Doubt, KeyOutcome, Memberships, ShownCertificate};
use crate::limit::rate::Cost;
use crate::limit::verdict::Verdict;
use crate::limit::{Limit, Preflights};
use crate::proxy::error::ProxyError;
use crate::proxy::forwarded::ConnectionPeer;
use crate::proxy::forwarded::hops::{self, Hops};
use crate::proxy::request::{self, BadRequest, Target};
use crate::proxy::route_members::RouteMembers;
use crate::proxy::route_request::RouteRequest;
use crate::route::{host_key, path};
use crate::snapshot::Service;
use crate::upstream::ServerHost;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// The host of a request that names none.
pub(super) const ASSUMED_HOST: &str = "localhost";

/// A request to explain.
#[derive(Debug)]
pub(super) struct ExplainedRequest {
    pub(super) parts: Parts,
    pub(super) peer: Option<IpAddr>,
    /// The client's side of the handshake, where the request comes by TLS.
    pub(super) handshake: Option<ClientHandshake>,
}

impl ExplainedRequest {
    fn scheme(&self) -> Scheme {
        match self.handshake {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        }
    }
}

/// Explains `request` under the file in `compiled`.
pub(super) fn explain(compiled: &Compiled, mut request: ExplainedRequest) -> Explanation {
    let host_assumed = name_host(&mut request);
    if arrival::comes_by_tls(compiled, &request.parts) {
        request.handshake.get_or_insert_default();
    }
    let handshake = request.handshake.as_ref();
    let handshake =
        handshake.and_then(|client| handshake::outlook(compiled, client, &request.parts));
    let trust = &compiled.snapshot.trust;
    let client = trust.explain(request.peer, &request.parts.headers);
    let read = match &handshake {
        Some(handshake) if handshake.is_misdirected() => {
            let reason = "the host belongs on another connection".to_owned();
            Err(ExpectedAnswer::gateway(421, reason))
        }
        _ => read(compiled, &mut request),
    };
    let (routing, answer) = match read {
        Ok(head) => {
            let (mut routing, answer) = head.route(
                compiled,
                &request,
                client.client,
                handshake.as_ref().and_then(HandshakeOutlook::shown),
            );
            routing.host_assumed = host_assumed;
            (Some(routing), answer)
        }
        Err(answer) => (None, answer),
    };
    Explanation {
        target: request.parts.uri.to_string(),
        method: request.parts.method,
        peer: request.peer,
        client,
        handshake,
        routing,
        answer,
    }
}

/// Names the host in a request that has no such field, as clients do: the host of its URI, or else the assumed one. Was it
/// the assumed one?
fn name_host(request: &mut ExplainedRequest) -> bool {
    let parts = &mut request.parts;
    if parts.headers.contains_key(header::HOST) {
        return false;
    }
    let own = parts.uri.authority().map(|authority| {
        let text = authority.as_str();
        // User information is never sent in it (RFC 9110 section 7.2).
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    let host = HeaderValue::from_str(own.unwrap_or(ASSUMED_HOST));
    if let Ok(host) = host {
        parts.headers.insert(header::HOST, host);
    }
    own.is_none()
}

/// The head of a request that may be forwarded.
struct Head {
    target: Target,
    stripped: Vec<StrippedField>,
    /// The path that routes are matched against.
    matched: String,
    /// The target that is forwarded.
    onward: PathAndQuery,
    host: String,
}

/// Reads the head in the order of the gateway; an error is an answer that comes before any route is looked for.
fn read(compiled: &Compiled, request: &mut ExplainedRequest) -> Result<Head, ExpectedAnswer> {
    let bad = |bad: BadRequest| ExpectedAnswer::refused(&ProxyError::from(bad));
    let scheme = request.scheme();
    let is_sent_on = request.handshake.is_none() && arrival::is_sent_on(compiled, &request.parts);
    let parts = &mut request.parts;
    let (method, uri, fields) = (&parts.method, &parts.uri, &mut parts.headers);
    let target = Target::read(method, uri, parts.version, scheme, fields).map_err(bad)?;
    let stripped = stripped_fields::strip(fields, &compiled.snapshot, request.peer).map_err(bad)?;
    if target.is_asterisk() || hops::count_hop(method, fields) == Hops::Spent {
        let reason = "it is for the gateway itself".to_owned();
        return Err(ExpectedAnswer::gateway(204, reason));
    }
    if is_sent_on {
        return Err(arrival::sent_on(&target, uri));
    }
    let path = path::normalize(uri.path()).map_err(|path| bad(path.into()))?;
    Ok(Head {
        stripped,
        onward: request::forward_target(uri, &path).map_err(bad)?,
        matched: path.to_match().to_owned(),
        host: host_key(target.host()).into_owned(),
        target,
    })
}

impl Head {
    /// What routes look at in the request.
    fn query<'h>(
        &'h self,
        compiled: &'h Compiled,
        request: &'h ExplainedRequest,
        members: Option<&'h RouteMembers<'h>>,
    ) -> RouteQuery<'h> {
        RouteQuery {
            host: &self.host,
            path: &self.matched,
            stripped: &self.stripped,
            request: RouteRequest {
                parts: &request.parts,
                target: &self.target,
                peer: ConnectionPeer {
                    address: request.peer,
                    scheme: request.scheme(),
                    is_stranger: false,
                },
                trust: &compiled.snapshot.trust,
                members,
            },
        }
    }

    /// Finds the route and the limits of the request, whose client is at `address`, and how it ends.
    fn route(
        self,
        compiled: &Compiled,
        request: &ExplainedRequest,
        address: Option<IpAddr>,
        certificate: Option<ShownCertificate<'_>>,
    ) -> (Routing, ExpectedAnswer) {
        let snapshot = &compiled.snapshot;
        let members = RouteMembers::of(snapshot, &request.parts, address, || certificate);
        let query = self.query(compiled, request, members.as_deref());
        let found = query.find(&snapshot.table);
        let mut routing = Routing {
            before_token: candidates::limits_before_token(compiled, &query, members.as_deref()),
            candidates: candidates::all(compiled, found, &query),
            route: found.map(|found| chosen(compiled, found)),
            stripped: self.stripped,
            matched: self.matched,
            host: self.host,
            ..Routing::default()
        };
        // What a group of a route has asked the token for.
        routing.token = members.as_ref().and_then(|members| members.why_not());
        let Some(service) = found.or(snapshot.unrouted) else {
            return (routing, ExpectedAnswer::refused(&ProxyError::NoRoute));
        };
        let service = &snapshot.services[service];
        if service.asks_certificate && certificate.is_none() {
            let answer = ExpectedAnswer::refused(&ProxyError::CertificateRequired);
            return (routing, answer);
        }
        routing.forwarded = forwarded_path(service, &self.onward);
        routing.asked_host = asked_host(service);
        let fields = as_counted(service, &request.parts.headers, &mut routing.stripped);
        let fields = &*fields;
        let token = Token::new(snapshot.tokens.as_deref(), fields);
        let caller = Caller {
            address,
            route: &service.name,
            method: &request.parts.method,
            fields,
            location: &Destination {
                authority: self.target.host(),
                path: self.onward.path(),
                query: self.onward.query(),
                pattern: &service.path,
            },
            cookies: &Cookies::of(fields),
            identity: &token,
            content: Content::announced(fields),
            certificate,
        };
        let plan = Plan::of(service, &caller);
        routing.limits = applied(compiled, service, &caller, &plan);
        let (method, limits) = (&request.parts.method, &routing.limits);
        let answer = outlook::answer(service, method, &self.onward, plan.lack(), limits);
        routing.identity = told(service, &caller, &plan);
        routing.server = ServerChoice::of(compiled, service, &caller);
        routing.token = routing.token.or(token.why_not());
        (routing, answer)
    }
}

/// The host that the servers are asked for, where it is not the client's.
fn asked_host(service: &Service) -> Option<String> {
    let change = service.host_change.as_ref()?;
    Some(match &change.host {
        ServerHost::Own => "the server's own".to_owned(),
        ServerHost::Text(host) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
    })
}

/// The fields that limits count by: those are gone that tell servers who the client is.
fn as_counted<'f>(
    service: &Service,
    fields: &'f HeaderMap,
    stripped: &mut Vec<StrippedField>,
) -> Cow<'f, HeaderMap> {
    let Some(identity) = &service.identity else {
        return Cow::Borrowed(fields);
    };
    let mut left = fields.clone();
    for name in fields.keys().filter(|name| identity.claims(name)) {
        left.remove(name);
        stripped.push(StrippedField {
            name: name.clone(),
            why: StripCause::Identity,
        });
    }
    Cow::Owned(left)
}

/// The fields by which the servers know the client, with their values.
fn told(service: &Service, caller: &Caller<'_>, plan: &Plan) -> Vec<(HeaderName, Option<String>)> {
    let Some(identity) = &service.identity else {
        return Vec::new();
    };
    let tiers: Vec<_> = plan.groups(service).map(|(_, name)| name).collect();
    let fields = identity.fields.iter();
    fields
        .map(|field| {
            let value = identity.value(field, caller, tiers.iter().copied());
            let shown = |value: HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            (field.name.clone(), value.map(shown))
        })
        .collect()
}

/// The path that the upstream gets, if one does.
fn forwarded_path(service: &Service, onward: &PathAndQuery) -> Option<String> {
    service.upstream?;
    let Some(rewrite) = &service.rewrite else {
        return Some(onward.path().to_owned());
    };
    let mut path = String::new();
    rewrite.fill(onward.path(), &mut path);
    Some(path)
}

fn chosen(compiled: &Compiled, position: usize) -> ChosenRoute {
    let service = &compiled.snapshot.services[position];
    let upstream = service.upstream.map(|at| &compiled.snapshot.upstreams[at]);
    let servers = upstream.map(|upstream| upstream.servers.iter().map(ToString::to_string));
    ChosenRoute {
        name: Arc::clone(&service.name),
        place: compiled.place("routes", &service.name),
        upstream: upstream.map(|upstream| Arc::clone(&upstream.name)),
        servers: servers.into_iter().flatten().collect(),
    }
}

/// The limits of the route, as they apply to the request.
fn applied(
    compiled: &Compiled,
    service: &Service,
    caller: &Caller<'_>,
    plan: &Plan,
) -> Vec<AppliedLimit> {
    let limits = service.limits.iter();
    let mut limits: Vec<AppliedLimit> = limits
        .map(|limit| {
            let mut applied = AppliedLimit {
                place: compiled.place("limits", &limit.name),
                means: describe::limit(limit, compiled.asks_redis()),
                by: describe::key(&limit.by),
                leased: None,
                limit: Arc::clone(limit),
                tier: None,
                state: None,
                live: None,
                key: KeyResult::Skipped,
            };
            applied.key = applied.read_key(caller);
            applied
        })
        .collect();
    for (position, applied) in limits.iter_mut().enumerate() {
        if !matches!(applied.key, KeyResult::Counted(_)) {
            continue;
        }
        if compiled.asks_redis() {
            applied.leased = leases::of_request(&applied.limit);
        }
        // The gateway does not ask a limit whose key another limit refuses as unknown.
        if let Some(RefusalCause::UnknownKey { part, .. }) = plan.lack()
            && !plan.positions().any(|planned| planned == position)
        {
            applied.key = KeyResult::Faulty(KeyFault::LeftOut, part.to_string());
        }
    }
    limits
}

impl AppliedLimit {
    /// What the key template makes of the request; where a tier holds, the limit becomes the tier.
    fn read_key(&mut self, caller: &Caller<'_>) -> KeyResult {
        let limit = Arc::clone(&self.limit);
        let (mut standing, mut keys) = (Memberships::default(), Vec::new());
        if let Some(exempt) = &limit.exempt {
            // In the order of the gateway, whose log names no group where the rest suffices.
            if exempt.covers(caller) {
                return KeyResult::Exempt(None);
            }
            match exempt.group(&mut standing, caller, &mut keys) {
                Ok(None) => {}
                Ok(Some(group)) => return KeyResult::Exempt(Some(Arc::clone(&group.name))),
                // The limit counts the request as one of no group, though the request is turned away.
                Err(_) if limit.mode.decides() => {}
                Err(doubt) => return doubtful(doubt),
            }
        }
        let is_free = limit.answers.preflights == Preflights::Free && caller.is_preflight();
        let found = if is_free {
            limit.write_preflight(caller, &mut keys);
            KeyOutcome::Key
        } else {
            limit.by.write(caller, &mut keys)
        };
        match found {
            KeyOutcome::Skip => return KeyResult::Skipped,
            KeyOutcome::Refuse(part) => {
                return KeyResult::Faulty(KeyFault::Absent, part.to_string());
            }
            KeyOutcome::Unknown(part) => {
                return KeyResult::Faulty(KeyFault::Unknown, part.to_string());
            }
            KeyOutcome::Doubt(doubt) => return doubtful(doubt),
            KeyOutcome::Key => {}
        }
        let tier = match limit.tier_of(&mut standing, caller, &mut keys, 0) {
            _ if is_free => None,
            Ok(tier) => tier.and_then(|tier| limit.tiers.get(tier)),
            Err(_) if limit.mode.decides() => None,
            Err(doubt) => return doubtful(doubt),
        };
        if let Some(tier) = tier {
            self.limit = Arc::clone(&tier.limit);
            self.by = describe::key(&tier.limit.by);
            self.tier = Some((Arc::clone(&tier.group.name), describe::tier(&tier.limit)));
        }
        let (cost, misquoted) = match &self.limit.price {
            None => (self.limit.cost.units(), None),
            Some(price) => price.of(caller.fields),
        };
        KeyResult::Counted(CountedKey {
            key: String::from_utf8_lossy(&keys).into_owned(),
            raw: keys,
            cost,
            misquoted,
            fresh: fresh(&self.limit, Cost::new(cost)),
        })
    }
}

fn doubtful(doubt: Doubt<'_>) -> KeyResult {
    let (fault, part) = match doubt {
        Doubt::Several(part) => (KeyFault::Ambiguous, part),
        Doubt::Unbelieved(part) => (KeyFault::Unbelieved, part),
    };
    KeyResult::Faulty(fault, part.to_string())
}

/// The verdict of an unused counter.
fn fresh(limit: &Limit, cost: Cost) -> Verdict {
    let now = clock::wall();
    let (measured, _) = limit.check(None, now, cost);
    limit
        .rule
        .verdict(measured, now, measured.charged(cost), true)
}
