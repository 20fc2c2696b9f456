//! The gateway's record of the certificates that several gateways share: versions, failures that are not stored yet,
//! and whether the store is available.

use super::attempts::Attempts;
use super::store_vault::StoreVault;
use crate::telemetry::metrics::Metrics;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// This gateway's record of certificates in the store.
#[derive(Debug, Default)]
pub(super) struct HeldVersions(Mutex<HeldRecord>);

#[derive(Debug, Default)]
struct HeldRecord {
    /// The entry and the version of each identity's certificate.
    versions: HashMap<Arc<str>, (String, u64)>,
    /// Failures that the store could not take.
    owed: HashMap<Arc<str>, Attempts>,
    /// Identities for which the log has a line that another gateway orders.
    elsewhere: HashSet<Arc<str>>,
}

impl HeldVersions {
    /// The version of an entry that this gateway has; 0 if none.
    pub(super) fn of(&self, identity: &str, entry: &str) -> u64 {
        let held = self.0.lock();
        let version = held.versions.get(identity);
        version.map_or(0, |(of, version)| if of == entry { *version } else { 0 })
    }

    /// The entry of an identity's certificate, and the version that this gateway has.
    pub(super) fn version_of(&self, identity: &str) -> Option<(String, u64)> {
        self.0.lock().versions.get(identity).cloned()
    }

    pub(super) fn keep(&self, identity: &Arc<str>, entry: String, version: u64) {
        let mut held = self.0.lock();
        held.elsewhere.remove(identity);
        held.versions.insert(Arc::clone(identity), (entry, version));
    }

    /// Remembers failures that the store could not take.
    pub(super) fn owe(&self, identity: &Arc<str>, attempts: Attempts) {
        self.0.lock().owed.insert(Arc::clone(identity), attempts);
    }

    /// Notes that another gateway orders. Returns false if that was known.
    pub(super) fn note_elsewhere(&self, identity: &Arc<str>) -> bool {
        self.0.lock().elsewhere.insert(Arc::clone(identity))
    }

    /// Takes the failures that the store could not take.
    pub(super) fn take_owed(&self, identity: &str) -> Option<Attempts> {
        self.0.lock().owed.remove(identity)
    }

    /// Forgets a version whose certificate is no longer needed.
    pub(super) fn forget(&self, identity: &str) {
        self.0.lock().versions.remove(identity);
    }
}

/// Is the store available? Changes are logged and counted.
#[derive(Debug, Default)]
pub(super) struct StoreReach {
    is_there: Option<bool>,
}

impl StoreReach {
    /// Notes whether the store has answered, or the cause if not.
    pub(super) fn note(&mut self, away: Option<String>, store: &StoreVault, metrics: &Metrics) {
        let is_there = away.is_none();
        metrics.acme_store(is_there);
        if self.is_there.replace(is_there) == Some(is_there) {
            return;
        }
        match away {
            Some(why) => tracing::warn!("{why}; certificates in memory are served"),
            None => tracing::info!("certificates are kept in {}", store.place()),
        }
    }
}
