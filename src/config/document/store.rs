//! `[store]` as written. Secrets are only pointed at here; [`super::super::store`] fetches them.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::secret::SecretLocation;
use super::super::source::At;
use super::super::value::{server_name, store};
use super::super::vocabulary::{STORE_SENTINEL, STORE_TLS, Table};
use super::Setting;
use super::fields::{Fields, Zero};
use super::secrets;
use crate::store::{Backend, OnDown, Secret};
use std::time::Duration;
use toml::de::DeValue;

/// `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Store {
    pub(in crate::config) url: Setting<Backend>,
    pub(in crate::config) username: Setting<SecretSource>,
    pub(in crate::config) password: Setting<SecretSource>,
    pub(in crate::config) tls: Setting<StoreTls>,
    pub(in crate::config) sentinel: Setting<Sentinel>,
    pub(in crate::config) functions: Setting<bool>,
    pub(in crate::config) timeout: Setting<Duration>,
    pub(in crate::config) on_down: Setting<OnDown>,
    pub(in crate::config) prefix: Setting<String>,
    pub(in crate::config) max_keys: Setting<u32>,
    pub(in crate::config) together: Setting<bool>,
}

/// `tls` of `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct StoreTls {
    pub(in crate::config) ca: Setting<String>,
    pub(in crate::config) cert: Setting<String>,
    pub(in crate::config) key: Setting<String>,
    pub(in crate::config) server_name: Setting<String>,
}

/// `sentinel` of `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Sentinel {
    pub(in crate::config) username: Setting<SecretSource>,
    pub(in crate::config) password: Setting<SecretSource>,
}

/// What need not stand in the file, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum SecretSource {
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
pub(super) fn on_down(fields: &mut Fields<'_>) -> Setting<OnDown> {
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
) -> Setting<T> {
    let Some((value, whole)) = fields.value(key) else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
    let inner = fields.inner(vocabulary, vocabulary.name, (table, whole.clone()), read);
    Setting::Valid(At::new(inner, whole))
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

fn kept(key: &'static str, fields: &mut Fields<'_>) -> Setting<SecretSource> {
    let Some((value, span)) = fields.value(key) else {
        return Setting::Absent;
    };
    let table = match value {
        DeValue::String(text) => {
            return Setting::Valid(At::new(SecretSource::Literal(Secret::new(text)), span));
        }
        DeValue::Table(table) => table,
        other => return fields.wrong_type(key, other, &span),
    };
    match SecretLocation::of(table) {
        Ok(place) => Setting::Valid(At::new(SecretSource::Elsewhere(place), span)),
        Err(slip) => {
            fields.note(secrets::mistake(slip, key, &span));
            Setting::Invalid
        }
    }
}

/// The prefix stands in front of a `:` in every key.
fn prefix(fields: &mut Fields<'_>) -> Setting<String> {
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
            Setting::Invalid
        }
        _ => prefix,
    }
}
