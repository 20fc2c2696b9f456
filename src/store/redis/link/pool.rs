//! The connections of one worker to one Redis, through bb8 with a custom manager.

use super::connection::{CONNECT_WITHIN, RedisConnection, within};
use super::login::{self, LoginPeer, connect};
use super::reply;
use super::sentinel::{MasterWatch, Sentinels};
use super::signals::{ConnectionSignals, KNOCK_EVERY, locked};
use super::transport::RedisDestination;
use crate::clock;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use bb8_redis::bb8::{ManageConnection, Pool, RunError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::sleep_until;

/// Connections of one worker.
pub(crate) const CONNECTIONS: u32 = 2;

/// Makes connections for bb8.
#[derive(Debug)]
pub(crate) struct Manager {
    target: RedisTarget,
    /// The node of the target, if the target has several.
    node: Option<Address>,
    signals: Arc<ConnectionSignals>,
    sentinels: Sentinels,
}

impl Manager {
    pub(crate) fn new(
        target: RedisTarget,
        node: Option<Address>,
        signals: Arc<ConnectionSignals>,
    ) -> Self {
        Self {
            target,
            node,
            sentinels: Sentinels::new(Arc::clone(&signals)),
            signals,
        }
    }

    /// A connection that can decide.
    pub(crate) async fn open(&self) -> Result<RedisConnection, StoreError> {
        self.open_for(async |connection| connection.load().await)
            .await
            .map(|(connection, ())| connection)
    }

    /// A connection and the answer to `asked` on it, or the cause of a refusal. It may lead to a replica, which stores
    /// nothing.
    pub(crate) async fn open_for<T>(
        &self,
        asked: impl AsyncFnOnce(&mut RedisConnection) -> Result<T, StoreError>,
    ) -> Result<(RedisConnection, T), StoreError> {
        let target = self.target.latest();
        let destination = RedisDestination {
            target: &target,
            node: self.node.as_ref(),
        };
        let mut connection = match &target.place {
            RedisEndpoint::Sentinel { .. } if self.node.is_none() => {
                self.sentinels.follow(&target, &self.signals).await?
            }
            _ => connect(destination, LoginPeer::Redis, &self.signals).await?,
        };
        match asked(&mut connection).await {
            Ok(answer) => {
                self.leads(&mut connection);
                Ok((connection, answer))
            }
            Err(error) => Err(connection.explain(error, destination).await),
        }
    }

    /// Takes over the master at the end of this connection. Connections to another server are no longer used.
    fn leads(&self, connection: &mut RedisConnection) {
        if connection.is_dead() {
            // The master has been replaced while the connection was made.
            return;
        }
        if let Some(age) = self.signals.leads(connection.master.as_ref()) {
            connection.age = age;
            self.signals.replaced.notify_one();
        }
    }
}

impl ManageConnection for Manager {
    type Connection = RedisConnection;
    type Error = StoreError;

    async fn connect(&self) -> Result<RedisConnection, StoreError> {
        // bb8 tries again for every requested connection. A server that rejects the gateway is not tried at that rate.
        let last = self.signals.last_failure().as_ref().map(|(at, _)| *at);
        if let Some(last) = last {
            sleep_until(last + KNOCK_EVERY).await;
        }
        let made = within(CONNECT_WITHIN, self.open()).await;
        let failure = made.as_ref().err();
        *self.signals.last_failure() = failure.map(|error| (clock::now(), error.clone()));
        if failure.is_some() {
            self.signals.failed.notify_waiters();
        }
        made
    }

    async fn is_valid(&self, connection: &mut RedisConnection) -> Result<(), StoreError> {
        if connection.is_dead() {
            Err(StoreError::Lost("closed".into()))
        } else {
            Ok(())
        }
    }

    fn has_broken(&self, connection: &mut RedisConnection) -> bool {
        connection.is_dead()
    }
}

/// A worker's connections.
#[derive(Debug)]
pub(crate) struct Connections {
    pool: Pool<Manager>,
    /// The watch over the master's name, if sentinels name it.
    master_watch: Option<MasterWatch>,
    /// The target of the connections, if it is a single Redis.
    lone: Option<RedisTarget>,
    pub(crate) signals: Arc<ConnectionSignals>,
}

impl Connections {
    /// Starts to connect to this node of `target`, or to the configured address, and waits for nothing: the gateway
    /// starts without Redis.
    pub(crate) fn new(target: &RedisTarget, node: Option<Address>) -> Self {
        let signals = Arc::new(ConnectionSignals::default());
        let lone = node.is_none().then(|| target.clone());
        let manager = Manager::new(target.clone(), node, signals.clone());
        // bb8 does three things less here. It does not test a connection before use (a round trip). It does not retry
        // by itself (`health` does, and knows when to stop). It does not close old or idle connections (the flag marks
        // useless ones).
        let pool = Pool::builder()
            .max_size(CONNECTIONS)
            .min_idle(CONNECTIONS)
            .test_on_check_out(false)
            .retry_connection(false)
            .connection_timeout(CONNECT_WITHIN)
            .max_lifetime(None)
            .idle_timeout(None)
            .build_unchecked(manager);
        let by_sentinels = matches!(target.place, RedisEndpoint::Sentinel { .. });
        Self {
            pool,
            master_watch: by_sentinels.then(|| MasterWatch::new(target)),
            lone,
            signals,
        }
    }

    /// Notes that the store became unavailable. If the cause may be a new master, no connection made so far is used
    /// again, including idle ones: they lead to the old master.
    pub(crate) fn distrust(&self, why: &StoreError) {
        let demoted = matches!(why, StoreError::Refused(reason) if reply::is_read_only(reason));
        if demoted || self.master_watch.is_some() {
            self.signals.age.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The error, with the remedy if a single Redis is meant and a cluster node has answered.
    pub(crate) fn explain(&self, why: &StoreError) -> StoreError {
        let lone = self.lone.as_ref();
        lone.and_then(|target| login::of_cluster(target, why))
            .unwrap_or_else(|| why.clone())
    }

    /// Waits until sentinels name another master. Never resolves without sentinels.
    pub(crate) async fn master_replaced(&self) -> Address {
        match &self.master_watch {
            Some(watch) => watch.replaced(&self.signals).await,
            None => std::future::pending().await,
        }
    }

    /// Notes that the master was replaced. Connections made so far are kept only for their current calls.
    pub(crate) fn renew_for(&self, master: &Address) {
        self.signals.leads(Some(master));
    }

    /// Do sentinels name the master?
    pub(crate) fn are_by_sentinels(&self) -> bool {
        self.master_watch.is_some()
    }

    /// The master at the other end of the last connection, if sentinels named it.
    pub(crate) fn master(&self) -> Option<Address> {
        locked(&self.signals.master).clone()
    }

    /// The cause for which no connection could be made, if the last attempt failed.
    pub(crate) fn why_not(&self) -> Option<StoreError> {
        let why = self.signals.last_failure();
        why.as_ref().map(|(_, why)| why.clone())
    }

    /// Checks every connection, so that useless ones are replaced. The result is an error if there is no other, and
    /// none can be made.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        for _ in 0..CONNECTIONS {
            self.take().await?;
        }
        Ok(())
    }

    /// A handle to a live connection, by turns, as soon as there is one; an error as soon as none can be made.
    pub(crate) async fn take(&self) -> Result<RedisConnection, StoreError> {
        loop {
            tokio::select! {
                biased;
                taken = self.pool.get() => match taken {
                    Ok(connection) if connection.is_dead() => drop(connection),
                    // The connection returns to the pool at once, for the next call to share.
                    Ok(connection) => return Ok(RedisConnection::clone(&connection)),
                    Err(RunError::User(error)) => return Err(error),
                    Err(RunError::TimedOut) => {
                        return Err(StoreError::Timeout { after: CONNECT_WITHIN });
                    }
                },
                why = self.signals.hopeless() => return Err(why),
            }
        }
    }
}
