//! Certificates of gateways with a common store: one gateway orders, all take the certificates, and an entry that the
//! store loses is stored again.

use super::attempts::Attempts;
use super::authority::OrderedIdentity;
use super::failure::OrderFailure;
use super::folder::Part;
use super::issued::Bundle;
use super::orders::{Look, Orders, as_known_of, order_text};
use super::schedule::{Seconds, seconds};
use super::store_vault::StoreVault;
use super::vault::{OrderRight, Vault};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// The time after which the store is read again for a certificate that another gateway orders, in seconds.
const SOON: Seconds = 1;

/// The certificate in the store, compared with the one in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreVersion {
    /// Memory has no certificate, or the same certificate.
    Even,
    /// The store lacks the certificate in memory.
    Lacks,
}

impl Orders {
    /// Is the certificate of an identity, which is kept in the store, to be ordered by this gateway? Takes a newer
    /// certificate that another gateway has stored. Takes no lock if no order may begin.
    pub(super) async fn look_in_store(
        &self,
        identity: &OrderedIdentity,
        store: &StoreVault,
        may_begin: bool,
    ) -> Result<Look, OrderFailure> {
        let standing = self.take_newer(identity, store).await?;
        let attempts = self.known_attempts(identity, store).await?;
        let after = self.time_until_due(identity, &attempts, store).await;
        if after > 0 && standing == StoreVersion::Even {
            return Ok(Look::Later(after));
        }
        if !may_begin {
            return Ok(Look::Later(SOON));
        }
        let Some(lock) = store.lock(&lock_of(identity)).await? else {
            if self.versions.note_elsewhere(&identity.name) {
                tracing::info!(
                    "tls.{}: another gateway orders its certificate, which this gateway serves as soon as it has come",
                    identity.name
                );
            }
            return Ok(Look::Later(SOON));
        };
        let right = OrderRight::under(lock);
        let looked = self.look_with_lock(identity, store).await;
        if let Ok(Some(attempts)) = looked {
            return Ok(Look::Due(Box::new(attempts), right));
        }
        right.release().await;
        looked.map(|_| Look::Later(SOON))
    }

    /// Looks again, since another gateway may have had the lock until now. `None` if the certificate is not due.
    async fn look_with_lock(
        &self,
        identity: &OrderedIdentity,
        store: &StoreVault,
    ) -> Result<Option<Attempts>, OrderFailure> {
        if self.take_newer(identity, store).await? == StoreVersion::Lacks {
            self.put_back(identity, store).await?;
        }
        let mut attempts = self.known_attempts(identity, store).await?;
        let vault = Vault::Store(store.clone());
        let owed = self.versions.take_owed(&identity.name);
        if let Some(owed) = owed {
            // Failures that occurred here while the store was unavailable count for all gateways.
            attempts = as_known_of(identity, owed);
            let kept = self.keep_attempts(identity, &attempts, &vault).await;
            kept.inspect_err(|_| self.versions.owe(&identity.name, attempts.clone()))?;
        } else if attempts.are_begun() {
            attempts.take_over();
            self.keep_attempts(identity, &attempts, &vault).await?;
            tracing::warn!(
                "tls.{}: a gateway has ended in the middle of an order, which counts as a failed order; this gateway takes over",
                identity.name
            );
        }
        let after = self.time_until_due(identity, &attempts, store).await;
        Ok((after <= 0).then_some(attempts))
    }

    /// Stores a certificate again that the store has lost, unless it is no longer of use.
    async fn put_back(
        &self,
        identity: &OrderedIdentity,
        store: &StoreVault,
    ) -> Result<(), OrderFailure> {
        let Some(bundle) = self.held(identity) else {
            self.versions.forget(&identity.name);
            return Ok(());
        };
        self.keep_for_all(identity, &bundle, store).await?;
        tracing::warn!(
            "tls.{}: its certificate was missing in the store, and was put there again",
            identity.name
        );
        Ok(())
    }

    /// Takes the certificate of the store if it is newer than the one in memory.
    pub(super) async fn take_newer(
        &self,
        identity: &OrderedIdentity,
        store: &StoreVault,
    ) -> Result<StoreVersion, OrderFailure> {
        let name = entry_of(identity);
        let held = self.versions.of(&identity.name, &name);
        let kept = store.read(Part::Certificates, &name).await?;
        let there = kept.as_ref().map_or(0, |kept| kept.version);
        if there < held {
            return Ok(StoreVersion::Lacks);
        }
        let Some(kept) = kept.filter(|kept| kept.version > held) else {
            return Ok(StoreVersion::Even);
        };
        let text = str::from_utf8(&kept.text).ok();
        let bundle = text.and_then(Bundle::read);
        let Some(bundle) = bundle.filter(|bundle| bundle.covers(&identity.hosts)) else {
            return Ok(StoreVersion::Even);
        };
        self.note_taken(identity, &bundle, "the store");
        self.versions.keep(&identity.name, name, there);
        self.issued.put(&identity.name, bundle);
        Ok(StoreVersion::Even)
    }

    /// Puts a certificate into the store, with a version above all earlier ones. If the store is unavailable, the
    /// certificate is stored later.
    pub(super) async fn keep_for_all(
        &self,
        identity: &OrderedIdentity,
        bundle: &Bundle,
        store: &StoreVault,
    ) -> Result<(), OrderFailure> {
        let name = entry_of(identity);
        let held = self.versions.of(&identity.name, &name);
        let kept = store.keep(Part::Certificates, &name, bundle.pem(), held);
        let kept = kept.await;
        let version = match &kept {
            Ok(version) => *version,
            Err(_) => (self.wall)().micros().max(held.saturating_add(1)),
        };
        self.versions.keep(&identity.name, name, version);
        kept.map(drop)
    }

    /// The certificate in memory that fits the identity's current order.
    fn held(&self, identity: &OrderedIdentity) -> Option<Bundle> {
        let is_held = self.versions.of(&identity.name, &entry_of(identity)) > 0;
        let now = seconds((self.wall)());
        let bundle = self.issued.of(&identity.name).filter(|_| is_held);
        bundle.filter(|one| one.covers(&identity.hosts) && one.facts().not_after > now)
    }

    async fn known_attempts(
        &self,
        identity: &OrderedIdentity,
        store: &StoreVault,
    ) -> Result<Attempts, OrderFailure> {
        let kept = store.read(Part::Attempts, &identity.name).await?;
        let kept = kept.and_then(|kept| String::from_utf8(kept.text).ok());
        let attempts = kept.map(|text| Attempts::read(&text)).unwrap_or_default();
        Ok(as_known_of(identity, attempts))
    }

    /// The seconds until the certificate is due; 0 if it is due.
    async fn time_until_due(
        &self,
        identity: &OrderedIdentity,
        attempts: &Attempts,
        store: &StoreVault,
    ) -> Seconds {
        let now = seconds((self.wall)());
        let (vault, held) = (Vault::Store(store.clone()), self.held(identity));
        let due = self.due(identity, held, attempts, &vault, now).await;
        (due - now).max(0)
    }
}

/// The name of the lock that a gateway holds while it orders an identity.
pub(super) fn lock_of(identity: &OrderedIdentity) -> String {
    format!("identity:{}", identity.name)
}

/// The name of a certificate in the store: derived from its identity and its order. Gateways whose files differ for a
/// while each order their own certificate, once.
pub(super) fn entry_of(identity: &OrderedIdentity) -> String {
    let order = Sha256::digest(order_text(identity));
    format!("{}:{}", identity.name, HEXLOWER.encode(&order[..8]))
}
