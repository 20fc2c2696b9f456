//! Routes for which a forged token is verified even where limits refuse its client, since the routes that may take the
//! request share no limit.

use crate::config::Compiled;
use crate::config::probe_request::{ProbeRequest, example_path};
use crate::route::{Condition, OpenSearch, Rule};
use crate::snapshot::{Service, Snapshot};
use http::Method;
use std::collections::HashSet;
use std::sync::Arc;

/// A made-up request for each route is compared with all routes, so that a very large file is not examined completely:
/// this is the bound on comparisons of a request with a route.
const MOST_LOOKS: usize = 2_000_000;

/// A note for each such route, and one if not all were examined.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let snapshot = &compiled.snapshot;
    let groups = snapshot.route_groups.iter();
    let groups = groups.filter(|group| group.uses_token());
    let groups: HashSet<&str> = groups.map(|group| &*group.name).collect();
    let routes = &compiled.outline.routes;
    let by_token = routes
        .iter()
        .filter(|route| asks_for_token(&route.rule, &groups));
    let by_token: Vec<&Rule> = by_token.map(|route| &route.rule).collect();
    let mut left = MOST_LOOKS;
    let is_looked_at = |rule: &&&Rule| {
        let looks = methods(rule).len() * routes.len();
        let is_first = left == MOST_LOOKS;
        left = left.saturating_sub(looks);
        is_first || left > 0
    };
    let looked_at: Vec<&&Rule> = by_token.iter().take_while(is_looked_at).collect();
    let notes = looked_at.iter().filter_map(|rule| {
        let mut methods = methods(rule).into_iter();
        methods.find_map(|method| note_of(rule, method, &groups, snapshot))
    });
    let mut notes: Vec<String> = notes.collect();
    if looked_at.len() < by_token.len() {
        notes.push(format!(
            "{} routes have groups by a token; only the first {} were checked for limits that come before the verification of forged tokens",
            by_token.len(),
            looked_at.len()
        ));
    }
    notes
}

fn asks_for_token(rule: &Rule, by_token: &HashSet<&str>) -> bool {
    rule.conditions.iter().any(|one| match one {
        Condition::Groups(groups) => uses_token(groups, by_token),
        _ => false,
    })
}

/// Does one of the groups depend on a token?
fn uses_token(names: &[Arc<str>], by_token: &HashSet<&str>) -> bool {
    names.iter().any(|name| by_token.contains(&**name))
}

/// The methods of a route; for a route that takes any, the methods that other routes may name.
fn methods(rule: &Rule) -> Vec<Method> {
    if rule.methods.is_empty() {
        let usual = [Method::GET, Method::POST, Method::PUT, Method::PATCH];
        usual.into_iter().chain([Method::DELETE]).collect()
    } else {
        rule.methods.clone()
    }
}

/// The note on requests of this method to the route of `rule`, if their tokens are verified regardless of limits.
fn note_of(
    rule: &Rule,
    method: Method,
    by_token: &HashSet<&str>,
    snapshot: &Snapshot,
) -> Option<String> {
    let probe = ProbeRequest::anonymous(rule, method);
    let may_be_member = |groups: &[Arc<str>]| uses_token(groups, by_token);
    let search = OpenSearch::new(&probe, &may_be_member);
    let path = example_path(rule);
    let found = snapshot
        .table
        .find(&probe.host, &path, &probe.method, &search);
    let possible = search.possible();
    let last = found.or(snapshot.unrouted);
    let shared = last.map(|last| snapshot.shared_early_limits(last, &possible));
    let mut all = possible.iter().chain(&last);
    let is_limited = all.any(|at| may_refuse(&snapshot.services[*at]));
    if possible.is_empty() || !is_limited || shared.is_some_and(|shared| !shared.is_empty()) {
        return None;
    }
    let names = possible.iter().map(|at| snapshot.services[*at].route());
    let names: Vec<&str> = names.flatten().collect();
    let other = match found.and_then(|found| snapshot.services[found].route()) {
        Some(other) => format!("{other}, which takes clients outside their groups, has"),
        None => "the answer 404 to clients outside their groups has".to_owned(),
    };
    Some(format!(
        "forged tokens are verified for {}, even if a limit refuses their client: {other} no limit in common with them that needs no token and counts alike on all of them; a limit by ip in [defaults] would be such a limit",
        names.join(" and ")
    ))
}

/// Has the service a limit that could refuse before a token is verified?
fn may_refuse(service: &Service) -> bool {
    let mut limits = service.limits.iter();
    limits.any(|limit| limit.mode.decides() && !limit.asks_token())
}
