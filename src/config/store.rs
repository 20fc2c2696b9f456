//! `[store]` as written → what connections to it are made of: secrets and certificates fetched from where the file says.

use super::diagnostic::{Code, Diagnostic};
use super::document::{Document, SecretSource, Sentinel, StoreTls};
use super::files::Files;
use super::source::{At, Source as Text};
use super::value::quoted;
use crate::store::{Backend, RedisEndpoint, RedisTarget, Secret, StoreSettings};
use crate::tls::{ClientTls, Mistake, PemFiles};
use std::sync::Arc;

/// More than every authority there is.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Puts the settings together; `files` has what was read for them.
pub(super) fn read(
    document: &Document,
    text: &Text,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> StoreSettings {
    let written = &document.store;
    let mut source = written.url.get().cloned().unwrap_or(Backend::Memory);
    let mut reader = SettingsReader { text, files, found };
    if let Backend::Redis(target) = &mut source {
        target.functions = written.functions();
        if let Some(name) = written.username.at() {
            let name = reader.secret("user", name);
            target.username = name.map(|name| Arc::from(name.expose()));
        }
        if let Some(password) = written.password.at() {
            target.password = reader.secret("password", password);
        }
        if let Some(sentinel) = written.sentinel.get() {
            reader.sentinel(sentinel, &mut target.place);
        }
        reader.tls(written.tls.get(), written.url.at(), target);
    }
    StoreSettings {
        source,
        timeout: written.timeout(),
        on_down: written.on_down(),
        prefix: written.prefix().into(),
        max_keys: written.max_keys() as usize,
    }
}

struct SettingsReader<'r> {
    text: &'r Text,
    files: &'r mut Files,
    found: &'r mut Vec<Diagnostic>,
}

impl SettingsReader<'_> {
    fn secret(&mut self, what: &str, kept: &At<SecretSource>) -> Option<Secret> {
        let place = match &kept.value {
            SecretSource::Literal(secret) => return Some(secret.clone()),
            SecretSource::Elsewhere(place) => place,
        };
        match place.read(self.text, kept.span.start, self.files) {
            Ok(secret) => Some(Secret::new(&secret)),
            Err(error) => {
                self.found.push(
                    Diagnostic::error(Code::Unreadable, format!("no {what} in {place}: {error}"))
                        .at(&kept.span, format!("the {what} is to be there")),
                );
                None
            }
        }
    }

    fn sentinel(&mut self, written: &Sentinel, place: &mut RedisEndpoint) {
        let RedisEndpoint::Sentinel {
            username, password, ..
        } = place
        else {
            return;
        };
        if let Some(name) = written.username.at() {
            let name = self.secret("user", name);
            *username = name.map(|name| Arc::from(name.expose()));
        }
        if let Some(kept) = written.password.at() {
            *password = self.secret("password", kept);
        }
    }

    /// How connections are encrypted, where the address says that they are.
    fn tls(
        &mut self,
        written: Option<&StoreTls>,
        url: Option<&At<Backend>>,
        target: &mut RedisTarget,
    ) {
        if target.tls.is_none() {
            return;
        }
        let none = StoreTls::default();
        let written = written.unwrap_or(&none);
        let before = self.found.len();
        let ca = self.file(written.ca.at());
        let cert = self.file(written.cert.at());
        let key = self.file(written.key.at());
        let identity = cert.as_deref().zip(key.as_deref());
        let server_name = written.server_name.get().map(String::as_str);
        let made = ClientTls::new(PemFiles {
            ca: ca.as_deref(),
            identity,
            server_name,
        });
        match made {
            Ok(tls) if self.found.len() == before => target.tls = Some(tls),
            Ok(_) => {}
            Err(mistakes) => {
                for mistake in mistakes {
                    self.mistaken(mistake, written, url);
                }
            }
        }
    }

    fn mistaken(&mut self, mistake: Mistake, written: &StoreTls, url: Option<&At<Backend>>) {
        let (file, why) = match mistake {
            Mistake::Ca(why) => (written.ca.at(), why),
            Mistake::Cert(why) => (written.cert.at(), why),
            Mistake::Key(why) => (written.key.at(), why),
            // It was looked at when it was read.
            Mistake::Name => return,
            // Nobody else was to be believed, or the file that says who cannot be read.
            Mistake::System(_) if !written.ca.is_absent() => return,
            Mistake::System(why) => {
                let wrong = Diagnostic::error(
                    Code::BadCertificate,
                    format!("no authorities whose certificates to believe: {why}"),
                )
                .help("name the authority of the store's certificate: `tls = { ca = \"redis-ca.pem\" }`");
                self.found.push(match url {
                    Some(url) => wrong.at(&url.span, "this is with TLS"),
                    None => wrong,
                });
                return;
            }
        };
        if let Some(file) = file {
            self.found.push(
                Diagnostic::error(
                    Code::BadCertificate,
                    format!("{} is of no use for TLS: {why}", quoted(&file.value)),
                )
                .at(&file.span, "in this file"),
            );
        }
    }

    fn file(&mut self, file: Option<&At<String>>) -> Option<Vec<u8>> {
        let file = file?;
        let path = self.text.beside(file.span.start, &file.value);
        match self.files.read(&path, MOST_BYTES) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.found.push(
                    Diagnostic::error(
                        Code::Unreadable,
                        format!("cannot read {}: {error}", quoted(&file.value)),
                    )
                    .at(&file.span, "a certificate or its key is to be there"),
                );
                None
            }
        }
    }
}
