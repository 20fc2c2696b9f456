//! Scripts that are stored as functions: during failovers and flushes, and with the functions of another version.

use super::clusters::{Servers, eventually};
use super::support::{Client, Server, fixed_window, knows_functions, limit, until_up};
use super::watched::{FAILOVER, Watched};
use crate::limit::Limit;
use crate::store::check::Check;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::redis::tests::support::look;
use crate::store::redis::{RedisStore, probe, slot_of};
use crate::store::{RedisTarget, StoreSettings};
use bb8_redis::redis::Value;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUOTA: u64 = 1_000_000;
/// The most answers of a master that may not have been replicated.
const LOST: u64 = 20;

fn some_limit() -> Arc<Limit> {
    limit("some", fixed_window(1_000_000, 3_600_000_000))
}

fn by_functions(target: RedisTarget) -> RedisTarget {
    RedisTarget {
        functions: true,
        ..target
    }
}

fn has_functions() -> bool {
    let server = Server::start();
    let has = knows_functions(&mut server.client());
    if !has {
        println!("this server has no functions: nothing was tested");
    }
    has
}

async fn connected(target: &RedisTarget) -> RedisStore {
    let settings = StoreSettings {
        timeout: Duration::from_millis(300),
        ..StoreSettings::default()
    };
    let store = RedisStore::new(target, &settings);
    until_up(&store, FAILOVER).await;
    store
}

/// The remainder after a decision.
async fn decide(store: &RedisStore, limit: &Arc<Limit>, key: &str) -> Result<u64, StoreError> {
    let decided = store.decide(&[Check::new(limit, key.as_bytes())]).await?;
    Ok(decided.decision.verdicts[0].remaining)
}

/// Checks without a pause, and their outcomes.
#[derive(Default)]
struct Load {
    counted: Cell<u64>,
    missed: Cell<u64>,
    left: Cell<u64>,
}

impl Load {
    /// Sends checks until `done`, which is tested periodically.
    async fn run(
        &self,
        store: &RedisStore,
        (limit, key): (&Arc<Limit>, &str),
        done: impl Fn() -> bool,
    ) {
        let give_up = Instant::now() + FAILOVER;
        while !done() {
            assert!(Instant::now() < give_up, "{} missed", self.missed.get());
            for _ in 0..5 {
                match decide(store, limit, key).await {
                    Ok(left) => {
                        self.counted.set(self.counted.get() + 1);
                        self.left.set(left);
                    }
                    Err(_) => self.missed.set(self.missed.get() + 1),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// The charges equal the counted answers, apart from calls without an answer.
    fn assert_counted(&self) {
        let (counted, missed) = (self.counted.get(), self.missed.get());
        let charged = QUOTA - self.left.get();
        let summary = format!("{counted} counted, {missed} missed, {charged} charged");
        println!("{summary}");
        assert!(
            charged + LOST >= counted && charged <= counted + missed,
            "{summary}"
        );
    }
}

/// The number of calls of a command. A server that changes its role ends connections, the test's as well.
fn calls(port: u16, command: &str) -> u64 {
    let Some(mut client) = Client::of(port) else {
        return 0;
    };
    let mut info = bb8_redis::redis::cmd("INFO");
    let Ok(Value::BulkString(text)) = client.ask(info.arg("commandstats")) else {
        return 0;
    };
    let text = String::from_utf8(text).unwrap();
    let name = format!("cmdstat_{command}:calls=");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    let number = line.and_then(|line| line.split(',').next());
    number.map_or(0, |number| number.parse().unwrap())
}

/// The names of the server's libraries.
fn libraries(client: &mut Client) -> Vec<String> {
    let Value::Array(all) = client.say("FUNCTION LIST") else {
        panic!("a list");
    };
    let name = |library: Value| match library {
        Value::Array(facts) => match &facts[1] {
            Value::BulkString(name) => String::from_utf8(name.clone()).unwrap(),
            other => panic!("a name: {other:?}"),
        },
        other => panic!("facts: {other:?}"),
    };
    let mut names: Vec<String> = all.into_iter().map(name).collect();
    names.sort();
    names
}

/// Removes the library as if the replica had never had it: some servers allow writes to a replica.
fn lose_library(replica: &Server) {
    let mut client = replica.client();
    client.say("CONFIG SET replica-read-only no");
    client.say("FUNCTION FLUSH");
    client.say("CONFIG SET replica-read-only yes");
}

#[tokio::test(flavor = "local")]
async fn a_failover_in_mid_load_finds_the_library_there_or_writes_it() {
    if !has_functions() {
        return;
    }
    for there in [true, false] {
        let mut watched = Watched::start();
        let store = connected(&by_functions(watched.target())).await;
        let limit = some_limit();
        let load = Load::default();
        let port = watched.replica.port;
        load.run(&store, (&limit, "a"), || load.counted.get() > 50)
            .await;
        eventually("the replica has it", || {
            libraries(&mut watched.replica.client()).len() == 1
        });
        if !there {
            lose_library(&watched.replica);
        }
        let (written, before) = (calls(port, "function|load"), calls(port, "fcall"));
        watched.master.kill();
        load.run(&store, (&limit, "a"), || calls(port, "fcall") > before + 50)
            .await;
        load.assert_counted();
        assert!(store.is_up());
        let written = calls(port, "function|load") - written;
        assert_eq!(written > 0, !there, "{written} times");
        assert_eq!(calls(port, "evalsha"), 0);
    }
}

#[tokio::test(flavor = "local")]
async fn a_replica_of_a_cluster_that_takes_over_goes_on_with_the_library() {
    if !has_functions() {
        return;
    }
    let mut servers = Servers::start(3, true, &["--cluster-require-full-coverage", "no"]);
    let store = connected(&by_functions(servers.target())).await;
    let limit = some_limit();
    for (killed, there) in [(0, true), (1, false)] {
        let mut keys = (0..).map(|number| format!("key-{number}"));
        let key = keys
            .find(|key| servers.home(slot_of(&limit, key.as_bytes())) == killed)
            .unwrap();
        let load = Load::default();
        load.run(&store, (&limit, &key), || load.counted.get() > 50)
            .await;
        eventually("the replica has it", || {
            libraries(&mut servers.replicas[killed].client()).len() == 1
        });
        if !there {
            lose_library(&servers.replicas[killed]);
        }
        let port = servers.replicas[killed].port;
        let (written, before) = (calls(port, "function|load"), calls(port, "fcall"));
        servers.masters[killed].kill();
        load.run(&store, (&limit, &key), || {
            calls(port, "fcall") > before + 50
        })
        .await;
        load.assert_counted();
        let written = calls(port, "function|load") - written;
        assert_eq!(written > 0, !there, "{written} times");
    }
    until_up(&store, FAILOVER).await;
}

/// A node that is queried for the map need not have the library: a replica cannot store it.
#[tokio::test(flavor = "local")]
async fn replicas_tell_the_map_though_they_take_no_library() {
    if !has_functions() {
        return;
    }
    let servers = Servers::start(3, true, &[]);
    let seeds: Vec<Address> = servers
        .replicas
        .iter()
        .map(|node| Address::new("127.0.0.1", node.port))
        .collect();
    let target = by_functions(RedisTarget::new(RedisEndpoint::Cluster {
        seeds: seeds.into(),
    }));
    let probed = probe(&target, "tollgate").await.unwrap();
    assert!(probed.iter().all(|(_, found)| found.is_ok()), "{probed:?}");
    for master in &servers.masters {
        assert_eq!(libraries(&mut master.client()).len(), 1);
        master.client().say("FUNCTION FLUSH");
    }
    eventually("no replica has it", || {
        let mut replicas = servers.replicas.iter();
        replicas.all(|node| libraries(&mut node.client()).is_empty())
    });
    let store = connected(&target).await;
    assert_eq!(decide(&store, &some_limit(), "a").await, Ok(QUOTA - 1));
}

#[tokio::test(flavor = "local")]
async fn a_cluster_whose_functions_are_flushed_all_the_time_loses_no_decision() {
    if !has_functions() {
        return;
    }
    let servers = Servers::start(3, false, &[]);
    let settings = servers.settings();
    let store = RedisStore::new(&by_functions(servers.target()), &settings);
    until_up(&store, FAILOVER).await;
    let falls = store.stats().falls.get();
    let limit = some_limit();
    let mut asked = 0;
    for round in 0..100 {
        servers.masters[round % 3].client().say("FUNCTION FLUSH");
        let tasks = (0..9).map(|number| {
            let (store, limit) = (store.clone(), limit.clone());
            let key = format!("key-{}", number % 3);
            tokio::task::spawn_local(async move { decide(&store, &limit, &key).await })
        });
        asked += 1;
        for (number, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
            let left = task.await.unwrap().unwrap();
            if number >= 6 {
                assert_eq!(left, QUOTA - asked * 3, "round {round}");
            }
        }
    }
    assert_eq!(store.stats().falls.get(), falls);
}

/// Gateways of two versions use one server at the same time, and each library may be removed without the other.
#[tokio::test(flavor = "local")]
async fn a_library_of_another_version_is_left_alone() {
    if !has_functions() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let old = "tollgate_00112233445566ff";
    let text = format!(
        "#!lua name={old}\nredis.register_function('{old}_of', function() return 'old' end)"
    );
    client.raw(&[b"FUNCTION", b"LOAD", text.as_bytes()]);
    let store = connected(&by_functions(server.target())).await;
    let (limit, asks_old) = (some_limit(), format!("FCALL {old}_of 0"));
    assert_eq!(decide(&store, &limit, "a").await, Ok(QUOTA - 1));
    assert_eq!(client.say(&asks_old), Value::BulkString(b"old".to_vec()));
    let names = libraries(&mut client);
    assert!(names.len() == 2 && names[0] == old, "{names:?}");
    // An operator's cleanup, in either order.
    client.say(&format!("FUNCTION DELETE {}", names[1]));
    assert_eq!(decide(&store, &limit, "a").await, Ok(QUOTA - 2));
    assert_eq!(libraries(&mut client), names);
    client.say(&format!("FUNCTION DELETE {old}"));
    assert_eq!(decide(&store, &limit, "a").await, Ok(QUOTA - 3));
    assert_eq!(libraries(&mut client), names[1..]);
    assert_eq!(store.stats().falls.get(), 0);
}

#[tokio::test(flavor = "local")]
async fn a_demoted_master_refuses_functions_and_is_left_until_it_leads_again() {
    if !has_functions() {
        return;
    }
    let (server, other) = (Server::start(), Server::start());
    let store = connected(&by_functions(server.target())).await;
    let limit = some_limit();
    assert_eq!(decide(&store, &limit, "a").await, Ok(QUOTA - 1));
    // The replication removes the library, too, with all data that the other server does not have.
    for follows in [free_line(), format!("REPLICAOF 127.0.0.1 {}", other.port)] {
        server.client().say(&follows);
        if follows.ends_with(&other.port.to_string()) {
            eventually("it follows", || {
                let reply = server.client().info("replication");
                reply.contains("master_link_status:up")
            });
        }
        let refused = decide(&store, &limit, "a").await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::Refused(why) if why.contains("READONLY")),
            "{refused:?}"
        );
        assert_eq!(decide(&store, &limit, "a").await, Err(StoreError::Down));
        let said = look(&by_functions(server.target())).await.unwrap_err();
        assert!(said.to_string().contains("READONLY"), "{said}");
        server.client().say("REPLICAOF NO ONE");
        until_up(&store, FAILOVER).await;
        assert!(decide(&store, &limit, "a").await.is_ok());
    }
}

/// A replication from a port without a server: the server keeps its data.
fn free_line() -> String {
    format!("REPLICAOF 127.0.0.1 {}", super::support::free_port())
}
