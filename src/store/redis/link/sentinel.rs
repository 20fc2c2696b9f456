//! The master's address from the sentinels: requested before each connection, and used if the Redis at that address
//! reports the master's role.
//!
//! One sentinel's answer is enough for an attempt. A replaced master reports `slave` as soon as it has learned of the
//! change. Until then it accepts writes that are lost, for all clients that are cut off together with it:
//! `min-replicas-to-write` is the remedy.
//!
//! The `redis` crate's feature `sentinel` is not used, for five reasons. It sends `SENTINEL MASTERS`, which a user may
//! lack the permission for. It checks the role on one connection and counts on another. It keeps only the last
//! sentinel's error. It gives no sentinel its own deadline. It creates its own streams and TLS.

mod subscription;

use super::connection::{CONNECT_WITHIN, RedisConnection, first_word};
use super::login::{self, LoginPeer, connect, reply_text};
use super::rights;
use super::signals::{AGREE, ConnectionSignals, locked};
use super::transport::{RedisDestination, RedisStream};
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

/// Longest wait for one sentinel: the next may know the master.
const EACH: Duration = Duration::from_millis(250);
/// The longest time of connecting to the named master after which the sentinel is not queried once more. A paused
/// master answers late, and another may have taken its place meanwhile.
const AT_ONCE: Duration = Duration::from_millis(50);
/// The pause between two queries for the named master, in milliseconds; jittered, since otherwise all gateways would
/// query at once.
const LOOK: std::ops::Range<u64> = 750..1250;
/// The most sentinels whose errors one error names.
const MOST_TROUBLES: usize = 3;

const NO_SENTINELS: StoreError = StoreError::Protocol("no sentinels");

/// The sentinels that monitor one Redis.
#[derive(Debug, Default)]
pub(crate) struct Sentinels {
    /// The sentinel that is queried first: the last that knew the master.
    preferred: AtomicUsize,
    /// The signals of the connections that are made.
    signals: Arc<ConnectionSignals>,
}

/// Checks periodically whether the named master is still the master. A healthy master that is replaced learns of it
/// from the sentinels some seconds after all others, and the counts that it takes meanwhile are lost.
#[derive(Debug)]
pub(super) struct MasterWatch {
    target: RedisTarget,
    sentinels: Sentinels,
    /// The last reported master, and the instant, until all sentinels agree: disagreeing ones are not reported each
    /// time.
    reported: RefCell<Option<(Address, Instant)>>,
}

/// A sentinel that named the master last.
struct AskedSentinel {
    sentinel: Address,
    connection: RedisConnection,
    master: Address,
    /// Its notifications, while they can be received.
    subscription: Option<RedisStream>,
}

impl MasterWatch {
    pub(crate) fn new(target: &RedisTarget) -> Self {
        Self {
            target: target.clone(),
            sentinels: Sentinels::default(),
            reported: RefCell::default(),
        }
    }

    /// Waits until sentinels name another master than the one that `signals` know, and that server confirms its role.
    pub(crate) async fn replaced(&self, signals: &ConnectionSignals) -> Address {
        let mut asked: Option<AskedSentinel> = None;
        // The first query comes at once, so that the notifications are followed from the beginning.
        let mut pause = Duration::ZERO;
        loop {
            let is_notified = tokio::select! {
                () = sleep(pause) => false,
                () = subscription::next_message(asked.as_mut().map(|asked| &mut asked.subscription)) => true,
            };
            if is_notified {
                sleep(subscription::PAUSE).await;
            }
            pause = Duration::from_millis(fastrand::u64(LOOK));
            let Some(known) = locked(&signals.master).clone() else {
                continue;
            };
            let target = self.target.latest();
            asked = self.sentinels.named(&target, asked, is_notified).await;
            let Some(AskedSentinel { master: named, .. }) = &asked else {
                continue;
            };
            if *named == known {
                self.reported.take();
                continue;
            }
            let reported = self.reported.borrow().clone();
            if reported.is_some_and(|(master, at)| master == *named && clock::now() - at < AGREE) {
                continue;
            }
            let followed = timeout(CONNECT_WITHIN, self.sentinels.follow(&target, signals)).await;
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
    /// Sentinels for connections that report to `signals`.
    pub(crate) fn new(signals: Arc<ConnectionSignals>) -> Self {
        Self {
            preferred: AtomicUsize::new(0),
            signals,
        }
    }

    /// The master by the sentinel `before`, if it still answers; else by the first sentinel that names one. Its
    /// notifications are subscribed to, again if needed, unless one of them is the cause of the query.
    async fn named(
        &self,
        target: &RedisTarget,
        before: Option<AskedSentinel>,
        is_notified: bool,
    ) -> Option<AskedSentinel> {
        if let Some(mut asked) = before {
            let named = timeout(EACH, named_master(&mut asked.connection, target)).await;
            if let Ok(Ok(master)) = named {
                if asked.subscription.is_none() && !is_notified {
                    asked.subscription = self.subscription_of(&asked.sentinel, target).await;
                }
                return Some(AskedSentinel { master, ..asked });
            }
        }
        let RedisEndpoint::Sentinel { nodes, .. } = &target.place else {
            return None;
        };
        for sentinel in nodes.iter() {
            let named = timeout(EACH, self.ask(sentinel, target)).await;
            if let Ok(Ok((connection, master))) = named {
                return Some(AskedSentinel {
                    sentinel: sentinel.clone(),
                    connection,
                    master,
                    subscription: self.subscription_of(sentinel, target).await,
                });
            }
        }
        None
    }

    /// The notifications of this sentinel, if they can be received.
    async fn subscription_of(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Option<RedisStream> {
        let asker = asker(sentinel, target)?;
        let followed = timeout(EACH, subscription::follow(&asker)).await;
        followed.ok().and_then(Result::ok)
    }

    /// A connection to the master that the sentinels of `target` name. A master that another has just replaced by these
    /// `signals` is followed only if all sentinels name it.
    pub(crate) async fn follow(
        &self,
        target: &RedisTarget,
        signals: &ConnectionSignals,
    ) -> Result<RedisConnection, StoreError> {
        let RedisEndpoint::Sentinel { nodes, .. } = &target.place else {
            return Err(NO_SENTINELS);
        };
        let mut troubles = Vec::new();
        // The sentinels that name a master that was just replaced, and the connection to it.
        let (mut behind, mut back) = (0, None);
        let start = self.preferred.load(Ordering::Relaxed);
        for nth in start..start + nodes.len() {
            let Some(sentinel) = nodes.get(nth % nodes.len()) else {
                continue;
            };
            // If this sentinel uses up all the time, the next attempt begins with another.
            self.preferred
                .store((nth + 1) % nodes.len(), Ordering::Relaxed);
            let error = match self.master_by(sentinel, target).await {
                Ok(connection) if !is_behind(signals, target, &connection) => {
                    self.preferred.store(nth % nodes.len(), Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(connection) => {
                    behind += 1;
                    back = Some(connection);
                    "it names a master that has just been replaced".to_owned()
                }
                Err(error) => plain(&error),
            };
            troubles.push(format!("{sentinel}: {error}"));
        }
        if let Some(connection) = back.filter(|_| behind == nodes.len()) {
            // The server is master again.
            return Ok(connection);
        }
        let more = match troubles.len().saturating_sub(MOST_TROUBLES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        troubles.truncate(MOST_TROUBLES);
        let why = format!("no sentinel led to a master: {}{more}", troubles.join("; "));
        Err(StoreError::Unreachable(why.into()))
    }

    /// A connection to the server that this sentinel names, if that is a master.
    async fn master_by(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Result<RedisConnection, StoreError> {
        let asked = timeout(EACH, self.ask(sentinel, target)).await;
        let (mut asked, master) = asked.unwrap_or_else(|_| Err(late(target)))?;
        let named = clock::now();
        // The sentinel is not the cause of an error of the master.
        let there = |error: StoreError| {
            let why = format!("it names {master}, and {}", plain(&error));
            StoreError::Unreachable(why.into())
        };
        let destination = RedisDestination {
            target,
            node: Some(&master),
        };
        let connected = connect(destination, LoginPeer::Redis, &self.signals).await;
        let mut connection = connected.map_err(there)?;
        let role = connection.send(Cmd::new().arg("ROLE")).await;
        let role = match role.map_err(|error| there(refused(error, LoginPeer::Redis)))? {
            Value::Array(parts) => parts.first().and_then(reply_text),
            _ => None,
        };
        if role.as_deref() != Some("master") {
            let why = format!("it names {master}, which says that it is no master");
            return Err(StoreError::Unreachable(why.into()));
        }
        if clock::now() - named > AT_ONCE {
            let second = timeout(EACH, named_master(&mut asked, target)).await;
            let other = second.unwrap_or_else(|_| Err(late(target)))?;
            if other != master {
                let why = format!("it named {master}, but now it names {other}");
                return Err(StoreError::Unreachable(why.into()));
            }
        }
        connection.master = Some(master);
        Ok(connection)
    }

    /// A connection to this sentinel, and the master that it names.
    async fn ask(
        &self,
        sentinel: &Address,
        target: &RedisTarget,
    ) -> Result<(RedisConnection, Address), StoreError> {
        let asker = asker(sentinel, target).ok_or(NO_SENTINELS)?;
        let mut connection = connect(
            RedisDestination::of(&asker),
            LoginPeer::Sentinels,
            &self.signals,
        )
        .await?;
        let answer = named_master(&mut connection, target).await;
        let answer = answer.map_err(|error| match &error {
            StoreError::Refused(reason) if rights::is_unknown_command(reason) => {
                let scheme = login::scheme(target);
                let why = format!("it is no sentinel: write the addresses of the sentinels, or `{scheme}://{sentinel}` where it is the Redis itself");
                StoreError::Refused(why.into())
            }
            _ => refused(error, LoginPeer::Sentinels),
        });
        answer.map(|master| (connection, master))
    }
}

/// Is it possible that the sentinel of `target` that led to this master has not learned yet of a new master? A single
/// sentinel cannot be contradicted.
fn is_behind(
    signals: &ConnectionSignals,
    target: &RedisTarget,
    connection: &RedisConnection,
) -> bool {
    let has_others =
        matches!(&target.place, RedisEndpoint::Sentinel { nodes, .. } if nodes.len() > 1);
    let mut master = connection.master.iter();
    has_others && master.any(|master| signals.is_former(master))
}

/// The target that is this sentinel itself, with the sentinels' credentials.
fn asker(sentinel: &Address, target: &RedisTarget) -> Option<RedisTarget> {
    let RedisEndpoint::Sentinel {
        username, password, ..
    } = &target.place
    else {
        return None;
    };
    Some(RedisTarget {
        tls: target.tls.clone(),
        username: username.clone(),
        password: password.clone(),
        ..RedisTarget::new(RedisEndpoint::Tcp(sentinel.clone()))
    })
}

/// The master by the sentinel at the other end.
async fn named_master(
    connection: &mut RedisConnection,
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

/// The cause for which a sentinel has not answered in time. Without TLS, the sentinel waits for the end of a line that
/// never ends.
fn late(target: &RedisTarget) -> StoreError {
    match target.tls {
        None => StoreError::Timeout { after: EACH },
        Some(_) => StoreError::Unreachable(
            format!("no answer within {EACH:?}: is it a port with TLS? If not, write `redis` in place of `rediss` in the address").into(),
        ),
    }
}

fn address(host: &Value, port: &Value) -> Option<Address> {
    let port = reply_text(port)?.parse().ok()?;
    Some(Address::new(&reply_text(host)?, port))
}

/// The error, with the remedy if a password is required.
fn refused(error: StoreError, whose: LoginPeer) -> StoreError {
    let StoreError::Refused(reason) = &error else {
        return error;
    };
    let why = login::no_password(first_word(reason), whose);
    why.map_or(error, |why| StoreError::Refused(why.into()))
}

/// The text of an error, without the statement that the store cannot be reached.
fn plain(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable(why)
        | StoreError::Refused(why)
        | StoreError::Unpermitted(why)
        | StoreError::Lost(why) => why.to_string(),
        StoreError::Timeout { after } => format!("no answer within {after:?}"),
        other => other.to_string(),
    }
}
