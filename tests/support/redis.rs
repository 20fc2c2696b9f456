//! A real Redis on its own port: killed, brought back, frozen, and queried.

use super::ports::free_port;
use super::preload::preload;
use super::{PATIENCE, eventually, process};
use redis::{Cmd, FromRedisValue};
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A Redis server, or the place where one will be.
#[derive(Debug)]
pub(crate) struct Redis {
    host: &'static str,
    port: u16,
    folder: TempDir,
    arguments: Vec<String>,
    /// Can the server's clock be set?
    has_clock: bool,
    child: Option<Child>,
}

impl Redis {
    /// A place for a server that does not run yet.
    pub(crate) fn absent() -> Self {
        Self::absent_at(free_port())
    }

    /// A place for a server that does not run yet, on a port without another user.
    pub(crate) fn absent_at(port: u16) -> Self {
        Self {
            host: "127.0.0.1",
            port,
            folder: tempfile::tempdir().unwrap(),
            arguments: Vec::new(),
            has_clock: false,
            child: None,
        }
    }

    /// Adds arguments for the server.
    pub(crate) fn with(&mut self, arguments: &[&str]) {
        self.arguments
            .extend(arguments.iter().map(|&word| word.to_owned()));
    }

    /// A running server.
    pub(crate) async fn start() -> Self {
        let mut redis = Self::absent();
        redis.come().await;
        redis
    }

    /// A running server at another address of the loopback.
    pub(crate) async fn start_at(host: &'static str, port: u16) -> Self {
        let mut redis = Self::absent_at(port);
        redis.host = host;
        redis.come().await;
        redis
    }

    /// A running server with further arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let mut redis = Self::absent();
        redis.arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        redis.come().await;
        redis
    }

    /// A running server that requires a password.
    pub(crate) async fn start_with_password(password: &str) -> Self {
        let mut redis = Self::absent();
        redis.arguments = vec!["--requirepass".to_owned(), password.to_owned()];
        redis.launch();
        eventually(PATIENCE, "redis listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", redis.port))
                .await
                .is_ok()
        })
        .await;
        redis
    }

    /// A running server whose clock can be set by [`Redis::set_clock`].
    pub(crate) async fn start_with_clock() -> Self {
        let mut redis = Self::absent();
        preload(redis.folder.path(), "clock", include_str!("clock.c")).await;
        redis.has_clock = true;
        redis.set_clock(0);
        redis.come().await;
        redis
    }

    fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        match self.has_clock {
            true => vec![
                ("LD_PRELOAD", self.folder.path().join("clock.so")),
                ("CLOCK_OFFSET", self.clock()),
            ],
            false => Vec::new(),
        }
    }

    fn clock(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Sets the server's clock ahead of the true time by this number of seconds.
    pub(crate) fn set_clock(&self, seconds: i64) {
        std::fs::write(self.clock(), format!("{seconds:>20}")).unwrap();
    }

    /// Starts the server, empty, and waits until it answers.
    pub(crate) async fn come(&mut self) {
        self.launch();
        eventually(PATIENCE, "redis answers", async || {
            // A connection of another process may have used the port for a moment.
            let child = self.child.as_mut().expect("it was launched");
            if child.try_wait().unwrap().is_some() {
                self.launch();
            }
            self.ask::<String>(&["PING"]).await.is_ok()
        })
        .await;
    }

    fn launch(&mut self) {
        let server = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(&server)
            .args([
                "--bind",
                self.host,
                "--save",
                "",
                "--appendonly",
                "no",
                "--port",
                &self.port.to_string(),
            ])
            .args(&self.arguments)
            .envs(self.environment())
            .arg("--dir")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{}: {error}", server.display())));
    }

    /// Kills the server and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.take().expect("it runs").kill().await.unwrap();
    }

    /// Stops the server, and leaves its connections open.
    pub(crate) fn freeze(&self) {
        process::signal(self.pid(), "STOP");
    }

    /// Lets a frozen server go on.
    pub(crate) fn thaw(&self) {
        process::signal(self.pid(), "CONT");
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).expect("it runs")
    }

    /// The server's port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server's URL, as the file has it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}/0", self.host, self.port)
    }

    /// Sends one command.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.ask(words)
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command to a server that requires this password.
    pub(crate) async fn command_as(&self, password: &str, words: &[&str]) {
        let url = format!("redis://:{password}@127.0.0.1:{}/0", self.port);
        let client = redis::Client::open(url).unwrap();
        let mut connection = connect(&client).await.unwrap();
        let mut command = Cmd::new();
        command.arg(words);
        command
            .query_async::<redis::Value>(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = connect(&client).await?;
        let mut command = Cmd::new();
        command.arg(words);
        command.query_async(&mut connection).await
    }

    /// Puts bytes at a key.
    pub(crate) async fn put(&self, key: &str, bytes: &[u8]) {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = connect(&client).await.unwrap();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(bytes);
        set.query_async::<()>(&mut connection).await.unwrap();
    }

    /// The number of script calls since the start.
    pub(crate) async fn script_calls(&self) -> u64 {
        let stats: String = self.command(&["INFO", "commandstats"]).await;
        ["evalsha", "eval", "fcall"]
            .iter()
            .map(|name| calls(&stats, name))
            .sum()
    }

    /// The keys of counters, without the keys of the gateways' own trial decisions, reports, changes, and markers of
    /// refunds and resets.
    pub(crate) async fn keys(&self) -> Vec<String> {
        const NONE: [&str; 6] = [
            ":probe:",
            ":gateways:",
            ":done:",
            ":version:{*}",
            ":changes:{*}",
            ":heard:{*}",
        ];
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]).await;
        keys.retain(|key| !NONE.iter().any(|none| key.contains(none)) && !key.ends_with("}:z"));
        keys
    }
}

/// A connection whose timeouts are longer than those of the client library (half a second and one second), since the
/// machine may be busy.
pub(crate) async fn connect(
    client: &redis::Client,
) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client
        .get_multiplexed_async_connection_with_config(&patient)
        .await
}

fn calls(stats: &str, command: &str) -> u64 {
    stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
        .and_then(|rest| rest.split(',').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}
