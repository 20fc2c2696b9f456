//! The permission of a TLS client to continue: as long as its handshake meets the listener's present requirements for
//! clients.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The time for current requests to end once the client may not continue.
const GRACE: Duration = Duration::from_secs(10);

/// The entitlement of one connection's client.
#[derive(Debug, Default)]
pub(super) struct Entitlement {
    /// The number of the offer in the last check; 0 before the first.
    generation: Cell<u64>,
    /// The time at which the permission was lost.
    lost: Cell<Option<Instant>>,
    is_cut: Cell<bool>,
    /// Notifies the tasks that wait for the loss or the cut.
    changed: Notify,
}

impl Entitlement {
    /// Is the client permitted by the offer with this number?
    #[inline]
    pub(super) fn is_known_good(&self, generation: u64) -> bool {
        self.generation.get() == generation && self.lost.get().is_none()
    }

    /// Notes the result of a check against the offer with this number: whether the permission is lost from now on.
    pub(super) fn looked_up(&self, generation: u64, is_lost: bool) {
        self.generation.set(generation);
        if is_lost {
            self.lost.set(Some(clock::now()));
            self.changed.notify_waiters();
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Cuts unfinished requests if their time is over. Returns true if that happens now.
    pub(super) fn cut_late(&self, now: Instant) -> bool {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= GRACE;
        let is_cut_now = self.lost.get().is_some_and(is_late) && !self.is_cut.replace(true);
        if is_cut_now {
            self.changed.notify_waiters();
        }
        is_cut_now
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Resolves when the permission is lost.
    pub(super) async fn lost(&self) {
        self.until(Self::is_lost).await;
    }

    /// Resolves when unfinished requests are to be cut.
    pub(super) async fn cut(&self) {
        self.until(Self::is_cut).await;
    }

    async fn until(&self, reached: impl Fn(&Self) -> bool) {
        while !reached(self) {
            self.changed.notified().await;
        }
    }
}
