//! The explanation of a request, computed with the gateway's own parts: no request is sent, and no unit is charged.

use super::arrival;
use super::assumed_walk::{AssumedConnection, WalkNotes};
use super::candidates::{self, RouteQuery};
use super::explanation::{
    AppliedLimit, ChosenRoute, CountedKey, EarlyCounters, ExpectedAnswer, ExplainedCustomer,
    ExplainedNumbers, Explanation, KeyFault, KeyResult, Routing, Unknown,
};
use super::handshake::{self, ClientHandshake};
use super::outlook;
use super::server_choice::ServerChoice;
use crate::admission::Plan;
use crate::client::Scheme;
use crate::clock;
use crate::config::{Compiled, ShownCredentials, describe, leases};
use crate::intake::HeadFacts;
use crate::intake::head::{BadRequest, Target};
use crate::key::token::Token;
use crate::key::{
    Caller, Content, CustomerName, CustomerReading, Doubt, Group, KeyOutcome, Memberships,
    NamedMembers, TokenDoubt, shown_digests,
};
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::limit::verdict::Verdict;
use crate::listen::FramingFault;
use crate::listen::handler::{MOST_REQUEST_FIELDS, MOST_REQUEST_HEAD};
use crate::route::host_key;
use crate::snapshot::Service;
use crate::store::Check;
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
    /// The target, as it is shown.
    pub(super) target: String,
    /// The fault for which the gateway refuses the target before it is a request; the target in `parts` is then `/`.
    pub(super) refused: Option<BadRequest>,
    pub(super) parts: Parts,
    pub(super) peer: Option<IpAddr>,
    /// The client's side of the handshake, where the request comes by TLS.
    pub(super) handshake: Option<ClientHandshake>,
    /// The customer whose request it is, in place of a credential.
    pub(super) customer: Option<String>,
}

/// Explains `request` under the file in `compiled`.
pub(super) fn explain(compiled: &Compiled, mut request: ExplainedRequest) -> Explanation {
    let host_assumed = name_host(&mut request);
    if let Some(fault) = framing_fault(&request.parts) {
        request.parts.extensions.insert(fault);
    }
    let refused = request.refused.map(|fault| match fault {
        // hyper counts the bytes and the fields of a head before it reads the target as a whole.
        BadRequest::NoTarget if is_too_large(&request.parts) => BadRequest::HeadTooLarge,
        fault => fault,
    });
    if refused.is_none() && arrival::comes_by_tls(compiled, &request.parts) {
        request.handshake.get_or_insert_default();
    }
    // The handshake comes before the target, also before one that is refused.
    let handshake = request.handshake.as_ref();
    let handshake =
        handshake.and_then(|client| handshake::outlook(compiled, client, &request.parts));
    let trust = &compiled.snapshot.trust;
    let client = trust.explain(request.peer, &request.parts.headers);
    let method = request.parts.method.clone();
    let scheme = match request.handshake {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let (parts, peer) = (&request.parts, request.peer);
    let connection = AssumedConnection::of(compiled, parts, peer, scheme, handshake.as_ref())
        .of_customer(request.customer.as_deref());
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
    let end = match refused {
        Some(fault) => Err(ExpectedAnswer::refused(&fault.into())),
        None => notes.walk(&compiled.snapshot, &mut head),
    };
    let (routing, answer) = explained(compiled, &mut head, &mut notes, end);
    let routing = routing.map(|routing| Routing {
        host_assumed,
        ..routing
    });
    Explanation {
        target: request.target,
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
    end: Result<usize, ExpectedAnswer>,
) -> (Option<Routing>, ExpectedAnswer) {
    let routing = notes.matched.take().map(|matched| {
        // Candidates and groups of routes see the fields that the route itself drops.
        let left = mem::replace(&mut head.parts.headers, mem::take(&mut notes.fields));
        let routing = close_candidates(compiled, head, notes, matched);
        head.parts.headers = left;
        routing
    });
    let at = match end {
        Ok(at) => at,
        Err(answer) => return (routing, answer),
    };
    let (mut routing, snapshot) = (routing.unwrap_or_default(), &compiled.snapshot);
    let service = &snapshot.services[at];
    let uri = &head.parts.uri;
    let forwarded_target = uri.path_and_query().cloned();
    let forwarded_target = forwarded_target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    routing.forwarded = forwarded_path(service, &forwarded_target);
    routing.asked_host = asked_host(service);
    let token = Token::new(snapshot.tokens.as_deref(), &head.parts.headers);
    let token = token.knowing(notes.token.take());
    let customers = head.customers(service);
    let noted = notes.customer.take();
    let caller = head.caller();
    let (answer, doubt) = caller.read_searching(service, &token, &customers, |caller| {
        routing.limits = applied(compiled, service, caller, &notes.plan);
        routing.identity = identity_fields(service, caller, &notes.plan);
        // The choice of a server hangs no answer on a token: a request without the key goes to the servers in turn.
        let doubt = token.why_not();
        routing.server = ServerChoice::of(compiled, service, caller);
        let (lack, limits) = (notes.plan.lack(), &routing.limits);
        let answer = outlook::answer(service, caller, &forwarded_target, lack, limits);
        let reading = customers.reading().or(noted);
        routing.customer = reading.and_then(|reading| named(compiled, &reading, caller));
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
) -> Routing {
    let snapshot = &compiled.snapshot;
    let found = notes.service.filter(|at| Some(*at) != snapshot.unrouted);
    let host = host_key(head.target.host()).into_owned();
    let members = head.members(snapshot);
    let query = RouteQuery {
        host: &host,
        path: &matched,
        stripped: &notes.stripped,
        request: head.request(snapshot, members.as_ref()),
    };
    let candidates = candidates::list_candidates(compiled, found, &query);
    Routing {
        before_token: mem::take(&mut notes.before_token),
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

/// The customer of the request, and the groups whose lines have the name.
fn named(
    compiled: &Compiled,
    reading: &CustomerReading,
    caller: &Caller<'_>,
) -> Option<ExplainedCustomer> {
    let all = compiled.snapshot.customers.as_deref()?;
    let CustomerReading::Named { name, .. } = reading else {
        return None;
    };
    let is_in = |group: &&Arc<Group>| match name {
        CustomerName::Listed(index) => group.named().is_some_and(|named| named.has(*index)),
        CustomerName::Claimed(_) => group.named().is_some_and(NamedMembers::is_open),
    };
    let text = all.text(name);
    let groups = compiled.outline.groups.iter().filter(is_in);
    let groups = groups.map(|group| {
        let shown = ShownCredentials {
            digests: shown_digests(&group.by, caller),
            address: caller.address,
        };
        let place = match name {
            CustomerName::Listed(_) => compiled.customer_place(group, text, &shown),
            CustomerName::Claimed(_) => compiled.place("groups", &group.name),
        };
        (Arc::clone(&group.name), place)
    });
    Some(ExplainedCustomer {
        name: text.to_owned(),
        groups: groups.collect(),
        has_credential: match name {
            CustomerName::Listed(index) => all.are_open() || all.has_credential(*index),
            CustomerName::Claimed(_) => true,
        },
    })
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
    let checks = plan.checks(service);
    let limits = service.limits.iter().enumerate();
    limits
        .map(|(position, limit)| {
            let index = plan.positions().position(|planned| planned == position);
            let check = index.map(|index| &checks[index]);
            let counted = check.map_or(limit, |check| check.limit);
            let tier = check.and_then(|_| counted.group.clone());
            AppliedLimit {
                place: compiled.place("limits", &limit.name),
                means: describe::limit(limit, compiled.asks_redis()),
                by: describe::key(&counted.by),
                leased: check
                    .filter(|_| compiled.asks_redis())
                    .and_then(|_| leases::of_request(counted)),
                limit: Arc::clone(counted),
                tier: tier.map(|group| (group, describe::tier(counted))),
                numbers: customer_numbers(limit, counted, caller),
                state: None,
                live: None,
                key: match check {
                    Some(check) => {
                        unread(limit, check, caller).unwrap_or_else(|| counted_key(check, caller))
                    }
                    None => unplanned(limit, caller, plan),
                },
            }
        })
        .collect()
}

/// The numbers of the request's customer, if `counted` has them.
fn customer_numbers(
    limit: &Limit,
    counted: &Arc<Limit>,
    caller: &Caller<'_>,
) -> Option<ExplainedNumbers> {
    let numbers = limit.customer_numbers.as_ref()?;
    caller.customers.read(caller, &mut Vec::new());
    let customer = caller.customers.name()?;
    Some(ExplainedNumbers {
        customer: customer.to_owned(),
        place: numbers.place(customer, counted)?,
        means: describe::tier(counted),
    })
}

/// The doubt about a limit whose tier or exemption depends on a token that cannot be verified here. The plan counts
/// such a request as one of no group, since the gateway would refuse it; the gateway has read the keys.
fn unread(limit: &Limit, check: &Check<'_>, caller: &Caller<'_>) -> Option<KeyResult> {
    let (mut standing, mut keys) = (Memberships::default(), check.key.to_vec());
    let exempt = limit.exempt.as_ref();
    let exempt = exempt.map(|exempt| exempt.group(&mut standing, caller, &mut keys));
    let doubt = match exempt {
        Some(Err(doubt)) => Some(doubt),
        // The tier of a preflight is not looked for.
        _ if caller.is_preflight() => None,
        _ => limit.tier_of(&mut standing, caller, &mut keys, 0).err(),
    };
    let doubted = doubtful(doubt?, caller);
    matches!(doubted, KeyResult::Faulty(KeyFault::KeysUnread, _)).then_some(doubted)
}

/// The key of a limit that the request is checked against.
fn counted_key(check: &Check<'_>, caller: &Caller<'_>) -> KeyResult {
    let price = check.limit.price.as_ref();
    KeyResult::Counted(CountedKey {
        key: String::from_utf8_lossy(check.key).into_owned(),
        raw: check.key.to_vec(),
        cost: check.cost.units(),
        misquoted: price.and_then(|price| price.of(caller.fields).1),
        fresh: fresh(check.limit, check.cost),
    })
}

/// The reason why the plan does not have a limit of the route.
fn unplanned(limit: &Limit, caller: &Caller<'_>, plan: &Plan) -> KeyResult {
    let (mut standing, mut key) = (Memberships::default(), Vec::new());
    if let Some(exempt) = &limit.exempt {
        // In the gateway's order: its log names no group if the other exemptions suffice.
        if exempt.covers(caller) {
            return KeyResult::Exempt(None);
        }
        match exempt.group(&mut standing, caller, &mut key) {
            Ok(None) => {}
            Ok(Some(group)) => return KeyResult::Exempt(Some(Arc::clone(&group.name))),
            // The limit counts the request as one of no group, though the request is refused.
            Err(_) if limit.mode.decides() => {}
            Err(doubt) => return doubtful(doubt, caller),
        }
    }
    match limit.by.write(caller, &mut key) {
        KeyOutcome::Skip => KeyResult::Skipped,
        KeyOutcome::Refuse(part) => KeyResult::Faulty(KeyFault::Absent, part.to_string()),
        KeyOutcome::Unknown(part) => KeyResult::Faulty(KeyFault::Unknown, part.to_string()),
        KeyOutcome::Doubt(doubt) => doubtful(doubt, caller),
        KeyOutcome::Key => match limit.tier_of(&mut standing, caller, &mut key, 0) {
            Err(doubt) if !limit.mode.decides() => doubtful(doubt, caller),
            // The gateway does not check a limit whose key another limit refuses as unknown.
            _ => plan.unknown_part(limit).map_or(KeyResult::Skipped, |part| {
                KeyResult::Faulty(KeyFault::LeftOut, part.to_string())
            }),
        },
    }
}

fn doubtful(doubt: Doubt<'_>, caller: &Caller<'_>) -> KeyResult {
    let (fault, part) = match doubt {
        Doubt::Several(part) if part.is_customer() => (KeyFault::DifferentCustomers, part),
        Doubt::Several(part) => (KeyFault::Ambiguous, part),
        Doubt::Malformed(part) => (KeyFault::Malformed, part),
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
