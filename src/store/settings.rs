//! The file's settings of the store. Read once, at start; only the secrets are read again.

use super::endpoint::RedisEndpoint;
use super::secret::Secret;
use super::trials::{CounterUses, Trials};
use crate::limit::{Limit, OnDown};
use crate::tls::ClientTls;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The store, and the longest wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Memory or Redis.
    pub source: Backend,
    /// The longest time of a decision before `on_down` answers.
    pub timeout: Duration,
    /// The behaviour of a limit while the store is unavailable.
    pub on_down: OnDown,
    /// First part of every key in Redis.
    pub prefix: Arc<str>,
    /// The most live counters in memory.
    pub max_keys: usize,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            source: Backend::Memory,
            timeout: Duration::from_millis(50),
            on_down: OnDown::Local,
            prefix: Arc::from("tollgate"),
            max_keys: 1_000_000,
        }
    }
}

impl StoreSettings {
    /// Takes over the passwords and certificates of `new`, for this Redis and user. Clones of these settings use the
    /// new credentials, too.
    pub fn rotate(&mut self, new: &Self) {
        let (Backend::Redis(mine), Backend::Redis(new)) = (&mut self.source, &new.source) else {
            return;
        };
        if mine.is_same_place(new) && mine != new {
            let shared = mine.rotated.clone();
            *mine = RedisTarget {
                rotated: shared.clone(),
                ..new.clone()
            };
            *shared.lock() = Some(Box::new(RedisTarget {
                rotated: Rotated::default(),
                ..new.clone()
            }));
        }
    }
}

/// The kind of store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// In this process.
    Memory,
    /// In one Redis.
    Redis(RedisTarget),
}

impl Backend {
    /// Are the counters in the slots of a cluster?
    #[must_use]
    pub const fn is_cluster(&self) -> bool {
        match self {
            Self::Redis(target) => matches!(target.place, RedisEndpoint::Cluster { .. }),
            Self::Memory => false,
        }
    }
}

/// A Redis, and the user at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTarget {
    /// Its address.
    pub place: RedisEndpoint,
    /// The encryption of connections to it, if they are encrypted.
    pub tls: Option<ClientTls>,
    /// Logical database.
    pub database: u16,
    /// User of the access control list, if not the default one.
    pub username: Option<Arc<str>>,
    /// Its password.
    pub password: Option<Secret>,
    /// Are the scripts stored there as functions, which survive a restart and a failover?
    pub functions: bool,
    /// The secrets that have replaced the ones above since the start.
    pub rotated: Rotated,
    /// The needs of the file's limits, and the servers that have been tried.
    pub trials: Trials,
}

impl RedisTarget {
    /// Database 0 of the Redis at `place`, for the default user, without a password.
    #[must_use]
    pub fn new(place: RedisEndpoint) -> Self {
        Self {
            place,
            tls: None,
            database: 0,
            username: None,
            password: None,
            functions: false,
            rotated: Rotated::default(),
            trials: Trials::default(),
        }
    }

    /// Is `other` the same Redis and user, regardless of secrets?
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
            && self.username == other.username
            && self.asker() == other.asker()
            && self.functions == other.functions
    }

    /// Requests the trial of everything that these limits need, from now on, if it has not been tried yet.
    pub fn try_for<'l>(&self, limits: impl Iterator<Item = &'l Arc<Limit>>) {
        let is_cluster = matches!(self.place, RedisEndpoint::Cluster { .. });
        self.trials.want(CounterUses::of(limits, is_cluster));
    }

    /// The user at the sentinels.
    fn asker(&self) -> Option<&str> {
        match &self.place {
            RedisEndpoint::Sentinel { username, .. } => username.as_deref(),
            _ => None,
        }
    }

    /// This target with its present secrets.
    #[must_use]
    pub fn latest(&self) -> Self {
        match &*self.rotated.lock() {
            Some(newer) => (**newer).clone(),
            None => self.clone(),
        }
    }
}

/// Secrets that were changed while the gateway runs. Clones share them: connections use them from then on.
#[derive(Debug, Clone, Default)]
pub struct Rotated(Arc<Mutex<Option<Box<RedisTarget>>>>);

impl Rotated {
    fn lock(&self) -> MutexGuard<'_, Option<Box<RedisTarget>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Rotated {
    /// Rotated secrets are not part of a file: two of them are always equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Rotated {}

impl fmt::Display for RedisTarget {
    /// The target without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.show(f, self.tls.is_some(), self.database)
    }
}
