//! `[store]`: settings that contradict the address, and secrets in the file.

pub(super) mod redis;

use crate::config::document::{Document, SecretSource, Setting, StoreTls};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::store::{Backend, RedisEndpoint, RedisTarget};

pub(super) fn store(document: &Document, found: &mut Findings) {
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
        ("users", written.username.span(), user_in_url),
        ("passwords", written.password.span(), in_url),
    ] {
        if let (Some(key), Some(url)) = (key, url) {
            found
                .conflict(format!("the store has two {what}"))
                .at(key, "one is here")
                .and(url, "the other is in the address")
                .help("take it out of the address");
        }
    }
    match target {
        Some((target, url)) => {
            if in_url.is_none() {
                let named = written.username.span().or(user_in_url);
                without_password("[store]", named, &written.password, found);
            }
            check_redis(document, target, url, found);
        }
        None if !written.url.is_bad() => check_memory(document, found),
        None => {}
    }
    if let Some(tls) = written.tls.get() {
        report_unpaired(tls, found);
    }
    let sentinel = written.sentinel.get();
    let for_sentinel = sentinel.and_then(|sentinel| literal(&sentinel.password));
    let password = literal(&written.password).or(in_url);
    for span in password.into_iter().chain(for_sentinel) {
        found
            .warning(Code::SecretInFile, "a password is written into the file")
            .at(span, "every reader of the file knows it")
            .help("write `password = { file = \"/run/secrets/redis\" }` or `password = { env = \"REDIS_PASSWORD\" }`");
    }
}

/// Notes a user without a password.
fn without_password(
    table: &str,
    named: Option<&Span>,
    password: &Setting<SecretSource>,
    found: &mut Findings,
) {
    if let Some(span) = named.filter(|_| password.is_absent()) {
        let message = format!("`{table}` names a user, and no `password`");
        found
            .error(Code::MissingKey, message)
            .at(span, "a name without a password cannot log in")
            .help("add `password = { file = \"/run/secrets/redis\" }`, or `password = \"\"` for a user that has none");
    }
}

/// The place of a password that is written in the file itself.
fn literal(password: &Setting<SecretSource>) -> Option<&Span> {
    let is_literal = matches!(password.get(), Some(SecretSource::Literal(_)));
    password.span().filter(|_| is_literal)
}

/// Notes settings that only a Redis store has.
fn check_memory(document: &Document, found: &mut Findings) {
    let written = &document.store;
    let functions = written.functions.at().filter(|at| at.value);
    for (what, pronoun, span) in [
        ("a user", "it", written.username.span()),
        ("a password", "it", written.password.span()),
        ("TLS", "it", written.tls.span()),
        ("sentinels", "them", written.sentinel.span()),
        ("functions", "them", functions.map(|at| &at.span)),
    ] {
        if let Some(span) = span {
            let message = format!("the store has {what}, but no Redis to give {pronoun} to");
            found
                .conflict(message)
                .at(span, "")
                .help("write the `url` of the Redis, as `url = \"redis://host:6379/0\"`");
        }
    }
}

/// Notes settings that this kind of Redis does not have.
fn check_redis(document: &Document, target: &RedisTarget, url: &Span, found: &mut Findings) {
    let written = &document.store;
    if let Some(tls) = written.tls.span().filter(|_| target.tls.is_none()) {
        let (why, help) = match &target.place {
            RedisEndpoint::Unix(_) => (
                "a socket of this machine is not encrypted",
                "leave `tls` out",
            ),
            _ => (
                "an address without TLS",
                "write `rediss` in place of `redis` in the address, or leave `tls` out",
            ),
        };
        found
            .conflict("the store has `tls`, but its address is without TLS")
            .at(tls, "")
            .and(url, why)
            .help(help);
    }
    if let Some(sentinel) = written.sentinel.get() {
        let user = sentinel.username.span();
        without_password("[store.sentinel]", user, &sentinel.password, found);
    }
    let by_sentinels = matches!(target.place, RedisEndpoint::Sentinel { .. });
    if let Some(sentinel) = written.sentinel.span().filter(|_| !by_sentinels) {
        found
            .conflict("the store has `sentinel`, but its address names no sentinels")
            .at(sentinel, "settings for sentinels")
            .and(url, "the address")
            .help("write `url = \"redis+sentinel://h1,h2,h3/NAME/0\"`, or leave `sentinel` out");
    }
}

/// Notes a certificate without its key, or a key without its certificate.
fn report_unpaired(tls: &StoreTls, found: &mut Findings) {
    let (there, missing, example) = match (tls.cert.span(), tls.key.span()) {
        (Some(cert), None) if !tls.key.is_bad() => (cert, "key", "gateway.key"),
        (None, Some(key)) if !tls.cert.is_bad() => (key, "cert", "gateway.pem"),
        _ => return,
    };
    let message = format!("`[store.tls]` does not say `{missing}`");
    found
        .error(Code::MissingKey, message)
        .at(there, "a certificate and its key go together")
        .help(format!("add `{missing} = \"{example}\"`"));
}
