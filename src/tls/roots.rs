//! Authorities whose certificates are trusted: the authorities of a file, or the system's.

use super::named_certificate::NamedCertificates;
use super::{Mistake, certificates, failure};
use rustls::RootCertStore;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, LazyLock};

/// The authorities that this system trusts, read once: it takes milliseconds.
static SYSTEM: LazyLock<Result<Arc<RootCertStore>, Arc<str>>> = LazyLock::new(load);

/// The authorities that this system trusts.
pub(super) fn of_system() -> Result<Arc<RootCertStore>, Arc<str>> {
    SYSTEM.clone()
}

fn load() -> Result<Arc<RootCertStore>, Arc<str>> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (good, _) = roots.add_parsable_certificates(found.certs);
    match (good, found.errors.first()) {
        (0, Some(error)) => Err(error.to_string().into()),
        (0, None) => Err("there are none on this system".into()),
        _ => Ok(Arc::new(roots)),
    }
}

/// The authorities of a file, and the digests of their certificates.
#[derive(Debug, Clone)]
pub(super) struct OwnRoots {
    pub(super) store: Arc<RootCertStore>,
    pub(super) named: NamedCertificates,
}

/// The authorities of a PEM file.
pub(super) fn read_roots(pem: &[u8]) -> Result<OwnRoots, Mistake> {
    let mut roots = RootCertStore::empty();
    let mut named = NamedCertificates::new();
    for certificate in certificates(pem).map_err(Mistake::Ca)? {
        named.insert(Sha256::digest(&certificate).into());
        let added = roots.add(certificate);
        added.map_err(|error| Mistake::Ca(failure::of_file(&error)))?;
    }
    Ok(OwnRoots {
        store: Arc::new(roots),
        named,
    })
}
