//! What the holders of slots are to know of an outage, so that no more than `max` requests are in flight in it and behind
//! it, where no gateway has more than its share in flight. Slots that Redis has given count here too when it goes away, and slots that were given here count in Redis too
//! when it is back.
//!
//! Gateways notice the return one after the other, and one that has not yet goes on counting for itself. So each keeps
//! to its share for a moment beside what Redis says: all shares together are no more than `max`.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time in which all gateways notice that Redis is back: a few attempts, each of several round trips.
const SHARES_LAST: Duration = Duration::from_secs(2);

/// The news for the holders of one worker's slots.
#[derive(Debug, Default)]
pub(super) struct SlotAnnouncements {
    away: Notify,
    back: Notify,
    /// Until when shares are kept to, since a node is back.
    shares: Cell<Option<Instant>>,
}

/// What has become of the Redis that gave a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotNews {
    /// It has gone away: the slot counts in this process meanwhile.
    Away,
    /// It is back, or another has taken its place: it may not know the slot.
    Back,
}

impl SlotAnnouncements {
    /// Tells the holders that Redis has gone away.
    pub(super) fn away(&self) {
        self.away.notify_waiters();
    }

    /// Asks the holders for their slots, which go to Redis.
    pub(super) fn back(&self) {
        self.back.notify_waiters();
    }

    /// Waits for news.
    pub(super) async fn news(&self) -> SlotNews {
        tokio::select! {
            () = self.away.notified() => SlotNews::Away,
            () = self.back.notified() => SlotNews::Back,
        }
    }

    /// A node is back from an outage: shares are kept to for a moment. Returns its end.
    pub(super) fn keep_shares(&self) -> Instant {
        let ends = clock::now() + SHARES_LAST;
        self.shares.set(Some(ends));
        ends
    }

    /// Are shares of any node kept to?
    #[inline]
    pub(super) fn keeps_shares(&self) -> bool {
        self.shares.get().is_some()
    }

    /// Ends the time of the shares, if it is over.
    pub(super) fn end_shares(&self) {
        if self.shares.get().is_some_and(|until| until <= clock::now()) {
            self.shares.set(None);
        }
    }
}
