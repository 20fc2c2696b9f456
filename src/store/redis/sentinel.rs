//! Where the master is, as the sentinels say: asked for each connection, and believed when the Redis there says so too.
//!
//! One sentinel's word is enough to look; a master that has been replaced says `slave` as soon as it has heard of it. Until
//! then it takes writes that are lost, for everybody who is cut off together with it: `min-replicas-to-write` is its remedy.

use super::login::{self, Whose, text};
use super::pool::{Connection, Manager, first_word};
use crate::store::error::StoreError;
use crate::store::place::{Address, Place};
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// Longest that one sentinel is waited for: the next may know.
const EACH: Duration = Duration::from_millis(250);
/// Sentinels whose troubles are told.
const TOLD: usize = 3;

/// Which sentinel is asked first: the last that knew.
#[derive(Debug, Default)]
pub(super) struct First(AtomicUsize);

impl Manager {
    /// A connection to the master of `target`, if its place is one that sentinels watch.
    pub(super) async fn follow(&self, target: &RedisTarget) -> Result<Connection, StoreError> {
        let Place::Sentinel { nodes, .. } = &target.place else {
            return self.connect((target, None), Whose::Redis).await;
        };
        let mut troubles = Vec::new();
        let start = self.first.0.load(Ordering::Relaxed);
        for nth in start..start + nodes.len() {
            let Some(sentinel) = nodes.get(nth % nodes.len()) else {
                continue;
            };
            // Should this one use up all the time, the next attempt begins with another.
            self.first
                .0
                .store((nth + 1) % nodes.len(), Ordering::Relaxed);
            match self.master_by(sentinel, target).await {
                Ok(connection) => {
                    self.first.0.store(nth % nodes.len(), Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => troubles.push(format!("{sentinel}: {}", plain(&error))),
            }
        }
        let more = match troubles.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        troubles.truncate(TOLD);
        let why = format!("no sentinel led to a master: {}{more}", troubles.join("; "));
        Err(StoreError::Unreachable(why.into()))
    }

    /// A connection to what this sentinel calls the master, if it is one.
    async fn master_by(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Result<Connection, StoreError> {
        let master = timeout(EACH, self.ask(sentinel, target)).await;
        let master = master.unwrap_or(Err(StoreError::Timeout { after: EACH }))?;
        // Of what is wrong there the sentinel is not to blame.
        let there = |error: StoreError| {
            let why = format!("it names {master}, and {}", plain(&error));
            StoreError::Unreachable(why.into())
        };
        let node = (target, Some(&master));
        let mut connection = self.connect(node, Whose::Redis).await.map_err(there)?;
        let role = connection.send(Cmd::new().arg("ROLE")).await;
        let role = match role.map_err(|error| there(refused(error, Whose::Redis)))? {
            Value::Array(parts) => parts.first().and_then(text),
            _ => None,
        };
        if role.as_deref() != Some("master") {
            let why = format!("it names {master}, which says that it is no master");
            return Err(StoreError::Unreachable(why.into()));
        }
        connection.master = Some(master);
        Ok(connection)
    }

    async fn ask(&self, sentinel: &Address, target: &RedisTarget) -> Result<Address, StoreError> {
        let Place::Sentinel {
            name,
            username,
            password,
            ..
        } = &target.place
        else {
            return Err(StoreError::Protocol("no sentinels"));
        };
        let asker = RedisTarget {
            tls: target.tls.clone(),
            username: username.clone(),
            password: password.clone(),
            ..RedisTarget::new(Place::Tcp(sentinel.clone()))
        };
        let mut connection = self.connect((&asker, None), Whose::Sentinels).await?;
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
        let answer = connection.send(question.arg(&**name)).await;
        let no_sentinel = |reason: &str| {
            login::is_unknown_command(reason).then(|| {
            let scheme = if target.tls.is_some() { "rediss" } else { "redis" };
            let why = format!("it is no sentinel: write the addresses of the sentinels, or `{scheme}://{sentinel}` where it is the Redis itself");
            StoreError::Refused(why.into())
        })
        };
        let answer = answer.map_err(|error| match &error {
            StoreError::Refused(reason) => {
                no_sentinel(reason).unwrap_or_else(|| refused(error, Whose::Sentinels))
            }
            _ => error,
        })?;
        match answer {
            Value::Array(parts) => match parts.as_slice() {
                [host, port] => address(host, port),
                _ => None,
            }
            .ok_or(StoreError::Protocol("no address")),
            Value::Nil => Err(StoreError::Unreachable(
                format!("it watches nothing called `{name}`").into(),
            )),
            _ => Err(StoreError::Protocol("no address")),
        }
    }
}

fn address(host: &Value, port: &Value) -> Option<Address> {
    let port = text(port)?.parse().ok()?;
    Some(Address::new(&text(host)?, port))
}

/// With what to do where a password is wanted.
fn refused(error: StoreError, whose: Whose) -> StoreError {
    let StoreError::Refused(reason) = &error else {
        return error;
    };
    let why = login::no_password(first_word(reason), whose);
    why.map_or(error, |why| StoreError::Refused(why.into()))
}

/// Without saying again that it is the store that cannot be reached.
fn plain(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable(why) | StoreError::Refused(why) | StoreError::Lost(why) => {
            why.to_string()
        }
        StoreError::Timeout { after } => format!("no answer within {after:?}"),
        other => other.to_string(),
    }
}
