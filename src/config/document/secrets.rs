//! Secrets that stand elsewhere, fetched before the tree is read: what a table of `file` or `env` gives takes its place, and
//! only its place is ever shown.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::files::Files;
use super::super::redaction;
use super::super::secret::{SecretLocation, SecretTableError};
use super::super::source::{Source, Span};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Fetches the values of fields that routes set and add; the store's password is fetched with the other settings that are
/// read at the start. Returns what was fetched.
pub(super) fn fetch(
    source: &Source,
    root: &mut DeTable<'_>,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Vec<String> {
    let mut fetched = Vec::new();
    let Some(routes) = inner(root, "routes") else {
        return fetched;
    };
    for (_, route) in routes.iter_mut() {
        let DeValue::Table(route) = route.get_mut() else {
            continue;
        };
        for side in ["request_headers", "response_headers"] {
            let Some(changes) = inner(route, side) else {
                continue;
            };
            for key in ["set", "add"] {
                let Some(lines) = inner(changes, key) else {
                    continue;
                };
                for (name, value) in lines.iter_mut() {
                    let name = name.get_ref().as_ref();
                    if side == "request_headers" && is_literal(name, value.get_ref()) {
                        found.push(in_file(name, &value.span()));
                    }
                    fetched.extend(line(source, name, value, files, found));
                }
            }
        }
    }
    fetched
}

fn inner<'t, 'a>(table: &'t mut DeTable<'a>, name: &str) -> Option<&'t mut DeTable<'a>> {
    match table.get_mut(name)?.get_mut() {
        DeValue::Table(inner) => Some(inner),
        _ => None,
    }
}

fn is_literal(name: &str, value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::String(text) if !text.is_empty()) && redaction::is_secret(name)
}

/// A client or server that this value authenticates can be imitated by every reader of the file.
fn in_file(name: &str, span: &Span) -> Diagnostic {
    Diagnostic::warning(
        Code::SecretInFile,
        format!("the value of `{name}` is written into the file"),
    )
    .at(span, "whoever reads the file knows it")
    .help(format!(
        "write `{name} = {{ file = \"/run/secrets/{name}\" }}` or `{name} = {{ env = \"NAME\" }}`"
    ))
}

fn line(
    source: &Source,
    name: &str,
    value: &mut Spanned<DeValue<'_>>,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Option<String> {
    let span = value.span();
    let DeValue::Table(table) = value.get_ref() else {
        return None;
    };
    let fetched = match SecretLocation::of(table) {
        Ok(place) => place.read(source, span.start, files).map_err(|error| {
            let unreadable = || {
                Diagnostic::error(Code::Unreadable, format!("no `{name}` in {place}: {error}"))
                    .at(&span, "its value is to be there")
            };
            let refused = place.refused(source, &span);
            refused.unwrap_or_else(unreadable)
        }),
        Err(slip) => Err(mistake(slip, name, &span)),
    };
    // What stands for a value that could not be fetched is as good as any: the file is not taken.
    let fetched = fetched.map_err(|wrong| found.push(wrong)).ok();
    let text = fetched.clone().unwrap_or_else(|| "-".to_owned());
    *value.get_mut() = DeValue::String(Cow::Owned(text));
    fetched
}

/// A table that names no place for the secret called `name`.
pub(super) fn mistake(slip: SecretTableError, name: &str, whole: &Span) -> Diagnostic {
    const WRITE: &str = "write `{ file = \"...\" }` or `{ env = \"...\" }`";
    match slip {
        SecretTableError::NotOne => {
            Diagnostic::error(Code::WrongType, format!("`{name}` is in one place"))
                .at(whole, "`file` or `env`, one of them")
                .help(WRITE)
        }
        SecretTableError::NoText(key, span) => {
            Diagnostic::error(Code::WrongType, format!("`{key}` of `{name}` takes a text"))
                .at(&span, "")
        }
        SecretTableError::Unknown(key, span) => {
            Diagnostic::error(Code::UnknownKey, format!("unknown key `{key}` in `{name}`"))
                .at(&span, "")
                .help(WRITE)
        }
    }
}
