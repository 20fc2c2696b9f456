//! A real cluster for tests: masters and replicas on separate ports.

use super::support::{Client, Server, until_up};
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::redis::RedisStore;
use crate::store::settings::{Backend, RedisTarget, StoreSettings};
use bb8_redis::redis::{FromRedisValue, Value};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SLOTS: u16 = 16_384;
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster. Dropping it kills its servers.
pub(crate) struct Servers {
    folder: TempDir,
    more: Vec<String>,
    pub(crate) masters: Vec<Server>,
    pub(crate) replicas: Vec<Server>,
}

impl Servers {
    /// A cluster of this number of masters, each with a replica if requested, with equal shares of the slots.
    pub(crate) fn start(masters: u16, replicated: bool, more: &[&str]) -> Self {
        let mut cluster = Self {
            folder: tempfile::tempdir().unwrap(),
            more: more.iter().map(|&word| word.to_owned()).collect(),
            masters: Vec::new(),
            replicas: Vec::new(),
        };
        cluster.masters = (0..masters).map(|_| cluster.node()).collect();
        if replicated {
            cluster.replicas = (0..masters).map(|_| cluster.node()).collect();
        }
        for (index, master) in (0..).zip(&cluster.masters) {
            let share = |index: u16| index * (SLOTS / masters) + index.min(SLOTS % masters);
            let slots: Vec<String> = (share(index)..share(index + 1))
                .map(|slot| slot.to_string())
                .collect();
            let mut client = master.client();
            client.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            client.say(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
        }
        let all = cluster.all().count();
        let mut first = cluster.masters[0].client();
        for node in cluster.all().skip(1) {
            first.say(&format!("CLUSTER MEET 127.0.0.1 {}", node.port));
        }
        eventually("all know each other", || {
            cluster.all().all(|node| {
                let nodes = command_text(node, "CLUSTER NODES");
                nodes.lines().count() == all && !nodes.contains("handshake")
            })
        });
        for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
            let id = command_text(master, "CLUSTER MYID");
            replica.client().say(&format!("CLUSTER REPLICATE {id}"));
        }
        eventually("the cluster serves", || {
            cluster.all().all(|node| {
                command_text(node, "CLUSTER INFO").contains("cluster_state:ok")
                    && (node.port == cluster.masters[0].port
                        || command_text(node, "CLUSTER SLOTS").contains("127.0.0.1"))
            }) && cluster.replicas.iter().all(|node| {
                command_text(node, "INFO replication").contains("master_link_status:up")
            })
        });
        cluster
    }

    /// One more node, which serves nothing.
    pub(crate) fn node(&self) -> Server {
        for _ in 0..50 {
            // The bus between the nodes uses a port 10,000 above.
            let port = fastrand::u16(10_001..22_000);
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if !free(port) || !free(port + 10_000) {
                continue;
            }
            if let Some(server) = self.on(port) {
                return server;
            }
        }
        panic!("no port is free");
    }

    fn on(&self, port: u16) -> Option<Server> {
        let folder = self.folder.path().display().to_string();
        let file = format!("nodes-{port}.conf");
        let mut words = vec![
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
            "--dir",
            &folder,
            "--cluster-config-file",
            &file,
        ];
        words.extend(self.more.iter().map(String::as_str));
        Server::start_on(port, &words)
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// The master that serves a slot at the beginning.
    pub(crate) fn home(&self, slot: u16) -> usize {
        let masters = self.masters.len() as u16;
        let share = |index: u16| index * (SLOTS / masters) + index.min(SLOTS % masters);
        (0..masters)
            .position(|index| (share(index)..share(index + 1)).contains(&slot))
            .unwrap()
    }

    pub(crate) fn target(&self) -> RedisTarget {
        // One running node is enough.
        let seeds = [
            Address::new("127.0.0.1", 1),
            Address::new("127.0.0.1", self.masters[0].port),
            Address::new("127.0.0.1", self.masters[1].port),
        ];
        RedisTarget::new(RedisEndpoint::Cluster {
            seeds: seeds.into(),
        })
    }

    /// A store with enough time for a busy machine.
    pub(crate) fn settings(&self) -> StoreSettings {
        StoreSettings {
            source: Backend::Redis(self.target()),
            timeout: Duration::from_secs(2),
            ..StoreSettings::default()
        }
    }

    pub(crate) async fn store(&self) -> RedisStore {
        let store = RedisStore::new(&self.target(), &self.settings());
        until_up(&store, Duration::from_secs(10)).await;
        store
    }

    /// Every key of all masters.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for master in &self.masters {
            keys.extend(Vec::<String>::from_redis_value(master.client().say("KEYS *")).unwrap());
        }
        keys.retain(|key| !key.contains(":probe:"));
        keys.sort();
        keys
    }

    pub(crate) fn flush(&self) {
        for master in &self.masters {
            master.client().say("FLUSHALL");
        }
    }
}

/// Moves a slot with all its keys from one port to another, like `redis-cli --cluster reshard`; `pause` is between the
/// steps.
pub(crate) fn migrate(slot: u16, ports: (u16, u16), pause: Duration) {
    move_slot(slot, ports, pause, || ());
}

/// Moves a slot, and leaves it for this time between the two masters after all of its keys are at the other one and
/// `keys_are_there` has been called.
pub(crate) fn migrate_and_wait(
    slot: u16,
    ports: (u16, u16),
    keys_are_there: impl FnOnce(),
    wait: Duration,
) {
    move_slot(slot, ports, Duration::ZERO, || {
        keys_are_there();
        std::thread::sleep(wait);
    });
}

fn move_slot(slot: u16, (from, to): (u16, u16), pause: Duration, between: impl FnOnce()) {
    let (mut giver, mut taker) = (Client::at(from), Client::at(to));
    let id = |client: &mut Client| String::from_redis_value(client.say("CLUSTER MYID")).unwrap();
    let (source, target) = (id(&mut giver), id(&mut taker));
    taker.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
    giver.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    std::thread::sleep(pause);
    loop {
        let keys = giver.say(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let keys = Vec::<Vec<u8>>::from_redis_value(keys).unwrap();
        let Some(key) = keys.first() else {
            break;
        };
        let port = to.to_string();
        giver.raw(&[
            b"MIGRATE",
            b"127.0.0.1",
            port.as_bytes(),
            key,
            b"0",
            b"5000",
        ]);
        std::thread::sleep(pause);
    }
    between();
    taker.say(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
    giver.say(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
}

pub(crate) fn command_text(node: &Server, line: &str) -> String {
    match node.client().say(line) {
        Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
        Value::VerbatimString { text, .. } => text,
        other => format!("{other:?}"),
    }
}

pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
