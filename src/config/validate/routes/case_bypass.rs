//! Routes that a path in another case bypasses: `/LOGIN` matches a more general route with weaker limits, and the
//! upstream may treat it as `/login`.

use super::place;
use crate::config::document::{Document, Route, Upstream};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::validate::probe_request::ProbeRequest;
use crate::config::value::quoted;
use crate::route::{Rule, Segment, Table};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A bypassed route, the path in another case, and the limits that do not apply to that path.
struct CaseBypass<'a> {
    route: &'a Route,
    path: String,
    without: Vec<&'a str>,
}

/// Notes the general routes that take the other spellings, each route once.
pub(in crate::config::validate) fn note_bypasses(
    document: &Document,
    rules: &[Rule],
    table: &Table,
    found: &mut Findings,
) {
    let routes = document.routes.iter();
    let routes: HashMap<&str, &Route> = routes
        .map(|route| (route.name.value.as_str(), route))
        .collect();
    let deciding = deciding(document);
    // Two upstreams may share a server.
    let upstreams = document.upstreams.iter();
    let servers: HashMap<&str, Vec<String>> = upstreams
        .map(|upstream| (upstream.name.value.as_str(), servers(upstream)))
        .collect();
    let servers = |route: &Route| servers.get(route.upstream.get()?.as_str());
    let mut held: HashMap<usize, HashSet<&str>> = HashMap::new();
    let mut general: BTreeMap<usize, Vec<CaseBypass<'_>>> = BTreeMap::new();
    let may_be_passed =
        |route: &&&Route| route.path_case.is_absent() && route.upstream.get().is_some();
    for rule in rules {
        let Some(route) = routes.get(&*rule.name).filter(may_be_passed) else {
            continue;
        };
        let limits = document.limits_of(route).map(|at| at.value.as_str());
        let limits: Vec<&str> = limits.filter(|name| deciding.contains(name)).collect();
        if limits.is_empty() {
            continue;
        }
        let request = ProbeRequest::of(rule);
        let passed = other_spellings(rule).into_iter().find_map(|path| {
            let taken = table.find(&request.host, &path, &request.method, &request)?;
            let other = routes.get(&*rules.get(taken)?.name)?;
            if servers(other) != servers(route) {
                return None;
            }
            let theirs = held.entry(taken).or_insert_with(|| {
                let theirs = document.limits_of(other).map(|at| at.value.as_str());
                theirs.collect()
            });
            let lacks = |name: &&str| !theirs.contains(name);
            let without: Vec<&str> = limits.iter().copied().filter(lacks).collect();
            (!without.is_empty()).then_some((taken, path, without))
        });
        if let Some((taken, path, without)) = passed {
            general.entry(taken).or_default().push(CaseBypass {
                route,
                path,
                without,
            });
        }
    }
    for (taken, passed) in general {
        let taken = rules.get(taken).and_then(|rule| routes.get(&*rule.name));
        if let (Some(taken), Some((first, others))) = (taken, passed.split_first()) {
            warn(taken, first, others, found);
        }
    }
}

/// The names of the limits that can refuse requests.
fn deciding(document: &Document) -> HashSet<&str> {
    let limits = document.limits.iter();
    let limits = limits.filter(|limit| limit.mode().decides());
    limits.map(|limit| limit.name.value.as_str()).collect()
}

/// The servers of an upstream, sorted.
fn servers(upstream: &Upstream) -> Vec<String> {
    let servers = upstream.servers.entries().iter();
    let urls = servers.filter_map(|entry| entry.value.url.get());
    let mut servers: Vec<String> = urls.map(ToString::to_string).collect();
    servers.sort_unstable();
    servers
}

fn warn(taken: &Route, first: &CaseBypass<'_>, others: &[CaseBypass<'_>], found: &mut Findings) {
    let without: Vec<String> = first.without.iter().map(|name| quoted(name)).collect();
    let (path, limits, route) = (&first.path, without.join(" and "), first.route);
    let message = format!("`{path}` goes to {taken} and past {limits} of {route}");
    let label = "this route takes the other spellings, and leads to the same upstream";
    let warning = found
        .warning(Code::OtherCase, message)
        .at(place(taken), label)
        .and(place(route), "this route takes one spelling only")
        .about(&taken.name.span)
        .about(&route.name.span)
        .help(format!(
            "write `path_case = \"insensitive\"` into {route} where the upstream takes both for the same path, and \
             `\"sensitive\"` where it does not"
        ));
    if !others.is_empty() {
        let others = others.iter();
        let names: Vec<String> = others
            .map(|other| quoted(&other.route.name.value))
            .collect();
        let names = names.join(", ");
        warning.note(format!("it takes the other spellings of {names} too"));
    }
}

/// Paths of `rule` in another case: in the last segment, in the first segment, or in all segments.
fn other_spellings(rule: &Rule) -> Vec<String> {
    let segments = &rule.path.segments;
    let has_case = |segment: &Segment| match segment {
        // A percent-encoded segment has no case to change.
        Segment::Literal(text) => {
            !text.contains('%') && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        }
        Segment::Folded(_) | Segment::Parameter(_) | Segment::Rest(_) => false,
    };
    let first = segments.iter().position(has_case);
    let (Some(first), Some(last)) = (first, segments.iter().rposition(has_case)) else {
        return Vec::new();
    };
    let spelled = |from: usize, to: usize| {
        let mut path = String::new();
        for (nth, segment) in segments.iter().enumerate() {
            match segment {
                Segment::Literal(text) if text.is_empty() => continue,
                Segment::Literal(text) if has_case(segment) && (from..=to).contains(&nth) => {
                    path.push('/');
                    path.extend(text.chars().map(other_case));
                }
                Segment::Literal(text) | Segment::Folded(text) => {
                    path.push('/');
                    path.push_str(text);
                }
                Segment::Parameter(_) | Segment::Rest(_) => path.push_str("/x"),
            }
        }
        path
    };
    vec![
        spelled(last, last),
        spelled(first, first),
        spelled(first, last),
    ]
}

fn other_case(letter: char) -> char {
    if letter.is_ascii_lowercase() {
        letter.to_ascii_uppercase()
    } else {
        letter.to_ascii_lowercase()
    }
}
