//! Leases, as clients see them: one count over all gateways, exact numbers, and unused permits that are given back at
//! the end.

use super::redis_failures::counted;
use crate::support::load::{Load, statuses};
use crate::support::{File, Gateway, Lag, Line, PATIENCE, Redis, Relay, Upstream, eventually, get};
use std::time::Duration;

/// A time in which thousands of requests are sent, however slow the machine is.
const USED_UP: Duration = Duration::from_secs(120);

/// The sum of a metric's rows that contain all of these texts.
pub(super) async fn sum(gateway: &Gateway, metric: &str, has: &[&str]) -> u64 {
    let metrics = gateway.metrics().await;
    let rows = metrics.lines().filter(|line| {
        line.starts_with(&format!("{metric}{{")) && has.iter().all(|word| line.contains(word))
    });
    rows.filter_map(|row| row.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

fn window(upstream: &Upstream, redis: &Redis) -> File {
    let limit = "by = \"everyone\"\nrate = \"2000/h\"\nalgorithm = \"fixed-window\"";
    counted(upstream, redis, "closed", limit).server("workers = 1")
}

#[tokio::test]
async fn two_gateways_with_permits_in_hand_admit_what_the_limit_says() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = window(&upstream, &redis);
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    let load = Load::on(&[&one, &two], 16, Duration::ZERO).await;
    eventually(USED_UP, "all of it is used up", async || {
        one.get("/").await.status == 429 && two.get("/").await.status == 429
    })
    .await;
    let shots = load.stop().await;
    let counts = statuses(&shots);
    // The bound includes the requests that were sent beside the load.
    assert!(upstream.seen() <= 2000, "{} {counts:?}", upstream.seen());
    assert!(upstream.seen() >= 1990, "{} {counts:?}", upstream.seen());
    let leased = ["decided_by=\"lease\"", "decision=\"allow\""];
    let leased = sum(&one, "tollgate_limit_decisions_total", &leased).await;
    // On a machine so slow that no key is busy, the gateway has no permits in hand.
    let time = shots[shots.len() - 1].at - shots[0].at;
    let is_busy = shots.len() as f64 > 2000.0 * time.as_secs_f64();
    assert!(leased > 0 || !is_busy, "nobody had permits in hand");
}

#[tokio::test]
async fn what_is_said_to_remain_is_never_more_than_there_is() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let mut gateway = Gateway::start(&window(&upstream, &redis)).await;
    let mut wire = gateway.connect().await;
    let mut taken = 0;
    while sum(&gateway, "tollgate_limit_decisions_total", &["\"lease\""]).await < 50 {
        for _ in 0..100 {
            let answer = wire.ask(get("/")).await.expect(200);
            taken += 1;
            assert!(answer.remaining("calls") <= 2000 - taken, "after {taken}");
        }
    }
    let before = sum(&gateway, "tollgate_store_permits_total", &["\"taken\""]).await;
    assert!(before > 0);
    // The gateway gives back the permits in hand.
    gateway.stop().await;
    let other = Gateway::start(&window(&upstream, &redis)).await;
    let left = other.get("/").await.expect(200).remaining("calls");
    assert_eq!(left, 2000 - taken - 1);
}

#[tokio::test]
async fn where_it_is_off_every_request_asks() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"everyone\"\nrate = \"20000/h\"\nlease = \"off\"";
    let file = counted(&upstream, &redis, "closed", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    let mut wire = gateway.connect().await;
    for _ in 0..200 {
        wire.ask(get("/")).await.expect(200);
    }
    let calls = ["operation=\"decide\"", "outcome=\"ok\""];
    assert_eq!(
        sum(&gateway, "tollgate_store_operations_total", &calls).await,
        200
    );
}

/// At the limit a call for permits returns fewer permits than requests wait for. The waits and the following question
/// have one deadline, and here it allows three round trips. Without this deadline, a request could wait for other
/// requests' calls as often as it may and then ask, in five round trips.
#[tokio::test]
async fn what_waits_for_permits_and_then_asks_has_one_deadline() {
    const ROUND_TRIP: Duration = Duration::from_millis(500);
    const TIMEOUT: Duration = Duration::from_millis(1500);
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let relay = Relay::to(redis.port()).await;
    let store = format!(
        "url = \"{}\"\ntimeout = \"{}ms\"",
        relay.url(),
        TIMEOUT.as_millis()
    );
    for algorithm in ["sliding-window", "fixed-window", "token-bucket"] {
        let limit =
            format!("by = \"everyone\"\nrate = \"40/2s\"\nalgorithm = \"{algorithm}\"\nlease = 8");
        let file = File::to(&upstream, &["calls"])
            .limit("calls", &limit)
            .server("workers = 1")
            .store(&store);
        relay.turn(Line::Whole);
        let gateway = Gateway::start(&file).await;
        let readyz = async || gateway.admin_get("/readyz").await.text();
        eventually(PATIENCE, "Redis is asked", async || {
            readyz().await.contains("store: up")
        })
        .await;
        relay.turn(Line::Slow(ROUND_TRIP / 2));
        let lag = Lag::watch();
        let load = Load::on(&[&gateway], 40, Duration::ZERO).await;
        load.run(Duration::from_secs(8)).await;
        let shots = load.stop().await;
        let slowest = shots.iter().map(|shot| shot.took).max().unwrap();
        let lag = lag.of_both();
        println!(
            "{algorithm}: {slowest:?}, lag {lag:?}, {:?}",
            statuses(&shots)
        );
        let most = TIMEOUT + ROUND_TRIP + lag;
        assert!(slowest <= most, "{algorithm}: {slowest:?} of {most:?}");
    }
}

/// Permits that no request used, that came late, or that were on their way when the load ended are soon given back.
#[tokio::test]
async fn no_permit_is_lost_when_a_load_comes_and_goes() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = |lease: &str| {
        format!(
            "by = \"everyone\"\nrate = \"50000/h\"\nalgorithm = \"fixed-window\"\nlease = {lease}"
        )
    };
    let file =
        |lease: &str| counted(&upstream, &redis, "closed", &limit(lease)).server("workers = 1");
    let gateway = Gateway::start(&file("2000")).await;
    for _ in 0..3 {
        let taken = async || sum(&gateway, "tollgate_store_permits_total", &["\"taken\""]).await;
        let before = taken().await;
        let load = Load::on(&[&gateway], 6, Duration::ZERO).await;
        eventually(USED_UP, "permits are taken", async || {
            taken().await > before
        })
        .await;
        load.stop().await;
    }
    let other = Gateway::start(&file("\"off\"")).await;
    eventually(PATIENCE, "what was not used is back", async || {
        let seen = upstream.seen() as u64;
        let left = other.get("/").await.expect(200).remaining("calls");
        assert!(left < 50_000 - seen);
        left == 50_000 - seen - 1
    })
    .await;
}

/// Permits in hand have been charged already. A demoted master, which takes no more writes, gives no more permits. The
/// limit holds whatever was on its way.
#[tokio::test]
async fn a_master_that_is_demoted_under_leases_admits_no_more_than_the_limit() {
    const LIMIT: usize = 6000;
    let nobody = Redis::absent();
    let nobody = nobody.port().to_string();
    for functions in [false, true] {
        let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
        let server: String = redis.command(&["INFO", "server"]).await;
        if functions && server.contains("redis_version:6") {
            return;
        }
        let limit =
            format!("by = \"everyone\"\nrate = \"{LIMIT}/h\"\nalgorithm = \"fixed-window\"");
        let file = counted(&upstream, &redis, "closed", &limit)
            .store(&format!("functions = {functions}"))
            .server("workers = 1");
        let gateway = Gateway::start(&file).await;
        let stands = async |word: &str| {
            eventually(PATIENCE, word, async || {
                gateway.admin_get("/readyz").await.text().contains(word)
            })
            .await;
        };
        stands("store: up").await;
        let load = Load::on(&[&gateway], 6, Duration::from_millis(1)).await;
        for _ in 0..3 {
            load.run(Duration::from_millis(150)).await;
            redis
                .command::<()>(&["REPLICAOF", "127.0.0.1", &nobody])
                .await;
            stands("store: away").await;
            load.run(Duration::from_millis(50)).await;
            redis.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
            stands("store: up").await;
        }
        let before = upstream.seen();
        eventually(USED_UP, "all of it is used up", async || {
            gateway.get("/").await.status == 429
        })
        .await;
        let counts = statuses(&load.stop().await);
        println!(
            "functions {functions}: {before} of {} while it came and went, {counts:?}",
            upstream.seen()
        );
        assert!(
            counts.keys().all(|status| [200, 429, 503].contains(status)),
            "{counts:?}"
        );
        assert!(counts[&503] > 0 && before < LIMIT, "{before} {counts:?}");
        // Some units are missing each of the three times: those of a call under way, and permits that could not be
        // given back.
        let seen = upstream.seen();
        assert!(
            (LIMIT / 100 * 85..=LIMIT).contains(&seen),
            "{seen} {counts:?}"
        );
        assert!(gateway.said.text().contains("READONLY"));
        let leased = sum(&gateway, "tollgate_limit_decisions_total", &["\"lease\""]).await;
        assert!(leased > 0, "nobody had permits in hand");
    }
}
