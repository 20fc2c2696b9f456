//! Compiles `[store]` into the settings of the store's connections: secrets and certificates are read from their
//! places.

use super::client_tls::WrittenTls;
use crate::config::document::{Document, SecretSource, Setting, StoreTls};
use crate::config::input::{At, Reference, SideFiles};
use crate::store::{Backend, RedisEndpoint, Secret, StoreSettings};
use std::sync::Arc;

/// Combines the settings.
pub(in crate::config) fn read_store(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> StoreSettings {
    let written = &document.store;
    let mut source = written.url();
    if let Backend::Redis(target) = &mut source {
        target.functions = written.functions();
        target.username = user(&written.username, side_files).or(target.username.take());
        target.password = password(&written.password, side_files).or(target.password.take());
        if let (
            Some(kept),
            RedisEndpoint::Sentinel {
                username,
                password: word,
                ..
            },
        ) = (written.sentinel.get(), &mut target.place)
        {
            *username = user(&kept.username, side_files);
            *word = password(&kept.password, side_files);
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
            target.tls = tls.read(side_files).or(target.tls.take());
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

fn user(written: &Setting<SecretSource>, side_files: &mut SideFiles<'_>) -> Option<Arc<str>> {
    let name = secret("user", "user", written.at()?, side_files)?;
    Some(Arc::from(name.expose()))
}

fn password(written: &Setting<SecretSource>, side_files: &mut SideFiles<'_>) -> Option<Secret> {
    secret("password", "password", written.at()?, side_files)
}

/// The secret from the file itself, or from the place that the file names. An absent secret is noted: "no `what` in the
/// file ..., the place of the `short`".
pub(super) fn secret(
    what: &str,
    short: &str,
    written: &At<SecretSource>,
    side_files: &mut SideFiles<'_>,
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
    side_files
        .secret(place, at)
        .map(|secret| Secret::new(&secret))
}
