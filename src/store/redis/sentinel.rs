//! Where the master is, as the sentinels say: asked for each connection, and believed when the Redis there says so too.
//!
//! One sentinel's word is enough to look; a master that has been replaced says `slave` as soon as it has heard of it. Until
//! then it takes writes that are lost, for all clients that are cut off together with it: `min-replicas-to-write` is its remedy.
//!
//! The `redis` crate's feature `sentinel` is not used. It sends `SENTINEL MASTERS`, which a user may not be allowed, checks the
//! role on one connection and counts on another, keeps the last sentinel's error alone, gives no sentinel a deadline of its
//! own, and makes streams and TLS of its own.

use super::connection::{CONNECT_WITHIN, Connection, first_word};
use super::login::{self, Peer, connect, text};
use super::signals::Signals;
use super::transport::Destination;
use crate::clock;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Value};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest that one sentinel is waited for: the next may know.
const EACH: Duration = Duration::from_millis(250);
/// Time between two looks at the master that is named, in milliseconds; jittered, or all gateways would ask at once.
const LOOK: std::ops::Range<u64> = 750..1250;
/// Sentinels that still name different masters are given so long to agree.
const AGREE: Duration = Duration::from_secs(5);
/// How many sentinels' troubles an error has.
const MOST_TROUBLES: usize = 3;

const NO_SENTINELS: StoreError = StoreError::Protocol("no sentinels");

/// The sentinels that watch one Redis.
#[derive(Debug, Default)]
pub(super) struct Sentinels {
    /// Which sentinel is asked first: the last that knew.
    preferred: AtomicUsize,
    /// The signals of the connections that are made.
    signals: Arc<Signals>,
}

/// Asks now and then whether the master is still the one that was named. One that is replaced while it is well learns so
/// from the sentinels some seconds after all others, and what it counts meanwhile is lost.
#[derive(Debug)]
pub(super) struct MasterWatch {
    target: RedisTarget,
    sentinels: Sentinels,
    /// The master that was reported last, and when, until all agree: sentinels that do not are no news each time.
    reported: RefCell<Option<(Address, Instant)>>,
}

impl MasterWatch {
    pub(super) fn new(target: &RedisTarget) -> Self {
        Self {
            target: target.clone(),
            sentinels: Sentinels::default(),
            reported: RefCell::default(),
        }
    }

    /// Waits until sentinels name another master than `known`, and that one answers that it is.
    pub(super) async fn replaced(&self, known: impl Fn() -> Option<Address>) -> Address {
        let mut asked = None;
        loop {
            sleep(Duration::from_millis(fastrand::u64(LOOK))).await;
            let Some(known) = known() else { continue };
            let target = self.target.latest();
            asked = self.sentinels.named(&target, asked).await;
            let Some((_, named)) = &asked else { continue };
            if *named == known {
                self.reported.take();
                continue;
            }
            let reported = self.reported.borrow().clone();
            if reported.is_some_and(|(master, at)| master == *named && clock::now() - at < AGREE) {
                continue;
            }
            let followed = timeout(CONNECT_WITHIN, self.sentinels.follow(&target)).await;
            let master = followed.ok().and_then(Result::ok);
            let master = master.and_then(|connection| connection.master.clone());
            if let Some(master) = master.filter(|master| master == named) {
                self.reported.replace(Some((master.clone(), clock::now())));
                return master;
            }
        }
    }
}

impl Sentinels {
    /// Whose connections report to `signals`.
    pub(super) fn new(signals: Arc<Signals>) -> Self {
        Self {
            preferred: AtomicUsize::new(0),
            signals,
        }
    }

    /// The master that a sentinel names: the sentinel `before` if it still answers, else the first that does.
    async fn named(
        &self,
        target: &RedisTarget,
        before: Option<(Connection, Address)>,
    ) -> Option<(Connection, Address)> {
        if let Some((mut connection, _)) = before {
            let named = timeout(EACH, named_master(&mut connection, target)).await;
            if let Ok(Ok(master)) = named {
                return Some((connection, master));
            }
        }
        let RedisEndpoint::Sentinel { nodes, .. } = &target.place else {
            return None;
        };
        for sentinel in nodes.iter() {
            let named = timeout(EACH, self.ask(sentinel, target)).await;
            if let Ok(Ok(named)) = named {
                return Some(named);
            }
        }
        None
    }

    /// A connection to the master that the sentinels of `target` name.
    pub(super) async fn follow(&self, target: &RedisTarget) -> Result<Connection, StoreError> {
        let RedisEndpoint::Sentinel { nodes, .. } = &target.place else {
            return Err(NO_SENTINELS);
        };
        let mut troubles = Vec::new();
        let start = self.preferred.load(Ordering::Relaxed);
        for nth in start..start + nodes.len() {
            let Some(sentinel) = nodes.get(nth % nodes.len()) else {
                continue;
            };
            // Should this one use up all the time, the next attempt begins with another.
            self.preferred
                .store((nth + 1) % nodes.len(), Ordering::Relaxed);
            match self.master_by(sentinel, target).await {
                Ok(connection) => {
                    self.preferred.store(nth % nodes.len(), Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => troubles.push(format!("{sentinel}: {}", plain(&error))),
            }
        }
        let more = match troubles.len().saturating_sub(MOST_TROUBLES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        troubles.truncate(MOST_TROUBLES);
        let why = format!("no sentinel led to a master: {}{more}", troubles.join("; "));
        Err(StoreError::Unreachable(why.into()))
    }

    /// A connection to what this sentinel calls the master, if it is one.
    async fn master_by(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Result<Connection, StoreError> {
        let asked = timeout(EACH, self.ask(sentinel, target)).await;
        let (_, master) = asked.unwrap_or_else(|_| Err(late(target)))?;
        // The sentinel is not to blame for an error of the master.
        let there = |error: StoreError| {
            let why = format!("it names {master}, and {}", plain(&error));
            StoreError::Unreachable(why.into())
        };
        let destination = Destination {
            target,
            node: Some(&master),
        };
        let connected = connect(destination, Peer::Redis, &self.signals).await;
        let mut connection = connected.map_err(there)?;
        let role = connection.send(Cmd::new().arg("ROLE")).await;
        let role = match role.map_err(|error| there(refused(error, Peer::Redis)))? {
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

    /// A connection to this sentinel, and whom it calls the master.
    async fn ask(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Result<(Connection, Address), StoreError> {
        let RedisEndpoint::Sentinel {
            username, password, ..
        } = &target.place
        else {
            return Err(NO_SENTINELS);
        };
        let asker = RedisTarget {
            tls: target.tls.clone(),
            username: username.clone(),
            password: password.clone(),
            ..RedisTarget::new(RedisEndpoint::Tcp(sentinel.clone()))
        };
        let mut connection =
            connect(Destination::of(&asker), Peer::Sentinels, &self.signals).await?;
        let answer = named_master(&mut connection, target).await;
        let answer = answer.map_err(|error| match &error {
            StoreError::Refused(reason) if login::is_unknown_command(reason) => {
                let scheme = login::scheme(target);
                let why = format!("it is no sentinel: write the addresses of the sentinels, or `{scheme}://{sentinel}` where it is the Redis itself");
                StoreError::Refused(why.into())
            }
            _ => refused(error, Peer::Sentinels),
        });
        answer.map(|master| (connection, master))
    }
}

/// The master that the sentinel at the other end names.
async fn named_master(
    connection: &mut Connection,
    target: &RedisTarget,
) -> Result<Address, StoreError> {
    let RedisEndpoint::Sentinel { name, .. } = &target.place else {
        return Err(NO_SENTINELS);
    };
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
    match connection.send(question.arg(&**name)).await? {
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

/// Why a sentinel has not answered in time. One without TLS waits for the end of a line that never ends.
fn late(target: &RedisTarget) -> StoreError {
    match target.tls {
        None => StoreError::Timeout { after: EACH },
        Some(_) => StoreError::Unreachable(
            format!("no answer within {EACH:?}: is it a port with TLS? If not, write `redis` in place of `rediss` in the address").into(),
        ),
    }
}

fn address(host: &Value, port: &Value) -> Option<Address> {
    let port = text(port)?.parse().ok()?;
    Some(Address::new(&text(host)?, port))
}

/// The error, with what to do where a password is wanted.
fn refused(error: StoreError, whose: Peer) -> StoreError {
    let StoreError::Refused(reason) = &error else {
        return error;
    };
    let why = login::no_password(first_word(reason), whose);
    why.map_or(error, |why| StoreError::Refused(why.into()))
}

/// The text of an error, without that it is the store that cannot be reached.
fn plain(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable(why) | StoreError::Refused(why) | StoreError::Lost(why) => {
            why.to_string()
        }
        StoreError::Timeout { after } => format!("no answer within {after:?}"),
        other => other.to_string(),
    }
}
