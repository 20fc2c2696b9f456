//! `[store]` as written. Secrets are only pointed at here; [`super::super::store`] fetches them.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::secret::SecretLocation;
use super::super::source::At;
use super::super::value::{server_name, store};
use super::super::vocabulary::{STORE_SENTINEL, STORE_TLS, Table};
use super::Given;
use super::fields::{Fields, Zero};
use super::secrets;
use crate::store::{Backend, OnDown, Secret};
use std::time::Duration;
use toml::de::DeValue;

/// `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Store {
    pub(in crate::config) url: Given<Backend>,
    pub(in crate::config) username: Given<Kept>,
    pub(in crate::config) password: Given<Kept>,
    pub(in crate::config) tls: Given<StoreTls>,
    pub(in crate::config) sentinel: Given<Sentinel>,
    pub(in crate::config) functions: Given<bool>,
    pub(in crate::config) timeout: Given<Duration>,
    pub(in crate::config) on_down: Given<OnDown>,
    pub(in crate::config) prefix: Given<String>,
    pub(in crate::config) max_keys: Given<u32>,
    pub(in crate::config) together: Given<bool>,
}

/// `tls` of `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct StoreTls {
    pub(in crate::config) ca: Given<String>,
    pub(in crate::config) cert: Given<String>,
    pub(in crate::config) key: Given<String>,
    pub(in crate::config) server_name: Given<String>,
}

/// `sentinel` of `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Sentinel {
    pub(in crate::config) username: Given<Kept>,
    pub(in crate::config) password: Given<Kept>,
}

/// What need not stand in the file, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum Kept {
    /// In the file itself.
    Literal(Secret),
    /// Somewhere else.
    Elsewhere(SecretLocation),
}

pub(super) fn read(mut fields: Fields<'_>) -> Store {
    Store {
        url: fields.text("url", store),
        username: kept("username", &mut fields),
        password: kept("password", &mut fields),
        tls: inner("tls", &STORE_TLS, &mut fields, tls),
        sentinel: inner("sentinel", &STORE_SENTINEL, &mut fields, sentinel),
        functions: fields.flag("functions"),
        timeout: fields.time("timeout", Zero::Refused),
        on_down: on_down(&mut fields),
        prefix: prefix(&mut fields),
        max_keys: fields.whole("max_keys"),
        together: fields.flag("together"),
    }
}

/// What limits do while the store is away: all of them, or one.
pub(super) fn on_down(fields: &mut Fields<'_>) -> Given<OnDown> {
    let all = [OnDown::Local, OnDown::Open, OnDown::Closed];
    let choices = all.map(|on_down| (on_down.as_str(), on_down));
    fields.choice("on_down", &choices, &[])
}

/// A table inside `[store]`.
fn inner<T>(
    key: &'static str,
    vocabulary: &'static Table,
    fields: &mut Fields<'_>,
    read: impl FnOnce(Fields<'_>) -> T,
) -> Given<T> {
    let Some((value, whole)) = fields.value(key) else {
        return Given::No;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
    let inner = fields.inner(vocabulary, vocabulary.name, (table, whole.clone()), read);
    Given::Yes(At::new(inner, whole))
}

fn tls(mut fields: Fields<'_>) -> StoreTls {
    let path = |text: &str| Ok(text.to_owned());
    StoreTls {
        ca: fields.text("ca", path),
        cert: fields.text("cert", path),
        key: fields.text("key", path),
        server_name: fields.text("server_name", server_name),
    }
}

fn sentinel(mut fields: Fields<'_>) -> Sentinel {
    Sentinel {
        username: kept("username", &mut fields),
        password: kept("password", &mut fields),
    }
}

fn kept(key: &'static str, fields: &mut Fields<'_>) -> Given<Kept> {
    let Some((value, span)) = fields.value(key) else {
        return Given::No;
    };
    let table = match value {
        DeValue::String(text) => {
            return Given::Yes(At::new(Kept::Literal(Secret::new(text)), span));
        }
        DeValue::Table(table) => table,
        other => return fields.wrong_type(key, other, &span),
    };
    match SecretLocation::of(table) {
        Ok(place) => Given::Yes(At::new(Kept::Elsewhere(place), span)),
        Err(slip) => {
            fields.note(secrets::told(slip, key, &span));
            Given::Bad
        }
    }
}

/// The prefix stands in front of a `:` in every key.
fn prefix(fields: &mut Fields<'_>) -> Given<String> {
    let prefix = fields.text("prefix", |text| Ok(text.to_owned()));
    let good = |text: &str| {
        (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    match prefix.at() {
        Some(at) if !good(&at.value) => {
            fields.note(
                Diagnostic::error(
                    Code::BadName,
                    "this cannot stand in front of every Redis key",
                )
                .at(
                    &at.span,
                    "letters, digits, `_`, `-` and `.`, at most 64 of them",
                ),
            );
            Given::Bad
        }
        _ => prefix,
    }
}
