//! Compiles `[acme.NAME]` into authorities that can issue certificates: their files and secrets are read.

use super::client_tls::trusted_servers;
use super::store::secret;
use crate::acme::{Authority, ChallengeKind, ExternalAccount, SealingKey, Storage};
use crate::config::document::{AcmeTable, Document, IN_STORE};
use crate::config::input::SideFiles;
use crate::config::report::{Code, Details as _};
use crate::config::secrets::{Numbering, query_of};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::sync::Arc;

/// The authorities of a file, without those authorities that have a mistake.
#[derive(Default)]
pub(in crate::config) struct Authorities {
    by_name: HashMap<String, Arc<Authority>>,
    /// Keys of external accounts and secrets of storage, as written.
    pub(in crate::config) secrets: Vec<String>,
}

impl Authorities {
    /// The authority with this name.
    pub(in crate::config) fn named(&self, name: &str) -> Option<Arc<Authority>> {
        self.by_name.get(name).cloned()
    }
}

/// Reads the files and secrets of every authority.
pub(in crate::config) fn read_authorities(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> Authorities {
    let mut all = Authorities::default();
    for table in &document.authorities {
        if let Some(authority) = authority(document, table, &mut all.secrets, side_files) {
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
    side_files: &mut SideFiles<'_>,
) -> Option<Authority> {
    let tls = trusted_servers(
        &table.ca,
        "the authority of the directory's server",
        side_files,
    );
    let external = match table.eab.get() {
        Some(_) => Some(external(table, secrets, side_files)?),
        None => None,
    };
    let storage = storage(table, secrets, side_files);
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

/// The kinds of challenges, the preferred one first. The default is one kind whose port has a listener.
fn challenges(document: &Document, table: &AcmeTable) -> Vec<ChallengeKind> {
    let kinds = table.challenge().into_iter().map(|at| at.value);
    let mut kinds: Vec<ChallengeKind> = kinds.collect();
    if table.challenge.is_absent() {
        kinds.sort_by_key(|kind| !has_listener(document, *kind));
    }
    kinds
}

/// Does the file have a listener at the port where an authority checks this kind of challenge?
pub(in crate::config) fn has_listener(document: &Document, kind: ChallengeKind) -> bool {
    let (port, has_tls) = match kind {
        ChallengeKind::Http01 => (80, false),
        ChallengeKind::TlsAlpn01 => (443, true),
    };
    document.server.listen.entries().iter().any(|entry| {
        let address = entry.value.listens_on();
        let address = address.and_then(|at| at.value.socket_address());
        // A socket that another program opened may have any port.
        let may_be = address.is_none_or(|address| address.port() == port);
        may_be && entry.value.tls.is_absent() != has_tls
    })
}

/// The storage of the account and the certificates. `None` if the storage has a mistake; [`crate::config::validate`]
/// reports a missing secret.
fn storage(
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    side_files: &mut SideFiles<'_>,
) -> Option<Storage> {
    let written = table.storage.at()?;
    let key = sealing_key(table, secrets, side_files);
    if written.value == IN_STORE {
        return key.map(Storage::Store);
    }
    let path = side_files
        .source
        .resolve_path(written.span.start, &written.value);
    Some(Storage::Folder(path))
}

/// The key that encrypts values in the store.
fn sealing_key(
    table: &AcmeTable,
    secrets: &mut Vec<String>,
    side_files: &mut SideFiles<'_>,
) -> Option<SealingKey> {
    let written = table.secret.at()?;
    let text = secret("secret", "secret", written, side_files)?;
    let text = text.expose().trim();
    secrets.push(text.to_owned());
    // A file that `--print` has shown is accepted as well.
    let is_hidden = Numbering::is_stars(text);
    let hidden = || SealingKey::read(&"0".repeat(64)).filter(|_| is_hidden);
    let key = SealingKey::read(text).or_else(hidden);
    if key.is_none() {
        let message = format!("the secret of {table} is not one of 64 hexadecimal digits");
        side_files
            .found
            .error(Code::AcmeNeedsSecret, message)
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
    side_files: &mut SideFiles<'_>,
) -> Option<ExternalAccount> {
    let written = table.eab.get()?;
    let (id, key) = (written.id.get()?, written.key.at()?);
    let text = secret("key of the external account", "key", key, side_files)?;
    secrets.push(text.expose().trim().to_owned());
    // A file that `--print` has shown is accepted as well.
    let is_hidden = Numbering::is_stars(text.expose());
    let bytes = base64url(text.expose().trim()).or(is_hidden.then(Vec::new));
    let Some(bytes) = bytes else {
        let message = "the key of the external account is not written in base64url";
        side_files
            .found
            .error(Code::BadUrl, message)
            .at(&key.span, "letters, digits, `-` and `_` belong there")
            .help("copy the key as the authority gives it out");
        return None;
    };
    Some(ExternalAccount {
        id: id.clone(),
        key: bytes,
    })
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
