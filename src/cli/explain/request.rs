//! The explanation of a request, computed with the gateway's own parts: no request is sent, and no unit is charged.

use super::arrival;
use super::assumed_walk::{AssumedConnection, AssumedEnd, WalkNotes};
use super::candidates::{self, RouteQuery};
use super::explanation::{
    AppliedLimit, ChosenRoute, CountedKey, EarlyCounters, ExpectedAnswer, Explanation, KeyFault,
    KeyResult, Routing, Unknown,
};
use super::handshake::{self, ClientHandshake};
use super::outlook;
use super::server_choice::ServerChoice;
use crate::admission::{Plan, RefusalCause};
use crate::client::Scheme;
use crate::clock;
use crate::config::{Compiled, describe, leases};
use crate::intake::head::Target;
use crate::intake::{HeadFacts, IntakeError};
use crate::key::token::Token;
use crate::key::{Caller, Content, Doubt, KeyOutcome, Memberships, TokenDoubt};
use crate::limit::rate::Cost;
use crate::limit::verdict::Verdict;
use crate::limit::{Limit, Preflights};
use crate::listen::FramingFault;
use crate::listen::handler::{MOST_REQUEST_FIELDS, MOST_REQUEST_HEAD};
use crate::route::host_key;
use crate::snapshot::Service;
use crate::upstream::ServerHost;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, header};
use std::mem;
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

/// Explains `request` under the file in `compiled`.
pub(super) fn explain(compiled: &Compiled, mut request: ExplainedRequest) -> Explanation {
    let host_assumed = name_host(&mut request);
    if let Some(fault) = framing_fault(&request.parts) {
        request.parts.extensions.insert(fault);
    }
    if arrival::comes_by_tls(compiled, &request.parts) {
        request.handshake.get_or_insert_default();
    }
    let handshake = request.handshake.as_ref();
    let handshake =
        handshake.and_then(|client| handshake::outlook(compiled, client, &request.parts));
    let trust = &compiled.snapshot.trust;
    let client = trust.explain(request.peer, &request.parts.headers);
    let (target, method) = (request.parts.uri.to_string(), request.parts.method.clone());
    let scheme = match request.handshake {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let (parts, peer) = (&request.parts, request.peer);
    let connection = AssumedConnection::of(compiled, parts, peer, scheme, handshake.as_ref());
    let content = Content::announced(&request.parts.headers);
    let mut head = HeadFacts {
        // The explained request uses HTTP/1.1, which carries no gRPC call.
        call_began: None,
        parts: &mut request.parts,
        connection,
        target: Target::default(),
        client: client.client,
        content,
    };
    let mut notes = WalkNotes::default();
    let end = notes.walk(&compiled.snapshot, &mut head);
    let (routing, answer) = explained(compiled, &mut head, &mut notes, end);
    let routing = routing.map(|routing| Routing {
        host_assumed,
        ..routing
    });
    Explanation {
        target,
        method,
        peer: request.peer,
        client,
        unknown: notes.unknown,
        handshake,
        routing,
        answer,
    }
}

/// The fault of the framing that the gateway would find before it reads the head, except a fragment.
fn framing_fault(parts: &Parts) -> Option<FramingFault> {
    let has = |name: HeaderName| parts.headers.contains_key(name);
    let is_framed_twice = has(header::CONTENT_LENGTH) && has(header::TRANSFER_ENCODING);
    if is_too_large(parts) {
        Some(FramingFault::TooLarge)
    } else if is_framed_twice {
        Some(FramingFault::LengthAndCoding)
    } else {
        None
    }
}

/// Is the head, as a client of HTTP/1.1 writes it, larger than the gateway reads?
fn is_too_large(parts: &Parts) -> bool {
    let (fields, target) = (&parts.headers, parts.uri.path_and_query());
    let lines = fields.iter();
    let lines = lines.map(|(name, value)| name.as_str().len() + ": \r\n".len() + value.len());
    let target = target.map_or(0, |target| target.as_str().len());
    let first = parts.method.as_str().len() + target + "  HTTP/1.1\r\n".len();
    let size: usize = first + lines.sum::<usize>() + "\r\n".len();
    fields.len() > MOST_REQUEST_FIELDS || size > MOST_REQUEST_HEAD
}

/// Adds the missing `Host` field to a request, as clients do: the host of its URI, or else the assumed one. Returns
/// whether the host was assumed.
fn name_host(request: &mut ExplainedRequest) -> bool {
    let parts = &mut request.parts;
    if parts.headers.contains_key(header::HOST) {
        return false;
    }
    let authority = parts.uri.authority().map(|authority| {
        let text = authority.as_str();
        // User information is never sent in the field (RFC 9110 section 7.2).
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    let host = HeaderValue::from_str(authority.unwrap_or(ASSUMED_HOST));
    if let Ok(host) = host {
        parts.headers.insert(header::HOST, host);
    }
    authority.is_none()
}

/// The route, the limits and the end of a walked request. There is no route if the gateway answers before it looks one
/// up.
fn explained(
    compiled: &Compiled,
    head: &mut HeadFacts<'_, AssumedConnection<'_>>,
    notes: &mut WalkNotes,
    end: AssumedEnd,
) -> (Option<Routing>, ExpectedAnswer) {
    let Some(matched) = notes.matched.take() else {
        return (None, end.answer());
    };
    let snapshot = &compiled.snapshot;
    // Candidates and groups of routes see the fields that the route itself drops.
    let left = mem::replace(&mut head.parts.headers, mem::take(&mut notes.fields));
    let found = notes.service.filter(|at| Some(*at) != snapshot.unrouted);
    let mut routing = close_candidates(compiled, head, notes, matched, found);
    head.parts.headers = left;
    let (Some(at), AssumedEnd::Planned) = (notes.service, &end) else {
        if matches!(
            end,
            AssumedEnd::Failed(IntakeError::Refused(RefusalCause::KeysUnread))
        ) {
            notes.unknown.push(Unknown::KeysByUrl);
        }
        return (Some(routing), end.answer());
    };
    let service = &snapshot.services[at];
    let uri = &head.parts.uri;
    let forwarded_target = uri.path_and_query().cloned();
    let forwarded_target = forwarded_target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    routing.forwarded = forwarded_path(service, &forwarded_target);
    routing.asked_host = asked_host(service);
    let token = Token::new(snapshot.tokens.as_deref(), &head.parts.headers);
    let (answer, doubt) = head.caller().read(service, &token, |caller| {
        routing.limits = applied(compiled, service, caller, &notes.plan);
        routing.identity = identity_fields(service, caller, &notes.plan);
        // The choice of a server hangs no answer on a token: a request without the key goes to the servers in turn.
        let doubt = token.why_not();
        routing.server = ServerChoice::of(compiled, service, caller);
        let (lack, limits) = (notes.plan.lack(), &routing.limits);
        let answer = outlook::answer(service, caller, &forwarded_target, lack, limits);
        (answer, doubt)
    });
    routing.token = routing.token.or(token.why_not());
    routing.early = token.is_there().then_some(if compiled.asks_redis() {
        EarlyCounters::OfGateway
    } else {
        EarlyCounters::All
    });
    let names_client = service.identity.as_ref();
    let names_client = names_client.is_some_and(|identity| !identity.fields.is_empty());
    let is_unread = names_client && doubt == Some(TokenDoubt::KeysUnread);
    let answer = if is_unread && answer.gateway_answer.is_none() {
        ExpectedAnswer::unknown(answer.limits)
    } else {
        answer
    };
    if answer.is_unknown {
        notes.unknown.push(Unknown::KeysByUrl);
    }
    (Some(routing), answer)
}

/// The route of a request whose path was read, and the routes that nearly matched.
fn close_candidates(
    compiled: &Compiled,
    head: &HeadFacts<'_, AssumedConnection<'_>>,
    notes: &mut WalkNotes,
    matched: String,
    found: Option<usize>,
) -> Routing {
    let snapshot = &compiled.snapshot;
    let host = host_key(head.target.host()).into_owned();
    let members = head.members(snapshot);
    let query = RouteQuery {
        host: &host,
        path: &matched,
        stripped: &notes.stripped,
        request: head.request(snapshot, members.as_ref()),
    };
    let before_token = candidates::limits_before_token(compiled, &query, members.as_ref());
    let candidates = candidates::list_candidates(compiled, found, &query);
    Routing {
        before_token,
        candidates,
        route: found.map(|found| chosen(compiled, found)),
        // The result of a route's group that needed a claim of the token.
        token: members.as_ref().and_then(|members| members.why_not()),
        stripped: mem::take(&mut notes.stripped),
        matched,
        host,
        ..Routing::default()
    }
}

/// The host in requests to the servers, if it is not the client's.
fn asked_host(service: &Service) -> Option<String> {
    let change = service.host_change.as_ref()?;
    Some(match &change.host {
        ServerHost::Own => "the server's own".to_owned(),
        ServerHost::Text(host) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
    })
}

/// The fields that identify the client to the servers, with their values.
fn identity_fields(
    service: &Service,
    caller: &Caller<'_>,
    plan: &Plan,
) -> Vec<(HeaderName, Option<String>)> {
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
fn forwarded_path(service: &Service, forwarded_target: &PathAndQuery) -> Option<String> {
    service.upstream?;
    let Some(rewrite) = &service.rewrite else {
        return Some(forwarded_target.path().to_owned());
    };
    let mut path = String::new();
    rewrite.fill(forwarded_target.path(), &mut path);
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

/// The limits of the route, in the form that applies to the request.
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
        // The gateway does not check a limit whose key another limit refuses as unknown.
        if let Some(part) = plan.unknown_part(&service.limits[position])
            && !plan.positions().any(|planned| planned == position)
        {
            applied.key = KeyResult::Faulty(KeyFault::LeftOut, part.to_string());
        }
    }
    limits
}

impl AppliedLimit {
    /// The result of the key template for the request; if a tier applies, it replaces the limit.
    fn read_key(&mut self, caller: &Caller<'_>) -> KeyResult {
        let limit = Arc::clone(&self.limit);
        let (mut standing, mut keys) = (Memberships::default(), Vec::new());
        if let Some(exempt) = &limit.exempt {
            // In the gateway's order: its log names no group if the other exemptions suffice.
            if exempt.covers(caller) {
                return KeyResult::Exempt(None);
            }
            match exempt.group(&mut standing, caller, &mut keys) {
                Ok(None) => {}
                Ok(Some(group)) => return KeyResult::Exempt(Some(Arc::clone(&group.name))),
                // The limit counts the request as one of no group, though the request is refused.
                Err(_) if limit.mode.decides() => {}
                Err(doubt) => return doubtful(doubt, caller),
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
            KeyOutcome::Doubt(doubt) => return doubtful(doubt, caller),
            KeyOutcome::Key => {}
        }
        let tier = match limit.tier_of(&mut standing, caller, &mut keys, 0) {
            _ if is_free => None,
            Ok(tier) => tier.and_then(|tier| limit.tiers.get(tier)),
            Err(_) if limit.mode.decides() => None,
            Err(doubt) => return doubtful(doubt, caller),
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

fn doubtful(doubt: Doubt<'_>, caller: &Caller<'_>) -> KeyResult {
    let (fault, part) = match doubt {
        Doubt::Several(part) => (KeyFault::Ambiguous, part),
        Doubt::Untrusted(part) if caller.identity.doubt() == Some(TokenDoubt::KeysUnread) => {
            (KeyFault::KeysUnread, part)
        }
        Doubt::Untrusted(part) => (KeyFault::Untrusted, part),
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
