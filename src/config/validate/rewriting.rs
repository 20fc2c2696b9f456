//! What a route makes of the path: that it can be made of what the path has.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Document, Given, Route};
use super::super::source::At;
use super::super::value::{literal_path, quoted};
use super::names::has_instead;
use super::routes::any_path;
use crate::route::{PathPattern, Segment, Template};

/// Notes what cannot be made.
pub(super) fn check(document: &Document, found: &mut Vec<Diagnostic>) {
    for route in &document.routes {
        if let (Given::Yes(one), Given::Yes(other)) = (&route.strip_prefix, &route.rewrite) {
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
        if !route.path.is_bad() {
            found.extend(
                [stripped(route), rewritten(route)]
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
    if path.segments.starts_with(&prefix.value.segments) {
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

/// What the key says in `text`, behind `origin`.
pub(super) fn made(
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
