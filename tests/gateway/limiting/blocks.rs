//! Blocks after refusals, at gateways: the answer, the log, the metrics, `explain --live`, and several gateways.

use super::super::redis_failures::counted;
use super::super::refusal_cache::asked;
use super::super::store_kind::{Place, on_both_stores};
use crate::support::{
    Answer, File, Gateway, PATIENCE, Redis, Upstream, Wire, eventually, get, request, tollgate,
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

on_both_stores! {
    a_refused_key_is_out_for_the_time
    every_refusing_limit_blocks
    failures_block_and_successes_do_not
    live_says_that_the_key_is_blocked
    a_block_outlasts_a_reload
}

fn key(name: &str) -> [(&'static str, &str); 1] {
    [("x-key", name)]
}

const BY_KEY: &str = "by = \"header:x-key\"\nmissing = \"refuse\"";

async fn a_refused_key_is_out_for_the_time(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = format!("{BY_KEY}\nrate = \"2/s\"\nblock = \"1h\"");
    let file = File::to(&upstream, &["calls"]).limit("calls", &limit);
    let gateway = place.gateway(file.server("workers = 1")).await;
    for _ in 0..2 {
        gateway.get_with("/", &key("a")).await.expect(200);
    }
    let mut last = u64::MAX;
    for nth in 0..20 {
        // The bucket is full again long before the block is over.
        sleep(Duration::from_millis(100)).await;
        let answer = gateway.get_with("/", &key("a")).await.expect(429);
        let left = answer.number("retry-after-ms");
        assert!(
            left < last && (3_500_000..=3_600_000).contains(&left),
            "{left}"
        );
        assert_eq!(answer.remaining("calls"), 0);
        let line = gateway.line_of(&answer).await;
        let said = (&line["reason"], &line["limit"], &line["remaining"]);
        assert_eq!(said, (&"limit_blocked".into(), &"calls".into(), &0.into()));
        if nth > 0 {
            let by = if place.remembers() {
                "remembered"
            } else {
                "store"
            };
            assert_eq!(line["decided_by"], by);
        }
        last = left;
    }
    gateway.get_with("/", &key("b")).await.expect(200);
    let metrics = gateway.metrics().await;
    assert!(
        metrics.contains("tollgate_limit_blocks_total{limit=\"calls\"} 1\n"),
        "{metrics}"
    );
    let row = "tollgate_limit_decisions_total{limit=\"calls\",route=\"all\",decision=\"block\",";
    let blocked = metrics.lines().filter(|line| line.starts_with(row));
    let counts = blocked.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 20, "{metrics}");
}

async fn every_refusing_limit_blocks(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = |time: &str| format!("{BY_KEY}\nrate = \"1/s\"\nblock = \"{time}\"");
    let file = File::to(&upstream, &["short", "long", "wide"])
        .limit("short", &limit("1h"))
        .limit("long", &limit("2h"))
        .limit(
            "wide",
            &format!("{BY_KEY}\nrate = \"100/h\"\nblock = \"3h\""),
        );
    let gateway = place.gateway(file).await;
    gateway.get_with("/", &key("a")).await.expect(200);
    let answer = gateway.get_with("/", &key("a")).await.expect(429);
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["limit"], &line["reason"]),
        (&"long".into(), &"limit_blocked".into())
    );
    let metrics = gateway.metrics().await;
    for (name, blocks) in [("short", 1), ("long", 1), ("wide", 0)] {
        let row = format!("tollgate_limit_blocks_total{{limit=\"{name}\"}} {blocks}\n");
        assert!(metrics.contains(&row), "{name}: {metrics}");
    }
}

/// The file of docs/protect-a-login.md counts like this: failures are charged, and the sixth guess blocks.
async fn failures_block_and_successes_do_not(place: Place) {
    let upstream = Upstream::playing(async |mut connection: crate::support::Connection| {
        while let Ok(head) = connection.request().await {
            let status = head.fields.get("x-status").unwrap_or("200");
            let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await;
    let limit = format!(
        "{BY_KEY}\nrate = \"3/h\"\ncost = {{ status = {{ \"401\" = 1, else = 0 }} }}\nblock = {{ for = \"1h\", up_to = \"1d\" }}"
    );
    let file = File::to(&upstream, &["login"]).limit("login", &limit);
    let gateway = place.gateway(file).await;
    let log_in = async |status: &str| {
        let fields = [("x-key", "anna"), ("x-status", status)];
        gateway.get_with("/", &fields).await
    };
    let settled = async |left: u64| {
        eventually(PATIENCE, "the charge of a success comes back", async || {
            let answer = log_in("200").await;
            answer.status == 200 && answer.remaining("login") + 1 == left
        })
        .await;
    };
    for failed in 0..3 {
        settled(3 - failed).await;
        // The last success comes back before the failure is charged: a refusal would block. Looking charges nothing.
        let left = format!("now: {} of 3 left", 3 - failed);
        let live = format!("--live={}", gateway.admin().await);
        eventually(PATIENCE, &left, async || {
            let look = ["explain", "GET", "/", "-H", "x-key: anna", &live];
            tollgate(gateway.folder(), &look)
                .await
                .stdout
                .contains(&left)
        })
        .await;
        log_in("401").await.expect(401);
    }
    for status in ["401", "200"] {
        let answer = log_in(status).await.expect(429);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "limit_blocked");
    }
}

async fn live_says_that_the_key_is_blocked(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = format!("{BY_KEY}\nrate = \"1/s\"\nblock = \"1h\"");
    let gateway = place
        .gateway(File::to(&upstream, &["calls"]).limit("calls", &limit))
        .await;
    gateway.get_with("/", &key("a")).await.expect(200);
    gateway.get_with("/", &key("a")).await.expect(429);
    let live = format!("--live={}", gateway.admin().await);
    let file = gateway.file().display().to_string();
    let words = [
        "explain", "GET", "/", "-H", "x-key: a", "--config", &file, &live,
    ];
    let said = tollgate(gateway.folder(), &words).await;
    assert!(
        said.stdout.contains("now: the key is blocked for another "),
        "{}",
        said.stdout
    );
    assert!(
        said.stdout.contains("; refuses the request with 429"),
        "{}",
        said.stdout
    );
    let words = [&words[..], &["--json"]].concat();
    let said = tollgate(gateway.folder(), &words).await;
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    let now = &said["limits"][0]["now"];
    let left = now["blocked_us"]
        .as_u64()
        .unwrap_or_else(|| panic!("{said}"));
    assert!(left > 3_500_000_000 && left <= 3_600_000_000, "{left}");
    assert_eq!(now["outcome"], json!("refuse"));
}

async fn a_block_outlasts_a_reload(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = |block: &str| format!("{BY_KEY}\nrate = \"1/s\"\nblock = \"{block}\"");
    let file = |block: &str| File::to(&upstream, &["calls"]).limit("calls", &limit(block));
    let gateway = place.gateway(file("1h")).await;
    gateway.get_with("/", &key("a")).await.expect(200);
    gateway.get_with("/", &key("a")).await.expect(429);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace("block = \"1h\"", "block = \"2s\""));
    eventually(PATIENCE, "the file is in force", async || {
        gateway.get_with("/", &key("other")).await;
        gateway
            .metrics()
            .await
            .contains("tollgate_config_generation 2")
    })
    .await;
    sleep(Duration::from_millis(1_200)).await;
    let answer = gateway.get_with("/", &key("a")).await.expect(429);
    assert!(answer.number("retry-after-ms") > 3_500_000);
}

/// One answer to a client that hammers.
#[derive(Clone, Copy)]
struct Hit {
    sent: Instant,
    answered: Instant,
    status: u16,
    /// The wait that a refusal names.
    wait: Duration,
}

async fn hammer(address: SocketAddr, key: usize, until: Instant) -> (usize, Vec<Hit>) {
    let mut wire = Wire::to(address).await;
    let mut hits = Vec::new();
    let name = format!("k{key}");
    while Instant::now() < until {
        let sent = Instant::now();
        let answer: Answer = wire.ask(request("GET", "/", &[("x-key", &name)])).await;
        let status = answer.status;
        let wait = match status {
            200 => 0,
            _ => answer.expect(429).number("retry-after-ms"),
        };
        hits.push(Hit {
            sent,
            answered: Instant::now(),
            status,
            wait: Duration::from_millis(wait),
        });
        sleep(Duration::from_millis(fastrand::u64(..8))).await;
    }
    (key, hits)
}

/// Three gateways on one Redis, and thirty clients that share ten keys: after a refusal at t nothing of that key passes
/// anywhere for the time of the block.
#[tokio::test]
async fn nothing_passes_a_block_at_any_of_three_gateways() {
    const BLOCK: Duration = Duration::from_secs(2);
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = format!("{BY_KEY}\nrate = \"3/s\"\nburst = 6\nblock = \"2s\"");
    let file = counted(&upstream, &redis, "closed", &limit);
    let gateways = [
        Gateway::start(&file).await,
        Gateway::start(&file).await,
        Gateway::start(&file).await,
    ];
    let until = Instant::now() + Duration::from_secs(7);
    let mut clients = JoinSet::new();
    for client in 0..30 {
        let address = gateways[client % 3].address();
        clients.spawn(hammer(address, client % 10, until));
    }
    let all = clients.join_all().await;
    for key in 0..10 {
        let hits: Vec<Hit> = all
            .iter()
            .filter(|(other, _)| *other == key)
            .flat_map(|(_, hits)| hits.iter().copied())
            .collect();
        let (passed, refused): (Vec<Hit>, Vec<Hit>) =
            hits.into_iter().partition(|hit| hit.status == 200);
        assert!(!refused.is_empty(), "k{key}: {} passed", passed.len());
        // Nothing passes before the wait is over that a refusal has named. A remembered refusal counts from its answer.
        let late = Duration::from_millis(400);
        for refusal in refused.iter().filter(|refusal| refusal.wait > late) {
            let surely = refusal.sent + refusal.wait - late;
            let within = passed
                .iter()
                .filter(|hit| hit.sent > refusal.answered && hit.answered < surely);
            assert_eq!(within.count(), 0, "k{key}");
        }
        let longest = refused.iter().map(|refusal| refusal.wait).max();
        assert!(longest <= Some(BLOCK), "k{key}: {longest:?}");
        assert!(longest > Some(BLOCK / 2), "k{key}: {longest:?}");
    }
    let mut begun = 0;
    for gateway in &gateways {
        let metrics = gateway.metrics().await;
        let row = "tollgate_limit_blocks_total{limit=\"calls\"} ";
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(row))
            .unwrap();
        begun += line.parse::<u64>().unwrap();
    }
    // No more than one block for each key and time, on all gateways together.
    assert!((10..=40).contains(&begun), "{begun}");
}

#[tokio::test]
async fn a_key_that_is_known_to_be_blocked_costs_no_call() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"ip\"\nrate = \"1/s\"\nblock = \"1h\"";
    let file = counted(&upstream, &redis, "closed", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    let mut wire = gateway.connect().await;
    wire.ask(get("/")).await.expect(200);
    wire.ask(get("/")).await.expect(429);
    let calls = asked(&gateway).await;
    for _ in 0..100 {
        wire.ask(get("/")).await.expect(429);
    }
    sleep(Duration::from_millis(1_100)).await;
    wire.ask(get("/")).await.expect(429);
    assert_eq!((calls, asked(&gateway).await), (2, 2));
}

/// While Redis is away, a gateway blocks by itself.
#[tokio::test]
async fn a_gateway_blocks_by_itself_while_redis_is_away() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"ip\"\nrate = \"1/s\"\nblock = \"1h\"";
    let file = counted(&upstream, &redis, "local", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    redis.kill().await;
    eventually(PATIENCE, "the gateway counts by itself", async || {
        let answer = gateway.get("/").await;
        answer.status == 429
    })
    .await;
    sleep(Duration::from_millis(1_500)).await;
    let answer = gateway.get("/").await.expect(429);
    let line = gateway.line_of(&answer).await;
    let said = (&line["reason"], &line["decided_by"]);
    assert_eq!(said, (&"limit_blocked".into(), &"local".into()));
    assert!(answer.number("retry-after-ms") > 3_500_000);
}

/// A block that Redis holds lasts at this gateway when Redis goes.
#[tokio::test]
async fn a_block_outlasts_redis_at_a_gateway_that_has_met_it() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"ip\"\nrate = \"1/s\"\nblock = \"1h\"";
    let file = counted(&upstream, &redis, "local", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    redis.kill().await;
    sleep(Duration::from_millis(1_500)).await;
    eventually(PATIENCE, "the gateway decides by itself", async || {
        let answer = gateway.get("/").await.expect(429);
        gateway.line_of(&answer).await["decided_by"] == "local"
    })
    .await;
}
