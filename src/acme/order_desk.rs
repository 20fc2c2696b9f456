//! The interface of the orders for the rest of the gateway while they run: the certificates for a successor, and the
//! reading of the store before clients are accepted.

use super::authority::{OrderedIdentity, Storage};
use super::failure::OrderFailure;
use super::issued::Bundle;
use super::orders::Orders;
use super::vault::Vault;
use futures_util::stream::{self, TryStreamExt as _};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Certificates that are read from the store concurrently.
const AT_ONCE: usize = 64;

/// A certificate with its key that a gateway hands to its successor.
#[derive(Clone, PartialEq, Eq)]
pub struct HandedCertificate {
    /// The name of the identity's table.
    pub identity: String,
    /// Certificates first, then the key, as PEM.
    pub pem: Arc<str>,
    /// Its entry in the store and the version there, if it was ever stored.
    pub version: Option<(String, u64)>,
}

impl HandedCertificate {
    /// The certificate as an object of JSON. The object includes the key.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = json!({ "identity": self.identity, "pem": &*self.pem });
        if let Some((entry, version)) = &self.version {
            object["entry"] = json!(entry);
            object["version"] = json!(version);
        }
        object
    }

    /// The certificate of such an object; `None` if the object is not one.
    #[must_use]
    pub fn from_json(object: &Value) -> Option<Self> {
        let entry = object["entry"].as_str();
        Some(Self {
            identity: object["identity"].as_str()?.to_owned(),
            pem: object["pem"].as_str()?.into(),
            version: entry.map(str::to_owned).zip(object["version"].as_u64()),
        })
    }
}

impl fmt::Debug for HandedCertificate {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HandedCertificate");
        shown.field("identity", &self.identity);
        shown
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A handle to the orders of a gateway.
#[derive(Debug, Clone)]
pub struct OrderDesk(pub(super) Arc<Orders>);

impl OrderDesk {
    /// The certificates that this gateway has.
    #[must_use]
    pub fn held(&self) -> Vec<HandedCertificate> {
        let all = self.0.issued.all().into_iter();
        let handed = all.map(|(identity, bundle)| HandedCertificate {
            version: self.0.versions.version_of(&identity),
            identity: (*identity).to_owned(),
            pem: bundle.pem().into(),
        });
        handed.collect()
    }

    /// Takes over those certificates of the predecessor that are wanted here. The folder or the store may keep newer
    /// ones.
    pub fn inherit(&self, handed: Vec<HandedCertificate>) {
        let wanted = self.0.wanted.borrow().clone();
        for one in handed {
            let Some(bundle) = Bundle::read(&one.pem) else {
                continue;
            };
            let same_name = wanted.iter().find(|other| *other.name == *one.identity);
            // An identity whose table was renamed is served by the certificate of the old name.
            let of_use = |other: &OrderedIdentity| bundle.covers(&other.hosts);
            if same_name.is_none_or(|same_name| !bundle.covers_any(&same_name.hosts))
                && !wanted.iter().any(of_use)
            {
                continue;
            }
            let identity = same_name.map_or_else(
                || one.identity.into(),
                |same_name| Arc::clone(&same_name.name),
            );
            if let Some((entry, version)) = one.version {
                self.0.versions.keep(&identity, entry, version);
            }
            self.0.issued.put_newer(&identity, bundle);
        }
    }

    /// Takes certificates from the store that are newer than this gateway's, at most for this time. A certificate that
    /// is not read by then is read while the gateway serves.
    pub async fn read_store(&self, within: Duration) {
        let wanted = self.0.wanted.borrow().clone();
        let due = wanted.iter().filter(|one| is_in_store(one)).cloned();
        let reading = stream::iter(due.map(Ok)).try_for_each_concurrent(AT_ONCE, |identity| {
            let orders = Arc::clone(&self.0);
            async move {
                match reread_certificate(&orders, &identity).await {
                    // The store is unavailable: the other certificates cannot be read either.
                    Err(failure) if failure.is_of_store() => Err(failure),
                    _ => Ok(()),
                }
            }
        });
        if !matches!(timeout(within, reading).await, Ok(Ok(()))) {
            self.0.metrics.acme_store(false);
        }
    }
}

/// Orders that have failed.
impl OrderDesk {
    /// Repeats failed orders at once, within the limits of the authority and the hour.
    pub fn hurry(&self) {
        let wanted = self.0.wanted.borrow().clone();
        let all = wanted.iter().map(|one| Arc::clone(&one.name));
        self.0.hurry.ask(all);
    }
}

fn is_in_store(identity: &OrderedIdentity) -> bool {
    matches!(identity.authority.storage, Storage::Store(_))
}

/// Reads the certificate of one identity. Other errors of the entry appear when it is read for an order.
async fn reread_certificate(
    orders: &Orders,
    identity: &OrderedIdentity,
) -> Result<(), OrderFailure> {
    match orders.vault(&identity.authority)? {
        Vault::Store(store) => orders.take_newer(identity, &store).await.map(drop),
        Vault::Folder(_) => Ok(()),
    }
}
