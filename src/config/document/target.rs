//! `[upstreams.NAME]` and `[routes.NAME]` as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{host, method, path, server};
use super::fields::{Fields, Zero};
use super::{Given, List};
use crate::route::{HostPattern, PathPattern};
use crate::upstream::Server;
use http::Method;
use std::time::Duration;

/// `[upstreams.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct Upstream {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    pub(in crate::config) servers: List<Server>,
    pub(in crate::config) limits: List<String>,
    pub(in crate::config) connect_timeout: Given<Duration>,
}

/// `[routes.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct Route {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    pub(in crate::config) host: List<HostPattern>,
    pub(in crate::config) path: Given<PathPattern>,
    pub(in crate::config) methods: List<Method>,
    pub(in crate::config) upstream: Given<String>,
    pub(in crate::config) limits: List<String>,
    pub(in crate::config) timeout: Given<Duration>,
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
    let _: Given<()> = fields.choice(
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

pub(super) fn route(name: At<String>, mut fields: Fields<'_>) -> Route {
    let host = fields.texts("host", host);
    let host = not_empty(&mut fields, host, "host", "leave it out for any host");
    let methods = fields.texts("methods", method);
    let methods = not_empty(
        &mut fields,
        methods,
        "methods",
        "leave it out for any method",
    );
    Route {
        place: fields.place(),
        name,
        host,
        path: fields.text("path", path),
        methods,
        upstream: fields.text("upstream", |text| Ok(text.to_owned())),
        limits: fields.texts("limits", |text| Ok(text.to_owned())),
        timeout: fields.time("timeout", Zero::Refused),
    }
}

/// An empty list here would mean nothing at all, or everything: neither is guessed.
fn not_empty<T>(fields: &mut Fields<'_>, list: List<T>, key: &str, help: &str) -> List<T> {
    match list.at() {
        Some(at) if at.value.is_empty() => {
            let diagnostic = Diagnostic::error(
                Code::EmptyList,
                format!("`{key}` in `{}` is an empty list", fields.title()),
            )
            .at(&at.span, "at least one entry")
            .help(help);
            fields.note(diagnostic);
            Given::Bad
        }
        _ => list,
    }
}
