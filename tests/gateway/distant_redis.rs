//! A healthy Redis at a distance: the gateway never takes it for away, and the Redis carries the load.

use crate::support::load::{Load, statuses};
use crate::support::{
    File, Gateway, Line, Redis, Relay, Upstream, Wire, eventually, free_port, get, tollgate,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A limit for which each request asks Redis. A request that Redis does not decide is answered 503.
const ASKS: &str =
    "by = \"everyone\"\nrate = \"1000000/h\"\nalgorithm = \"fixed-window\"\nlease = \"off\"";
/// The key with the gateways' reports.
const GATEWAYS: &str = "tollgate:1:gateways:{*}";
const SOON: Duration = Duration::from_secs(10);

/// A delayed connection to a Redis, and a gateway with one worker that uses it.
struct Far {
    _upstream: Upstream,
    redis: Redis,
    relay: Relay,
    gateway: Gateway,
}

impl Far {
    /// A Redis with this round trip, and a gateway that is connected to it.
    async fn at(round_trip: Duration, store: &str) -> Self {
        let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
        let relay = Relay::to(redis.port()).await;
        relay.turn(Line::Slow(round_trip / 2));
        let file = File::to(&upstream, &["calls"])
            .limit("calls", ASKS)
            .server("workers = 1")
            .store(&format!(
                "url = \"{}\"\non_down = \"closed\"\n{store}",
                relay.url()
            ));
        let gateway = Gateway::start(&file).await;
        let far = Self {
            _upstream: upstream,
            redis,
            relay,
            gateway,
        };
        far.is_up().await;
        far
    }

    async fn is_up(&self) {
        eventually(SOON, "Redis is asked", async || {
            self.gateway.admin_get("/readyz").await.text() == "ready\nstore: up\n"
        })
        .await;
    }

    /// Checks that the log after line `since` never says that Redis was away.
    fn was_never_away(&self, since: usize) {
        let said = self.gateway.said.lines();
        let away: Vec<_> = said[since..]
            .iter()
            .filter(|line| line.contains("is away"))
            .collect();
        assert!(away.is_empty(), "{away:?}");
    }

    fn lines(&self) -> usize {
        self.gateway.said.lines().len()
    }
}

fn all_were(status: u16, counts: &BTreeMap<u16, usize>) {
    assert_eq!(
        counts.keys().copied().collect::<Vec<_>>(),
        [status],
        "{counts:?}"
    );
}

/// The load is long enough for several reports of the gateway, while each connection is always in use.
#[tokio::test]
async fn a_redis_that_is_well_is_not_called_away_by_the_gateways_own_heartbeat() {
    let far = Far::at(Duration::from_millis(100), "timeout = \"400ms\"").await;
    let since = far.lines();
    let load = Load::on(&[&far.gateway], 16, Duration::ZERO).await;
    far.redis.command::<u64>(&["DEL", GATEWAYS]).await;
    load.run(Duration::from_secs(6)).await;
    let shots = load.stop().await;
    far.was_never_away(since);
    all_were(200, &statuses(&shots));
    let listed: u64 = far.redis.command(&["EXISTS", GATEWAYS]).await;
    assert_eq!(listed, 1, "and it is counted among the gateways");
}

/// With two calls at a time, these requests would take two round trips, one more than the time allows.
#[tokio::test]
async fn many_at_once_are_decided_within_a_few_round_trips() {
    let far = Far::at(Duration::from_millis(250), "timeout = \"1900ms\"").await;
    far.relay.turn(Line::Slow(Duration::from_millis(500)));
    let since = far.lines();
    let mut wires = Vec::new();
    for _ in 0..200 {
        wires.push(far.gateway.connect().await);
    }
    let mut asked = JoinSet::new();
    for mut wire in wires {
        asked.spawn(async move { wire.ask(get("/")).await.status });
    }
    let mut counts = BTreeMap::new();
    for status in asked.join_all().await {
        *counts.entry(status).or_insert(0) += 1;
    }
    far.was_never_away(since);
    all_were(200, &counts);
}

/// The distance changes under load: near, far, and near again.
#[tokio::test]
async fn a_wire_that_becomes_longer_is_followed() {
    let far = Far::at(Duration::ZERO, "timeout = \"500ms\"").await;
    let since = far.lines();
    let load = Load::on(&[&far.gateway], 64, Duration::from_millis(1)).await;
    load.run(Duration::from_millis(500)).await;
    for round_trip in [100, 250, 20] {
        far.relay
            .turn(Line::Slow(Duration::from_millis(round_trip) / 2));
        load.run(Duration::from_secs(1)).await;
    }
    load.stop().await;
    far.was_never_away(since);
}

/// All of a worker's connections break at once. A new connection, with login and scripts, takes longer than `timeout`,
/// although the server answers all the time.
#[tokio::test]
async fn connections_that_take_long_to_be_made_are_not_a_redis_that_is_away() {
    let far = Far::at(Duration::from_millis(200), "timeout = \"500ms\"").await;
    let since = far.lines();
    let load = Load::on(&[&far.gateway], 4, Duration::from_millis(5)).await;
    for _ in 0..3 {
        load.run(Duration::from_millis(500)).await;
        far.redis
            .command::<u64>(&["CLIENT", "KILL", "TYPE", "normal"])
            .await;
        let before = far.redis.script_calls().await;
        eventually(SOON, "Redis is asked again", async || {
            far.redis.script_calls().await > before
        })
        .await;
    }
    let counts = statuses(&load.stop().await);
    println!("{counts:?}");
    far.was_never_away(since);
    // Requests that wait for Redis are not decided by a fallback.
    assert!(counts.keys().all(|status| [200, 503].contains(status)));
}

#[tokio::test]
async fn a_timeout_that_leaves_hardly_any_time_is_told() {
    let round_trip = Duration::from_millis(200);
    let far = Far::at(round_trip, "timeout = \"350ms\"").await;
    let path = far.gateway.file();
    let arguments = ["--config", path.to_str().unwrap(), "check", "--connect"];
    let told = tollgate(far.gateway.folder(), &arguments).await;
    assert_eq!(told.code, Some(0), "{}", told.stdout);
    let told = told.stdout;
    assert!(
        told.contains("more than half of `timeout` (350.0 ms)"),
        "{told}"
    );
    far.relay.turn(Line::Slow(Duration::from_millis(5)));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("350ms", "20s")).unwrap();
    let told = tollgate(far.gateway.folder(), &arguments).await.stdout;
    assert!(!told.contains("more than half"), "{told}");
}

/// Each answer takes longer than half of `timeout`. So a question that first waited for another answer would be too
/// late.
#[tokio::test]
async fn a_round_trip_of_most_of_the_timeout_is_not_away_by_turns() {
    // The rest of `timeout` is longer than a busy machine can stop a process.
    let far = Far::at(Duration::from_millis(250), "timeout = \"2800ms\"").await;
    far.relay.turn(Line::Slow(Duration::from_secs(1)));
    let since = far.lines();
    let load = Load::on(&[&far.gateway], 8, Duration::ZERO).await;
    load.run(Duration::from_secs(10)).await;
    load.stop().await;
    far.was_never_away(since);
}

/// A new gateway connects, logs in and loads its scripts before its first question. These are three round trips, and
/// each takes most of `timeout`.
#[tokio::test]
async fn the_first_requests_of_a_cold_start_are_decided_by_redis() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let relay = Relay::to(redis.port()).await;
    relay.turn(Line::Slow(Duration::from_millis(100)));
    let file = File::to(&upstream, &["calls"])
        .limit("calls", ASKS)
        .server("workers = 2")
        .store(&format!(
            "url = \"{}\"\non_down = \"closed\"\ntimeout = \"550ms\"",
            relay.url()
        ));
    let gateway = Gateway::start(&file).await;
    let mut asked = JoinSet::new();
    for _ in 0..8 {
        let mut wire = gateway.connect().await;
        asked.spawn(async move { wire.ask(get("/")).await.status });
    }
    assert_eq!(asked.join_all().await, [200; 8]);
    assert!(!gateway.said.text().contains("is away"));
}

/// While the gateway waits for Redis, it is alive and not ready. After that it starts without Redis.
#[tokio::test]
async fn without_redis_a_gateway_starts_after_a_while_and_is_not_ready_before() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let relay = Relay::to(redis.port()).await;
    relay.turn(Line::Silent);
    let admin = free_port();
    let file = File::to(&upstream, &["calls"])
        .limit("calls", ASKS)
        .store(&format!("url = \"{}\"\non_down = \"open\"", relay.url()))
        .text();
    let text = file.replace(
        "[admin]\nlisten = \"127.0.0.1:0\"",
        &format!("[admin]\nlisten = \"127.0.0.1:{admin}\""),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    let ready = async {
        let admin = SocketAddr::from(([127, 0, 0, 1], admin));
        eventually(SOON, "the admin listener is open", async || {
            TcpStream::connect(admin).await.is_ok()
        })
        .await;
        Wire::to(admin).await.ask(get("/readyz")).await.status
    };
    let begun = Instant::now();
    let (early, gateway) = tokio::join!(ready, Gateway::run(folder, &path));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1900), "{took:?}");
    assert_eq!(early, 503);
    gateway.get("/").await.expect(200);
    assert!(gateway.admin_get("/readyz").await.text().contains("away"));
}
