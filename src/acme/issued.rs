//! Certificates that were obtained, in memory, in the form that handshakes need.

use crate::tls::CertificateFacts;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Notify;

/// A certificate with its intermediates, and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The PEM of certificates and key.
    pem: Arc<str>,
    facts: Arc<CertificateFacts>,
}

impl Bundle {
    /// Reads the PEM of a chain and its key. `None` if the text has no certificate that can be read.
    #[must_use]
    pub fn read(pem: &str) -> Option<Self> {
        let leaf = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some(Self {
            pem: pem.into(),
            facts: Arc::new(CertificateFacts::read(&leaf)?),
        })
    }

    /// The PEM: certificates first, then the key.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The facts in the certificate.
    #[must_use]
    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    /// The certificate itself.
    pub(super) fn leaf(&self) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).ok()
    }

    /// Has the certificate all of these names, which have no `*`?
    #[must_use]
    pub fn covers(&self, hosts: &[String]) -> bool {
        hosts.iter().all(|host| self.facts.names.contains(host))
    }

    /// Has the certificate one of these names, which have no `*`? Such a certificate is of use until one for all names
    /// is issued.
    #[must_use]
    pub fn covers_any(&self, hosts: &[String]) -> bool {
        hosts.iter().any(|host| self.facts.names.contains(host))
    }
}

impl fmt::Debug for Bundle {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bundle").field(&self.facts.names).finish()
    }
}

/// The certificates of ordered identities, by the names of their tables. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct IssuedCertificates(Arc<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    bundles: Mutex<HashMap<Arc<str>, Bundle>>,
    changed: Notify,
}

impl IssuedCertificates {
    /// The certificate of an identity, where there is one.
    #[must_use]
    pub fn of(&self, identity: &str) -> Option<Bundle> {
        self.0.bundles.lock().get(identity).cloned()
    }

    /// All certificates, by the names of their identities.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Bundle)> {
        let bundles = self.0.bundles.lock();
        let all = bundles.iter();
        all.map(|(identity, bundle)| (Arc::clone(identity), bundle.clone()))
            .collect()
    }

    /// The best certificate for these hosts: the one of `identity`, or any other that has all of the hosts. Such
    /// another certificate serves an identity whose table was renamed, until the identity's own certificate is issued.
    #[must_use]
    pub fn best_for(&self, identity: &str, hosts: &[String]) -> Option<Bundle> {
        let bundles = self.0.bundles.lock();
        let same_identity = bundles.get(identity);
        let same_identity = same_identity.filter(|same_identity| same_identity.covers_any(hosts));
        let others = bundles.values().filter(|one| one.covers(hosts));
        let best = others.max_by_key(|one| one.facts.not_after);
        let is_whole = same_identity.is_some_and(|same_identity| same_identity.covers(hosts));
        same_identity
            .filter(|_| is_whole)
            .or(best)
            .or(same_identity)
            .cloned()
    }

    /// Resolves after a certificate has changed, since the last time that this future resolved.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Replaces a certificate.
    pub(super) fn put(&self, identity: &Arc<str>, bundle: Bundle) {
        let before = self
            .0
            .bundles
            .lock()
            .insert(Arc::clone(identity), bundle.clone());
        if before.as_ref() != Some(&bundle) {
            self.0.changed.notify_one();
        }
    }

    /// Replaces a certificate that ends earlier. Returns whether the certificate was replaced.
    pub(super) fn put_newer(&self, identity: &Arc<str>, bundle: Bundle) -> bool {
        let newer = |held: Bundle| held.facts.not_after < bundle.facts.not_after;
        let is_newer = self.of(identity).is_none_or(newer);
        if is_newer {
            self.put(identity, bundle);
        }
        is_newer
    }
}
