//! What the file says about the store. Read once, at start.

use std::fmt;
use std::sync::Arc;
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
}

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

/// What a limit does while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDown {
    /// Counts in this process, with the whole limit.
    Local,
    /// Lets everything pass.
    Open,
    /// Refuses everything with 503.
    Closed,
}
