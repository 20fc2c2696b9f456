//! The Redis that a measurement starts for itself, and that server's own figures.
#![allow(dead_code, reason = "each measurement uses a part of it")]

pub(crate) mod cluster;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::store::redis::RedisStore;
use tollgate::store::{RedisEndpoint, RedisTarget, StoreSettings};

/// The timeout of everything that is not measured.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of the measurement's own; `REDIS_SERVER` names another program. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
}

impl Server {
    /// Starts a server on any free port.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with more arguments.
    pub(crate) async fn start_with(more: &[&str]) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        Self::start_on(port, more).await
    }

    /// Starts a server on this port.
    pub(crate) async fn start_on(port: u16, more: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(program)
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Self { port, child };
        let begun = Instant::now();
        while server.try_connect().await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "it does not answer");
            sleep(Duration::from_millis(5)).await;
        }
        server
    }

    async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        // The timeouts are long, since the machine may be busy with other things.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        self.try_connect().await.unwrap()
    }

    /// A connected store on this server.
    pub(crate) async fn store(&self) -> RedisStore {
        let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", self.port));
        let settings = StoreSettings {
            timeout: PATIENCE,
            ..StoreSettings::default()
        };
        let store = RedisStore::new(&target, &settings);
        while !store.is_up() {
            sleep(Duration::from_millis(1)).await;
        }
        store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole answer of a server to `INFO`.
pub(crate) struct Told(String);

impl Told {
    pub(crate) async fn by(side: &mut MultiplexedConnection) -> Self {
        let mut info = redis::cmd("INFO");
        Self(info.arg("everything").query_async(side).await.unwrap())
    }

    /// The number of this name; 0 if there is none.
    pub(crate) fn number(&self, name: &str) -> f64 {
        let mut lines = self.0.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        found.unwrap_or_default()
    }

    /// The number `name` among several in a line.
    pub(crate) fn number_in(&self, line: &str, name: &str) -> f64 {
        let mut lines = self.0.lines();
        let found = lines.find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
        let mut parts = found.into_iter().flat_map(|text| text.split(','));
        let found = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        found.unwrap_or_default()
    }

    /// The processor time of the server so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.number("used_cpu_user") + self.number("used_cpu_sys")
    }
}

/// This thread's time on a processor, in microseconds.
pub(crate) fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
}

/// A number of the environment, or its default.
pub(crate) fn environment(name: &str, default: u32, most: u32) -> u32 {
    let text = std::env::var(name);
    let number = text.map_or(default, |text| text.parse().expect("a whole number"));
    assert!((1..=most).contains(&number), "{name} is 1 to {most}");
    number
}
