//! `[store]` as written → the settings of its connections: secrets and certificates are read from their places.

use crate::config::document::{Document, SecretSource, Setting, StoreTls};
use crate::config::input::side_files::{Reference, SideFiles};
use crate::config::input::source::At;
use crate::config::report::diagnostic::{Code, Details as _};
use crate::config::value::quoted;
use crate::store::{Backend, RedisEndpoint, Secret, StoreSettings};
use crate::tls::{ClientTls, Mistake, PemFiles};
use std::sync::Arc;

/// The largest file of certificates.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Puts the settings together.
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
            let written_tls = written.tls.get().unwrap_or(&none);
            target.tls = tls(written_tls, written.url.at(), beside).or(target.tls.take());
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
    let name = secret("user", written.at()?, beside)?;
    Some(Arc::from(name.expose()))
}

fn password(written: &Setting<SecretSource>, beside: &mut SideFiles<'_>) -> Option<Secret> {
    secret("password", written.at()?, beside)
}

fn secret(what: &str, kept: &At<SecretSource>, beside: &mut SideFiles<'_>) -> Option<Secret> {
    let place = match &kept.value {
        SecretSource::Literal(secret) => return Some(secret.clone()),
        SecretSource::Elsewhere(place) => place,
    };
    let at = Reference {
        span: &kept.span,
        failure: &format!("no {what} in {place}"),
        label: &format!("the place of the {what}"),
    };
    beside.secret(place, at).map(|secret| Secret::new(&secret))
}

/// The TLS of connections. None where its settings have a mistake, which has been noted.
fn tls(
    written: &StoreTls,
    url: Option<&At<Backend>>,
    beside: &mut SideFiles<'_>,
) -> Option<ClientTls> {
    let before = beside.found.len();
    let [ca, cert, key] =
        [&written.ca, &written.cert, &written.key].map(|file| pem(file.at(), beside));
    let made = ClientTls::new(PemFiles {
        ca: ca.as_deref(),
        identity: cert.as_deref().zip(key.as_deref()),
        server_name: written.server_name.get().map(String::as_str),
        insecure: false,
    });
    match made {
        Ok(tls) => (beside.found.len() == before).then_some(tls),
        Err(mistakes) => {
            for mistake in mistakes {
                note(mistake, written, url, beside);
            }
            None
        }
    }
}

fn pem(file: Option<&At<String>>, beside: &mut SideFiles<'_>) -> Option<Vec<u8>> {
    let file = file?;
    let at = Reference {
        span: &file.span,
        failure: &format!("cannot read {}", quoted(&file.value)),
        label: "a certificate or its key",
    };
    beside.bytes(&file.value, MOST_BYTES, at)
}

fn note(
    mistake: Mistake,
    written: &StoreTls,
    url: Option<&At<Backend>>,
    beside: &mut SideFiles<'_>,
) {
    let (file, why) = match mistake {
        Mistake::Ca(why) => (written.ca.at(), why),
        Mistake::Cert(why) => (written.cert.at(), why),
        Mistake::Key(why) => (written.key.at(), why),
        // The name was checked when it was read.
        Mistake::Name => return,
        // `ca` names the authorities, or cannot be read, which has been noted.
        Mistake::System(_) if !written.ca.is_absent() => return,
        Mistake::System(why) => {
            let message = format!("this system has no certificate authorities: {why}");
            let wrong = beside.found.error(Code::BadCertificate, message);
            let wrong = wrong.help(
                "name the authority of the store's certificate: `tls = { ca = \"redis-ca.pem\" }`",
            );
            if let Some(url) = url {
                wrong.at(&url.span, "an address with TLS");
            }
            return;
        }
    };
    if let Some(file) = file {
        let message = format!("{} is of no use for TLS: {why}", quoted(&file.value));
        beside
            .found
            .error(Code::BadCertificate, message)
            .at(&file.span, "in this file");
    }
}
