//! `[upstreams.NAME]` as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::server;
use super::fields::{Fields, Zero};
use super::{List, Setting};
use crate::upstream::Server;
use std::time::Duration;

/// `[upstreams.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct Upstream {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    pub(in crate::config) servers: List<Server>,
    pub(in crate::config) limits: List<String>,
    pub(in crate::config) connect_timeout: Setting<Duration>,
}

pub(super) fn upstream(name: At<String>, mut fields: Fields<'_>) -> Upstream {
    let servers = fields.texts("servers", server);
    let servers = not_empty(
        &mut fields,
        servers,
        "servers",
        "an upstream has at least one server",
    );
    // There is one way to choose so far; any other word is refused here.
    let _: Setting<()> = fields.choice(
        "balance",
        &[("round-robin", ())],
        &["least-requests", "random", "hash"],
    );
    Upstream {
        place: fields.place(),
        name,
        servers,
        limits: fields.texts("limits", |text| Ok(text.to_owned())),
        connect_timeout: fields.time("connect_timeout", Zero::Refused),
    }
}

/// An empty list here would mean nothing at all, or everything: neither is guessed.
pub(super) fn not_empty<T>(
    fields: &mut Fields<'_>,
    list: List<T>,
    key: &str,
    help: &str,
) -> List<T> {
    match list.at() {
        Some(at) if at.value.is_empty() => {
            let diagnostic = Diagnostic::error(
                Code::EmptyList,
                format!("`{key}` in `{}` is an empty list", fields.title()),
            )
            .at(&at.span, "at least one entry")
            .help(help);
            fields.note(diagnostic);
            Setting::Invalid
        }
        _ => list,
    }
}
