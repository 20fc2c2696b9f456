//! A real cluster of Redis nodes: masters, each with a replica, which are killed and brought back.

use super::ports::free_node_port;
use super::redis::Redis;
use super::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const SLOTS: usize = 16_384;
/// The time that nodes have to meet before they are introduced to each other again.
const TURN: Duration = Duration::from_secs(3);

/// Three masters, and a replica of each.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a cluster, and waits until it serves.
    pub(crate) async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let mut node = Redis::absent_at(free_node_port());
            node.with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "1000",
                "--cluster-replica-validity-factor",
                "0",
                "--cluster-require-full-coverage",
                "no",
                "--repl-diskless-sync-delay",
                "0",
            ]);
            node.come().await;
            nodes.push(node);
        }
        let cluster = Self { nodes };
        for (index, master) in cluster.nodes[..3].iter().enumerate() {
            let share = |index: usize| index * SLOTS / 3;
            let slots = (share(index)..share(index + 1)).map(|slot| slot.to_string());
            let slots: Vec<String> = slots.collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            let epoch = (index + 1).to_string();
            let set = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            master.command::<String>(&set).await;
            master.command::<String>(&words).await;
        }
        cluster.meet().await;
        for (master, replica) in cluster.nodes[..3].iter().zip(&cluster.nodes[3..]) {
            let id: String = master.command(&["CLUSTER", "MYID"]).await;
            replica
                .command::<String>(&["CLUSTER", "REPLICATE", &id])
                .await;
        }
        cluster.whole().await;
        cluster
    }

    /// Introduces the nodes to each other again and again: a node forgets another that does not answer within the
    /// nodes' timeout.
    async fn meet(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.know_each_other().await {
            assert!(Instant::now() < until, "not all know each other");
            for node in &self.nodes[1..] {
                let port = node.port().to_string();
                let meet = ["CLUSTER", "MEET", "127.0.0.1", &port];
                self.nodes[0].command::<String>(&meet).await;
            }
            let turn = Instant::now() + TURN;
            while Instant::now() < turn.min(until) && !self.know_each_other().await {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn know_each_other(&self) -> bool {
        for node in &self.nodes {
            let nodes: String = node.command(&["CLUSTER", "NODES"]).await;
            if nodes.lines().count() != self.nodes.len() || nodes.contains("handshake") {
                return false;
            }
        }
        true
    }

    /// A single node that serves every slot, as managed services offer.
    pub(crate) async fn of_one() -> Redis {
        let mut node = Redis::absent_at(free_node_port());
        node.with(&["--cluster-enabled", "yes"]);
        node.come().await;
        let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "ADDSLOTS"];
        words.extend(slots.iter().map(String::as_str));
        node.command::<String>(&words).await;
        eventually(PATIENCE, "it serves", async || {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        })
        .await;
        node
    }

    /// Waits until every node reports that all slots are served and that every replica follows its master.
    pub(crate) async fn whole(&self) {
        self.all("the cluster is whole", async |node| {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            let nodes: String = node.command(&["CLUSTER", "NODES"]).await;
            let own: String = node.command(&["INFO", "replication"]).await;
            info.contains("cluster_state:ok")
                && nodes.matches("slave").count() == 3
                && !nodes.contains("fail")
                && (own.contains("role:master") || own.contains("master_link_status:up"))
        })
        .await;
    }

    async fn all(&self, what: &str, is: impl AsyncFn(&Redis) -> bool) {
        for node in &self.nodes {
            eventually(PATIENCE, what, async || is(node).await).await;
        }
    }

    /// The numbers of the nodes that are masters now.
    pub(crate) async fn masters(&self) -> Vec<usize> {
        let mut masters = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let own: String = node.command(&["INFO", "replication"]).await;
            if own.contains("role:master") {
                masters.push(number);
            }
        }
        masters
    }

    /// Kills a node, and waits until another node reports that all slots are served without it.
    pub(crate) async fn lose(&mut self, number: usize) {
        self.kill(number).await;
        let (gone, other) = (&self.nodes[number], &self.nodes[(number + 1) % 6]);
        let address = format!(":{}@", gone.port());
        eventually(PATIENCE, "a replica takes over", async || {
            let nodes: String = other.command(&["CLUSTER", "NODES"]).await;
            let (dead, alive): (Vec<&str>, Vec<&str>) =
                nodes.lines().partition(|line| line.contains(&address));
            // A line with more than eight words names slots.
            let serves = |line: &&&str| line.contains("master") && line.split(' ').count() > 8;
            dead.iter()
                .all(|line| line.contains("fail") && !line.contains("fail?"))
                && alive.iter().filter(serves).count() == 3
        })
        .await;
    }

    /// Kills an original master after its replica, so that no node takes its place, and waits until the other nodes
    /// know it.
    pub(crate) async fn lose_for_good(&mut self, number: usize) {
        self.kill(number + 3).await;
        self.kill(number).await;
        let gone = format!(":{}@", self.nodes[number].port());
        for (other, node) in self.nodes.iter().enumerate() {
            if other % 3 == number {
                continue;
            }
            eventually(PATIENCE, "the others know", async || {
                let nodes: String = node.command(&["CLUSTER", "NODES"]).await;
                let line = nodes.lines().find(|line| line.contains(&gone));
                line.is_some_and(|line| line.contains("fail") && !line.contains("fail?"))
            })
            .await;
        }
    }

    /// A hash tag whose slot belongs to this master at the start.
    pub(crate) async fn tag_on(&self, number: usize) -> String {
        let share = |index: usize| index * SLOTS / 3;
        for nth in 0.. {
            let tag = format!("tag-{nth}");
            let slot: usize = self.command(number, &["CLUSTER", "KEYSLOT", &tag]).await;
            if (share(number)..share(number + 1)).contains(&slot) {
                return tag;
            }
        }
        unreachable!("some tag is there")
    }

    /// Sends one command to a node.
    pub(crate) async fn command<T: redis::FromRedisValue>(
        &self,
        number: usize,
        words: &[&str],
    ) -> T {
        self.nodes[number].command(words).await
    }

    /// The number of script calls of one node so far.
    pub(crate) async fn calls_of(&self, number: usize) -> u64 {
        self.nodes[number].script_calls().await
    }

    /// Kills a node.
    pub(crate) async fn kill(&mut self, number: usize) {
        self.nodes[number].kill().await;
    }

    /// Brings a node back. It knows the cluster, and has no other data.
    pub(crate) async fn come(&mut self, number: usize) {
        self.nodes[number].come().await;
    }

    /// Takes this slot from all nodes, and waits until every node reports that the slot is not served.
    pub(crate) async fn unassign(&self, slot: usize) {
        let slot = slot.to_string();
        self.all("nobody serves the slot", async |node| {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            let left = info.contains(&format!("cluster_slots_assigned:{}\r", SLOTS - 1));
            if !left {
                node.command::<String>(&["CLUSTER", "DELSLOTS", &slot])
                    .await;
            }
            left
        })
        .await;
    }

    /// Starts the migration of a slot from one node to another: new keys of the slot belong to the second node.
    pub(crate) async fn send(&self, slot: usize, from: usize, to: usize) {
        self.set_slot(to, slot, "IMPORTING", from).await;
        self.set_slot(from, slot, "MIGRATING", to).await;
    }

    /// Ends the migration of a slot, without the keys that were in it.
    pub(crate) async fn arrive(&self, slot: usize, from: usize, to: usize) {
        // A node keeps its slot as long as it has keys in it.
        self.nodes[from].command::<String>(&["FLUSHALL"]).await;
        self.set_slot(to, slot, "NODE", to).await;
        self.set_slot(from, slot, "NODE", to).await;
    }

    async fn set_slot(&self, number: usize, slot: usize, how: &str, other: usize) {
        let other: String = self.nodes[other].command(&["CLUSTER", "MYID"]).await;
        let slot = slot.to_string();
        let words = ["CLUSTER", "SETSLOT", &slot, how, &other];
        self.nodes[number].command::<String>(&words).await;
    }

    /// Gives a slot to a master.
    pub(crate) async fn assign(&self, slot: usize, number: usize) {
        let words = ["CLUSTER", "ADDSLOTS", &slot.to_string()];
        self.nodes[number].command::<String>(&words).await;
    }

    /// The number of script calls so far, by all running nodes.
    pub(crate) async fn script_calls(&self) -> u64 {
        let mut calls = 0;
        for node in &self.nodes {
            calls += node.script_calls().await;
        }
        calls
    }

    /// Lines of `[store]`.
    pub(crate) fn store(&self) -> String {
        let seeds: Vec<String> = self.nodes[..2]
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("url = \"redis+cluster://{}\"", seeds.join(","))
    }
}
