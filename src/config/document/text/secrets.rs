//! Secrets in files and variables, fetched before the tree is read. The secret takes the place of the table with `file`
//! or `env`, and messages show only the table's place.

use crate::config::input::{Reference, SideFiles};
use crate::config::report::{Code, Details as _};
use crate::config::secrets::{SecretLocation, redaction};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Fetches the values of fields that routes set and add; the store's password is fetched with the other settings that are
/// read at the start. Returns what was fetched.
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

/// A client or server that this value authenticates can be imitated by every reader of the file.
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
        .at(&value.span(), "whoever reads the file knows it")
        .help(format!("write `{name} = {file}` or `{name} = {env}`"));
}

/// The value of the field `name`, where a file or a variable gives it.
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
                label: "its value is to be there",
            };
            side_files.secret(&place, at)
        }
        Err(wrong) => {
            side_files.found.push(*wrong);
            None
        }
    };
    // Any text may stand for a value that could not be fetched, since the file is refused.
    let text = fetched.clone().unwrap_or_else(|| "-".to_owned());
    *value.get_mut() = DeValue::String(Cow::Owned(text));
    fetched
}
