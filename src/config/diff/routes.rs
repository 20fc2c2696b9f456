//! What has changed about routes.

use super::{Change, Outline, PLAINLY, collection, list, time};
use crate::key::is_secret;
use crate::route::{Condition, HostPattern, Rule};
use crate::snapshot::StaticReply;
use crate::snapshot::changes::Changes;
use http::{HeaderName, HeaderValue};

/// What a key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The key.
    pub key: &'static str,
    /// What may be shown of it.
    pub shown: String,
    /// All of it.
    pub whole: String,
}

impl Fact {
    /// What `key` says, if anything.
    #[must_use]
    pub fn of(key: &'static str, says: Option<String>) -> Self {
        let shown = says.unwrap_or_else(|| "none".into());
        Self {
            key,
            whole: shown.clone(),
            shown,
        }
    }
    /// Where it leads elsewhere.
    #[must_use]
    pub fn redirect(own: Option<&StaticReply>) -> Self {
        let says = match own {
            Some(StaticReply::Redirect { to, status }) => {
                Some(format!("{} ({})", to.written(), status.as_u16()))
            }
            _ => None,
        };
        Self::of("redirect", says)
    }

    /// What it answers: the status is shown, a body may be long.
    #[must_use]
    pub fn respond(own: Option<&StaticReply>) -> Self {
        let says = match own {
            Some(StaticReply::Respond { status, .. }) => Some(status.as_u16().to_string()),
            _ => None,
        };
        Self {
            whole: says
                .as_ref()
                .map(|_| format!("{own:?}"))
                .unwrap_or_default(),
            ..Self::of("respond", says)
        }
    }

    /// What `key` changes about fields: names are shown, values may be secrets.
    #[must_use]
    pub fn fields(key: &'static str, changes: Option<&Changes>) -> Self {
        let Some(changes) = changes else {
            return Self::of(key, None);
        };
        let names = |lines: &[(HeaderName, HeaderValue)]| {
            lines.iter().map(|(name, _)| name.clone()).collect()
        };
        let all: [(&str, Vec<HeaderName>); 3] = [
            ("set", names(&changes.set)),
            ("add", names(&changes.add)),
            ("remove", changes.remove.clone()),
        ];
        // Their own form hides the sensitive ones.
        let lines = changes.set.iter().chain(&changes.add);
        let values: Vec<&[u8]> = lines.map(|(_, value)| value.as_bytes()).collect();
        let said = all.iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<String> = said
            .map(|(what, names)| format!("{what} {}", list(names)))
            .collect();
        Self {
            key,
            shown: said.join(" and "),
            whole: format!("{changes:?}{values:?}"),
        }
    }
}

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
            let (before, after) = (conditions(&a.rule, of), conditions(&b.rule, of));
            match before == after && wanted(&a.rule, of) != wanted(&b.rule, of) {
                // Nothing but a secret has changed.
                true => push(what, before, format!("{after}, another value")),
                false => push(what, before, after),
            }
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
    collection(
        "routes",
        both,
        |route| &route.rule.name,
        PLAINLY,
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
    rule.path.told()
}

type Kind = fn(&Condition) -> bool;

/// Conditions by the key they stand under.
const CONDITIONS: [(&str, Kind); 3] = [
    ("headers", |one| matches!(one, Condition::Field(..))),
    ("query", |one| matches!(one, Condition::Query(..))),
    ("scheme", |one| matches!(one, Condition::Https(_))),
];

fn wanted(rule: &Rule, of: Kind) -> Vec<&Condition> {
    rule.conditions.iter().filter(|one| of(one)).collect()
}

/// As they may be shown: values of what authenticates by its name are not.
fn conditions(rule: &Rule, of: Kind) -> String {
    let shown = |one: &&Condition| match one.secret_name(is_secret) {
        Some(name) => format!("{name} = \"***\""),
        None => one.to_string(),
    };
    let all: Vec<String> = wanted(rule, of).iter().map(shown).collect();
    match all.is_empty() {
        true => "any".into(),
        false => list(&all),
    }
}
