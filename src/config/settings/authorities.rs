//! `[acme.NAME]` as written → authorities that are ready to be asked: their files and secrets are read from their places.

use crate::acme::{Authority, ChallengeKind, ExternalAccount, SealingKey, Storage};
use crate::config::document::{AcmeTable, Document, IN_STORE, SecretSource, Setting};
use crate::config::input::side_files::{Reference, SideFiles};
use crate::config::input::source::At;
use crate::config::report::diagnostic::{Code, Details as _};
use crate::config::secrets::masking::{Numbering, query_of};
use crate::config::value::quoted;
use crate::store::Secret;
use crate::tls::{ClientTls, Mistake, PemFiles};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::sync::Arc;

/// The largest file of certificates.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// The authorities of a file, without those that have a mistake.
#[derive(Default)]
pub(in crate::config) struct Authorities {
    by_name: HashMap<String, Arc<Authority>>,
    /// Keys of external accounts and secrets of storage, as they are written.
    pub(in crate::config) secrets: Vec<String>,
}

impl Authorities {
    /// The authority of this name.
    pub(in crate::config) fn named(&self, name: &str) -> Option<Arc<Authority>> {
        self.by_name.get(name).cloned()
    }
}

/// Reads what every authority needs.
pub(in crate::config) fn read(document: &Document, beside: &mut SideFiles<'_>) -> Authorities {
    let mut all = Authorities::default();
    for table in &document.authorities {
        if let Some(authority) = authority(document, table, &mut all.secrets, beside) {
            let name = table.name.value.clone();
            all.by_name.insert(name, Arc::new(authority));
        }
    }
    all
}

fn authority(
    document: &Document,
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    beside: &mut SideFiles<'_>,
) -> Option<Authority> {
    let tls = believed(&table.ca, "the authority of the directory's server", beside);
    let external = match table.eab.get() {
        Some(_) => Some(external(table, secrets, beside)?),
        None => None,
    };
    let storage = storage(table, secrets, beside);
    let is_bad = table.secret.is_bad()
        || table.directory.is_bad()
        || table.challenge.is_bad()
        || table.eab.is_bad();
    if is_bad {
        return None;
    }
    let directory = table.directory();
    secrets.extend(query_of(&directory));
    Some(Authority {
        name: table.name.value.as_str().into(),
        directory,
        tls: tls?,
        contact: table.contact.get().cloned(),
        storage: storage?,
        challenges: challenges(document, table),
        profile: table.profile.get().cloned(),
        external,
    })
}

/// The kinds of challenges, the preferred one first. Where none are written, it is one whose port has a listener.
fn challenges(document: &Document, table: &AcmeTable) -> Vec<ChallengeKind> {
    let kinds = table.challenge().into_iter().map(|at| at.value);
    let mut kinds: Vec<ChallengeKind> = kinds.collect();
    if table.challenge.is_absent() {
        kinds.sort_by_key(|kind| !has_listener(document, *kind));
    }
    kinds
}

/// Is there a listener where an authority looks by this kind of challenge, as far as the file tells?
pub(in crate::config) fn has_listener(document: &Document, kind: ChallengeKind) -> bool {
    let (port, has_tls) = match kind {
        ChallengeKind::Http01 => (80, false),
        ChallengeKind::TlsAlpn01 => (443, true),
    };
    document.server.listen.entries().iter().any(|entry| {
        let address = entry.value.listens_on();
        let address = address.and_then(|at| at.value.socket_address());
        // A socket that another program opened may lead anywhere.
        let may_be = address.is_none_or(|address| address.port() == port);
        may_be && entry.value.tls.is_absent() != has_tls
    })
}

/// The place of the account and the certificates. Nothing where it has a mistake; what only a secret lacks is noted by
/// [`crate::config::validate`].
fn storage(
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    beside: &mut SideFiles<'_>,
) -> Option<Storage> {
    let written = table.storage.at()?;
    let key = sealing_key(table, secrets, beside);
    if written.value == IN_STORE {
        return key.map(Storage::Store);
    }
    let path = beside.source.beside(written.span.start, &written.value);
    Some(Storage::Folder(path))
}

/// The key that seals what is kept in the store.
fn sealing_key(
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    beside: &mut SideFiles<'_>,
) -> Option<SealingKey> {
    let written = table.secret.at()?;
    let text = match &written.value {
        SecretSource::Literal(secret) => secret.clone(),
        SecretSource::Elsewhere(place) => {
            let at = Reference {
                span: &written.span,
                failure: &format!("no secret in {place}"),
                label: "the place of the secret",
            };
            Secret::new(&beside.secret(place, at)?)
        }
    };
    let text = text.expose().trim();
    secrets.push(text.to_owned());
    // A file that `--print` has shown is read all the same.
    let is_hidden = Numbering::is_stars(text);
    let hidden = || SealingKey::read(&"0".repeat(64)).filter(|_| is_hidden);
    let key = SealingKey::read(text).or_else(hidden);
    if key.is_none() {
        beside
            .found
            .error(
                Code::AcmeNeedsSecret,
                format!("the secret of {table} is not one of 64 hexadecimal digits"),
            )
            .at(
                &written.span,
                "it seals keys, so that it must be as long and as random as they are",
            )
            .help("make one with `openssl rand -hex 32`, and give it to every gateway");
    }
    key
}

fn external(
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    beside: &mut SideFiles<'_>,
) -> Option<ExternalAccount> {
    let written = table.eab.get()?;
    let (id, key) = (written.id.get()?, written.key.at()?);
    let text = match &key.value {
        SecretSource::Literal(secret) => secret.clone(),
        SecretSource::Elsewhere(place) => {
            let at = Reference {
                span: &key.span,
                failure: &format!("no key of the external account in {place}"),
                label: "the place of the key",
            };
            Secret::new(&beside.secret(place, at)?)
        }
    };
    secrets.push(text.expose().trim().to_owned());
    // A file that `--print` has shown is read all the same.
    let is_hidden = Numbering::is_stars(text.expose());
    let bytes = base64url(text.expose().trim()).or(is_hidden.then(Vec::new));
    let Some(bytes) = bytes else {
        beside
            .found
            .error(
                Code::BadUrl,
                "the key of the external account is not written in base64url",
            )
            .at(&key.span, "letters, digits, `-` and `_` belong there")
            .help("copy the key as the authority gives it out");
        return None;
    };
    Some(ExternalAccount {
        id: id.clone(),
        key: bytes,
    })
}

/// What a server must show that the gateway itself asks: a certificate of an authority in the file `ca`, or else of one of the
/// system's. `label` says whose authorities they are.
pub(in crate::config) fn believed(
    ca: &Setting<String>,
    label: &str,
    beside: &mut SideFiles<'_>,
) -> Option<ClientTls> {
    let Some(ca) = ca.at() else {
        // The system's authorities are read when a connection is made: a check needs none.
        return (!ca.is_bad()).then(ClientTls::of_system);
    };
    let at = Reference {
        span: &ca.span,
        failure: &format!("cannot read {}", quoted(&ca.value)),
        label,
    };
    let pem = beside.bytes(&ca.value, MOST_BYTES, at)?;
    let made = ClientTls::new(PemFiles {
        ca: Some(&pem),
        ..PemFiles::default()
    });
    made.map_err(|mistakes| note(&mistakes, ca, beside)).ok()
}

fn note(mistakes: &[Mistake], ca: &At<String>, beside: &mut SideFiles<'_>) {
    let why = mistakes.iter().find_map(|mistake| match mistake {
        Mistake::Ca(why) => Some(why.as_str()),
        _ => None,
    });
    let why = why.unwrap_or("it has no usable certificate");
    let message = format!("{} is of no use for TLS: {why}", quoted(&ca.value));
    beside
        .found
        .error(Code::BadCertificate, message)
        .at(&ca.span, "in this file");
}

/// The bytes of a text in base64url (RFC 4648, section 5), with or without padding.
fn base64url(text: &str) -> Option<Vec<u8>> {
    let bytes = BASE64_URL_SAFE_NO_PAD
        .decode(text.trim_end_matches('='))
        .ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_read_with_and_without_padding() {
        assert_eq!(base64url("aGk").unwrap(), b"hi");
        assert_eq!(base64url("aGk=").unwrap(), b"hi");
        assert_eq!(base64url("-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        for wrong in ["", "a b", "a.b", "a+b="] {
            assert_eq!(base64url(wrong), None, "{wrong}");
        }
    }
}
