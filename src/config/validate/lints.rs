//! Lints: settings that are allowed but hardly intended.

use crate::client;
use crate::config::document::{Document, Limit, Route, Tier, TrustEntry};
use crate::config::input::{At, Span};
use crate::config::presentation::time_text;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::key::KeyPart;
use crate::key::client_ip::NamingField;
use crate::limit::rate::Rate;
use crate::route::Condition;
use std::collections::HashMap;
use std::time::Duration;

/// The longest time for which a limit, or its tier for a group, delays a request.
struct LongestWait<'a> {
    limit: &'a Limit,
    /// The group of the tier, if a tier has the longest delay.
    group: Option<&'a str>,
    wait: Duration,
    /// The key that sets the longest delay, if a key sets it.
    place: Option<&'a Span>,
}

/// Notes every lint.
pub(super) fn note_lints(document: &Document, found: &mut Findings) {
    open_admin(document, found);
    more_than_all(document, found);
    one_for_all(document, found);
    one_hop_field(document, found);
    let waits: HashMap<&str, LongestWait<'_>> = document
        .limits
        .iter()
        .filter(|limit| limit.mode().decides() && limit.delays())
        .map(|limit| (limit.name.value.as_str(), longest(limit)))
        .collect();
    for route in &document.routes {
        unreachable_by_https(document, route, found);
        if !waits.is_empty() {
            waits_longer(document, route, &waits, found);
        }
    }
    both_schemes(document, found);
}

/// Notes an admin listener that other machines may reach: without a token it tells everybody of metrics and health, and
/// a token crosses the network as it is.
fn open_admin(document: &Document, found: &mut Findings) {
    let Some(admin) = &document.admin else {
        return;
    };
    let has_token = !admin.token.is_absent() || !admin.tokens.is_absent();
    for at in admin.listen.entries() {
        // The file's mode decides who can connect to a Unix socket, and the socket's unit decides who can connect to a
        // systemd socket.
        let address = at.value.socket_address();
        let Some(address) = address.filter(|at| !at.ip().is_loopback()) else {
            continue;
        };
        let reach = if address.ip().is_unspecified() {
            "on every address of this machine"
        } else {
            "beyond this machine"
        };
        let port = address.port();
        if has_token {
            let message = format!("tokens are sent to the admin listener in clear, {reach}");
            found
                .warning(Code::TokenInClear, message)
                .at(&at.span, "whoever sees the traffic learns the token")
                .help(format!(
                    "write `\"127.0.0.1:{port}\"` or a Unix socket, with a proxy of your own in front that has TLS"
                ));
            continue;
        }
        let label =
            "any client that reaches it can read metrics and health; the rest is refused there";
        let message = format!("the admin listener can be reached {reach}");
        found
            .warning(Code::OpenAdmin, message)
            .at(&at.span, label)
            .help(format!(
                "write `\"127.0.0.1:{port}\"`, or let only your own machines reach it and give operators a token: `token = {{ file = \"/run/secrets/tollgate-admin\" }}`"
            ));
    }
}

/// Notes a bound for one client that is larger than the bound for all clients.
fn more_than_all(document: &Document, found: &mut Findings) {
    let server = &document.server;
    let per_client = server.max_connections_per_client.at();
    if let (Some(per_client), Some(all)) = (per_client, server.max_connections.at())
        && per_client.value > all.value
    {
        let (one, together) = (per_client.value, all.value);
        let message = format!("one client may have {one} connections, and all together {together}");
        found
            .warning(Code::Conflict, message)
            .at(&per_client.span, "has no effect")
            .and(&all.span, "reached before")
            .help("write less, or leave it out for a tenth of `max_connections`");
    }
}

/// The help if proxies should be named.
const NAME_PROXIES: &str =
    "name the networks of your proxies: `[server]` `trust = [\"10.0.0.0/8\"]`";

/// Behind an untrusted proxy every client has the proxy's address.
fn one_for_all(document: &Document, found: &mut Findings) {
    if !document.server.trust.is_absent() {
        return;
    }
    let Some(sign) = document.routes.iter().find_map(sign_of_a_proxy) else {
        return;
    };
    for limit in &document.limits {
        let mut parts = limit.by.entries().iter();
        if let Some(by) = parts.find(|at| at.value.as_ref().is_some_and(KeyPart::is_by_address)) {
            let label = "the address of the peer, which is the proxy's behind a proxy";
            let message = format!("{limit} may count all clients as one");
            found
                .warning(Code::OneForAll, message)
                .at(&by.span, label)
                .and(sign, "a field that a proxy in front writes")
                .help(NAME_PROXIES);
        }
    }
}

/// A field of one address says nothing about the hops between its writer and the gateway.
fn one_hop_field(document: &Document, found: &mut Findings) {
    let server = &document.server;
    let (Some(field), Some(trust)) = (server.trust_field.at(), server.trust.at()) else {
        return;
    };
    // The networks of a file are those of a delivery network.
    let is_private = |at: &At<TrustEntry>| match at.value {
        TrustEntry::Network(network) => client::is_private(network),
        TrustEntry::File(_) => false,
    };
    let is_single = matches!(field.value, NamingField::Single(_));
    if is_single && !trust.value.is_empty() && trust.value.iter().all(is_private) {
        let message = format!(
            "`{}` has one address, and only private networks are trusted to write it",
            field.value.name()
        );
        found
            .warning(Code::OneHopField, message)
            .at(&field.span, "")
            .and(
                &trust.span,
                "a balancer in between passes the field of everybody",
            )
            .help("let nobody but the writer of the field reach the balancer in between");
    }
}

/// The condition of a route on a field that only a proxy in front of the gateway writes.
fn sign_of_a_proxy(route: &Route) -> Option<&Span> {
    let all = route.conditions();
    let written_by_proxies = |at: &&At<Condition>| match &at.value {
        Condition::Field(name, _) => {
            let name = name.as_str();
            name.starts_with("x-forwarded-")
                || [
                    "forwarded",
                    "x-real-ip",
                    "true-client-ip",
                    "cf-connecting-ip",
                    "cf-ray",
                    "x-amzn-trace-id",
                ]
                .contains(&name)
        }
        Condition::Https(https) => *https,
        Condition::Query(..) | Condition::Groups(_) => false,
    };
    all.into_iter().find(written_by_proxies).map(|at| &at.span)
}

/// A request counts as `https` only if a trusted proxy states `https`.
fn unreachable_by_https(document: &Document, route: &Route, found: &mut Findings) {
    let mut all = route.conditions();
    let https = all.find(|at| at.value == Condition::Https(true));
    let mut listeners = document.server.listen.entries().iter();
    let has_tls = listeners.any(|entry| !entry.value.tls.is_absent());
    if let Some(https) = https.filter(|_| document.server.trust.is_absent() && !has_tls) {
        let label =
            "no listener has TLS, and no proxy is trusted to state that a request came by `https`";
        let message = format!("no request reaches {route}");
        found
            .warning(Code::UnreachableRoute, message)
            .at(&https.span, label)
            .help(NAME_PROXIES);
    }
}

/// Routes for `http` and for `https` together take every request: no request remains for the same route without
/// `scheme`.
fn both_schemes(document: &Document, found: &mut Findings) {
    let scheme = |route: &Route| {
        let mut all = route.conditions();
        all.find_map(|at| match at.value {
            Condition::Https(https) => Some(https),
            _ => None,
        })
    };
    if !document.routes.iter().any(|route| scheme(route).is_some()) {
        return;
    }
    let mut alike: HashMap<String, Vec<&Route>> = HashMap::new();
    for route in &document.routes {
        alike.entry(without_scheme(route)).or_default().push(route);
    }
    for routes in alike.into_values() {
        let first = |https| routes.iter().find(|route| scheme(route) == Some(https));
        let (Some(http), Some(https)) = (first(false), first(true)) else {
            continue;
        };
        for route in routes.iter().filter(|route| scheme(route).is_none()) {
            let label = "every request came by `http` or by `https`";
            let message = format!("no request reaches {route}");
            found
                .warning(Code::UnreachableRoute, message)
                .at(&route.name.span, label)
                .and(&http.name.span, "takes those by `http`")
                .and(&https.name.span, "takes those by `https`")
                .help("take it out, or give it a path, a host or conditions of its own");
        }
    }
}

/// The conditions of a route without the scheme.
fn without_scheme(route: &Route) -> String {
    let mut hosts: Vec<_> = route.host.values();
    hosts.sort_by_cached_key(|host| format!("{host:?}"));
    let mut methods: Vec<_> = route.methods.values();
    methods.sort_by_key(ToString::to_string);
    let all = route.conditions().map(|at| &at.value);
    let others = all.filter(|one| !matches!(one, Condition::Https(_)));
    let mut others: Vec<String> = others.map(|one| format!("{one:?}")).collect();
    others.sort();
    let segments = route.path.get().map(|path| &path.segments);
    format!("{segments:?} {hosts:?} {methods:?} {others:?}")
}

/// The longest delay of the limit and of its tiers.
fn longest(limit: &Limit) -> LongestWait<'_> {
    let mut longest = longest_wait(limit, None);
    for tier in limit.tiers.entries() {
        let of_tier = longest_wait(limit, Some(&tier.value));
        if of_tier.wait > longest.wait {
            longest = of_tier;
        }
    }
    longest
}

/// The longest delay: `max_wait`, or the time of a full queue if that is shorter.
fn longest_wait<'a>(limit: &'a Limit, tier: Option<&'a Tier>) -> LongestWait<'a> {
    let max_wait = tier.and_then(|tier| tier.max_wait.at());
    let max_wait = max_wait.or(limit.max_wait.at());
    let queue = tier.and_then(|tier| tier.queue.at());
    let queue = queue.or(limit.queue.at());
    let rates = tier.map(|tier| &tier.rate).filter(|rate| !rate.is_absent());
    let rates = rates.unwrap_or(&limit.rate);
    let mut wait = max_wait.map_or_else(|| limit.max_wait(), |at| at.value);
    let mut place = max_wait.map(|at| &at.span);
    if let Some(queue) = queue {
        let drained = |rate: Rate| rate.interval().times(u64::from(queue.value)).ceil();
        let entries = rates.entries().iter();
        let all = entries.map(|entry| drained(entry.value.quota.value.rate));
        let full = Duration::from_micros(all.max().unwrap_or(u64::MAX));
        if full < wait {
            (wait, place) = (full, Some(&queue.span));
        }
    }
    LongestWait {
        limit,
        group: tier.map(|tier| tier.name.value.as_str()),
        wait,
        place,
    }
}

/// A client that waits longer than the time that the upstream may take has usually left by then.
fn waits_longer(
    document: &Document,
    route: &Route,
    waits: &HashMap<&str, LongestWait<'_>>,
    found: &mut Findings,
) {
    let Some(timeout) = route.answer_timeout().time() else {
        return;
    };
    for name in document.limits_of(route) {
        let Some(longest) = waits.get(name.value.as_str()) else {
            continue;
        };
        let (limit, wait) = (longest.limit, longest.wait);
        let at = route.timeout.span().or(longest.place);
        let Some(at) = at.filter(|_| wait > timeout) else {
            continue;
        };
        let whose = longest
            .group
            .map(|group| format!(" of group {}", quoted(group)));
        let whose = whose.unwrap_or_default();
        let [wait, timeout] = [wait, timeout].map(time_text);
        let message = format!(
            "{limit} may delay a request{whose} for {wait}, but {route} gives its upstream only {timeout}"
        );
        let place = longest.place.unwrap_or(&limit.name.span);
        let help = "a client may wait for the sum of both times: write a shorter `max_wait`, or a longer `timeout`";
        found
            .warning(Code::WaitsLonger, message)
            .at(at, "")
            .about(&route.name.span)
            .about(&limit.name.span)
            .help(help)
            .and_if((place != at).then_some(place), "waits that long");
    }
}
