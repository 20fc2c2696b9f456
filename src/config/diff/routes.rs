//! What has changed about routes.

use super::{Change, Outline, list, named, time};
use crate::route::{Condition, HostPattern, Rule, Segment};

pub(super) fn routes(old: &Outline, new: &Outline, changes: &mut Vec<Change>) {
    let compare = |was: usize, is: usize| {
        let (a, b) = (&old.routes[was], &new.routes[is]);
        let mut parts = Vec::new();
        let mut push = |what: &str, a: String, b: String| {
            if a != b {
                parts.push(format!("{what} {a} to {b}"));
            }
        };
        push("host", hosts(&a.rule), hosts(&b.rule));
        push("path", path(&a.rule), path(&b.rule));
        push("methods", list(&a.rule.methods), list(&b.rule.methods));
        for (what, of) in CONDITIONS {
            push(what, conditions(&a.rule, of), conditions(&b.rule, of));
        }
        push("upstream", a.upstream.to_string(), b.upstream.to_string());
        push("limits", list(&a.limits), list(&b.limits));
        push("timeout", time(a.timeout), time(b.timeout));
        for (a, b) in a.facts.iter().zip(&b.facts) {
            if a.shown != b.shown {
                parts.push(format!("{} {} to {}", a.key, a.shown, b.shown));
            } else if a.whole != b.whole {
                parts.push(format!("{} changed", a.key));
            }
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    let both = (old.routes.as_slice(), new.routes.as_slice());
    named(
        "routes",
        both,
        |route| &route.rule.name,
        "removed",
        compare,
        changes,
    );
}

fn hosts(rule: &Rule) -> String {
    let hosts: Vec<String> = rule
        .hosts
        .iter()
        .map(|host| match host {
            HostPattern::Exact(name) => name.to_string(),
            HostPattern::Suffix(suffix) => format!("*{suffix}"),
        })
        .collect();
    if hosts.is_empty() {
        "any".into()
    } else {
        hosts.join("+")
    }
}

fn path(rule: &Rule) -> String {
    if rule.path.segments.is_empty() {
        return "/".into();
    }
    rule.path
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::Parameter(name) => format!("/{{{name}}}"),
            Segment::Rest(name) => format!("/{{*{name}}}"),
        })
        .collect()
}

type Kind = fn(&Condition) -> bool;

/// Conditions by the key they stand under.
const CONDITIONS: [(&str, Kind); 3] = [
    ("headers", |one| matches!(one, Condition::Field(..))),
    ("query", |one| matches!(one, Condition::Query(..))),
    ("scheme", |one| matches!(one, Condition::Https(_))),
];

fn conditions(rule: &Rule, of: Kind) -> String {
    let all: Vec<&Condition> = rule.conditions.iter().filter(|one| of(one)).collect();
    match all.is_empty() {
        true => "any".into(),
        false => list(&all),
    }
}
