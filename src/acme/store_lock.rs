//! A lock in the store: one of many gateways holds the lock, renews it, and learns when it is lost.

use super::failure::OrderFailure;
use super::open_challenge::{NOTICE, WATCH};
use crate::clock;
use crate::store::StoreError;
use crate::store::redis::SharedKeys;
use data_encoding::HEXLOWER;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The intervals at which gateways with a common store read it, and the life of their locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The interval between readings of certificates.
    pub read: Duration,
    /// The life of a lock that is not renewed: an order waits this long if its gateway was killed.
    pub lock: Duration,
    /// The interval between renewals of a lock.
    pub renew: Duration,
    /// The interval between readings of open challenges.
    pub watch: Duration,
    /// The time in which every gateway has read them.
    pub notice: Duration,
}

/// The pause before a store that fails in the middle of an order is tried again.
const AGAIN: Duration = Duration::from_millis(500);

impl Pace {
    /// The patience of an order with an unavailable store: shorter than the life of the order's lock.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            until: clock::now() + self.lock / 2,
        }
    }
}

/// How long an unavailable store is tried again. An unfinished order is worth the wait: a new one would cost the
/// authority a second order.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
}

impl Patience {
    /// Waits before the store is tried again; returns false if the time for retries has run out.
    pub(super) async fn wait(&self, error: &StoreError) -> bool {
        let is_left = clock::now() + AGAIN < self.until;
        if is_left {
            tracing::debug!("the store is asked again: {error}");
            sleep(AGAIN).await;
        }
        is_left
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            read: Duration::from_secs(30),
            lock: Duration::from_secs(60),
            renew: Duration::from_secs(20),
            watch: WATCH,
            notice: NOTICE,
        }
    }
}

/// A lock that this gateway holds. A dropped lock is no longer renewed, as if its process was killed.
#[derive(Debug)]
pub(super) struct StoreLock {
    entry: Arc<LockEntry>,
    renewing: JoinHandle<()>,
}

/// The entry of a lock, with the text that distinguishes its holder.
#[derive(Debug)]
struct LockEntry {
    keys: SharedKeys,
    key: String,
    token: String,
    pace: Pace,
    is_lost: AtomicBool,
}

impl StoreLock {
    /// Takes a lock. `None` if another gateway holds the lock.
    pub(super) async fn take(
        keys: &SharedKeys,
        key: String,
        pace: Pace,
    ) -> Result<Option<Self>, StoreError> {
        let entry = Arc::new(LockEntry {
            keys: keys.clone(),
            key,
            token: token()?,
            pace,
            is_lost: AtomicBool::new(false),
        });
        let is_taken = keys.lock(&entry.key, &entry.token, pace.lock).await?;
        Ok(is_taken.then(|| Self {
            renewing: tokio::spawn(renew(Arc::clone(&entry))),
            entry,
        }))
    }

    /// Is the lock known to be lost?
    pub(super) fn is_lost(&self) -> bool {
        self.entry.is_lost.load(Ordering::Relaxed)
    }

    /// Checks with the store that the lock is held, and renews it. The call waits while the store is unavailable.
    pub(super) async fn confirm(&self) -> Result<(), OrderFailure> {
        let (entry, patience) = (&self.entry, self.entry.pace.patience());
        let renewed = loop {
            if self.is_lost() {
                break Ok(false);
            }
            match entry.prolong().await {
                Err(error) if patience.wait(&error).await => {}
                done => break done,
            }
        };
        match renewed {
            Ok(true) => Ok(()),
            Ok(false) => {
                entry.is_lost.store(true, Ordering::Relaxed);
                Err(OrderFailure::LockLost)
            }
            Err(source) => Err(OrderFailure::Store {
                place: entry.keys.to_string(),
                source,
            }),
        }
    }

    /// Releases the lock, for gateways that wait for it.
    pub(super) async fn release(self) {
        self.renewing.abort();
        let LockEntry {
            keys, key, token, ..
        } = &*self.entry;
        if let Err(error) = keys.release(key, token.as_bytes()).await {
            tracing::debug!("the lock {key} will expire by itself: {error}");
        }
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl LockEntry {
    /// Renews the lock. Returns false if the lock is lost.
    async fn prolong(&self) -> Result<bool, StoreError> {
        let token = self.token.as_bytes();
        self.keys.prolong(&self.key, token, self.pace.lock).await
    }
}

async fn renew(entry: Arc<LockEntry>) {
    let mut held = clock::now();
    while clock::now() - held < entry.pace.lock {
        sleep(entry.pace.renew).await;
        let asked = clock::now();
        match entry.prolong().await {
            Ok(true) => held = asked,
            Ok(false) => break,
            Err(error) => tracing::debug!("{} is not renewed: {error}", entry.key),
        }
    }
    entry.is_lost.store(true, Ordering::Relaxed);
}

/// A text that no other gateway has.
fn token() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return Err(StoreError::Protocol("the random source fails"));
    }
    Ok(HEXLOWER.encode(&bytes))
}
