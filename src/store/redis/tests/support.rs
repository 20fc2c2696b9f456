//! Limits and servers for the tests of this room.

use crate::key::{KeyCase, KeyTemplate, MissingKey};
use crate::limit::calendar::Calendar;
use crate::limit::clock_window::ClockWindow;
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Rate;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Limit, Policy, Rule, Unit};
use crate::store::RedisEndpoint;
use crate::store::error::StoreError;
use crate::store::redis::{RedisReport, RedisStore, probe};
use crate::store::settings::{Backend, RedisTarget, StoreSettings};
use bb8_redis::redis::{self, Connection, Value};
use jiff::tz::TimeZone;
use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) fn rate(count: u64, period: u64) -> Rate {
    Rate {
        count: NonZeroU64::new(count).unwrap(),
        period: NonZeroU64::new(period).unwrap(),
    }
}

pub(crate) fn token_bucket(count: u64, period: u64, burst: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    let burst = NonZeroU64::new(burst).unwrap();
    (rate, Rule::TokenBucket(TokenBucket::new(rate, burst)))
}

pub(crate) fn leaky_bucket(
    count: u64,
    period: u64,
    burst: u64,
    queue: u32,
    max_wait: u64,
) -> (Rate, Rule) {
    let rate = rate(count, period);
    let burst = NonZeroU64::new(burst).unwrap();
    let rule = LeakyBucket::new(rate, burst, queue, max_wait);
    (rate, Rule::LeakyBucket(rule))
}

pub(crate) fn fixed_window(count: u64, period: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::FixedWindow(FixedWindow::new(rate)))
}

pub(crate) fn clock_window(count: u64, period: u64, offset: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::ClockWindow(ClockWindow::by_clock(rate, offset)))
}

pub(crate) fn calendar(count: u64, unit: Unit, many: u32, zone: &str, offset: u64) -> (Rate, Rule) {
    let calendar = Calendar {
        unit,
        many,
        zone: TimeZone::get(zone).unwrap(),
        zone_name: zone.into(),
        offset,
    };
    let rule = ClockWindow::by_calendar(count, Arc::new(calendar));
    (rate(count, 86_400_000_000), Rule::ClockWindow(rule))
}

pub(crate) fn sliding_window(count: u64, period: u64, parts: u32, strict: bool) -> (Rate, Rule) {
    let rate = rate(count, period);
    let parts = NonZeroU32::new(parts).unwrap();
    (
        rate,
        Rule::SlidingWindow(SlidingWindow::new(rate, parts, strict)),
    )
}

pub(crate) fn sliding_log(count: u64, period: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::SlidingLog(SlidingLog::new(rate)))
}

pub(crate) fn concurrency(max: u32, ttl: u64) -> (Rate, Rule) {
    let most = NonZeroU32::new(max).unwrap();
    (
        rate(u64::from(max), ttl),
        Rule::Concurrency(Concurrency { max: most, ttl }),
    )
}

pub(crate) fn limit(name: &str, (rate, rule): (Rate, Rule)) -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Arc::new(Limit::new(Policy::new(name.into(), by, rate), rule))
}

/// A port that no process uses at present.
pub(crate) fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// A server started by the test; `REDIS_SERVER` names another program. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    /// Its working folder: a replica keeps its received data in a file there.
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(more: &[&str]) -> Self {
        for _ in 0..5 {
            if let Some(server) = Self::start_on(free_port(), more) {
                return server;
            }
        }
        panic!("no redis-server starts here");
    }

    /// Starts a server; `None` if it exits at once, since another process took the port.
    pub(crate) fn start_on(port: u16, more: &[&str]) -> Option<Self> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(program)
            .arg("--dir")
            .arg(folder.path())
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let mut server = Self {
            port,
            child,
            _folder: folder,
        };
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up {
            if server.child.try_wait().unwrap().is_some() {
                return None;
            }
            if Client::of(port).is_some() {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server does not answer");
    }

    /// A new process at the same address, without data.
    pub(crate) fn restart(mut self) -> Self {
        let port = self.port;
        self.kill();
        Self::start_on(port, &[]).expect("its port is free again")
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(done.success());
    }

    /// A plain client, independent of the store.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.port).expect("the server answers")
    }

    pub(crate) fn target(&self) -> RedisTarget {
        RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", self.port))
    }

    pub(crate) fn settings(&self) -> StoreSettings {
        StoreSettings {
            source: Backend::Redis(self.target()),
            ..StoreSettings::default()
        }
    }

    /// A store for this server, connected.
    pub(crate) async fn store(&self) -> RedisStore {
        self.store_with(&self.settings()).await
    }

    /// A store that does not mistake a busy machine for an unavailable server.
    pub(crate) async fn patient_store(&self) -> RedisStore {
        let timeout = Duration::from_secs(10);
        let settings = self.settings();
        self.store_with(&StoreSettings {
            timeout,
            ..settings
        })
        .await
    }

    pub(crate) async fn store_with(&self, settings: &StoreSettings) -> RedisStore {
        let store = RedisStore::new(&self.target(), settings);
        until_up(&store, Duration::from_secs(20)).await;
        store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Does the server support functions? Redis 6 does not.
pub(crate) fn knows_functions(client: &mut Client) -> bool {
    !client.info("server").contains("redis_version:6")
}

/// Waits until `holds` is true; panics with the text `what` if that takes longer than `within`.
pub(crate) async fn until(within: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the store is up, and returns the time that it took.
pub(crate) async fn until_up(store: &RedisStore, within: Duration) -> Duration {
    let begun = Instant::now();
    until(within, "the store is up", async || store.is_up()).await;
    begun.elapsed()
}

/// Waits until the store has noticed that its server does not answer.
pub(crate) async fn until_down(store: &RedisStore, within: Duration) {
    until(within, "the store is away", async || !store.is_up()).await;
}

/// The total delay of due work on this machine since the beginning. Bounds of time are extended by it. The delay is
/// measured in parallel to the tested code, on the same thread.
pub(crate) struct Late {
    sum: Rc<Cell<Duration>>,
    watching: JoinHandle<()>,
}

impl Late {
    pub(crate) fn watch() -> Self {
        const BEAT: Duration = Duration::from_millis(5);
        // The delay of timers on an idle machine.
        const USUAL: Duration = Duration::from_millis(2);
        let sum = Rc::<Cell<Duration>>::default();
        let late = Rc::clone(&sum);
        let watching = tokio::task::spawn_local(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(BEAT).await;
                let by = begun.elapsed().saturating_sub(BEAT + USUAL);
                late.set(late.get() + by);
            }
        });
        Self { sum, watching }
    }

    /// The sum of delays. A short pause lets the last one be counted.
    pub(crate) async fn by(&self) -> Duration {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.sum.get()
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// The result of a future that is ready without a wait.
#[track_caller]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// The properties of the one Redis of `target`.
pub(crate) async fn look(target: &RedisTarget) -> Result<RedisReport, StoreError> {
    probe(target, "tollgate").await?.remove(0).1
}

/// A connection to a server, independent of the store.
pub(crate) struct Client(Connection);

impl Client {
    /// A client of the server on this port, once it answers anything, even a refusal.
    pub(crate) fn of(port: u16) -> Option<Self> {
        let client = redis::Client::open(("127.0.0.1", port)).ok()?;
        let mut connection = client.get_connection().ok()?;
        match redis::cmd("PING").query::<String>(&mut connection) {
            Ok(_) => Some(Self(connection)),
            Err(error) => {
                let up = ["NOAUTH", "LOADING", "BUSY"];
                error.code().filter(|code| up.contains(code))?;
                Some(Self(connection))
            }
        }
    }

    /// The server's answer to INFO.
    pub(crate) fn info(&mut self, section: &str) -> String {
        match self.say(&format!("INFO {section}")) {
            Value::BulkString(text) => String::from_utf8(text).unwrap(),
            other => panic!("INFO answers a text: {other:?}"),
        }
    }

    /// A client of the server on this port.
    pub(crate) fn at(port: u16) -> Self {
        let client = redis::Client::open(("127.0.0.1", port)).unwrap();
        Self(client.get_connection().expect("the server answers"))
    }

    pub(crate) fn raw(&mut self, words: &[&[u8]]) -> Value {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.0).expect("the server answers")
    }

    /// A command whose answer may be an error.
    pub(crate) fn ask(&mut self, command: &redis::Cmd) -> redis::RedisResult<Value> {
        command.query(&mut self.0)
    }

    pub(crate) fn say(&mut self, line: &str) -> Value {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.raw(&words)
    }

    pub(crate) fn many(&mut self, commands: Vec<redis::Cmd>) -> Vec<Value> {
        let mut pipe = redis::pipe();
        for command in commands {
            pipe.add_command(command);
        }
        pipe.query(&mut self.0).expect("the server answers")
    }

    /// Every key with its value in the form of `DUMP`, except keys that are not counters.
    pub(crate) fn dump(&mut self) -> Vec<(Vec<u8>, Value)> {
        let Value::Array(keys) = self.say("KEYS *") else {
            panic!("KEYS answers a list");
        };
        let mut all: Vec<_> = keys
            .into_iter()
            .map(|key| {
                let Value::BulkString(key) = key else {
                    panic!("a key is a string");
                };
                let value = self.raw(&[b"DUMP", &key]);
                (key, value)
            })
            .filter(|(key, _)| !key.windows(9).any(|part| part == b":1:probe:"))
            .filter(|(key, _)| !key.windows(8).any(|part| part == b":1:done:"))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Calls of scripts so far, and the microseconds they took.
    pub(crate) fn script_calls(&mut self) -> (u64, u64) {
        let Value::BulkString(text) = self.say("INFO commandstats") else {
            panic!("INFO answers a text");
        };
        let text = String::from_utf8(text).unwrap();
        let Some(line) = text.lines().find(|l| l.starts_with("cmdstat_evalsha:")) else {
            return (0, 0);
        };
        let number = |name: &str| {
            let (_, rest) = line.split_once(name).unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        (number("calls="), number("usec="))
    }
}
