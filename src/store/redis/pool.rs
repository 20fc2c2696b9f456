//! Connections to Redis, through bb8 with an own manager.
//!
//! A connection carries a flag that is raised the moment it ends or a call on it fails, so that nothing has to be asked
//! before it is used (notes: `dependencies`, pitfall 1). Whoever takes one out looks at the flag.

use super::dial::dial;
use super::script;
use crate::store::error::StoreError;
use crate::store::place::Address;
use crate::store::settings::RedisTarget;
use bb8_redis::bb8::{self, ManageConnection, Pool, RunError};
use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// Connections of one worker, and so calls it has under way.
pub(super) const CONNECTIONS: u32 = 2;

/// Longest a connection may take to be made, scripts loaded. Also how long a probe of a stalled server lasts, so well
/// below the two seconds within which limits are to be shared again.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Least time between a failure to connect and the next attempt.
const KNOCK_EVERY: Duration = Duration::from_millis(100);

/// A connection with its scripts loaded. Dropping it closes it, whatever it waits for.
#[derive(Debug)]
pub(super) struct Connection {
    line: MultiplexedConnection,
    dead: Arc<AtomicBool>,
    driver: AbortHandle,
}

impl Connection {
    /// Sends a script call. A server that has forgotten its scripts ran nothing, so they are loaded again and the same
    /// call is made once more; no other error is ever answered by a second try.
    pub(super) async fn call(&mut self, command: &Cmd) -> Result<Vec<u8>, StoreError> {
        let answer = match self.send(command).await {
            Err(StoreError::Refused(reason)) if first_word(&reason) == "NOSCRIPT" => {
                self.load().await?;
                self.send(command).await?
            }
            answer => answer?,
        };
        match answer {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(StoreError::Protocol("not a string")),
        }
    }

    /// Never to be used again.
    pub(super) fn condemn(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        for script in script::ALL {
            self.send(&script.load()).await?;
        }
        Ok(())
    }

    /// Sends any command.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        let answer = self.line.send_packed_command(command).await;
        answer.and_then(Value::extract_error).map_err(told)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What connections tell whoever watches over the store.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A connection has ended.
    pub(super) lost: Notify,
    /// One could not be made.
    failed: Notify,
    why: Mutex<Option<(Instant, StoreError)>>,
}

impl Signals {
    fn last_failure(&self) -> MutexGuard<'_, Option<(Instant, StoreError)>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes connections for bb8.
#[derive(Debug)]
pub(super) struct Manager {
    target: RedisTarget,
    /// Which of its nodes, where it has several.
    node: Option<Address>,
    signals: Arc<Signals>,
}

impl Manager {
    pub(super) fn new(target: RedisTarget, node: Option<Address>, signals: Arc<Signals>) -> Self {
        Self {
            target,
            node,
            signals,
        }
    }

    pub(super) async fn open(&self) -> Result<Connection, StoreError> {
        let target = self.target.latest();
        let stream = dial(&target, self.node.as_ref()).await?;
        // Deadlines are the callers': one of their own for a whole call, the pool's for all of this.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (line, driver) =
            MultiplexedConnection::new_with_config(&login(&target), stream, config)
                .await
                .map_err(|error| StoreError::Unreachable(error.to_string().into()))?;
        let dead = Arc::new(AtomicBool::new(false));
        let driver = tokio::spawn({
            let (dead, signals) = (dead.clone(), self.signals.clone());
            async move {
                driver.await;
                dead.store(true, Ordering::Relaxed);
                signals.lost.notify_one();
            }
        });
        let mut connection = Connection {
            line,
            dead,
            driver: driver.abort_handle(),
        };
        connection.load().await?;
        Ok(connection)
    }
}

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = StoreError;

    async fn connect(&self) -> Result<Connection, StoreError> {
        // bb8 tries again whenever somebody asks; a server that turns us away is not asked at that rate.
        let last = self.signals.last_failure().as_ref().map(|(at, _)| *at);
        if let Some(last) = last {
            sleep_until(last + KNOCK_EVERY).await;
        }
        let made = timeout(CONNECT_WITHIN, self.open())
            .await
            .unwrap_or(Err(StoreError::Timeout {
                after: CONNECT_WITHIN,
            }));
        if let Err(error) = &made {
            *self.signals.last_failure() = Some((Instant::now(), error.clone()));
            self.signals.failed.notify_waiters();
        }
        made
    }

    async fn is_valid(&self, connection: &mut Connection) -> Result<(), StoreError> {
        match connection.is_dead() {
            false => Ok(()),
            true => Err(StoreError::Lost("closed".into())),
        }
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_dead()
    }
}

/// A worker's connections.
#[derive(Debug)]
pub(super) struct Connections {
    pool: Pool<Manager>,
    pub(super) signals: Arc<Signals>,
}

/// A connection taken out; dropping it puts it back, or removes it if it is dead.
pub(super) type Taken<'a> = bb8::PooledConnection<'a, Manager>;

impl Connections {
    /// Starts connecting to this node of `target`, or to wherever its place says, and waits for nothing: the gateway
    /// starts without Redis.
    pub(super) fn new(target: &RedisTarget, node: Option<Address>) -> Self {
        let signals = Arc::new(Signals::default());
        let manager = Manager::new(target.clone(), node, signals.clone());
        // bb8 neither tests on the way out (that is a round trip), nor retries by itself (`health` does, and knows when
        // to stop), nor closes what is old or idle: the flag says what is of no use.
        let pool = Pool::builder()
            .max_size(CONNECTIONS)
            .min_idle(CONNECTIONS)
            .test_on_check_out(false)
            .retry_connection(false)
            .connection_timeout(CONNECT_WITHIN)
            .max_lifetime(None)
            .idle_timeout(None)
            .build_unchecked(manager);
        Self { pool, signals }
    }

    /// A live connection, as soon as there is one; an error as soon as one cannot be made.
    pub(super) async fn take(&self) -> Result<Taken<'_>, StoreError> {
        loop {
            let failed = self.signals.failed.notified();
            tokio::select! {
                biased;
                taken = self.pool.get() => match taken {
                    Ok(connection) if connection.is_dead() => drop(connection),
                    Ok(connection) => return Ok(connection),
                    Err(RunError::User(error)) => return Err(error),
                    Err(RunError::TimedOut) => {
                        return Err(StoreError::Timeout { after: CONNECT_WITHIN });
                    }
                },
                () = failed => {
                    let why = self.signals.last_failure();
                    return Err(why.as_ref().map_or(StoreError::Down, |(_, why)| why.clone()));
                }
            }
        }
    }
}

/// What is said first on a connection.
fn login(target: &RedisTarget) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default()
        .set_db(target.database.into())
        .set_lib_name("tollgate", env!("CARGO_PKG_VERSION"));
    if let Some(name) = &target.username {
        login = login.set_username(name);
    }
    if let Some(password) = &target.password {
        login = login.set_password(password.expose());
    }
    login
}

/// The crate's error as one of ours.
fn told(error: RedisError) -> StoreError {
    match error.code() {
        Some(code) => {
            StoreError::Refused(format!("{code} {}", error.detail().unwrap_or_default()).into())
        }
        None => StoreError::Lost(error.to_string().into()),
    }
}

fn first_word(reason: &str) -> &str {
    reason.split_whitespace().next().unwrap_or_default()
}
