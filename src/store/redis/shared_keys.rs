//! Keys other than counters that all gateways share, for rare uses: one key in each command, on a separate connection,
//! within a deadline. In a cluster, each command goes to the node that serves its key.

use super::cluster;
use super::cluster::redirect::{self, Redirection};
use super::cluster::slot_map::SlotRange;
use super::link::connection::RedisConnection;
use super::link::login;
use super::link::pool::Manager;
use super::wire::slot::{self, Slot};
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Pipeline, Value, cmd};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The longest time for a command, including the connection.
const WITHIN: Duration = Duration::from_secs(2);
/// Attempts of one command: after a lost connection, or after the slot has moved to another node.
const TRIES: u8 = 4;
/// The pause before a node is tried again that cannot tell where a slot is.
const PAUSE: Duration = Duration::from_millis(50);

/// Replaces a value by another, if it equals the expected one; an empty one means none. A repeated call finds the new
/// value.
const SWAP: &str = r#"
local there = redis.call("GET", KEYS[1]) or ""
if there == ARGV[2] then return 1 end
if there ~= ARGV[1] then return 0 end
if ARGV[3] == "0" then redis.call("SET", KEYS[1], ARGV[2])
else redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3]) end
return 1
"#;

/// Changes the life of a value, if it equals the expected one.
const PROLONG: &str = r#"
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call("PEXPIRE", KEYS[1], ARGV[2])
"#;

/// Removes a value, if it equals the expected one.
const RELEASE: &str = r#"
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call("DEL", KEYS[1])
"#;

/// A handle to such keys. Clones share its connections.
#[derive(Clone)]
pub struct SharedKeys(Arc<KeyRoutes>);

struct KeyRoutes {
    target: RedisTarget,
    lines: Mutex<Lines>,
}

/// The connections, by node; a single Redis has no node.
#[derive(Default)]
struct Lines {
    open: HashMap<Option<Address>, RedisConnection>,
    /// The nodes of a cluster, as last known.
    ranges: Vec<SlotRange>,
}

impl SharedKeys {
    /// A handle to the keys of this Redis. No connection is made before the first command.
    #[must_use]
    pub fn new(target: &RedisTarget) -> Self {
        Self(Arc::new(KeyRoutes {
            target: target.clone(),
            lines: Mutex::default(),
        }))
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// If the store does not answer within two seconds, or refuses. This applies to every command here.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.ask(key, cmd("GET").arg(key)).await? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(StoreError::Protocol("no text")),
        }
    }

    /// Stores a value at a key that only this caller writes, for this time.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn put(&self, key: &str, value: &[u8], life: Duration) -> Result<(), StoreError> {
        let mut set = cmd("SET");
        set.arg(key).arg(value).arg("PX").arg(millis(life));
        self.ask(key, &set).await.map(drop)
    }

    /// Replaces the value `before` by `after`, for `life` or for ever. Returns false if another value is stored.
    /// `before` is empty if none should be stored.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn swap(
        &self,
        key: &str,
        before: &[u8],
        after: &[u8],
        life: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let mut call = script(SWAP, key);
        call.arg(before).arg(after).arg(life.map_or(0, millis));
        is_done(&self.ask(key, &call).await?)
    }

    /// Stores a lock's token at its key, for this time. Returns false if another one is stored.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn lock(&self, key: &str, token: &str, life: Duration) -> Result<bool, StoreError> {
        let mut set = cmd("SET");
        set.arg(key)
            .arg(token)
            .arg("NX")
            .arg("PX")
            .arg(millis(life));
        match self.ask(key, &set).await? {
            // The answer to the first attempt may have been lost.
            Value::Nil => Ok(self.get(key).await?.as_deref() == Some(token.as_bytes())),
            _ => Ok(true),
        }
    }

    /// Extends the life of a lock to this time from now. Returns false if its token is no longer stored.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn prolong(
        &self,
        key: &str,
        token: &[u8],
        life: Duration,
    ) -> Result<bool, StoreError> {
        let mut call = script(PROLONG, key);
        call.arg(token).arg(millis(life));
        is_done(&self.ask(key, &call).await?)
    }

    /// Removes a value, such as a lock's token. Returns false if it is no longer stored.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn release(&self, key: &str, token: &[u8]) -> Result<bool, StoreError> {
        is_done(&self.ask(key, script(RELEASE, key).arg(token)).await?)
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// See [`SharedKeys::get`].
    pub async fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.ask(key, cmd("DEL").arg(key)).await.map(drop)
    }

    async fn ask(&self, key: &str, command: &Cmd) -> Result<Value, StoreError> {
        let done = timeout(WITHIN, self.0.answer(key, command)).await;
        match done {
            Ok(answer) => answer,
            Err(_) => {
                // A connection that hangs may hang for long.
                self.0.lines.lock().await.open.clear();
                Err(StoreError::Timeout { after: WITHIN })
            }
        }
    }
}

impl fmt::Display for SharedKeys {
    /// The Redis, without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.target.fmt(f)
    }
}

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeys")
            .field("target", &self.0.target)
            .finish_non_exhaustive()
    }
}

impl KeyRoutes {
    /// Follows redirections of a command to the node that answers it.
    async fn answer(&self, key: &str, command: &Cmd) -> Result<Value, StoreError> {
        let slot = slot::of_tag(hash_tag(key.as_bytes()));
        let mut node = self.home(slot).await?;
        let mut is_asking = false;
        let mut last = StoreError::Down;
        for _ in 0..TRIES {
            let mut line = match self.line(node.as_ref()).await {
                Ok(line) => line,
                // The node may be gone, and another serves its slots.
                Err(error @ StoreError::Unreachable(_)) => {
                    last = error;
                    sleep(PAUSE).await;
                    node = self.home(slot).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let answer = if is_asking {
                ask_there(&mut line, command).await
            } else {
                line.send(command).await
            };
            is_asking = false;
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let redirection = match (&error, &node) {
                (StoreError::Refused(reason), Some(from)) => {
                    redirect::read_redirection(reason, from)
                }
                _ => None,
            };
            match redirection {
                Some(Redirection::Moved(_, to)) => {
                    self.lines.lock().await.ranges.clear();
                    node = Some(to);
                }
                Some(Redirection::Ask(to)) => {
                    node = Some(to);
                    is_asking = true;
                }
                Some(Redirection::TryAgain | Redirection::Unserved) => {
                    sleep(PAUSE).await;
                    self.lines.lock().await.ranges.clear();
                    node = self.home(slot).await?;
                }
                Some(Redirection::Crossed) => return Err(error),
                None => {
                    self.lines.lock().await.open.remove(&node);
                    if !may_be_another(&error) {
                        return Err(login::of_cluster(&self.target, &error).unwrap_or(error));
                    }
                    node = self.home(slot).await?;
                }
            }
            last = error;
        }
        Err(last)
    }

    /// The node that serves a slot; `None` for a single Redis.
    async fn home(&self, slot: Slot) -> Result<Option<Address>, StoreError> {
        let RedisEndpoint::Cluster { seeds } = &self.target.place else {
            return Ok(None);
        };
        let mut lines = self.lines.lock().await;
        if lines.ranges.is_empty() {
            let known = lines.open.keys().flatten().cloned();
            let asked: Vec<Address> = known.chain(seeds.iter().cloned()).collect();
            let mut trouble = StoreError::Down;
            for seed in asked {
                match cluster::map_of(self.target.clone(), seed).await {
                    Ok(ranges) => {
                        lines.ranges = ranges;
                        break;
                    }
                    Err(error) => trouble = error,
                }
            }
            if lines.ranges.is_empty() {
                return Err(trouble);
            }
        }
        let mut ranges = lines.ranges.iter();
        let range = ranges.find(|range| (range.first..=range.last).contains(&slot));
        let Some(range) = range else {
            let unserved = "a slot of the cluster is served by no node";
            lines.ranges.clear();
            return Err(StoreError::Refused(unserved.into()));
        };
        Ok(Some(range.master.clone()))
    }

    /// A connection to a node, made if there is no live one.
    async fn line(&self, node: Option<&Address>) -> Result<RedisConnection, StoreError> {
        let mut lines = self.lines.lock().await;
        let node = node.cloned();
        if let Some(line) = lines.open.get(&node)
            && !line.is_dead()
        {
            return Ok(line.clone());
        }
        let manager = Manager::new(self.target.clone(), node.clone(), Arc::default());
        let opened = manager.open_for(async |_| Ok(())).await;
        let (line, ()) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // A node that is gone must not be used again.
                lines.ranges.clear();
                return Err(error);
            }
        };
        lines.open.insert(node, line.clone());
        Ok(line)
    }
}

/// Sends a command to the node that a slot is being moved to.
async fn ask_there(line: &mut RedisConnection, command: &Cmd) -> Result<Value, StoreError> {
    let mut both = Pipeline::with_capacity(2);
    both.add_command(cmd("ASKING"));
    both.add_command(command.clone());
    let mut answers = line.many(&both).await?;
    answers
        .pop()
        .unwrap_or(Err(StoreError::Protocol("not an answer to each call")))
}

/// May another connection lead to a Redis that answers? The old one has ended, or leads to a server that is no longer a
/// master.
fn may_be_another(error: &StoreError) -> bool {
    match error {
        StoreError::Lost(_) => true,
        StoreError::Refused(reason) => reason.starts_with("READONLY"),
        _ => false,
    }
}

fn script(text: &str, key: &str) -> Cmd {
    let mut call = cmd("EVAL");
    call.arg(text).arg(1).arg(key);
    call
}

fn is_done(answer: &Value) -> Result<bool, StoreError> {
    match answer {
        Value::Int(count) => Ok(*count > 0),
        _ => Err(StoreError::Protocol("no number")),
    }
}

fn millis(life: Duration) -> u64 {
    u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The part of a key that determines its slot: the content of its first braces, unless that is empty.
fn hash_tag(key: &[u8]) -> &[u8] {
    let open = key.iter().position(|byte| *byte == b'{');
    let inner = open.and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then_some(&rest[..close])
    });
    inner.unwrap_or(key)
}
