//! A connection to Redis, shared by all calls of a worker that take it: calls are sent one after the other, and none
//! waits for a connection that another call is using.
//!
//! A connection has a flag that is set as soon as the connection ends or a call on it fails, so that no test is needed
//! before use. A lane that takes a connection checks the flag.

use super::signals::ConnectionSignals;
use super::transport::RedisStream;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::redis::wire::library;
use crate::store::redis::wire::script::{self, Script};
use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult,
    Value,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The longest time for making a connection and loading the scripts. A probe of a stalled server takes as long, so that
/// the time is well below the two seconds within which limits must be shared again.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// The result of `work` within that time; else an error.
pub(crate) async fn within<T>(
    after: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let done = timeout(after, work).await;
    done.unwrap_or(Err(StoreError::Timeout { after }))
}

/// Attempts to load scripts that the server forgets again before they are called: an operator flushes them each time,
/// or the master changes.
pub(crate) const FORGOTTEN_AGAIN: usize = 3;

/// A connection with its scripts loaded. Clones share the connection. Dropping the last clone closes it, in any state.
#[derive(Debug, Clone)]
pub(crate) struct RedisConnection {
    stream: MultiplexedConnection,
    life: Arc<ConnectionLife>,
    /// Are scripts called as functions?
    functions: bool,
    /// The signals' age when the connection was made.
    pub(super) age: u64,
    /// The master at its other end, if sentinels named it.
    pub(crate) master: Option<Address>,
}

/// A connection that may have been closed since: a weak handle that does not keep it open.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    stream: MultiplexedConnection,
    life: Weak<ConnectionLife>,
    functions: bool,
    age: u64,
    master: Option<Address>,
}

impl KeptConnection {
    /// The connection, if it is still usable.
    pub(crate) fn taken(self) -> Option<RedisConnection> {
        let connection = RedisConnection {
            stream: self.stream,
            life: self.life.upgrade()?,
            functions: self.functions,
            age: self.age,
            master: self.master,
        };
        Some(connection).filter(|connection| !connection.is_dead())
    }
}

/// The part of a connection that ends with its last clone.
#[derive(Debug)]
struct ConnectionLife {
    dead: Arc<AtomicBool>,
    driver: AbortHandle,
    signals: Arc<ConnectionSignals>,
}

impl Drop for ConnectionLife {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl RedisConnection {
    /// A connection over `stream`, on which only `greeting` is sent. `age` is the signals' age at the beginning.
    pub(crate) async fn open(
        stream: RedisStream,
        greeting: &RedisConnectionInfo,
        functions: bool,
        age: u64,
        signals: &Arc<ConnectionSignals>,
    ) -> Result<Self, RedisError> {
        // The callers have their own deadlines: one for each call, and one in the pool for all of this.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = MultiplexedConnection::new_with_config(greeting, stream, config);
        let (stream, driver) = made.await?;
        signals.hear();
        let dead = Arc::new(AtomicBool::new(false));
        let driver = tokio::spawn({
            let (dead, signals) = (dead.clone(), signals.clone());
            async move {
                driver.await;
                dead.store(true, Ordering::Relaxed);
                signals.lost.notify_one();
            }
        });
        Ok(Self {
            stream,
            life: Arc::new(ConnectionLife {
                dead,
                driver: driver.abort_handle(),
                signals: signals.clone(),
            }),
            functions,
            age,
            master: None,
        })
    }

    /// Sends a script call. A server that has forgotten the script ran nothing, so that the script and the same call
    /// are sent again. Both are sent in one write, so that hardly another client comes between. After any other error
    /// there is no second attempt.
    pub(crate) async fn call(&mut self, command: &Cmd) -> Result<Vec<u8>, StoreError> {
        let function = self.functions.then(|| library::call(command));
        let shaped = function.as_ref().unwrap_or(command);
        let mut answer = self.send(shaped).await;
        let mut tries = 0;
        while tries < FORGOTTEN_AGAIN && answer.as_ref().is_err_and(is_forgotten) {
            answer = self.resend(command, shaped).await;
            tries += 1;
        }
        match answer? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(StoreError::Protocol("not a string")),
        }
    }

    /// Repeats the call `shaped`, whose script the server has forgotten.
    async fn resend(&mut self, command: &Cmd, shaped: &Cmd) -> Result<Value, StoreError> {
        let mut both = Pipeline::with_capacity(2);
        if let Some(reminder) = self.reminder(command) {
            both.add_command(reminder);
        }
        both.add_command(shaped.clone());
        let mut answers = self.many(&both).await?.into_iter().rev();
        let none = Err(StoreError::Protocol("not an answer to each call"));
        let answer = answers.next().unwrap_or(none);
        match answers.next() {
            // Either the server refuses the script and names the cause, or another client has just loaded it.
            Some(Err(why))
                if answer.as_ref().is_err_and(is_forgotten) && !library::is_there(&why) =>
            {
                Err(why)
            }
            _ => answer,
        }
    }

    /// The command that loads the script of a call again.
    pub(crate) fn reminder(&self, call: &Cmd) -> Option<Cmd> {
        if self.functions {
            Some(library::remind())
        } else {
            Script::of(call).map(Script::load)
        }
    }

    /// A script call in this connection's form: if scripts are functions, the call of its function.
    pub(crate) fn shaped(&self, command: Cmd) -> Cmd {
        if self.functions {
            library::call(&command)
        } else {
            command
        }
    }

    /// Sends several commands in one write, and reads the answer to each.
    pub(crate) async fn many(
        &mut self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let answers = self.raw(commands).await.map_err(server_error)?;
        let each = |answer: Value| answer.extract_error().map_err(server_error);
        Ok(answers.into_iter().map(each).collect())
    }

    /// Sends several commands in one write. Answers and errors are in the crate's types.
    pub(crate) async fn raw(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let many = commands.len();
        self.stream.send_packed_commands(commands, 0, many).await
    }

    /// Marks the connection as closed to new calls. Current calls on it may still be answered.
    pub(crate) fn condemn(&self) {
        self.life.dead.store(true, Ordering::Relaxed);
        self.life.signals.lost.notify_one();
    }

    /// Gives up this handle, so that it can be taken again without the pool.
    pub(crate) fn kept(self) -> KeptConnection {
        KeptConnection {
            stream: self.stream,
            life: Arc::downgrade(&self.life),
            functions: self.functions,
            age: self.age,
            master: self.master,
        }
    }

    /// Is the connection unusable, or can a better one be made?
    pub(crate) fn is_dead(&self) -> bool {
        let ConnectionLife { dead, signals, .. } = &*self.life;
        dead.load(Ordering::Relaxed) || self.age < signals.age.load(Ordering::Relaxed)
    }

    pub(crate) async fn load(&mut self) -> Result<(), StoreError> {
        if self.functions {
            return self.load_library().await;
        }
        // One script is sent first: its error names the cause for which a server accepts none. The rest is sent in one
        // write, since a server may be far away.
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

    /// Loads the library only if missing: a write goes to disk and to every replica.
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
    pub(crate) async fn send(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        let answer = self.stream.send_packed_command(command).await;
        answer.and_then(Value::extract_error).map_err(server_error)
    }
}

/// The longest text of a refusal, in bytes: a server's text may have any length, and is put on one line.
pub(super) const LONGEST_WORDS: usize = 400;

/// The part of a server's words that fits into one line of the log.
pub(super) fn shortened(mut words: String) -> String {
    if words.len() > LONGEST_WORDS {
        words.truncate(words.floor_char_boundary(LONGEST_WORDS));
        words.push_str("...");
    }
    words
}

/// The crate's error as a [`StoreError`].
fn server_error(error: RedisError) -> StoreError {
    match error.code() {
        Some(code) => {
            let words = format!("{code} {}", error.detail().unwrap_or_default());
            StoreError::Refused(shortened(words).into())
        }
        // The crate describes unexpected bytes over several lines.
        None if error.kind() == ErrorKind::Parse => {
            StoreError::Lost("its answer is not one of Redis".into())
        }
        None => StoreError::Lost(error.to_string().into()),
    }
}

/// Did the server run nothing, because it does not know the script or function?
pub(crate) fn is_forgotten(error: &StoreError) -> bool {
    let StoreError::Refused(reason) = error else {
        return false;
    };
    first_word(reason) == "NOSCRIPT" || library::is_missing(reason)
}

pub(crate) fn first_word(reason: &str) -> &str {
    reason.split_whitespace().next().unwrap_or_default()
}
