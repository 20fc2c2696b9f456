//! Compiles `[store]` into the settings of the store's connections: secrets and certificates are read from their
//! places.

use super::client_tls::WrittenTls;
use crate::config::document::{Document, SecretSource, Setting, StoreTls};
use crate::config::input::{At, Reference, SideFiles};
use crate::store::{Backend, RedisEndpoint, Secret, StoreSettings};
use std::sync::Arc;

/// Combines the settings.
pub(in crate::config) fn read(document: &Document, beside: &mut SideFiles<'_>) -> StoreSettings {
    let written = &document.store;
    let mut source = written.url();
    if let Backend::Redis(target) = &mut source {
        target.functions = written.functions();
        target.username = user(&written.username, beside).or(target.username.take());
        target.password = password(&written.password, beside).or(target.password.take());
        if let (
            Some(kept),
            RedisEndpoint::Sentinel {
                username,
                password: word,
                ..
            },
        ) = (written.sentinel.get(), &mut target.place)
        {
            *username = user(&kept.username, beside);
            *word = password(&kept.password, beside);
        }
        if target.tls.is_some() {
            let none = StoreTls::default();
            let tls = written.tls.get().unwrap_or(&none);
            let tls = WrittenTls {
                ca: &tls.ca,
                cert: &tls.cert,
                key: &tls.key,
                server_name: tls.server_name.get().map(String::as_str),
                insecure: false,
                url: written.url.span().map(|url| (url, "an address with TLS")),
                name_authority: "name the authority of the store's certificate: `tls = { ca = \"redis-ca.pem\" }`",
            };
            target.tls = tls.read(beside).or(target.tls.take());
        }
    }
    StoreSettings {
        source,
        timeout: written.timeout(),
        on_down: written.on_down(),
        prefix: written.prefix().into(),
        max_keys: written.max_keys() as usize,
    }
}

fn user(written: &Setting<SecretSource>, beside: &mut SideFiles<'_>) -> Option<Arc<str>> {
    let name = secret("user", "user", written.at()?, beside)?;
    Some(Arc::from(name.expose()))
}

fn password(written: &Setting<SecretSource>, beside: &mut SideFiles<'_>) -> Option<Secret> {
    secret("password", "password", written.at()?, beside)
}

/// The secret from the file itself, or from the place that the file names. An absent secret is noted: "no `what` in the
/// file ..., the place of the `short`".
pub(super) fn secret(
    what: &str,
    short: &str,
    written: &At<SecretSource>,
    beside: &mut SideFiles<'_>,
) -> Option<Secret> {
    let place = match &written.value {
        SecretSource::Literal(secret) => return Some(secret.clone()),
        SecretSource::Elsewhere(place) => place,
    };
    let at = Reference {
        span: &written.span,
        failure: &format!("no {what} in {place}"),
        label: &format!("the place of the {short}"),
    };
    beside.secret(place, at).map(|secret| Secret::new(&secret))
}
