//! Lints: settings that are allowed and hardly meant.

use super::super::boot::admin_address;
use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Algorithm, Document, Limit, Over, Route, Tier};
use super::super::source::{At, Span};
use super::super::value::{quoted, show_span};
use crate::key::KeyPart;
use crate::limit::rate::Rate;
use crate::route::Condition;
use std::collections::HashMap;
use std::time::Duration;

/// The longest that a limit, or its tier for a group, holds a request.
struct LongestWait<'a> {
    limit: &'a Limit,
    /// The group of the tier, if a tier holds the longest.
    group: Option<&'a str>,
    wait: Duration,
    /// The key that says so, where one does.
    place: Option<&'a Span>,
}

/// Notes every lint.
pub(super) fn note(document: &Document, found: &mut Vec<Diagnostic>) {
    open_admin(document, found);
    more_than_all(document, found);
    one_for_all(document, found);
    let waits: HashMap<&str, LongestWait<'_>> = document
        .limits
        .iter()
        .filter(|limit| delays(limit))
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

/// The admin listener authenticates no client.
fn open_admin(document: &Document, found: &mut Vec<Diagnostic>) {
    let Some(address) = admin_address(document).filter(|at| !at.ip().is_loopback()) else {
        return;
    };
    let Some(at) = document.admin.as_ref().and_then(|admin| admin.listen.at()) else {
        return;
    };
    let reach = if address.ip().is_unspecified() {
        "on every address of this machine"
    } else {
        "beyond this machine"
    };
    found.push(
        Diagnostic::warning(
            Code::OpenAdmin,
            format!("the admin listener can be reached {reach}"),
        )
        .at(
            &at.span,
            "any client that reaches it can read everything it shows",
        )
        .help(format!(
            "write `\"127.0.0.1:{}\"`, or let only your own machines reach it",
            address.port()
        )),
    );
}

/// A bound for one client beyond the bound for all.
fn more_than_all(document: &Document, found: &mut Vec<Diagnostic>) {
    let server = &document.server;
    let (Some(own), Some(all)) = (
        server.max_connections_per_client.at(),
        server.max_connections.at(),
    ) else {
        return;
    };
    if own.value > all.value {
        found.push(
            Diagnostic::warning(
                Code::Conflict,
                format!(
                    "one client may have {} connections, and all together {}",
                    own.value, all.value
                ),
            )
            .at(&own.span, "has no effect")
            .and(&all.span, "reached before")
            .help("write less, or leave it out for a tenth of `max_connections`"),
        );
    }
}

/// Behind a proxy that is not trusted every client has the proxy's address.
fn one_for_all(document: &Document, found: &mut Vec<Diagnostic>) {
    if !document.server.trust.is_absent() {
        return;
    }
    let Some(sign) = document.routes.iter().find_map(sign_of_a_proxy) else {
        return;
    };
    for limit in &document.limits {
        let mut parts = limit.by.entries().iter();
        let Some(by) = parts.find(|at| matches!(at.value, Some(KeyPart::Ip(_)))) else {
            continue;
        };
        found.push(
            Diagnostic::warning(
                Code::OneForAll,
                format!(
                    "limit {} may count every client as one",
                    quoted(&limit.name.value)
                ),
            )
            .at(
                &by.span,
                "the address of the peer, which is the proxy's behind a proxy",
            )
            .and(sign, "a field that a proxy in front writes")
            .help("name the networks of your proxies: `[server]` `trust = [\"10.0.0.0/8\"]`"),
        );
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
        Condition::Query(..) => false,
    };
    all.into_iter().find(written_by_proxies).map(|at| &at.span)
}

/// Only a trusted proxy is believed that a request came by `https`.
fn unreachable_by_https(document: &Document, route: &Route, found: &mut Vec<Diagnostic>) {
    let mut all = route.conditions();
    let https = all.find(|at| at.value == Condition::Https(true));
    let (Some(https), true) = (https, document.server.trust.is_absent()) else {
        return;
    };
    found.push(
        Diagnostic::warning(
            Code::UnreachableRoute,
            format!("no request reaches route {}", quoted(&route.name.value)),
        )
        .at(
            &https.span,
            "no proxy is trusted to state that a request came by `https`",
        )
        .help("name the networks of your proxies: `[server]` `trust = [\"10.0.0.0/8\"]`"),
    );
}

/// Routes for `http` and for `https` together take every request: none is left for the route without `scheme`.
fn both_schemes(document: &Document, found: &mut Vec<Diagnostic>) {
    let asks = |route: &Route| {
        let mut all = route.conditions();
        all.any(|at| matches!(at.value, Condition::Https(_)))
    };
    if !document.routes.iter().any(asks) {
        return;
    }
    let mut alike: HashMap<String, [Vec<&Route>; 3]> = HashMap::new();
    for route in &document.routes {
        let mut all = route.conditions();
        let scheme = all.find_map(|at| match at.value {
            Condition::Https(https) => Some(usize::from(https)),
            _ => None,
        });
        alike.entry(apart_from_scheme(route)).or_default()[scheme.unwrap_or(2)].push(route);
    }
    for [http, https, neither] in alike.into_values() {
        let (Some(http), Some(https)) = (http.first(), https.first()) else {
            continue;
        };
        for route in neither {
            found.push(
                Diagnostic::warning(
                    Code::UnreachableRoute,
                    format!("no request reaches route {}", quoted(&route.name.value)),
                )
                .at(
                    &route.name.span,
                    "every request came by `http` or by `https`",
                )
                .and(&http.name.span, "takes those by `http`")
                .and(&https.name.span, "takes those by `https`")
                .help("take it out, or give it a path, a host or conditions of its own"),
            );
        }
    }
}

/// The conditions of a route without the scheme.
fn apart_from_scheme(route: &Route) -> String {
    let hosts = route
        .host
        .entries()
        .iter()
        .map(|at| format!("{:?}", at.value));
    let methods = route
        .methods
        .entries()
        .iter()
        .map(|at| at.value.to_string());
    let all = route.conditions();
    let others = all.filter(|at| !matches!(at.value, Condition::Https(_)));
    let others = others.map(|at| format!("{:?}", at.value));
    let mut lists = [
        hosts.collect(),
        methods.collect(),
        others.collect::<Vec<String>>(),
    ];
    for list in &mut lists {
        list.sort();
    }
    let segments = route.path.get().map(|path| &path.segments);
    format!("{segments:?} {lists:?}")
}

fn delays(limit: &Limit) -> bool {
    limit.mode().decides()
        && limit.algorithm() == Algorithm::LeakyBucket
        && limit.over.or(Over::Delay) == Over::Delay
}

/// The longest hold of the limit and of its tiers.
fn longest(limit: &Limit) -> LongestWait<'_> {
    let mut longest = hold(limit, None);
    for tier in limit.tiers.entries() {
        let of_tier = hold(limit, Some(&tier.value));
        if of_tier.wait > longest.wait {
            longest = of_tier;
        }
    }
    longest
}

/// The longest hold: `max_wait`, or the time of a full queue where that is shorter.
fn hold<'a>(limit: &'a Limit, tier: Option<&'a Tier>) -> LongestWait<'a> {
    let max_wait = tier.and_then(|tier| tier.max_wait.at());
    let max_wait = max_wait.or(limit.max_wait.at());
    let queue = tier.and_then(|tier| tier.queue.at());
    let queue = queue.or(limit.queue.at());
    let rates = tier.map(|tier| &tier.rate).filter(|own| !own.is_absent());
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

/// A client that waits longer than the upstream may take has usually left by then.
fn waits_longer(
    document: &Document,
    route: &Route,
    waits: &HashMap<&str, LongestWait<'_>>,
    found: &mut Vec<Diagnostic>,
) {
    let timeout = route.timeout();
    for name in document.limits_of(route) {
        let Some(longest) = waits.get(name.value.as_str()) else {
            continue;
        };
        let (limit, wait) = (longest.limit, longest.wait);
        let at = route.timeout.at().map(|at| &at.span).or(longest.place);
        let Some(at) = at.filter(|_| wait > timeout) else {
            continue;
        };
        let whose = longest.group.map_or(String::new(), |group| {
            format!(" of group {}", quoted(group))
        });
        let show = |time: Duration| show_span(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let beside = longest.place.unwrap_or(&limit.name.span);
        let mut diagnostic = Diagnostic::warning(
            Code::WaitsLonger,
            format!(
                "limit {} may hold a request{whose} for {}, and route {} gives its upstream {}",
                quoted(&limit.name.value),
                show(wait),
                quoted(&route.name.value),
                show(timeout)
            ),
        )
        .at(at, "")
        .about(&route.name.span)
        .about(&limit.name.span)
        .help(
            "a client waits for both together: write a shorter `max_wait`, or a longer `timeout`",
        );
        if beside != at {
            diagnostic = diagnostic.and(beside, "waits that long");
        }
        found.push(diagnostic);
    }
}
