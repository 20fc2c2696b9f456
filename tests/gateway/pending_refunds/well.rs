//! A healthy master, or one that stood still for a moment, is replaced under load. It goes on answering until the
//! gateways learn of the new master, and its updates of this time are lost. No slot may stay taken because of that, and
//! no request may be admitted beyond the limit because the new master does not know of requests in flight.
//!
//! With `FAILOVERS=20` each of the two tests runs so many times.

use crate::support::load::{Load, statuses};
use crate::support::{
    Connection, File, Gateway, Lag, PATIENCE, Redis, Sentinel, Upstream, eventually,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SLOTS: usize = 8;

/// Two Redis servers, of which one follows the other, a sentinel, and two gateways whose limit is always full.
struct Full {
    servers: [Redis; 2],
    sentinel: Sentinel,
    gateways: Vec<Gateway>,
    _upstream: Upstream,
    /// The most requests that the upstream has had at once since the last check.
    most: Arc<AtomicUsize>,
}

impl Full {
    /// Two gateways that follow `on_down` while they can ask no master.
    async fn start(on_down: &str) -> Self {
        let master = Redis::start().await;
        let of = master.port().to_string();
        let follows = ["--replicaof", "127.0.0.1", &of];
        let replica = Redis::start_with(&follows).await;
        for server in [&master, &replica] {
            let now = ["CONFIG", "SET", "repl-diskless-sync-delay", "0"];
            server.command::<()>(&now).await;
        }
        let sentinel = Sentinel::start(master.port()).await;
        let (at_once, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&at_once), Arc::clone(&most));
        let upstream =
            Upstream::playing(move |connection: Connection| serve(connection, counts.clone()))
                .await;
        let file = File::to(&upstream, &["slots"])
            .limit(
                "slots",
                &format!("by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = {SLOTS}\nslot_ttl = \"1min\""),
            )
            .server("workers = 2")
            .store(&format!(
                "url = \"{}\"\ntimeout = \"500ms\"\non_down = \"{on_down}\"",
                sentinel.url()
            ));
        let mut gateways = Vec::new();
        for _ in 0..2 {
            gateways.push(Gateway::start(&file).await);
        }
        Self {
            servers: [master, replica],
            sentinel,
            gateways,
            _upstream: upstream,
            most,
        }
    }

    async fn master(&self) -> (&Redis, &Redis) {
        let [one, two] = &self.servers;
        match self.sentinel.names().await == one.port() {
            true => (one, two),
            false => (two, one),
        }
    }

    /// Waits until the other server follows the master, and both gateways ask the master.
    async fn is_well(&self) {
        let (master, _) = self.master().await;
        eventually(PATIENCE, "the replica follows", async || {
            let told: String = master.command(&["INFO", "replication"]).await;
            told.contains("state=online")
        })
        .await;
        eventually(PATIENCE, "the sentinel knows it", async || {
            self.sentinel.knows_a_replica().await.unwrap_or(false)
        })
        .await;
        for gateway in &self.gateways {
            eventually(PATIENCE, "the gateway asks it", async || {
                gateway.get("/").await.status == 200
            })
            .await;
            eventually(PATIENCE, "it knows the other", async || {
                gateway.metrics().await.contains("tollgate_gateways 2\n")
            })
            .await;
        }
        self.most.store(0, Ordering::Relaxed);
    }

    /// The number of taken slots, also of those that have lapsed.
    async fn taken(&self) -> usize {
        let (master, _) = self.master().await;
        let keys = master.keys().await;
        match keys.iter().find(|key| key.contains(":slots:")) {
            Some(key) => master.command(&["ZCARD", key]).await,
            None => 0,
        }
    }

    /// Replaces the master under load. Within two seconds after the load ends, every slot must be free.
    async fn through(&self, nth: usize, stands_still: bool) {
        self.is_well().await;
        let gateways: Vec<&Gateway> = self.gateways.iter().collect();
        let (lag, load) = (Lag::watch(), Load::on(&gateways, 16, Duration::ZERO).await);
        load.run(Duration::from_millis(500)).await;
        let (master, other) = self.master().await;
        let before = self.most.load(Ordering::Relaxed);
        match stands_still {
            true => master.freeze(),
            false => self.sentinel.fail_over().await,
        }
        eventually(PATIENCE, "another leads", async || {
            self.sentinel.names().await == other.port()
        })
        .await;
        if stands_still {
            load.run(Duration::from_millis(100 * (nth as u64 % 5)))
                .await;
            master.thaw();
        }
        load.run(Duration::from_millis(1500 + 500 * (nth as u64 % 4)))
            .await;
        let shots = load.stop().await;
        let over = Instant::now();
        let mut taken = self.taken().await;
        while taken > 0 && over.elapsed() < Duration::from_secs(2) + lag.of_both() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            taken = self.taken().await;
        }
        let most = self.most.load(Ordering::Relaxed);
        println!(
            "{nth}: {taken} taken after {:?}, {before} at once before, {most} in all, {:?}",
            over.elapsed(),
            statuses(&shots)
        );
        assert_eq!(taken, 0, "round {nth}");
        assert!(before <= SLOTS, "{before} at once");
        assert!(most <= SLOTS, "{most} at once, round {nth}");
    }
}

/// Answers each request after 1 to 60 ms.
async fn serve(mut connection: Connection, (at_once, most): (Arc<AtomicUsize>, Arc<AtomicUsize>)) {
    while connection.request().await.is_ok() {
        most.fetch_max(
            at_once.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=60))).await;
        at_once.fetch_sub(1, Ordering::Relaxed);
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if connection.wire.try_send(answer).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_gateway_that_stops_in_a_planned_failover_locks_no_slot() {
    let mut full = Full::start("local").await;
    full.is_well().await;
    let gateways: Vec<&Gateway> = full.gateways.iter().collect();
    let load = Load::on(&gateways, 16, Duration::ZERO).await;
    load.run(Duration::from_millis(500)).await;
    let (_, other) = full.master().await;
    let named = other.port();
    full.sentinel.fail_over().await;
    load.run(Duration::from_millis(450)).await;
    gateways[1].signal("TERM");
    load.run(Duration::from_millis(300)).await;
    load.stop().await;
    eventually(PATIENCE, "another leads", async || {
        full.sentinel.names().await == named
    })
    .await;
    let mut last = full.gateways.pop().expect("there are two");
    last.exit(PATIENCE).await;
    eventually(Duration::from_secs(4), "all slots are free", async || {
        full.taken().await == 0
    })
    .await;
}

fn rounds() -> usize {
    let asked = std::env::var("FAILOVERS").ok();
    asked.map_or(2, |text| text.parse().expect("FAILOVERS is a number"))
}

#[tokio::test]
async fn a_planned_failover_locks_no_slot() {
    let full = Full::start("local").await;
    for nth in 0..rounds() {
        full.through(nth, false).await;
    }
}

#[tokio::test]
async fn a_master_that_stood_still_and_comes_back_locks_no_slot() {
    let full = Full::start("closed").await;
    for nth in 0..rounds() {
        full.through(nth, true).await;
    }
}

#[tokio::test]
async fn what_is_admitted_without_a_master_is_not_forgotten_when_it_comes_back() {
    let full = Full::start("local").await;
    for nth in 0..rounds() {
        full.through(nth, true).await;
    }
}
