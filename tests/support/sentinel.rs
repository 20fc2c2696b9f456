//! A real sentinel, which watches a Redis and lets a replica take its place.

use super::ports::free_port;
use super::redis::connect;
use super::{PATIENCE, eventually};
use redis::{FromRedisValue, Value};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A sentinel that decides with its own vote. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Sentinel {
    port: u16,
    _folder: TempDir,
    _child: Child,
}

impl Sentinel {
    /// Starts a sentinel that watches the Redis at this port, and waits until it knows the replica.
    pub(crate) async fn start(watches: u16) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor cache 127.0.0.1 {watches} 1\n\
             sentinel down-after-milliseconds cache 300\nsentinel failover-timeout cache 5000\n",
            folder.path().display()
        );
        std::fs::write(&file, text).unwrap();
        let server = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(&server)
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let sentinel = Self {
            port,
            _folder: folder,
            _child: child.unwrap_or_else(|error| panic!("{}: {error}", server.display())),
        };
        eventually(PATIENCE, "the sentinel knows a replica", async || {
            sentinel.knows_a_replica().await.unwrap_or(false)
        })
        .await;
        sentinel
    }

    /// A failover by an operator, as soon as the sentinel knows enough about the replica.
    pub(crate) async fn fail_over(&self) {
        eventually(PATIENCE, "the sentinel fails over", async || {
            self.ask::<()>(&["FAILOVER", "cache"]).await.is_ok()
        })
        .await;
    }

    /// The port of the master that it names.
    pub(crate) async fn names(&self) -> u16 {
        let named = self.ask(&["GET-MASTER-ADDR-BY-NAME", "cache"]).await;
        let (_, port): (String, u16) = named.expect("the sentinel answers");
        port
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        let mut connection = connect(&client).await?;
        let mut ask = redis::cmd("SENTINEL");
        for word in words {
            ask.arg(word);
        }
        ask.query_async(&mut connection).await
    }

    /// Does the sentinel know a replica that has reported itself? The sentinel chooses no other replica.
    pub(crate) async fn knows_a_replica(&self) -> redis::RedisResult<bool> {
        let told: Vec<Value> = self.ask(&["REPLICAS", "cache"]).await?;
        let told = format!("{told:?}");
        Ok(told.contains("runid") && !told.contains("'runid': bulk-string('\"\"')"))
    }

    /// The URL of the Redis that the sentinel watches.
    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/cache/0", self.port)
    }
}
