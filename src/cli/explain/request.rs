//! What the gateway would make of a request, worked out with its own parts: nothing is sent, counted or asked.

use super::candidates::{self, RouteCandidate};
use super::counters::{CounterState, LiveVerdict};
use super::outlook::{self, ExpectedAnswer, refused};
use super::stripped_fields::{self, StrippedField};
use crate::clock;
use crate::config::{Compiled, describe, leases};
use crate::key::TokenDoubt;
use crate::key::client_ip::Walk;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::key::{Caller, Content, Doubt, KeyOutcome, Memberships, PriceError};
use crate::limit::rate::Cost;
use crate::limit::verdict::Verdict;
use crate::limit::{Limit, Preflights};
use crate::proxy::admit::Plan;
use crate::proxy::destination::Destination;
use crate::proxy::error::ProxyError;
use crate::proxy::forwarded::{self, Hops};
use crate::proxy::request::{self, BadRequest, Target};
use crate::route::{host_key, path};
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};
use std::net::IpAddr;
use std::sync::Arc;

/// The host of a request that names none.
pub(super) const ASSUMED_HOST: &str = "localhost";

/// A request to explain.
#[derive(Debug)]
pub(super) struct ExplainedRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) fields: HeaderMap,
    pub(super) peer: IpAddr,
}

/// What becomes of it.
#[derive(Debug)]
pub(super) struct Explanation {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) peer: IpAddr,
    pub(super) client: Walk,
    /// Nothing where the request is answered before its path is looked at.
    pub(super) routing: Option<Routing>,
    pub(super) answer: ExpectedAnswer,
}

/// Where it leads.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) host: String,
    pub(super) host_assumed: bool,
    /// The path as routes are matched, and as it is forwarded, if it is.
    pub(super) matched: String,
    pub(super) forwarded: Option<String>,
    pub(super) route: Option<ChosenRoute>,
    pub(super) near: Vec<RouteCandidate>,
    /// What of its fields is dropped before anything reads them.
    pub(super) lost: Vec<StrippedField>,
    pub(super) limits: Vec<AppliedLimit>,
    /// Why its token claims nothing, if a limit has asked and it does not.
    pub(super) token: Option<TokenDoubt>,
}

/// The route that is taken.
#[derive(Debug)]
pub(super) struct ChosenRoute {
    pub(super) name: Arc<str>,
    pub(super) place: Option<String>,
    /// Nothing where the route answers itself.
    pub(super) upstream: Option<Arc<str>>,
    pub(super) servers: Vec<String>,
}

/// A limit that the request is held to.
#[derive(Debug)]
pub(super) struct AppliedLimit {
    pub(super) limit: Arc<Limit>,
    pub(super) place: Option<String>,
    pub(super) means: String,
    /// What it counts by, as the file writes it.
    pub(super) by: String,
    /// The group whose tier holds, and what that means; the limit is the tier then.
    pub(super) tier: Option<(Arc<str>, String)>,
    pub(super) key: KeyResult,
    /// Whether its permits are taken ahead, where a Redis is asked.
    pub(super) leased: Option<String>,
    /// What the running gateway says of it, if it was asked.
    pub(super) left: Option<CounterState>,
    /// What the request would get from that.
    pub(super) now: Option<LiveVerdict>,
}

/// What a limit counts the request by.
#[derive(Debug)]
pub(super) enum KeyResult {
    /// This, and what the request takes.
    Counted {
        key: String,
        /// The same as the store has it.
        raw: Vec<u8>,
        cost: u32,
        misquoted: Option<PriceError>,
        /// What a counter says that nobody has used.
        fresh: Verdict,
    },
    /// The limit does not apply, since the request lacks the key.
    Skipped,
    /// The limit does not apply: it exempts the request, or the group it is in.
    Exempt(Option<Arc<str>>),
    /// This part is demanded, and absent.
    Absent(String),
    /// Nobody knows what this part says, and that is demanded.
    Unknown(String),
    /// This part came several times and differs.
    Ambiguous(String),
    /// This part is claimed by a token that is not believed.
    Unbelieved(String),
    /// It counts by this part, which another limit refuses since nobody knows it: it is not asked.
    LeftOut(String),
}

/// Explains `asked` under the file in `compiled`.
pub(super) fn explain(compiled: &Compiled, mut asked: ExplainedRequest) -> Explanation {
    let snapshot = &compiled.snapshot;
    let host_assumed = name_host(&mut asked);
    let client = snapshot.trust.explain(asked.peer, &asked.fields);
    let (routing, answer) = match routing(compiled, &mut asked, client.client) {
        Ok((routing, answer)) => {
            let routing = Routing {
                host_assumed,
                ..routing
            };
            (Some(routing), answer)
        }
        Err(answer) => (None, answer),
    };
    Explanation {
        method: asked.method,
        target: asked.uri.to_string(),
        peer: asked.peer,
        client,
        routing,
        answer,
    }
}

/// Names the host in a request that has no such field, as clients do: that of its URI, or else the assumed one. Was it
/// that?
fn name_host(asked: &mut ExplainedRequest) -> bool {
    if asked.fields.contains_key(header::HOST) {
        return false;
    }
    let own = asked.uri.authority().map(|authority| {
        let text = authority.as_str();
        // User information is never sent in it (RFC 9110 section 7.2).
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    let host = HeaderValue::from_str(own.unwrap_or(ASSUMED_HOST));
    if let Ok(host) = host {
        asked.fields.insert(header::HOST, host);
    }
    own.is_none()
}

/// The stages of the request path, in its order, with its parts.
fn routing(
    compiled: &Compiled,
    asked: &mut ExplainedRequest,
    client: IpAddr,
) -> Result<(Routing, ExpectedAnswer), ExpectedAnswer> {
    let snapshot = &compiled.snapshot;
    let bad = |bad: BadRequest| refused(&ProxyError::from(bad));
    let target = Target::read(&asked.method, &asked.uri, Version::HTTP_11, &asked.fields);
    let target = target.map_err(bad)?;
    let lost = stripped_fields::strip(&mut asked.fields, snapshot, asked.peer).map_err(bad)?;
    if target.is_asterisk() || forwarded::count_hop(&asked.method, &mut asked.fields) == Hops::Spent
    {
        return Err(ExpectedAnswer::Itself(
            204,
            "it is for the gateway itself".into(),
        ));
    }
    let path = path::normalize(asked.uri.path()).map_err(|path| bad(path.into()))?;
    let onward = request::forward_target(&asked.uri, &path).map_err(bad)?;
    let host = host_key(target.host()).into_owned();
    let looked_for = candidates::RouteQuery {
        host: &host,
        path: path.to_match(),
        method: &asked.method,
        lost: &lost,
        head: candidates::HeadView {
            fields: &asked.fields,
            query: asked.uri.query(),
            https: forwarded::is_https(&snapshot.trust, asked.peer, &asked.fields, &target),
        },
    };
    let head = &looked_for.head;
    let found = snapshot
        .table
        .find(&host, path.to_match(), &asked.method, head);
    let mut routing = Routing {
        near: candidates::near(compiled, found, &looked_for),
        lost: lost.clone(),
        host_assumed: false,
        matched: path.to_match().to_owned(),
        forwarded: None,
        route: found.and_then(|found| chosen(compiled, found)),
        limits: Vec::new(),
        token: None,
        host,
    };
    let Some(service) = found.or(snapshot.unrouted) else {
        return Ok((routing, refused(&ProxyError::NoRoute)));
    };
    let service = &snapshot.services[service];
    if service.upstream.is_some() {
        let mut path = onward.path().to_owned();
        if let Some(rewrite) = &service.rewrite {
            path.clear();
            rewrite.fill(onward.path(), &mut path);
        }
        routing.forwarded = Some(path);
    }
    let token = Token::new(snapshot.tokens.as_deref(), &asked.fields);
    let caller = Caller {
        address: client,
        route: &service.name,
        method: &asked.method,
        fields: &asked.fields,
        location: &Destination {
            authority: target.host(),
            path: onward.path(),
            query: onward.query(),
            pattern: &service.path,
        },
        cookies: &Cookies::of(&asked.fields),
        identity: &token,
        content: Content::announced(&asked.fields),
    };
    let limits = service.limits.iter();
    routing.limits = limits.map(|limit| held(compiled, limit, &caller)).collect();
    if compiled.asks_redis() {
        lease(&mut routing.limits);
    }
    let plan = Plan::of(service, &caller);
    leave_out(&mut routing.limits, &plan);
    let answer = outlook::answer(service, (&caller, &onward), &routing.limits, plan.lack());
    routing.token = token.why_not();
    Ok((routing, answer))
}

fn chosen(compiled: &Compiled, position: usize) -> Option<ChosenRoute> {
    let service = &compiled.snapshot.services[position];
    let upstream = service.upstream.map(|at| &compiled.snapshot.upstreams[at]);
    Some(ChosenRoute {
        name: Arc::clone(&service.name),
        place: compiled.place("routes", &service.name),
        upstream: upstream.map(|upstream| Arc::clone(&upstream.name)),
        servers: upstream
            .into_iter()
            .flat_map(|upstream| upstream.servers.iter().map(ToString::to_string))
            .collect(),
    })
}

fn held(compiled: &Compiled, limit: &Arc<Limit>, caller: &Caller<'_>) -> AppliedLimit {
    let (mut standing, mut keys) = (Memberships::default(), Vec::new());
    let mut held = AppliedLimit {
        place: compiled.place("limits", &limit.name),
        means: describe::limit(limit, compiled.asks_redis()),
        by: describe::key(&limit.by),
        leased: None,
        limit: Arc::clone(limit),
        tier: None,
        left: None,
        now: None,
        key: KeyResult::Skipped,
    };
    if let Some(not) = &limit.exempt {
        // In the order of the gateway, whose log names no group where the rest suffices.
        if not.covers(caller) {
            held.key = KeyResult::Exempt(None);
            return held;
        }
        match not.group(&mut standing, caller, &mut keys) {
            Ok(None) => {}
            Ok(Some(group)) => {
                held.key = KeyResult::Exempt(Some(Arc::clone(&group.name)));
                return held;
            }
            // It counts as who is in no group, though the request is turned away.
            Err(_) if limit.mode.decides() => {}
            Err(doubt) => {
                held.key = doubted(doubt);
                return held;
            }
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
        KeyOutcome::Skip => held.key = KeyResult::Skipped,
        KeyOutcome::Refuse(part) => held.key = KeyResult::Absent(part.to_string()),
        KeyOutcome::Unknown(part) => held.key = KeyResult::Unknown(part.to_string()),
        KeyOutcome::Doubt(doubt) => held.key = doubted(doubt),
        KeyOutcome::Key => {
            let tier = match limit.tier_of(&mut standing, caller, &mut keys, 0) {
                _ if is_free => None,
                Ok(tier) => tier.and_then(|tier| limit.tiers.get(tier)),
                Err(_) if limit.mode.decides() => None,
                Err(doubt) => {
                    held.key = doubted(doubt);
                    return held;
                }
            };
            if let Some(tier) = tier {
                held.limit = Arc::clone(&tier.limit);
                held.by = describe::key(&tier.limit.by);
                held.tier = Some((Arc::clone(&tier.group.name), describe::tier(&tier.limit)));
            }
            let limit = &held.limit;
            let (cost, misquoted) = match &limit.price {
                None => (limit.cost.units(), None),
                Some(price) => price.of(caller.fields),
            };
            held.key = KeyResult::Counted {
                key: String::from_utf8_lossy(&keys).into_owned(),
                raw: keys,
                cost,
                misquoted,
                fresh: fresh(limit, Cost::new(cost)),
            };
        }
    }
    held
}

/// Limits whose key another refuses, since nobody knows it, are not asked.
fn leave_out(limits: &mut [AppliedLimit], plan: &Plan) {
    let Some(ProxyError::UnknownKey { part, .. }) = plan.lack() else {
        return;
    };
    for (position, held) in limits.iter_mut().enumerate() {
        let is_counted = matches!(held.key, KeyResult::Counted { .. });
        if is_counted && !plan.positions().any(|planned| planned == position) {
            held.key = KeyResult::LeftOut(part.to_string());
        }
    }
}

fn doubted(doubt: Doubt<'_>) -> KeyResult {
    match doubt {
        Doubt::Several(part) => KeyResult::Ambiguous(part.to_string()),
        Doubt::Unbelieved(part) => KeyResult::Unbelieved(part.to_string()),
    }
}

/// Says of each limit that counts whether its permits are taken ahead.
fn lease(limits: &mut [AppliedLimit]) {
    for held in limits {
        if matches!(held.key, KeyResult::Counted { .. }) {
            held.leased = leases::of_request(&held.limit);
        }
    }
}

/// What a counter says that nobody has used.
fn fresh(limit: &Limit, cost: Cost) -> Verdict {
    let now = clock::wall();
    let (measured, _) = limit.check(None, now, cost);
    limit
        .rule
        .verdict(measured, now, measured.charged(cost), true)
}
