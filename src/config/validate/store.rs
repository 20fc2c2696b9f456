//! `[store]` held against itself: what contradicts the address, and secrets in the file.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Document, SecretSource, StoreTls};
use super::super::source::{At, Span};
use crate::store::{Backend, RedisEndpoint, RedisTarget};
use std::time::Duration;

pub(super) fn store(document: &Document, found: &mut Vec<Diagnostic>) {
    let written = &document.store;
    let target = match written.url.at() {
        Some(At {
            value: Backend::Redis(target),
            span,
        }) => Some((target, span)),
        _ => None,
    };
    let in_url = target.and_then(|(target, span)| target.password.as_ref().map(|_| span));
    let user_in_url = target.and_then(|(target, span)| target.username.as_ref().map(|_| span));
    for (what, key, url) in [
        ("users", written.username.at(), user_in_url),
        ("passwords", written.password.at(), in_url),
    ] {
        if let (Some(key), Some(url)) = (key, url) {
            found.push(
                Diagnostic::error(Code::Conflict, format!("the store has two {what}"))
                    .at(&key.span, "one is here")
                    .and(url, "the other is in the address")
                    .help("take it out of the address"),
            );
        }
    }
    if target.is_some() {
        let named = written.username.at().map(|at| &at.span).or(user_in_url);
        let is_given = !written.password.is_absent() || in_url.is_some();
        without_password("[store]", named.filter(|_| !is_given), found);
        if let Some(sentinel) = written.sentinel.get() {
            let lonely = sentinel
                .username
                .at()
                .filter(|_| sentinel.password.is_absent());
            without_password("[store.sentinel]", lonely.map(|at| &at.span), found);
        }
    }
    if let Some(at) = written.timeout.at() {
        timeout(at, found);
    }
    match target {
        Some((target, url)) => beside_redis(document, target, url, found),
        None if !written.url.is_bad() => beside_memory(document, found),
        None => {}
    }
    if let Some(tls) = written.tls.get() {
        half_of_a_pair(tls, found);
    }
    let sentinel = written.sentinel.get();
    let for_sentinel = sentinel.and_then(|sentinel| literal(sentinel.password.at()));
    for span in [literal(written.password.at()).or(in_url), for_sentinel]
        .into_iter()
        .flatten()
    {
        found.push(
            Diagnostic::warning(Code::SecretInFile, "a password is written into the file")
                .at(span, "whoever reads the file knows it")
                .help("write `password = { file = \"/run/secrets/redis\" }` or `password = { env = \"REDIS_PASSWORD\" }`"),
        );
    }
}

/// A user without a password, who would have to be somebody else to log in.
fn without_password(table: &str, named: Option<&Span>, found: &mut Vec<Diagnostic>) {
    if let Some(span) = named {
        found.push(
            Diagnostic::error(
                Code::MissingKey,
                format!("`{table}` names a user, and no `password`"),
            )
            .at(span, "nobody logs in by a name alone")
            .help(
                "add `password = { file = \"/run/secrets/redis\" }`, or `password = \"\"` for a user that has none",
            ),
        );
    }
}

/// The longest that a decision may wait: more would be no deadline.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

fn timeout(at: &At<Duration>, found: &mut Vec<Diagnostic>) {
    let (bound, label) = match at.value {
        time if time < Duration::from_millis(1) => ("1ms", "must be at least 1ms"),
        time if time > LONGEST_TIMEOUT => ("60s", "must be 60s at most"),
        _ => return,
    };
    found.push(
        Diagnostic::error(Code::BadDuration, "`timeout` in `[store]` is out of range")
            .at(&at.span, label)
            .help(format!(
                "write `timeout = \"{bound}\"`; a request waits for that long where the store does not answer"
            )),
    );
}

/// A password that stands in the file itself.
fn literal(password: Option<&At<SecretSource>>) -> Option<&Span> {
    let in_file = password.filter(|at| matches!(at.value, SecretSource::Literal(_)));
    in_file.map(|at| &at.span)
}

/// What has a meaning for a Redis only.
fn beside_memory(document: &Document, found: &mut Vec<Diagnostic>) {
    let written = &document.store;
    let functions = written.functions.at().filter(|at| at.value);
    for (what, span) in [
        ("a user", written.username.at().map(|at| &at.span)),
        ("a password", written.password.at().map(|at| &at.span)),
        ("TLS", written.tls.at().map(|at| &at.span)),
        ("sentinels", written.sentinel.at().map(|at| &at.span)),
        ("functions", functions.map(|at| &at.span)),
    ] {
        if let Some(span) = span {
            found.push(
                Diagnostic::error(
                    Code::Conflict,
                    format!(
                        "the store has {what}, but no Redis to give {} to",
                        match what {
                            "sentinels" | "functions" => "them",
                            _ => "it",
                        }
                    ),
                )
                .at(span, "")
                .help("write the `url` of the Redis, as `url = \"redis://host:6379/0\"`"),
            );
        }
    }
}

/// What has no meaning for this Redis.
fn beside_redis(
    document: &Document,
    target: &RedisTarget,
    url: &Span,
    found: &mut Vec<Diagnostic>,
) {
    let written = &document.store;
    if let Some(tls) = written.tls.at().filter(|_| target.tls.is_none()) {
        let (why, help) = match &target.place {
            RedisEndpoint::Unix(_) => (
                "a socket of this machine is not encrypted",
                "leave `tls` out",
            ),
            _ => (
                "this address is without TLS",
                "write `rediss` in place of `redis` in the address, or leave `tls` out",
            ),
        };
        found.push(
            Diagnostic::error(Code::Conflict, "the store has `tls`, and no TLS")
                .at(&tls.span, "")
                .and(url, why)
                .help(help),
        );
    }
    let by_sentinels = matches!(target.place, RedisEndpoint::Sentinel { .. });
    if let Some(sentinel) = written.sentinel.at().filter(|_| !by_sentinels) {
        found.push(
            Diagnostic::error(Code::Conflict, "no sentinels are asked where the store is")
                .at(&sentinel.span, "nobody to tell this to")
                .and(url, "this is where it is")
                .help(
                    "write `url = \"redis+sentinel://h1,h2,h3/NAME/0\"`, or leave `sentinel` out",
                ),
        );
    }
}

/// A certificate without its key, or a key without its certificate.
fn half_of_a_pair(tls: &StoreTls, found: &mut Vec<Diagnostic>) {
    let (there, missing, example) = match (tls.cert.at(), tls.key.at()) {
        (Some(cert), None) if !tls.key.is_bad() => (cert, "key", "gateway.key"),
        (None, Some(key)) if !tls.cert.is_bad() => (key, "cert", "gateway.pem"),
        _ => return,
    };
    found.push(
        Diagnostic::error(
            Code::MissingKey,
            format!("`[store.tls]` does not say `{missing}`"),
        )
        .at(&there.span, "a certificate and its key go together")
        .help(format!("add `{missing} = \"{example}\"`")),
    );
}
