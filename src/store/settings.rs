//! What the file says about the store. Read once, at start, but for the password.

use crate::limit::OnDown;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The store and how far it is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Memory or Redis.
    pub source: Source,
    /// Longest a decision may take before `on_down` answers.
    pub timeout: Duration,
    /// What a limit does while the store is away.
    pub on_down: OnDown,
    /// First part of every key in Redis.
    pub prefix: Arc<str>,
    /// Live counters held in memory at most.
    pub max_keys: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            source: Source::Memory,
            timeout: Duration::from_millis(50),
            on_down: OnDown::Local,
            prefix: Arc::from("tollgate"),
            max_keys: 1_000_000,
        }
    }
}

impl Settings {
    /// Takes the password of `new` over, where it is for the same Redis and user; what was cloned from these settings
    /// presents it too.
    pub fn rotate(&mut self, new: &Self) {
        let (Source::Redis(mine), Source::Redis(new)) = (&mut self.source, &new.source) else {
            return;
        };
        if mine.is_same_place(new) && mine.password != new.password {
            mine.password.clone_from(&new.password);
            let mut rotated = mine
                .rotated
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *rotated = Some(new.password.clone());
        }
    }
}

/// Where counters live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In this process.
    Memory,
    /// In one Redis.
    Redis(RedisTarget),
}

/// Which Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTarget {
    /// Name or address.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
    /// Logical database.
    pub database: u16,
    /// User of the access control list, if not the default one.
    pub username: Option<Arc<str>>,
    /// Its password.
    pub password: Option<Secret>,
    /// Another that has taken its place since.
    pub rotated: Rotated,
}

impl RedisTarget {
    /// Is it the same Redis and user, whatever the password?
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.to_string() == other.to_string() && self.username == other.username
    }

    /// The password to present now.
    #[must_use]
    pub fn present(&self) -> Option<Secret> {
        let rotated = self
            .rotated
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        rotated.clone().unwrap_or_else(|| self.password.clone())
    }
}

/// A password that was changed while the gateway runs. Clones share it: connections made from then on present it.
#[derive(Debug, Clone, Default)]
pub struct Rotated(Arc<Mutex<Option<Option<Secret>>>>);

impl PartialEq for Rotated {
    /// It is not what a file says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Rotated {}

impl fmt::Display for RedisTarget {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "redis://[{}]:{}/{}", self.host, self.port, self.database)
        } else {
            write!(f, "redis://{}:{}/{}", self.host, self.port, self.database)
        }
    }
}

/// A text that no log, error or dump shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text, for the one who must present it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
