//! Whether the client of a connection with TLS may go on: as long as what the listener asks of clients today is met by what
//! the client has shown in its handshake.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The time in which what is under way may end once the client may not go on.
const GRACE: Duration = Duration::from_secs(10);

/// The entitlement of one connection's client.
#[derive(Debug, Default)]
pub(super) struct Entitlement {
    /// The number of the offer by which it was looked up last; none has 0.
    generation: Cell<u64>,
    /// Since when it is lost.
    lost: Cell<Option<Instant>>,
    is_cut: Cell<bool>,
    /// Wakes the tasks that wait for either.
    changed: Notify,
}

impl Entitlement {
    /// Is it good by the offer with this number?
    #[inline]
    pub(super) fn is_known_good(&self, generation: u64) -> bool {
        self.generation.get() == generation && self.lost.get().is_none()
    }

    /// Notes that it was looked up in the offer with this number, and whether it is lost from now on.
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

    /// Has what is still under way be cut, where the time for it is over. True when that is now.
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

    /// Resolves when it is lost.
    pub(super) async fn lost(&self) {
        self.until(Self::is_lost).await;
    }

    /// Resolves when what is under way is to be cut.
    pub(super) async fn cut(&self) {
        self.until(Self::is_cut).await;
    }

    async fn until(&self, reached: impl Fn(&Self) -> bool) {
        while !reached(self) {
            self.changed.notified().await;
        }
    }
}
