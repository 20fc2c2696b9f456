//! Secrets in files and variables, fetched before the tree is read. The secret replaces the table with `file` or `env`,
//! and messages show only the table's place.

use crate::config::input::{Reference, SideFiles};
use crate::config::report::{Code, Details as _};
use crate::config::secrets::{SecretLocation, redaction};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads the secrets of fields that routes set and add; the store's password is read later, with the other settings
/// that are read at start. Returns the secrets that were read.
pub(in crate::config::document) fn fetch(
    root: &mut DeTable<'_>,
    side_files: &mut SideFiles<'_>,
) -> Vec<String> {
    let mut fetched = Vec::new();
    for (_, route) in inner(root, "routes").into_iter().flatten() {
        let DeValue::Table(route) = route.get_mut() else {
            continue;
        };
        for side in ["request_headers", "response_headers"] {
            let Some(changes) = inner(route, side) else {
                continue;
            };
            for key in ["set", "add"] {
                for (name, value) in inner(changes, key).into_iter().flatten() {
                    let name = name.get_ref();
                    if side == "request_headers" {
                        warn_of_literal(name, value, side_files);
                    }
                    fetched.extend(line(name, value, side_files));
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

/// Every reader of the file could use this value to impersonate the client or server that it authenticates.
fn warn_of_literal(name: &str, value: &Spanned<DeValue<'_>>, side_files: &mut SideFiles<'_>) {
    let text = value.get_ref().as_str().unwrap_or_default();
    if text.is_empty() || !redaction::is_secret(name) {
        return;
    }
    let message = format!("the value of `{name}` is written into the file");
    let (file, env) = (
        format!("{{ file = \"/run/secrets/{name}\" }}"),
        "{ env = \"NAME\" }",
    );
    side_files
        .found
        .warning(Code::SecretInFile, message)
        .at(&value.span(), "every reader of the file knows it")
        .help(format!("write `{name} = {file}` or `{name} = {env}`"));
}

/// The value of the field `name`, if a file or a variable gives it.
fn line(
    name: &str,
    value: &mut Spanned<DeValue<'_>>,
    side_files: &mut SideFiles<'_>,
) -> Option<String> {
    let span = value.span();
    let DeValue::Table(table) = value.get_ref() else {
        return None;
    };
    let fetched = match SecretLocation::read_table(table, name, &span) {
        Ok(place) => {
            let at = Reference {
                span: &span,
                failure: &format!("no `{name}` in {place}"),
                label: "its value should be there",
            };
            side_files.secret(&place, at)
        }
        Err(wrong) => {
            side_files.found.push(*wrong);
            None
        }
    };
    // A placeholder replaces a value that could not be read, since the file is refused anyway.
    let text = fetched.clone().unwrap_or_else(|| "-".to_owned());
    *value.get_mut() = DeValue::String(Cow::Owned(text));
    fetched
}
