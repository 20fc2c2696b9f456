//! Settings without effect: limits that exempt every request of their routes, and groups that no request can be in.

use super::any_path;
use crate::config::document::{Document, Exempt, Route};
use crate::config::report::{Code, Details as _, Findings};
use crate::key::KeyPart;
use crate::route::{PathPattern, Segment};
use http::Method;
use std::collections::{HashMap, HashSet};

/// Notes limits and groups without effect.
pub(in crate::config::validate) fn note_unreachable(document: &Document, found: &mut Findings) {
    if !document.torn.is_empty() || !document.lost.is_empty() {
        return;
    }
    exempt(document, found);
    unnamed_parameter(document, found);
}

/// Notes a limit that exempts all methods or all paths of each route that names the limit.
fn exempt(document: &Document, found: &mut Findings) {
    let exempting = document.limits.iter();
    let exempting = exempting.filter(|limit| limit.exempt.at().is_some());
    let mut users: HashMap<&str, Vec<&Route>> = exempting
        .map(|limit| (limit.name.value.as_str(), Vec::new()))
        .collect();
    if users.is_empty() {
        return;
    }
    for route in &document.routes {
        for name in document.limits_of(route) {
            if let Some(users) = users.get_mut(name.value.as_str()) {
                users.push(route);
            }
        }
    }
    // A default limit also applies where no route matches.
    for at in document.defaults.limits.entries() {
        users.remove(at.value.as_str());
    }
    for limit in &document.limits {
        let Some(at) = limit.exempt.at() else {
            continue;
        };
        let name = limit.name.value.as_str();
        let Some(users) = users.get(name).filter(|users| !users.is_empty()) else {
            continue;
        };
        let methods = at.value.methods.entries().iter();
        let methods = methods.map(|at| &at.value).collect();
        if users
            .iter()
            .all(|route| is_covered(route, &at.value, &methods))
        {
            let message = format!("{limit} exempts every request");
            found
                .warning(Code::ExemptsEveryone, message)
                .at(&at.span, "covers every request of its routes")
                .help("exempt less, or leave the limit out of the routes");
        }
    }
}

/// Does the limit exempt every request of `route`? An exemption of `/` has been noted.
fn is_covered(route: &Route, exempt: &Exempt, spared: &HashSet<&Method>) -> bool {
    let methods = route.methods.entries();
    let is_spared = |method: &Method| spared.contains(method);
    // A route for GET takes HEAD, which an exemption of GET does not cover.
    let is_all_spared =
        |method: &Method| is_spared(method) && (*method != Method::GET || is_spared(&Method::HEAD));
    let by_method = !methods.is_empty() && methods.iter().all(|at| is_all_spared(&at.value));
    let begins = literal(route.path.get());
    let by_path = exempt.paths.entries().iter().any(|at| {
        let below = begins.strip_prefix(&*at.value);
        &*at.value != "/" && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    by_method || by_path
}

/// The literal prefix of every path that the pattern matches.
fn literal(path: Option<&PathPattern>) -> String {
    let mut begins = String::new();
    for segment in path.into_iter().flat_map(|path| &path.segments) {
        let Segment::Literal(text) = segment else {
            break;
        };
        begins.push('/');
        begins.push_str(text);
    }
    begins
}

/// Notes a group by a parameter that no path has.
fn unnamed_parameter(document: &Document, found: &mut Findings) {
    let mut paths = document.routes.iter().map(|route| &route.path);
    if paths.any(|path| path.is_bad()) {
        return;
    }
    let any_path = any_path();
    let paths = document
        .routes
        .iter()
        .map(|route| route.path.get().unwrap_or(&any_path));
    let named: HashSet<&str> = paths.flat_map(|path| path.parameters()).collect();
    for group in &document.groups {
        let Some(name) = group.by.get().and_then(KeyPart::parameter) else {
            continue;
        };
        if let Some(span) = group.by.span()
            && !named.contains(name)
        {
            let message =
                format!("{group} is by `path:{name}`, and no route has `{{{name}}}` in its path");
            found
                .warning(Code::UnknownParameter, message)
                .at(span, "no request is in the group")
                .help(format!(
                    "name a segment of the path: `path = \"/tenants/{{{name}}}\"`, or use a name that the paths have"
                ));
        }
    }
}
