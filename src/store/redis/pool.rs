//! Connections to Redis, through bb8 with an own manager.
//!
//! A connection carries a flag that is raised the moment it ends or a call on it fails, so that nothing has to be asked
//! before it is used (notes: `dependencies`, pitfall 1). Whoever takes one out looks at the flag.
//!
//! Who takes a connection shares it with those who took it before: calls go out one behind the other, and nobody waits for
//! a connection that another is using.

use super::library;
use super::login::{self, Peer};
use super::reply;
use super::script::{self, Script};
use super::sentinel::{MasterWatch, PreferredSentinel};
use super::signals::{KNOCK_EVERY, Signals, locked};
use super::transport::dial;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use bb8_redis::bb8::{ManageConnection, Pool, RunError};
use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisResult, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// Connections of one worker.
pub(super) const CONNECTIONS: u32 = 2;

/// Longest a connection may take to be made, scripts loaded. Also how long a probe of a stalled server lasts, so well
/// below the two seconds within which limits are to be shared again.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Scripts may be forgotten again before they are called: somebody flushes them at every turn, or a master goes.
pub(super) const FORGOTTEN_AGAIN: usize = 3;

/// A connection with its scripts loaded. Clones share it. Dropping the last closes it, whatever it waits for.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    line: MultiplexedConnection,
    life: Arc<ConnectionLife>,
    /// Are scripts called as functions?
    functions: bool,
    /// The signals' age when it was made.
    age: u64,
    /// Where it leads, if somebody had to be asked.
    pub(super) master: Option<Address>,
}

/// What ends with the last who shares a connection.
#[derive(Debug)]
struct ConnectionLife {
    dead: Arc<AtomicBool>,
    driver: AbortHandle,
    signals: Arc<Signals>,
}

impl Drop for ConnectionLife {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Sends a script call. A server that has forgotten the script ran nothing, so it is told it again and the same call
    /// made again, both in one write, so that hardly anybody can come between; no other error is ever answered by a second
    /// try.
    pub(super) async fn call(&mut self, command: &Cmd) -> Result<Vec<u8>, StoreError> {
        let function = self.functions.then(|| library::call(command));
        let shaped = function.as_ref().unwrap_or(command);
        let mut answer = self.send(shaped).await;
        let mut tries = 0;
        while tries < FORGOTTEN_AGAIN && answer.as_ref().is_err_and(is_forgotten) {
            answer = self.again(command, shaped).await;
            tries += 1;
        }
        match answer? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(StoreError::Protocol("not a string")),
        }
    }

    /// The call `shaped` of a script that the server has forgotten.
    async fn again(&mut self, command: &Cmd, shaped: &Cmd) -> Result<Value, StoreError> {
        let mut both = Pipeline::with_capacity(2);
        if let Some(reminder) = self.reminder(command) {
            both.add_command(reminder);
        }
        both.add_command(shaped.clone());
        let mut answers = self.many(&both).await?.into_iter().rev();
        let none = Err(StoreError::Protocol("not an answer to each call"));
        let answer = answers.next().unwrap_or(none);
        match answers.next() {
            // It may not be told the script, and says why; or it has just been told by somebody else.
            Some(Err(why))
                if answer.as_ref().is_err_and(is_forgotten) && !library::is_there(&why) =>
            {
                Err(why)
            }
            _ => answer,
        }
    }

    /// What tells a server that has forgotten it the script of a call.
    pub(super) fn reminder(&self, call: &Cmd) -> Option<Cmd> {
        if self.functions {
            Some(library::remind())
        } else {
            Script::of(call).map(Script::load)
        }
    }

    /// A script call as it is made here: where scripts are functions, as the call of its function.
    pub(super) fn shaped(&self, command: Cmd) -> Cmd {
        if self.functions {
            library::call(&command)
        } else {
            command
        }
    }

    /// Sends several commands in one write, and reads what each of them was answered.
    pub(super) async fn many(
        &mut self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answers = self.raw(commands).await.map_err(told)?;
        let each = |answer: Value| answer.extract_error().map_err(told);
        Ok(answers.into_iter().map(each).collect())
    }

    /// The same in the crate's terms.
    pub(super) async fn raw(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let many = commands.len();
        self.line.send_packed_commands(commands, 0, many).await
    }

    /// Never to be used for another call. Those under way on it may still be answered.
    pub(super) fn condemn(&self) {
        self.life.dead.store(true, Ordering::Relaxed);
        self.life.signals.lost.notify_one();
    }

    /// Is it of no use any more, or is there a better one to be made?
    pub(super) fn is_dead(&self) -> bool {
        let ConnectionLife { dead, signals, .. } = &*self.life;
        dead.load(Ordering::Relaxed) || self.age < signals.age.load(Ordering::Relaxed)
    }

    pub(super) async fn load(&mut self) -> Result<(), StoreError> {
        if self.functions {
            return self.load_library().await;
        }
        // One first, which says why where scripts are not taken; the rest in one write, for a server may be far.
        let [first, rest @ ..] = script::ALL;
        self.send(&first.load()).await?;
        self.life.signals.hear();
        let mut all = Pipeline::with_capacity(rest.len());
        for script in rest {
            all.add_command(script.load());
        }
        self.many(&all)
            .await?
            .into_iter()
            .try_for_each(|loaded| loaded.map(drop))
    }

    /// It is written where it is not yet: a write goes to disk and to every replica.
    async fn load_library(&mut self) -> Result<(), StoreError> {
        match self.send(&library::find()).await {
            Ok(Value::Array(found)) if !found.is_empty() => Ok(()),
            Ok(_) => self.send(&library::load()).await.map(drop),
            Err(StoreError::Refused(reason)) => Err(StoreError::Refused(
                library::unknown(&reason).map_or(reason, Into::into),
            )),
            Err(error) => Err(error),
        }
    }

    /// Sends any command.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        let answer = self.line.send_packed_command(command).await;
        answer.and_then(Value::extract_error).map_err(told)
    }
}

/// Makes connections for bb8.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) target: RedisTarget,
    /// Which of its nodes, where it has several.
    node: Option<Address>,
    signals: Arc<Signals>,
    pub(super) first: PreferredSentinel,
}

impl Manager {
    pub(super) fn new(target: RedisTarget, node: Option<Address>, signals: Arc<Signals>) -> Self {
        Self {
            target,
            node,
            signals,
            first: PreferredSentinel::default(),
        }
    }

    /// A connection that can decide.
    pub(super) async fn open(&self) -> Result<Connection, StoreError> {
        self.open_for(async |connection| connection.load().await)
            .await
            .map(|(connection, ())| connection)
    }

    /// A connection and what was `asked` on it, or why that was refused. It may lead to a replica, which keeps nothing.
    pub(super) async fn open_for<T>(
        &self,
        asked: impl AsyncFnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<(Connection, T), StoreError> {
        let target = self.target.latest();
        let mut connection = match &self.node {
            Some(node) => self.connect((&target, Some(node)), Peer::Redis).await?,
            None => self.follow(&target).await?,
        };
        match asked(&mut connection).await {
            Ok(told) => {
                self.leads(&mut connection);
                Ok((connection, told))
            }
            Err(error) => Err(connection
                .explain(error, (&target, self.node.as_ref()))
                .await),
        }
    }

    /// Takes over where this connection leads. Those that lead elsewhere are used no more.
    fn leads(&self, connection: &mut Connection) {
        let mut master = locked(&self.signals.master);
        let before = std::mem::replace(&mut *master, connection.master.clone());
        if before.is_some() && before != connection.master {
            connection.age = self.signals.age.fetch_add(1, Ordering::Relaxed) + 1;
            self.signals.replaced.notify_one();
        }
    }

    /// To this node of `target`, or to the one Redis that its place names; nothing but the login is said.
    pub(super) async fn connect(
        &self,
        (target, node): (&RedisTarget, Option<&Address>),
        whose: Peer,
    ) -> Result<Connection, StoreError> {
        let age = self.signals.age.load(Ordering::Relaxed);
        let stream = dial(target, node).await?;
        // Deadlines are the callers': one of their own for a whole call, the pool's for all of this.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = MultiplexedConnection::new_with_config(&login::first(), stream, config).await;
        let (line, driver) = match made {
            Ok(made) => made,
            Err(error) => {
                let why = login::turned_away(target, node).await;
                return Err(why.unwrap_or_else(|| login::broken(&error, target)));
            }
        };
        self.signals.hear();
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
            life: Arc::new(ConnectionLife {
                dead,
                driver: driver.abort_handle(),
                signals: self.signals.clone(),
            }),
            functions: target.functions,
            age,
            master: None,
        };
        let greeted = connection.greet(target, whose).await;
        self.signals.hear();
        match greeted {
            Ok(()) => Ok(connection),
            Err(error) => Err(connection.explain(error, (target, node)).await),
        }
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
        let failure = made.as_ref().err();
        *self.signals.last_failure() = failure.map(|error| (Instant::now(), error.clone()));
        if failure.is_some() {
            self.signals.failed.notify_waiters();
        }
        made
    }

    async fn is_valid(&self, connection: &mut Connection) -> Result<(), StoreError> {
        if connection.is_dead() {
            Err(StoreError::Lost("closed".into()))
        } else {
            Ok(())
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
    /// Where the master is wherever they say: whether they say it still.
    pub(super) lookout: Option<MasterWatch>,
    /// Where they lead, if it is to one Redis alone.
    lone: Option<RedisTarget>,
    pub(super) signals: Arc<Signals>,
}

impl Connections {
    /// Starts connecting to this node of `target`, or to wherever its place says, and waits for nothing: the gateway
    /// starts without Redis.
    pub(super) fn new(target: &RedisTarget, node: Option<Address>) -> Self {
        let signals = Arc::new(Signals::default());
        let lone = node.is_none().then(|| target.clone());
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
        let by_sentinels = matches!(target.place, RedisEndpoint::Sentinel { .. });
        Self {
            pool,
            lookout: by_sentinels.then(|| MasterWatch::new(target)),
            lone,
            signals,
        }
    }

    /// The store has fallen. Where that may be because another has become the master, none of the connections made so far
    /// is used again, idle ones included: they lead to the old one.
    pub(super) fn distrust(&self, why: &StoreError) {
        let demoted = matches!(why, StoreError::Refused(reason) if reply::is_read_only(reason));
        if demoted || self.lookout.is_some() {
            self.signals.age.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What to say instead where one Redis is meant and a node of a cluster has answered.
    pub(super) fn of_cluster(&self, why: &StoreError) -> Option<StoreError> {
        login::of_cluster(self.lone.as_ref()?, why)
    }

    /// The master is another. Connections made so far are used for nothing more than what is under way on them.
    pub(super) fn renew_for(&self, master: Address) {
        *locked(&self.signals.master) = Some(master);
        self.signals.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the last of them leads, if somebody had to be asked.
    pub(super) fn master(&self) -> Option<Address> {
        locked(&self.signals.master).clone()
    }

    /// Why none could be made, if that was the last that was heard.
    pub(super) fn why_not(&self) -> Option<StoreError> {
        let why = self.signals.last_failure();
        why.as_ref().map(|(_, why)| why.clone())
    }

    /// Looks at every connection there is, so that those of no use are replaced: an error if there is none but these, and
    /// none can be made.
    pub(super) async fn renew(&self) -> Result<(), StoreError> {
        for _ in 0..CONNECTIONS {
            self.take().await?;
        }
        Ok(())
    }

    /// A share in a live connection, by turns, as soon as there is one; an error as soon as one cannot be made.
    pub(super) async fn take(&self) -> Result<Connection, StoreError> {
        loop {
            tokio::select! {
                biased;
                taken = self.pool.get() => match taken {
                    Ok(connection) if connection.is_dead() => drop(connection),
                    // It goes back at once, for the next to share.
                    Ok(connection) => return Ok(Connection::clone(&connection)),
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

/// The crate's error as one of ours.
fn told(error: RedisError) -> StoreError {
    match error.code() {
        Some(code) => {
            let words = format!("{code} {}", error.detail().unwrap_or_default());
            StoreError::Refused(login::shortened(words).into())
        }
        None => StoreError::Lost(error.to_string().into()),
    }
}

/// Did the server run nothing, because it does not know what it was to run?
pub(super) fn is_forgotten(error: &StoreError) -> bool {
    let StoreError::Refused(reason) = error else {
        return false;
    };
    first_word(reason) == "NOSCRIPT" || library::is_missing(reason)
}

pub(super) fn first_word(reason: &str) -> &str {
    reason.split_whitespace().next().unwrap_or_default()
}
