//! Rules of upstreams that have no effect, or an unexpected effect; and hash keys that a route does not have.

use crate::config::document::{Document, Route, ServerEntry, Upstream};
use crate::config::input::{At, Span};
use crate::config::presentation::time_text;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::validate::names::has_instead;
use crate::config::value::Balance;
use crate::key::KeyPart;
use crate::upstream::balance_rule::NoneLeft;

/// Checks the rules of every upstream against its servers and routes.
pub(in crate::config::validate) fn check_upstream_rules(document: &Document, found: &mut Findings) {
    for upstream in &document.upstreams {
        slow_probes(upstream, found);
        needless_ejection(upstream, found);
        without_weight(upstream, found);
        queue_without_bound(upstream, found);
        unsafe_retries(document, upstream, found);
        if let Some(balance) = upstream.balance.at() {
            hashed(document, upstream, balance, found);
        }
    }
}

fn slow_probes(upstream: &Upstream, found: &mut Findings) {
    let Some(health) = upstream.health.at() else {
        return;
    };
    let (timeout, interval) = (health.value.timeout, health.value.interval);
    if timeout > interval {
        let (timeout, interval) = (time_text(timeout), time_text(interval));
        let message = format!(
            "a probe of {upstream} may take {timeout}, and the next is due after {interval}"
        );
        found
            .warning(Code::ProbeLongerThanInterval, message)
            .at(&health.span, "the next probe waits for it")
            .help(format!(
                "write `timeout = \"{interval}\"` or less, or a longer `interval`"
            ));
    }
}

fn needless_ejection(upstream: &Upstream, found: &mut Findings) {
    let Some(eject) = upstream.eject.at().filter(|at| at.value.is_some()) else {
        return;
    };
    if is_alone(upstream) {
        let message = format!("{upstream} has one server, which is never ejected");
        found
            .warning(Code::IgnoredEject, message)
            .at(&eject.span, "has no effect")
            .help("leave it out, or add a server");
    }
}

/// Does the upstream certainly have one server? A name may have several addresses.
fn is_alone(upstream: &Upstream) -> bool {
    let servers = upstream.servers.entries();
    let is_name = |at: &At<ServerEntry>| at.value.url.get().is_none_or(|url| url.name().is_some());
    !upstream.servers.is_bad() && servers.len() == 1 && !servers.iter().any(is_name)
}

/// Notes an upstream without a server that can ever be available.
fn without_weight(upstream: &Upstream, found: &mut Findings) {
    let servers = upstream.servers.entries();
    let drains = |at: &At<ServerEntry>| at.value.weight.get() == Some(&0);
    let first = servers.first().and_then(|at| at.value.weight.at());
    let Some(first) = first.filter(|_| !upstream.servers.is_bad() && servers.iter().all(drains))
    else {
        return;
    };
    let outcome = match upstream.none_left.get() {
        Some(NoneLeft::Refuse) => "requests get 503",
        _ => "requests go to all of them, as if no server were available",
    };
    let message = format!("all servers of {upstream} have weight 0: {outcome}");
    found
        .warning(Code::NoWeight, message)
        .at(&first.span, "a server of weight 0 drains")
        .help("give a server that serves a weight above 0, or leave `weight` out");
}

fn queue_without_bound(upstream: &Upstream, found: &mut Findings) {
    let Some(queue) = upstream.queue.at() else {
        return;
    };
    let has_bound = |at: &At<ServerEntry>| {
        !at.value.max_requests.is_absent() || !at.value.max_connections.is_absent()
    };
    let servers = upstream.servers.entries();
    if !upstream.servers.is_bad() && !servers.is_empty() && !servers.iter().any(has_bound) {
        let message = format!("no request ever waits for a server of {upstream}");
        found
            .warning(Code::QueueWithoutBound, message)
            .at(&queue.span, "all servers take any number of requests")
            .help("give servers a bound, as `{ url = \"http://10.1.0.5:3000\", max_requests = 100 }`, or leave the queue out");
    }
}

/// Notes a status after which requests are retried, on routes whose methods are never safe to repeat.
fn unsafe_retries(document: &Document, upstream: &Upstream, found: &mut Findings) {
    let Some(retry) = upstream.retry.at() else {
        return;
    };
    let has_statuses = retry
        .value
        .as_ref()
        .is_some_and(|retry| retry.on.has_statuses());
    let leads_here = |name: &String| *name == upstream.name.value;
    let mut routes = document
        .routes
        .iter()
        .filter(|route| route.upstream.get().is_some_and(leads_here))
        .peekable();
    if !has_statuses || routes.peek().is_none() {
        return;
    }
    let mut first: Option<&Span> = None;
    let all_unsafe = routes.all(|route| {
        first = first.or(route.methods.span());
        let methods = route.methods.entries();
        !methods.is_empty() && methods.iter().all(|at| !at.value.is_idempotent())
    });
    if all_unsafe {
        let message = format!("{upstream} retries answers to requests that may not be sent twice");
        found
            .warning(Code::RetryUnsafe, message)
            .at(&retry.span, "never done for these methods")
            .and_if(first, "all methods that come here")
            .help("leave the statuses out of `on`");
    }
}

/// The hash key of an upstream needs the same settings as limits by the same key.
fn hashed(document: &Document, upstream: &Upstream, balance: &At<Balance>, found: &mut Findings) {
    let key = balance.value.key.as_ref();
    if let Some(name) = key.and_then(KeyPart::parameter) {
        let here = |route: &&Route| {
            route.upstream.get() == Some(&upstream.name.value) && !route.path.is_bad()
        };
        for route in document.routes.iter().filter(here) {
            let path = route.path.get();
            if path.map_or(name == "rest", |path| path.has(name)) {
                continue;
            }
            let message = format!(
                "servers of {upstream} are chosen by `path:{name}`, but the path of {route} has no `{{{name}}}`"
            );
            found
                .error(Code::UnknownParameter, message)
                .at(
                    route.path.span().unwrap_or(&route.place),
                    format!("no `{{{name}}}`"),
                )
                .and(&balance.span, "chosen by here")
                .help(has_instead(path));
        }
    }
    if let Some(claim) = key.and_then(KeyPart::claim)
        && document.jwt.is_none()
    {
        let message = format!(
            "servers of {upstream} are chosen by the claim {claim}, and no `[jwt]` names the keys that verify tokens"
        );
        found
            .error(Code::UnverifiedClaim, message)
            .at(&balance.span, "no token is verified")
            .help("add `[jwt]` with `keys`, or choose by another part of the request");
    }
}
