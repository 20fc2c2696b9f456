//! `[jwt]` as written. Keys are only pointed at here; [`super::super::jwt`] fetches them.

use super::super::source::{At, Span};
use super::super::value::{ValueError, field};
use super::super::vocabulary::JWT_KEY;
use super::fields::{Fields, Zero};
use super::{List, Setting};
use http::HeaderName;
use jsonwebtoken::Algorithm;
use std::time::Duration;
use toml::de::DeValue;

/// The algorithms that tokens may be signed with.
pub(in crate::config) const ALGORITHMS: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

/// A file with keys.
#[derive(Debug, Clone)]
pub(in crate::config) struct KeyFile {
    pub(in crate::config) file: At<String>,
    /// What tokens call them, if they do.
    pub(in crate::config) kid: Option<String>,
}

/// `[jwt]`.
#[derive(Debug)]
pub(in crate::config) struct Jwt {
    pub(in crate::config) place: Span,
    pub(in crate::config) keys: List<KeyFile>,
    pub(in crate::config) jwks: List<String>,
    pub(in crate::config) algorithms: List<Algorithm>,
    pub(in crate::config) issuer: List<String>,
    pub(in crate::config) audience: List<String>,
    pub(in crate::config) leeway: Setting<Duration>,
    pub(in crate::config) require_exp: Setting<bool>,
    pub(in crate::config) header: Setting<HeaderName>,
}

pub(super) fn read(mut fields: Fields<'_>) -> Jwt {
    let text = |text: &str| Ok(text.to_owned());
    Jwt {
        place: fields.place(),
        keys: key_files(&mut fields),
        jwks: fields.texts("jwks", text),
        algorithms: fields.texts("algorithms", algorithm),
        issuer: fields.texts("issuer", text),
        audience: fields.texts("audience", text),
        leeway: fields.time("leeway", Zero::Allowed),
        require_exp: fields.flag("require_exp"),
        header: fields.text("header", field),
    }
}

/// A file, a table of a file and the id of its keys, or a list of such.
fn key_files(fields: &mut Fields<'_>) -> List<KeyFile> {
    let Some((value, whole)) = fields.value("keys") else {
        return Setting::Absent;
    };
    let items: Vec<(&DeValue<'_>, Span)> = match value {
        DeValue::Array(items) => items
            .iter()
            .map(|item| (item.get_ref(), item.span()))
            .collect(),
        single => vec![(single, whole.clone())],
    };
    let (mut files, many) = (Vec::with_capacity(items.len()), items.len());
    for (item, span) in items {
        let (file, kid) = match item {
            DeValue::String(text) => (
                Setting::Valid(At::new(text.clone().into_owned(), span.clone())),
                Setting::Absent,
            ),
            DeValue::Table(table) => {
                fields.inner(&JWT_KEY, "jwt.keys", (table, span.clone()), |mut inner| {
                    let text = |text: &str| Ok(text.to_owned());
                    (inner.text("file", text), inner.text("kid", text))
                })
            }
            other => (fields.wrong_type("keys", other, &span), Setting::Absent),
        };
        if let (Setting::Valid(file), false) = (file, kid.is_bad()) {
            let kid = kid.get().cloned();
            files.push(At::new(KeyFile { file, kid }, span));
        }
    }
    let files_read = files.len() == many;
    let files = At::new(files, whole);
    match files_read {
        true => Setting::Valid(files),
        false => Setting::Partial(files),
    }
}

fn algorithm(text: &str) -> Result<Algorithm, ValueError> {
    let known = ALGORITHMS.contains(&text).then(|| text.parse().ok());
    known
        .flatten()
        .ok_or_else(|| ValueError::choice("algorithms", text, ALGORITHMS))
}
