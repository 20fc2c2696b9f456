//! What becomes of a route's requests: that there is one thing, and that it can be made of what the path has.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Document, Route, Setting};
use super::super::source::{At, Span};
use super::super::value::{literal_path, quoted};
use super::names::has_instead;
use super::routes::any_path;
use crate::route::{PathPattern, Segment, Template};

/// Notes what cannot be made.
pub(super) fn check(document: &Document, found: &mut Vec<Diagnostic>) {
    for route in &document.routes {
        if let (Setting::Valid(one), Setting::Valid(other)) = (&route.strip_prefix, &route.rewrite)
        {
            found.push(
                Diagnostic::error(
                    Code::Conflict,
                    format!(
                        "route {} says twice what becomes of the path",
                        quoted(&route.name.value)
                    ),
                )
                .at(&other.span, "the whole path anew")
                .and(&one.span, "all but its beginning")
                .help("keep one of the two"),
            );
        }
        one_end(route, found);
        if !route.path.is_bad() {
            found.extend(
                [stripped(route), rewritten(route), redirected(route)]
                    .into_iter()
                    .filter_map(|one| one.err().map(|wrong| *wrong)),
            );
        }
    }
}

/// How the path that is forwarded is made, where it is not the one that was matched.
///
/// # Errors
/// What is wrong with it.
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
    let diagnostic = Diagnostic::error(
        Code::Conflict,
        format!(
            "route {} takes paths that do not begin with {}",
            quoted(&route.name.value),
            quoted(&text)
        ),
    )
    .at(&prefix.span, "nothing to take away from those")
    .help(format!("write `path = \"{text}/{{*rest}}\"`"));
    Err(Box::new(match route.path.at() {
        Some(path) => diagnostic.and(&path.span, "its path"),
        None => diagnostic,
    }))
}

fn rewritten(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    let Some(text) = route.rewrite.at() else {
        return Ok(None);
    };
    made(route, "rewrite", "", text).map(Some)
}

/// Where a redirect leads.
///
/// # Errors
/// What is wrong with it.
pub(in crate::config) fn redirected(route: &Route) -> Result<Option<Template>, Box<Diagnostic>> {
    let Some(redirect) = route.redirect.get() else {
        return Ok(None);
    };
    let (origin, path) = &redirect.to.value;
    let path = At::new(path.clone(), redirect.to.span.clone());
    made(route, "redirect.to", origin, &path).map(Some)
}

/// A request is forwarded or answered, and what is answered is not prepared for an upstream.
fn one_end(route: &Route, found: &mut Vec<Diagnostic>) {
    let span = |key: &'static str, span: Option<&Span>| span.map(|span| (key, span.clone()));
    let ends = [
        span("upstream", route.upstream.at().map(|at| &at.span)),
        span("redirect", route.redirect.at().map(|at| &at.span)),
        span("respond", route.respond.at().map(|at| &at.span)),
    ];
    let mut ends = ends.into_iter().flatten();
    let Some((first, place)) = ends.next() else {
        return;
    };
    let name = quoted(&route.name.value);
    if let Some((second, also)) = ends.next() {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("route {name} has both `{first}` and `{second}`"),
            )
            .at(&also, "one end too many")
            .and(&place, "the other")
            .help("keep one of them, or give each a route of its own"),
        );
        return;
    }
    if first == "upstream" {
        return;
    }
    let idle = [
        span("timeout", route.timeout.at().map(|at| &at.span)),
        span("strip_prefix", route.strip_prefix.at().map(|at| &at.span)),
        span("rewrite", route.rewrite.at().map(|at| &at.span)),
        span(
            "request_headers",
            route.request_headers.at().map(|at| &at.span),
        ),
    ];
    for (key, idle) in idle.into_iter().flatten() {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("route {name} forwards nothing, so `{key}` has no meaning"),
            )
            .at(&idle, "for requests that are forwarded")
            .and(&place, "answered here")
            .help("leave it out"),
        );
    }
}

/// What the key says in `text`, behind `origin`.
fn made(
    route: &Route,
    key: &str,
    origin: &str,
    text: &At<String>,
) -> Result<Template, Box<Diagnostic>> {
    let any = any_path();
    let path = route.path.get().unwrap_or(&any);
    Template::read(origin, &text.value, path).map_err(|parameter| {
        let name = quoted(&route.name.value);
        let diagnostic = Diagnostic::error(
            Code::UnknownParameter,
            format!("`{key}` of route {name} names `{parameter}`, which its path does not have"),
        )
        .at(&text.span, format!("no `{parameter}`"))
        .help(has_so(path, &parameter));
        Box::new(match route.path.at() {
            Some(path) => diagnostic.and(&path.span, "its path"),
            None => diagnostic,
        })
    })
}

/// The parameter that is there under this name, or all that are.
fn has_so(path: &PathPattern, parameter: &str) -> String {
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
