//! What has changed about how the gateway's own answers look.

use super::{Outline, to};
use crate::snapshot::errors::ErrorBody;

/// Which keys have changed, and how. A limit that has come or gone says so itself.
pub(super) fn bodies(old: &Outline, new: &Outline) -> Vec<(String, String)> {
    let (a, b) = (&old.errors, &new.errors);
    let everywhere = difference(Some(&a.everywhere), Some(&b.everywhere));
    let mut all: Vec<_> = everywhere
        .map(|what| ("response.body".to_owned(), what))
        .into_iter()
        .collect();
    let has = |outline: &Outline, name: &str| outline.limits.iter().any(|one| *one.name == *name);
    let mut before = None;
    for limit in &new.limits {
        let name = &*limit.name;
        // Rates of one limit stand side by side.
        if before.replace(name) == Some(name) || !has(old, name) {
            continue;
        }
        if let Some(what) = difference(a.of_limits.get(name), b.of_limits.get(name)) {
            all.push((format!("limits.{name}.body"), what));
        }
    }
    all
}

fn difference(old: Option<&ErrorBody>, new: Option<&ErrorBody>) -> Option<String> {
    let (a, b) = (look(old), look(new));
    match a == b {
        _ if old == new => None,
        true => Some("the file has changed".to_owned()),
        false => Some(to(&a, &b)),
    }
}

fn look(body: Option<&ErrorBody>) -> &'static str {
    match body {
        None => "as in [response]",
        Some(ErrorBody::Problem) => "problem+json",
        Some(ErrorBody::Text) => "text",
        Some(ErrorBody::Html) => "html",
        Some(ErrorBody::ByAccept) => "accept",
        Some(ErrorBody::File(_)) => "a file",
    }
}
