//! Rewrites, redirects and responses of a route. A route has one destination, and its path has every parameter that a
//! template names.

use super::any_path;
use crate::config::document::{Document, Route};
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::config::validate::names::has_instead;
use crate::config::value::{literal_path, quoted};
use crate::route::{PathPattern, Segment, Template};

/// Notes routes with two destinations or two rewrites, and parameters that the path does not have.
pub(in crate::config::validate) fn check_rewrites(document: &Document, found: &mut Findings) {
    for route in &document.routes {
        if let (Some(one), Some(other)) = (route.strip_prefix.span(), route.rewrite.span()) {
            found
                .conflict(format!("{route} rewrites the path twice"))
                .at(other, "a new path")
                .and(one, "the path without its prefix")
                .help("keep one of the two");
        }
        one_end(route, found);
        if !route.path.is_bad() {
            let rewrites = [stripped(route), rewritten(route), redirected(route)];
            let wrong = rewrites.into_iter().filter_map(Result::err);
            found.extend(wrong.map(|wrong| *wrong));
        }
    }
}

/// The template of the forwarded path, if it differs from the matched path.
///
/// # Errors
/// If the template has a mistake: the mistake.
pub(in crate::config) fn template(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    Ok(match stripped(route)? {
        Some(template) => Some(template),
        None => rewritten(route)?,
    })
}

fn stripped(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    let Some(prefix) = route.strip_prefix.at() else {
        return Ok(None);
    };
    let all = PathPattern::default();
    let path = route.path.get().unwrap_or(&all);
    let folded = prefix.value.clone().in_any_case();
    if path.segments.starts_with(&prefix.value.segments)
        || path.segments.starts_with(&folded.segments)
    {
        let template = Template::without(prefix.value.segments.len(), &literal_path(&prefix.value));
        return Ok(Some(template));
    }
    let text = literal_path(&prefix.value);
    let shown = quoted(&text);
    let message = format!("{route} takes paths that do not begin with {shown}");
    let wrong = Diagnostic::error(Code::Conflict, message)
        .at(&prefix.span, "no prefix to strip from those")
        .help(format!("write `path = \"{text}/{{*rest}}\"`"))
        .and_if(route.path.span(), "its path");
    Err(Box::new(wrong))
}

fn rewritten(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    let Some(text) = route.rewrite.at() else {
        return Ok(None);
    };
    made(route, "rewrite", "", text).map(Some)
}

/// The destination of a redirect.
///
/// # Errors
/// If the template has a mistake: the mistake.
pub(in crate::config) fn redirected(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    let Some(to) = route.redirect.get().and_then(|redirect| redirect.to.at()) else {
        return Ok(None);
    };
    let (origin, path) = &to.value;
    let path = At::new(path.clone(), to.span.clone());
    made(route, "redirect.to", origin, &path).map(Some)
}

/// A request is either forwarded or answered: a route has one destination, and keys for an upstream are valid only with
/// an `upstream`.
fn one_end(route: &Route, found: &mut Findings) {
    let ends = [
        ("upstream", route.upstream.span()),
        ("redirect", route.redirect.span()),
        ("respond", route.respond.span()),
    ];
    let mut ends = ends.into_iter().filter(|(_, span)| span.is_some());
    let Some((first, Some(place))) = ends.next() else {
        return;
    };
    if let Some((second, Some(also))) = ends.next() {
        found
            .conflict(format!("{route} has both `{first}` and `{second}`"))
            .at(also, "one of the two is too many")
            .and(place, "the other one")
            .help("keep one of them, or give each a route of its own");
        return;
    }
    let of_upstreams = [
        ("timeout", route.timeout.span()),
        ("idle", route.idle.span()),
        ("strip_prefix", route.strip_prefix.span()),
        ("rewrite", route.rewrite.span()),
        ("request_headers", route.request_headers.span()),
        ("forward_identity", route.forward_identity.span()),
    ];
    for (key, idle) in of_upstreams {
        if let Some(idle) = idle.filter(|_| first != "upstream") {
            let message = format!("{route} forwards nothing, so `{key}` has no meaning");
            found
                .conflict(message)
                .at(idle, "for requests that are forwarded")
                .and(place, "answered here")
                .help("leave it out");
        }
    }
}

/// The template of `key`, made from `text` and put after `origin`.
fn made(
    route: &Route,
    key: &str,
    origin: &str,
    text: &At<String>,
) -> Result<Template, Box<Diagnostic>> {
    let any = any_path();
    let path = route.path.get().unwrap_or(&any);
    Template::read(origin, &text.value, path).map_err(|parameter| {
        let message =
            format!("`{key}` of {route} names `{parameter}`, which its path does not have");
        let wrong = Diagnostic::error(Code::UnknownParameter, message)
            .at(&text.span, format!("no `{parameter}`"))
            .help(instead(path, &parameter))
            .and_if(route.path.span(), "its path");
        Box::new(wrong)
    })
}

/// The help for a parameter that the path does not have: the spelling in the path, or all parameters.
fn instead(path: &PathPattern, parameter: &str) -> String {
    let bare = parameter.trim_matches(['{', '*', '}']);
    let same = path.segments.iter().find_map(|segment| match segment {
        Segment::Parameter(name) if **name == *bare => Some(format!("{{{name}}}")),
        Segment::Rest(name) if **name == *bare => Some(format!("{{*{name}}}")),
        _ => None,
    });
    match same {
        Some(same) => format!("write `{same}`, as the path has it"),
        None => has_instead(Some(path)),
    }
}
