//! Several Redis servers that serve equal shares of the slots of a cluster.

use super::{Server, Told};
use redis::aio::MultiplexedConnection;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;
use tollgate::store::{Address, RedisEndpoint, RedisTarget};

const SLOTS: u16 = 16_384;
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster without replicas. Dropping it kills its servers.
pub(crate) struct Cluster {
    pub(crate) masters: Vec<Server>,
    sides: Vec<MultiplexedConnection>,
    _folder: TempDir,
}

impl Cluster {
    pub(crate) async fn start(many: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut masters, mut sides) = (Vec::new(), Vec::new());
        for index in 0..many {
            let port = free_port();
            let (place, file) = (
                folder.path().display().to_string(),
                format!("nodes-{port}.conf"),
            );
            let words = ["--cluster-enabled", "yes", "--dir", &place];
            let more = [
                "--cluster-config-file",
                &file,
                "--cluster-announce-ip",
                "127.0.0.1",
            ];
            let master = Server::start_on(port, &[words, more].concat()).await;
            let mut side = master.connection().await;
            let share = |index: u16| index * (SLOTS / many) + index.min(SLOTS % many);
            say(&mut side, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]).await;
            let mut add = redis::cmd("CLUSTER");
            add.arg("ADDSLOTS");
            for slot in share(index)..share(index + 1) {
                add.arg(slot);
            }
            let () = add.query_async(&mut side).await.unwrap();
            masters.push(master);
            sides.push(side);
        }
        for master in &masters[1..] {
            let port = master.port.to_string();
            say(&mut sides[0], &["MEET", "127.0.0.1", &port]).await;
        }
        let mut cluster = Self {
            masters,
            sides,
            _folder: folder,
        };
        cluster.serves().await;
        cluster
    }

    /// Waits until each server knows all others.
    async fn serves(&mut self) {
        let begun = Instant::now();
        let many = format!("cluster_known_nodes:{}\r", self.sides.len());
        for side in &mut self.sides {
            loop {
                let mut info = redis::cmd("CLUSTER");
                let told: String = info.arg("INFO").query_async(side).await.unwrap();
                if told.contains("cluster_state:ok") && told.contains(&many) {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "it does not serve: {told}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    pub(crate) fn target(&self) -> RedisTarget {
        let address = |master: &Server| Address::new("127.0.0.1", master.port);
        let seeds = self.masters.iter().take(2).map(address).collect();
        RedisTarget::new(RedisEndpoint::Cluster { seeds })
    }

    /// The figures of each server.
    pub(crate) async fn told(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        for side in &mut self.sides {
            all.push(Told::by(side).await);
        }
        all
    }

    /// Removes all counters.
    pub(crate) async fn flush(&mut self) {
        for side in &mut self.sides {
            let () = redis::cmd("FLUSHALL").query_async(side).await.unwrap();
        }
    }
}

async fn say(side: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd("CLUSTER");
    for word in words {
        command.arg(word);
    }
    let () = command.query_async(side).await.unwrap();
}

/// A free port whose cluster bus, 10,000 above, is free as well.
fn free_port() -> u16 {
    let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut ports = (0..1000).map(|_| fastrand::u16(10_001..22_000));
    let found = ports.find(|port| free(*port) && free(port + 10_000));
    found.expect("a free port")
}
