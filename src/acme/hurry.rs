//! Orders that have failed and are asked for again at once, by a signal.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The identities whose orders do not wait.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    identities: Mutex<HashSet<Arc<str>>>,
    asked: Notify,
}

impl Hurry {
    /// Has the orders of these identities not wait, should they have failed.
    pub(super) fn ask(&self, identities: impl IntoIterator<Item = Arc<str>>) {
        self.identities().extend(identities);
        self.asked.notify_one();
    }

    /// Resolves when it has been asked for.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Was the order of this identity asked for?
    pub(super) fn is_for(&self, identity: &str) -> bool {
        self.identities().contains(identity)
    }

    /// Forgets that the order of this identity was asked for: it is made, or nothing can be done about it. Returns whether
    /// it was.
    pub(super) fn is_met(&self, identity: &str) -> bool {
        self.identities().remove(identity)
    }

    fn identities(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
