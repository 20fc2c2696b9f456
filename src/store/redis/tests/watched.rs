//! A master, a replica and a sentinel that monitors them, for the tests that lose the master.

use super::clusters::eventually;
use super::support::{Client, Server, free_port};
use crate::store::{Address, RedisEndpoint, RedisTarget, Secret};
use bb8_redis::redis::{self, Value};
use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time of a failover here: detection, vote, and execution.
pub(super) const FAILOVER: Duration = Duration::from_secs(60);

pub(super) struct Watched {
    pub(super) master: Server,
    pub(super) replica: Server,
    pub(super) sentinel: Sentinel,
}

/// A sentinel started by the test. Dropping it kills it.
pub(super) struct Sentinel {
    pub(super) port: u16,
    child: Child,
    _folder: TempDir,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinel {
    /// Starts a sentinel that monitors this port under the name `cache`; one vote is enough. `more` are lines of its
    /// file.
    pub(super) fn start(watches: u16, more: &str) -> Self {
        let port = free_port();
        let sentinel = Self::launch(port, watches, &format!("port {port}\n{more}"));
        sentinel.until("the sentinel answers", || Client::of(port).is_some());
        sentinel
    }

    /// Starts a sentinel with TLS only; `lines` name its certificate and its authorities.
    pub(super) fn start_encrypted(watches: u16, lines: &str) -> Self {
        let port = free_port();
        let lines = format!("port 0\ntls-port {port}\n{lines}");
        let sentinel = Self::launch(port, watches, &lines);
        sentinel.until("the sentinel listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        sentinel
    }

    fn launch(port: u16, watches: u16, lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\ndir {}\nsentinel monitor cache 127.0.0.1 {watches} 1\n\
             sentinel down-after-milliseconds cache 300\nsentinel failover-timeout cache 5000\n{lines}\n",
            folder.path().display()
        );
        fs::write(&file, text).unwrap();
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(program)
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self {
            port,
            child,
            _folder: folder,
        }
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let give_up = Instant::now() + FAILOVER;
        while !is() {
            assert!(Instant::now() < give_up, "{what}, at {}", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn address(&self) -> Address {
        Address::new("127.0.0.1", self.port)
    }

    /// Makes the sentinel name the master at this port from now on.
    pub(super) fn name_another(&self, port: u16) {
        let mut client = Client::of(self.port).expect("it answers");
        client.say("SENTINEL REMOVE cache");
        client.say(&format!("SENTINEL MONITOR cache 127.0.0.1 {port} 1"));
    }

    /// The port of the master that it names.
    pub(super) fn names(&self) -> u16 {
        let mut client = Client::of(self.port).expect("it answers");
        let Value::Array(parts) = client.say("SENTINEL GET-MASTER-ADDR-BY-NAME cache") else {
            panic!("an address");
        };
        match &parts[1] {
            Value::BulkString(port) => std::str::from_utf8(port).unwrap().parse().unwrap(),
            other => panic!("a port: {other:?}"),
        }
    }
}

impl Watched {
    pub(super) fn start() -> Self {
        let master = Server::start();
        let of = master.port.to_string();
        let more = ["--repl-diskless-sync-delay", "0"];
        let replica = Server::start_with(&[&["--replicaof", "127.0.0.1", &of], &more[..]].concat());
        eventually("the replica follows", || {
            let facts = replica.client().info("replication");
            facts.contains("master_link_status:up")
        });
        let sentinel = Sentinel::start(master.port, "");
        let mut client = Client::of(sentinel.port).unwrap();
        // The sentinel chooses no replica that has not identified itself yet.
        eventually("the sentinel finds the replica", || {
            is_known(&client.say("SENTINEL REPLICAS cache"))
        });
        Self {
            master,
            replica,
            sentinel,
        }
    }

    /// An operator's failover, as soon as the sentinel knows enough about the replica.
    pub(super) fn fail_over(&self) {
        let url = ("127.0.0.1", self.sentinel.port);
        let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
        let give_up = Instant::now() + FAILOVER;
        loop {
            let mut ask = redis::cmd("SENTINEL");
            let asked = ask.arg("FAILOVER").arg("cache").query::<()>(&mut client);
            match asked {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < give_up, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn target(&self) -> RedisTarget {
        by(&[self.sentinel.address()], "cache", None)
    }
}

/// Is a replica known, with its run id?
fn is_known(replicas: &Value) -> bool {
    let Value::Array(replicas) = replicas else {
        return false;
    };
    let has_id = |facts: &[Value]| matches!(facts, [Value::BulkString(name), Value::BulkString(id)] if name == b"runid" && !id.is_empty());
    replicas
        .iter()
        .any(|replica| matches!(replica, Value::Array(facts) if facts.chunks(2).any(has_id)))
}

/// The Redis of this name at these sentinels.
pub(super) fn by(nodes: &[Address], name: &str, password: Option<&str>) -> RedisTarget {
    RedisTarget::new(RedisEndpoint::Sentinel {
        nodes: nodes.into(),
        name: name.into(),
        username: None,
        password: password.map(Secret::new),
    })
}
