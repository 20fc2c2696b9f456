//! `[store]` as written. Secrets are only pointed at here; [`super::super::boot`] fetches them.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::secret::Place;
use super::super::source::At;
use super::super::value::store;
use super::Given;
use super::fields::{Fields, Zero};
use super::secrets;
use crate::store::{OnDown, Secret, Source};
use std::time::Duration;
use toml::de::DeValue;

/// `[store]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Store {
    pub(in crate::config) url: Given<Source>,
    pub(in crate::config) password: Given<Password>,
    pub(in crate::config) timeout: Given<Duration>,
    pub(in crate::config) on_down: Given<OnDown>,
    pub(in crate::config) prefix: Given<String>,
    pub(in crate::config) max_keys: Given<u32>,
}

/// A password, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum Password {
    /// In the file itself.
    Literal(Secret),
    /// Somewhere else.
    Elsewhere(Place),
}

pub(super) fn read(mut fields: Fields<'_>) -> Store {
    Store {
        url: fields.text("url", store),
        password: password(&mut fields),
        timeout: fields.time("timeout", Zero::Refused),
        on_down: on_down(&mut fields),
        prefix: prefix(&mut fields),
        max_keys: fields.whole("max_keys"),
    }
}

/// What limits do while the store is away: all of them, or one.
pub(super) fn on_down(fields: &mut Fields<'_>) -> Given<OnDown> {
    let all = [OnDown::Local, OnDown::Open, OnDown::Closed];
    let choices = all.map(|on_down| (on_down.as_str(), on_down));
    fields.choice("on_down", &choices, &[])
}

fn password(fields: &mut Fields<'_>) -> Given<Password> {
    let Some((value, span)) = fields.value("password") else {
        return Given::No;
    };
    let table = match value {
        DeValue::String(text) => {
            return Given::Yes(At::new(Password::Literal(Secret::new(text)), span));
        }
        DeValue::Table(table) => table,
        other => return fields.wrong_type("password", other, &span),
    };
    match Place::of(table) {
        Ok(place) => Given::Yes(At::new(Password::Elsewhere(place), span)),
        Err(slip) => {
            fields.note(secrets::told(slip, "password", &span));
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
