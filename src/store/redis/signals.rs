//! Signals of connections to the watch over a node: a connection has ended, cannot be made, or leads to another master.

use crate::clock;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Least time between a failure to connect and the next attempt.
pub(super) const KNOCK_EVERY: Duration = Duration::from_millis(100);

/// Signals of the connections of one node.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A connection has ended.
    pub(super) lost: Notify,
    /// A connection could not be made.
    pub(super) failed: Notify,
    /// A connection leads to another master than those before it.
    pub(super) replaced: Notify,
    /// The least age of connections that are still used.
    pub(super) age: AtomicU64,
    /// The master at the other end of the last connection, if sentinels had to be asked.
    pub(super) master: Mutex<Option<Address>>,
    /// The cause of the last failure to connect, if the last attempt failed.
    why: Mutex<Option<(Instant, StoreError)>>,
    /// The instant of the server's last answer on a connection that was being made.
    heard: Mutex<Option<Instant>>,
}

impl Signals {
    pub(super) fn last_failure(&self) -> MutexGuard<'_, Option<(Instant, StoreError)>> {
        locked(&self.why)
    }

    /// Notes that the server has answered on a connection that is being made.
    pub(super) fn hear(&self) {
        *locked(&self.heard) = Some(clock::now());
    }

    /// The instant of the last such answer.
    pub(super) fn heard(&self) -> Option<Instant> {
        *locked(&self.heard)
    }

    /// Waits for the cause of a failure to connect. Returns at once where the next attempt is not to come yet.
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
