//! The candidates: routes that nearly matched the request, and the reasons why they did not. The route table itself
//! answers each question.

use super::explanation::{RouteCandidate, StrippedField};
use crate::config::Compiled;
use crate::intake::RouteRequest;
use crate::key::is_secret;
use crate::route::{Condition, HostPattern, Rule, Segment, Table};
use http::Method;
use std::sync::Arc;

/// A request in the form that routes are matched against.
#[derive(Debug)]
pub(super) struct RouteQuery<'a> {
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    /// The fields that conditions do not see.
    pub(super) stripped: &'a [StrippedField],
    pub(super) request: RouteRequest<'a>,
}

impl RouteQuery<'_> {
    /// The position of the route of `table` that matches the request.
    fn find(&self, table: &Table) -> Option<usize> {
        let method = &self.request.parts.method;
        table.find(self.host, self.path, method, &self.request)
    }

    fn is_met_by(&self, rule: Rule) -> bool {
        let table = Table::build(&[rule]).ok();
        table.is_some_and(|table| self.find(&table).is_some())
    }

    /// Would `rule` match the request after this change?
    fn would_be_met_by(&self, rule: &Rule, change: impl FnOnce(&mut Rule)) -> bool {
        let mut rule = rule.clone();
        change(&mut rule);
        self.is_met_by(rule)
    }
}

/// The routes of a lower rank that also match the request, and the routes with exactly one unmet condition.
pub(super) fn list_candidates(
    compiled: &Compiled,
    found: Option<usize>,
    query: &RouteQuery<'_>,
) -> Vec<RouteCandidate> {
    let routes = &compiled.outline.routes;
    let winner = found.and_then(|found| Some(&routes.get(found)?.rule));
    let others = routes.iter().enumerate();
    let others = others.filter(|(position, _)| Some(*position) != found);
    let close = others.filter_map(|(_, route)| {
        let rule = &route.rule;
        let why = match winner.filter(|_| query.is_met_by(rule.clone())) {
            Some(winner) => lower(winner, rule, query).to_owned(),
            None => lacks(rule, query)?,
        };
        Some(RouteCandidate {
            name: Arc::clone(&rule.name),
            place: compiled.place("routes", &rule.name),
            why,
        })
    });
    close.collect()
}

/// The only condition of `rule` that the request does not meet; `None` if there are several.
fn lacks(rule: &Rule, query: &RouteQuery<'_>) -> Option<String> {
    if query.would_be_met_by(rule, |rule| rule.methods.clear()) {
        let methods: Vec<&str> = rule.methods.iter().map(Method::as_str).collect();
        return Some(format!("it takes {} only", methods.join(", ")));
    }
    if query.would_be_met_by(rule, |rule| rule.conditions.clear()) {
        return Some(format!("it asks for {}", unmet(rule, query)));
    }
    if query.would_be_met_by(rule, |rule| rule.hosts.clear()) {
        return Some(format!("it is for the host {}", hosts(&rule.hosts)));
    }
    let any_path = |rule: &mut Rule| rule.path.segments = vec![Segment::Rest("rest".into())];
    let begins = |text: &str| first(query.path) == text.trim_start_matches('/');
    let shares = rule.path.segments.iter().find_map(|segment| match segment {
        Segment::Literal(text) if text.is_empty() => None,
        Segment::Literal(text) => Some(begins(text)),
        Segment::Folded(text) => Some(first(query.path).eq_ignore_ascii_case(text)),
        Segment::Parameter(_) | Segment::Rest(_) => Some(true),
    });
    (shares == Some(true) && query.would_be_met_by(rule, any_path))
        .then(|| format!("its path is {}", rule.path.description()))
}

/// The unmet conditions of `rule`, in words. The value of a field or parameter that authenticates is not shown.
fn unmet(rule: &Rule, query: &RouteQuery<'_>) -> String {
    let fails = |one: &&Condition| {
        let alone = vec![(*one).clone()];
        !query.would_be_met_by(rule, |rule| rule.conditions = alone)
    };
    let shown = |one: &Condition| {
        let table = match one {
            Condition::Field(..) => "header ",
            Condition::Query(..) => "query ",
            Condition::Https(_) => "scheme ",
            Condition::Groups(_) => "a member of ",
        };
        let shown = match one.secret_name(is_secret) {
            Some(name) => format!("{table}{name} = \"***\""),
            None => format!("{table}{one}"),
        };
        let stripped = |field: &&StrippedField| matches!(one, Condition::Field(name, _) if *name == field.name);
        match query.stripped.iter().find(stripped) {
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

/// The reason why `winner` has precedence over `rule` if both match the request.
fn lower(winner: &Rule, rule: &Rule, query: &RouteQuery<'_>) -> &'static str {
    if rank_of_host(winner, query) != rank_of_host(rule, query) {
        return "it takes the request too, but the host of the chosen route is more specific";
    }
    let shape = |rule: &Rule| Rule {
        hosts: Vec::new(),
        methods: Vec::new(),
        conditions: Vec::new(),
        ..rule.clone()
    };
    // Without methods and conditions, rules of equal shape overlap.
    match Table::build(&[shape(winner), shape(rule)]) {
        Ok(_) => "it takes the request too, but the path of the chosen route is more specific",
        Err(_) if winner.conditions.len() > rule.conditions.len() => {
            "it takes the request too, but the chosen route has more conditions"
        }
        Err(_) => "it takes the request too, but the chosen route names the method",
    }
}

/// The length of the matching host pattern: an exact host ranks first, a rule for any host last.
fn rank_of_host(rule: &Rule, query: &RouteQuery<'_>) -> usize {
    let matching = rule.hosts.iter().filter(|host| {
        let alone = vec![(*host).clone()];
        query.would_be_met_by(rule, |rule| rule.hosts = alone)
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
