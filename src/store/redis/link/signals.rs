//! Signals of connections to the watch over a node: a connection has ended, cannot be made, or leads to another master.

use crate::clock;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Least time between a failure to connect and the next attempt.
pub(super) const KNOCK_EVERY: Duration = Duration::from_millis(100);

/// Time for sentinels that name different masters to agree.
pub(super) const AGREE: Duration = Duration::from_secs(5);

/// Signals of the connections of one node.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSignals {
    /// A connection has ended.
    pub(crate) lost: Notify,
    /// A connection could not be made.
    pub(crate) failed: Notify,
    /// A connection leads to another master than those before it.
    pub(crate) replaced: Notify,
    /// The number of times the master has been replaced, and the last of these changes after which the new master
    /// learned everything that this worker's requests hold.
    changes: AtomicU64,
    announced: AtomicU64,
    /// The least age of connections that are still used.
    pub(super) age: AtomicU64,
    /// The master at the other end of the last connection, if sentinels named it.
    pub(crate) master: Mutex<Option<Address>>,
    /// The previous master, and the instant of its replacement.
    former: Mutex<Option<(Address, Instant)>>,
    /// The cause of the last failure to connect, if the last attempt failed.
    why: Mutex<Option<(Instant, StoreError)>>,
    /// The instant of the server's last answer on a connection that was being made.
    heard: Mutex<Option<Instant>>,
}

impl ConnectionSignals {
    /// Takes `master` over, if sentinels named it. Connections that lead to another are kept only for their current
    /// calls. Returns the age of newer ones, if it is another.
    pub(crate) fn leads(&self, master: Option<&Address>) -> Option<u64> {
        let mut known = locked(&self.master);
        let former = std::mem::replace(&mut *known, master.cloned())?;
        if Some(&former) == master {
            return None;
        }
        *locked(&self.former) = Some((former, clock::now()));
        self.changes.fetch_add(1, Ordering::Relaxed);
        Some(self.age.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The number of times that the master was replaced.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Has the master changed without knowing yet what this worker's requests hold?
    pub(crate) fn is_untold(&self) -> bool {
        self.changes() != self.announced.load(Ordering::Relaxed)
    }

    /// Notes that the master of this change knows what this worker's requests hold. A later master does not.
    pub(crate) fn set_announced(&self, change: u64) {
        self.announced.store(change, Ordering::Relaxed);
    }

    /// Was this master just replaced by another? Sentinels that still name it have not learned of that yet.
    pub(super) fn is_former(&self, master: &Address) -> bool {
        let former = locked(&self.former);
        let mut former = former.iter();
        former.any(|(former, at)| former == master && clock::now() - *at < AGREE)
    }

    pub(super) fn last_failure(&self) -> MutexGuard<'_, Option<(Instant, StoreError)>> {
        locked(&self.why)
    }

    /// Notes that the server has answered on a connection that is being made.
    pub(crate) fn hear(&self) {
        *locked(&self.heard) = Some(clock::now());
    }

    /// The instant of the last such answer.
    pub(crate) fn heard(&self) -> Option<Instant> {
        *locked(&self.heard)
    }

    /// Waits for the cause of a failure to connect. Returns at once if the next attempt is not due yet.
    pub(super) async fn hopeless(&self) -> StoreError {
        let failed = self.failed.notified();
        if let Some((at, why)) = &*self.last_failure()
            && clock::now() - *at < KNOCK_EVERY
        {
            return why.clone();
        }
        failed.await;
        let why = self.last_failure();
        why.as_ref()
            .map_or(StoreError::Down, |(_, why)| why.clone())
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sentinel that has not learned of the change continues to name the former master, which still reports the
    /// master's role.
    #[test]
    fn a_master_that_was_just_replaced_is_not_followed_back() {
        let signals = ConnectionSignals::default();
        let [one, two] = [1, 2].map(|port| Address::new("cache", port));
        assert_eq!(signals.leads(Some(&one)), None);
        assert_eq!(signals.leads(Some(&one)), None);
        assert!(!signals.is_untold());
        assert_eq!(signals.leads(Some(&two)), Some(1));
        assert!(signals.is_untold());
        assert!(signals.is_former(&one) && !signals.is_former(&two));
    }

    #[test]
    fn a_second_change_is_not_told_by_the_first() {
        let signals = ConnectionSignals::default();
        let [one, two] = [1, 2].map(|port| Address::new("cache", port));
        for master in [&one, &two] {
            signals.leads(Some(master));
        }
        let first = signals.changes();
        signals.leads(Some(&one));
        signals.set_announced(first);
        assert!(signals.is_untold());
        signals.set_announced(signals.changes());
        assert!(!signals.is_untold());
    }
}
