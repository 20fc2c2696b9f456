//! Variables that contain secrets, recognised by their names, by their values, or by one place of their use.

use super::{FilledText, VariableUse, Variables};
use crate::config::input::Source;
use crate::config::secrets::{SecretLocation, redaction};
use std::collections::HashSet;
use toml::Spanned;
use toml::de::DeValue;

/// Keys whose values are paths: a path leads to a secret but is not secret.
const PATHS: [&str; 8] = ["file", "keys", "jwks", "ca", "cert", "key", "crl", "client"];

impl Variables {
    /// Notes the variables at the places of secrets in `value`; the variables have not been filled in yet.
    pub(in crate::config::document) fn learn(
        &mut self,
        source: &Source,
        value: &Spanned<DeValue<'_>>,
    ) {
        match value.get_ref() {
            DeValue::String(text) if text.contains("${") => {
                let span = value.span();
                let written = source.written(&span);
                let shown = source.shown().get(span).unwrap_or_default();
                if written == shown {
                    return;
                }
                // A text with escapes is secret as a whole.
                let start = written.find(text.as_ref());
                for (at, mark) in text.match_indices("${") {
                    let here = start.and_then(|start| shown.get(start + at..));
                    if here.is_none_or(|here| !here.starts_with(mark)) {
                        self.named.insert(name(&text[at + mark.len()..]).to_owned());
                    }
                }
            }
            DeValue::Array(items) => items.iter().for_each(|item| self.learn(source, item)),
            DeValue::Table(table) => {
                if let Some(SecretLocation::Env(name)) = SecretLocation::of(table) {
                    self.named.insert(name);
                }
                let values = table.values();
                values.for_each(|inner| self.learn(source, inner));
            }
            _ => {}
        }
    }

    /// The values that must not be shown. The variable's name does not make a path or a number a secret.
    pub(in crate::config) fn secrets(&self) -> Vec<String> {
        let filled = self.filled.iter();
        let filled = filled.filter(|filled| !self.no_secrets.contains(&filled.span.start));
        let used = filled.flat_map(|filled| &filled.used);
        let given: HashSet<&str> = used
            .filter(|used| self.hides(used))
            .map(|used| used.gave.as_str())
            .collect();
        let parts = given.iter().filter_map(|gave| user_info(gave));
        let parts = parts.flat_map(|user| [Some(user), user.split_once(':').map(|(_, word)| word)]);
        let all = given.iter().copied().chain(parts.flatten());
        all.map(str::to_owned).collect()
    }

    /// Must the value of this variable be hidden? A default counts as secret only because of its own place, and not
    /// because of other places of the variable. An empty value reveals nothing.
    pub(super) fn hides(&self, used: &VariableUse) -> bool {
        if used.is_default {
            used.is_secret() && !used.gave.is_empty()
        } else {
            self.named.contains(&used.name) || used.is_secret()
        }
    }

    /// Must this text be hidden?
    pub(super) fn is_hidden(&self, filled: &FilledText) -> bool {
        filled.starred || filled.used.iter().any(|used| self.hides(used))
    }
}

impl VariableUse {
    fn is_secret(&self) -> bool {
        let is_address = self.name.to_ascii_lowercase().ends_with("url");
        redaction::is_secret_variable(&self.name)
            || user_info(&self.gave)
                .is_some_and(|user| self.gave.contains("://") || is_address && user.contains(':'))
    }
}

/// The credentials before the `@` of an address.
fn user_info(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.rsplit_once('@').map(|(user, _)| user)
}

/// The name with which `NAME}`, `NAME:-default}` or `NAME:?message}` begins.
fn name(inside: &str) -> &str {
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &inside[..end.unwrap_or(inside.len())]
}

/// Is the value under these keys a path?
pub(super) fn is_path(trail: &[&str]) -> bool {
    !is_named(trail) && trail.len() > 1 && trail.last().is_some_and(|key| PATHS.contains(key))
}

/// Is the last of these keys the name of a field or parameter, which may be any word?
pub(super) fn is_named(trail: &[&str]) -> bool {
    matches!(
        trail,
        ["routes", _, "headers" | "query", _]
            | [
                "routes",
                _,
                "request_headers" | "response_headers",
                "set" | "add",
                _
            ]
    )
}
