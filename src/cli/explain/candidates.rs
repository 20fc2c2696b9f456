//! Why it was not another route: which came near, and what they lacked. Each question is put to the route table itself.

use super::stripped_fields::StrippedField;
use crate::config::Compiled;
use crate::key::is_secret;
use crate::route::{self, Condition, HostPattern, PathPattern, Rule, Segment, Table};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// A route that came near.
#[derive(Debug)]
pub(super) struct RouteCandidate {
    pub(super) name: Arc<str>,
    pub(super) place: Option<String>,
    pub(super) why: String,
}

/// What a request is matched by.
#[derive(Debug)]
pub(super) struct RouteQuery<'a> {
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) method: &'a Method,
    /// What conditions do not see of it.
    pub(super) lost: &'a [StrippedField],
    /// What conditions look at.
    pub(super) head: HeadView<'a>,
}

/// The rest of a request's head.
#[derive(Debug)]
pub(super) struct HeadView<'a> {
    pub(super) fields: &'a HeaderMap,
    pub(super) query: Option<&'a str>,
    pub(super) https: bool,
}

impl route::RequestView for HeadView<'_> {
    fn fields(&self) -> &HeaderMap {
        self.fields
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn is_https(&self) -> bool {
        self.https
    }
}

impl RouteQuery<'_> {
    fn finds(&self, rules: &[Rule]) -> Option<usize> {
        let table = Table::build(rules).ok()?;
        table.find(self.host, self.path, self.method, &self.head)
    }

    fn is_met_by(&self, rule: Rule) -> bool {
        self.finds(&[rule]).is_some()
    }
}

/// The routes that take the request too and have a lower rank, and those that lack one thing only.
pub(super) fn near(
    compiled: &Compiled,
    found: Option<usize>,
    wanted: &RouteQuery<'_>,
) -> Vec<RouteCandidate> {
    let routes = &compiled.outline.routes;
    let winner = found.and_then(|found| Some(&routes.get(found)?.rule));
    let others = routes.iter().enumerate();
    let others = others.filter(|(position, _)| Some(*position) != found);
    let near = others.filter_map(|(_, route)| {
        let rule = &route.rule;
        let why = match winner.filter(|_| wanted.is_met_by(rule.clone())) {
            Some(winner) => lower(winner, rule, wanted).to_owned(),
            None => lacks(rule, wanted)?,
        };
        Some(RouteCandidate {
            name: Arc::clone(&rule.name),
            place: compiled.place("routes", &rule.name),
            why,
        })
    });
    near.collect()
}

/// The one thing that keeps `rule` from taking the request; nothing where there are several.
fn lacks(rule: &Rule, wanted: &RouteQuery<'_>) -> Option<String> {
    let any_method = Rule {
        methods: Vec::new(),
        ..rule.clone()
    };
    if wanted.is_met_by(any_method) {
        let methods: Vec<&str> = rule.methods.iter().map(Method::as_str).collect();
        return Some(format!("it takes {} only", methods.join(", ")));
    }
    let unconditional = Rule {
        conditions: Vec::new(),
        ..rule.clone()
    };
    if wanted.is_met_by(unconditional) {
        return Some(format!("it asks for {}", unmet(rule, wanted)));
    }
    let any_host = Rule {
        hosts: Vec::new(),
        ..rule.clone()
    };
    if wanted.is_met_by(any_host) {
        return Some(format!("it is for the host {}", hosts(&rule.hosts)));
    }
    let any_path = Rule {
        path: PathPattern {
            segments: vec![Segment::Rest("rest".into())],
        },
        ..rule.clone()
    };
    let begins = |text: &str| first(wanted.path) == text.trim_start_matches('/');
    let shares = rule.path.segments.iter().find_map(|segment| match segment {
        Segment::Literal(text) if text.is_empty() => None,
        Segment::Literal(text) => Some(begins(text)),
        Segment::Folded(text) => Some(first(wanted.path).eq_ignore_ascii_case(text)),
        Segment::Parameter(_) | Segment::Rest(_) => Some(true),
    });
    (shares == Some(true) && wanted.is_met_by(any_path))
        .then(|| format!("its path is {}", rule.path.told()))
}

/// Its conditions that do not hold, in words; values of what authenticates by its name are not shown.
fn unmet(rule: &Rule, wanted: &RouteQuery<'_>) -> String {
    let fails = |one: &&Condition| {
        let alone = Rule {
            conditions: vec![(*one).clone()],
            ..rule.clone()
        };
        !wanted.is_met_by(alone)
    };
    let shown = |one: &Condition| {
        let table = match one {
            Condition::Field(..) => "header ",
            Condition::Query(..) => "query ",
            Condition::Https(_) => "scheme ",
        };
        let shown = match one.secret_name(is_secret) {
            Some(name) => format!("{table}{name} = \"***\""),
            None => format!("{table}{one}"),
        };
        let lost =
            |lost: &&StrippedField| matches!(one, Condition::Field(name, _) if *name == lost.name);
        match wanted.lost.iter().find(lost) {
            Some(StrippedField { why, .. }) => {
                format!("{shown}, and the request's field of that name is dropped, since {why}")
            }
            None => shown,
        }
    };
    let all: Vec<String> = rule.conditions.iter().filter(fails).map(shown).collect();
    all.join(" and ")
}

fn first(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').next().unwrap_or_default()
}

/// Why `winner` comes before `rule`, where both take the request.
fn lower(winner: &Rule, rule: &Rule, wanted: &RouteQuery<'_>) -> &'static str {
    if rank_of_host(winner, wanted) != rank_of_host(rule, wanted) {
        return "it takes it too, but the host of the other is more specific";
    }
    let shape = |rule: &Rule| Rule {
        hosts: Vec::new(),
        methods: Vec::new(),
        conditions: Vec::new(),
        ..rule.clone()
    };
    // Of equal shape without their methods and conditions: an overlap.
    match Table::build(&[shape(winner), shape(rule)]) {
        Ok(_) => "it takes it too, but the path of the other is more specific",
        Err(_) if winner.conditions.len() > rule.conditions.len() => {
            "it takes it too, but the other has more conditions"
        }
        Err(_) => "it takes it too, but the other names the method",
    }
}

/// Length of the host pattern that matches; the exact one before all, any host behind.
fn rank_of_host(rule: &Rule, wanted: &RouteQuery<'_>) -> usize {
    let matching = rule.hosts.iter().filter(|host| {
        let alone = Rule {
            hosts: vec![(*host).clone()],
            ..rule.clone()
        };
        wanted.is_met_by(alone)
    });
    let rank = matching.map(|host| match host {
        HostPattern::Exact(_) => usize::MAX,
        HostPattern::Suffix(suffix) => suffix.len(),
    });
    rank.max().unwrap_or(0)
}

fn hosts(hosts: &[HostPattern]) -> String {
    let hosts: Vec<String> = hosts
        .iter()
        .map(|host| match host {
            HostPattern::Exact(host) => host.to_string(),
            HostPattern::Suffix(suffix) => format!("*{suffix}"),
        })
        .collect();
    hosts.join(", ")
}
