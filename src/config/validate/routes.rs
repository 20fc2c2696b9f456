//! Routes: the rule of each route, and overlaps of two rules of equal rank.

pub(super) mod case_bypass;
pub(super) mod forwarded_identity;
pub(super) mod grpc;
pub(super) mod rewrites;
pub(super) mod stripped_fields;
pub(super) mod unreachable;

use super::{pairs, repeated_limit};
use crate::config::document::{Document, List, Route};
use crate::config::input::Span;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::key::is_secret;
use crate::route::{Condition, Overlap, PathPattern, Rule, Segment, Table};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// Arranges the readable routes; overlaps are noted even if there are other mistakes.
pub(super) fn arrange(document: &Document, found: &mut Findings) -> (Vec<Rule>, Table) {
    let mut rules = Vec::with_capacity(document.routes.len());
    let mut readable = Vec::with_capacity(document.routes.len());
    let mut alike = HashMap::new();
    for route in &document.routes {
        warn_of_repeats(route, found);
        if let Some(rule) = rule(route) {
            let alike = alike.entry(shape(&rule)).or_insert(0_usize);
            *alike += 1;
            if *alike > MOST_ALIKE {
                continue;
            }
            rules.push(rule);
            readable.push(route);
        }
    }
    let table = match Table::build(&rules) {
        Ok(table) => table,
        Err(overlaps) => {
            for overlap in overlaps {
                let pair = (readable.get(overlap.first), readable.get(overlap.second));
                if let (Some(first), Some(second)) = pair {
                    let rules = [rules.get(overlap.first), rules.get(overlap.second)];
                    let example = without_secrets(&overlap, rules.into_iter().flatten());
                    claimed_twice(first, second, &example, found);
                }
            }
            Table::default()
        }
    };
    (rules, table)
}

/// The most routes with identical requests that are compared with each other. Two such routes are a mistake already,
/// and the number of pairs grows quadratically.
const MOST_ALIKE: usize = 20;

/// The rule without its names: two rules that claim the same requests have equal shapes.
fn shape(rule: &Rule) -> Rule {
    let blank = Arc::from("");
    let segments = rule.path.segments.iter().map(|segment| match segment {
        Segment::Literal(_) => segment.clone(),
        Segment::Folded(text) => Segment::Folded(text.to_ascii_lowercase().into()),
        Segment::Parameter(_) => Segment::Parameter(Arc::clone(&blank)),
        Segment::Rest(_) => Segment::Rest(Arc::clone(&blank)),
    });
    let segments = segments.collect();
    Rule {
        name: Arc::clone(&blank),
        path: PathPattern { segments },
        ..rule.clone()
    }
}

/// The pattern of every path.
pub(super) fn any_path() -> PathPattern {
    PathPattern {
        segments: vec![Segment::Rest(Arc::from("rest"))],
    }
}

/// The rule of a route; none when a part of the route could not be read.
fn rule(route: &Route) -> Option<Rule> {
    if route.host.is_bad() || route.path.is_bad() || route.methods.is_bad() {
        return None;
    }
    let conditions = [&route.headers, &route.query, &route.scheme];
    if conditions.into_iter().any(List::is_bad) || route.groups.is_bad() {
        return None;
    }
    let mut conditions: Vec<Condition> = route.conditions().map(|at| at.value.clone()).collect();
    if !route.groups.is_absent() {
        let names = once(&route.groups).into_iter().map(Arc::from);
        conditions.push(Condition::Groups(names.collect()));
    }
    // Conditions in another order or spelling are the same conditions.
    conditions.sort_by_cached_key(ToString::to_string);
    Some(Rule {
        name: route.name.value.as_str().into(),
        hosts: once(&route.host),
        path: route.path.get().cloned().unwrap_or_else(any_path),
        methods: once(&route.methods),
        conditions,
    })
}

/// The values of a list, each once.
fn once<T: Clone + Eq + Hash>(list: &List<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    let entries = list.entries().iter().map(|at| &at.value);
    entries
        .filter(|value| seen.insert(*value))
        .cloned()
        .collect()
}

fn warn_of_repeats(route: &Route, found: &mut Findings) {
    let mut warn = |what: String, first: &Span, second: &Span| {
        found
            .warning(Code::Duplicate, format!("{route} names {what} twice"))
            .at(second, "the second time")
            .and(first, "the first time");
    };
    for (first, second) in pairs(route.methods.entries()) {
        warn(format!("`{}`", second.value), &first.span, &second.span);
    }
    for (first, second) in pairs(route.host.entries()) {
        warn("a host".into(), &first.span, &second.span);
    }
    repeated_limit(&route.limits, route, found);
}

/// The example of an overlap, without the values of conditions on authenticating fields and parameters.
fn without_secrets<'a>(overlap: &Overlap, rules: impl Iterator<Item = &'a Rule>) -> String {
    let mut example = overlap.example.to_string();
    for condition in rules.flat_map(|rule| &rule.conditions) {
        if let (Some(name), Some(value)) = (condition.secret_name(is_secret), condition.value()) {
            let spelled: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            example = example
                .replace(&format!("{name}: {value}"), &format!("{name}: ***"))
                .replace(&format!("{name}={spelled}"), &format!("{name}=***"));
        }
    }
    example
}

fn claimed_twice(first: &Route, second: &Route, example: &str, found: &mut Findings) {
    let [one, other] = [first, second].map(|route| quoted(&route.name.value));
    let message = format!(
        "routes {one} and {other} can match the same request, and neither is more specific"
    );
    found
        .error(Code::Overlap, message)
        .at(place(second), "the other")
        .and(place(first), "one")
        .help("give one of them a `host`, `methods`, one more of `headers`, `query` and `scheme`, or a path that is fixed further to the left")
        .note(format!("an example: {example}"));
}

pub(super) fn place(route: &Route) -> &Span {
    route.path.span().unwrap_or(&route.place)
}
