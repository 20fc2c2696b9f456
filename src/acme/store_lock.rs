//! A lock in the store: one gateway of many holds it, renews it, and learns when it has lost it.

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

/// How often gateways with a common store look there, and how long their locks last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Certificates are read this often.
    pub read: Duration,
    /// A lock that is not renewed lasts this long: so long an order waits whose gateway was killed.
    pub lock: Duration,
    /// A lock is renewed this often.
    pub renew: Duration,
    /// Open challenges are read this often.
    pub watch: Duration,
    /// The time in which every gateway has read them.
    pub notice: Duration,
}

/// A store that is away in the middle of an order is asked again after this.
const AGAIN: Duration = Duration::from_millis(500);

impl Pace {
    /// The patience of an order with a store that is away: its lock holds for longer.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            until: clock::now() + self.lock / 2,
        }
    }
}

/// How long the store is asked again while it is away. An order that has begun is worth the wait: another would cost the
/// authority a second one.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
}

impl Patience {
    /// Waits before the store is asked again, unless it has been asked for long enough: false then.
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

/// A lock that this gateway holds. When it is dropped it is no longer renewed, as when its process is killed.
#[derive(Debug)]
pub(super) struct StoreLock {
    entry: Arc<LockEntry>,
    renewing: JoinHandle<()>,
}

/// The entry of a lock, with the text that tells its holder from others.
#[derive(Debug)]
struct LockEntry {
    keys: SharedKeys,
    key: String,
    token: String,
    pace: Pace,
    is_lost: AtomicBool,
}

impl StoreLock {
    /// Takes a lock. Nothing where another holds it.
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

    /// Has it been lost, as far as is known here?
    pub(super) fn is_lost(&self) -> bool {
        self.entry.is_lost.load(Ordering::Relaxed)
    }

    /// Asks the store whether the lock is held, and renews it. A store that is away is waited for.
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

    /// Lets the lock go, for those that wait for it.
    pub(super) async fn release(self) {
        self.renewing.abort();
        let LockEntry {
            keys, key, token, ..
        } = &*self.entry;
        if let Err(error) = keys.release(key, token.as_bytes()).await {
            tracing::debug!("{key} ends by itself: {error}");
        }
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl LockEntry {
    /// Renews the lock. False where it is lost.
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
