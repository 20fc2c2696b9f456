//! One trace and two stores: memory, and a real Redis with the scripts, give the same bytes.

use super::{Bench, at};
use crate::support::{Redis, long};
use std::fmt::Write as _;

/// Limits of every algorithm and every source of keys. Some routes have nine of them together.
const LIMITS: &str = r#"
[limits.tokens]
by = "ip"
rate = "7/3s"
burst = 9
refund = ["5xx"]
[limits.dear]
by = ["ip", "route"]
rate = "40/10s"
cost = 3
[limits.smooth]
by = "everyone"
algorithm = "leaky-bucket"
rate = "30/s"
queue = 40
max_wait = "900ms"
refund = ["cancel"]
[limits.meter]
by = "header:x-user"
missing = "ip"
algorithm = "leaky-bucket"
over = "refuse"
rate = "3/s"
burst = 5
[limits.window]
by = "header:x-api-key"
missing = "shared"
algorithm = "fixed-window"
rate = "11/2s"
refund = ["cancel"]
[limits.route]
by = "route"
algorithm = "fixed-window"
rate = "100/1500ms"
[limits.net]
by = "ip/24,48"
rate = "25/s"
[limits.user]
by = "header:x-user"
missing = "refuse"
rate = "1000000/h"
burst = 7
[limits.odd]
by = ["header:x-user", "ip"]
missing = "skip"
rate = "13/7s"
[limits.parts]
by = "ip"
algorithm = "sliding-window"
rate = "20/3s"
buckets = 3
refund = ["5xx", "cancel"]
[limits.strict]
by = "header:x-user"
missing = "shared"
algorithm = "sliding-window"
rate = "9/2s"
strict = true
[limits.log]
by = ["ip", "route"]
algorithm = "sliding-log"
rate = "12/2500ms"
cost = { header = "x-cost", default = 2, max = 9 }
partial = true
[limits.day]
by = "ip"
algorithm = "fixed-window"
anchor = "clock"
timezone = "Europe/Berlin"
rate = ["4000/month", "900/d"]
[limits.minute]
by = "route"
algorithm = "fixed-window"
anchor = "clock"
offset = "7s"
rate = "60/10s"
[limits.list]
by = "header:x-user"
missing = "ip"
rate = ["3/s", { rate = "40/min", burst = 12 }]
[limits.once]
by = "ip"
rate = "6/3s"
cost = { header = "x-cost", default = 2, max = 4 }
dedupe = { header = "x-id", ttl = "4s", repeats = 2 }
[limits.once-each]
by = "everyone"
algorithm = "leaky-bucket"
rate = "20/s"
queue = 9
scope = "gateway"
dedupe = { header = "x-id", ttl = "1500ms" }
[limits.flight]
by = "ip"
algorithm = "concurrency"
max = 4
slot_ttl = "3s"
"#;

fn bench() -> Bench {
    let nine = [
        "tokens", "dear", "smooth", "meter", "window", "route", "net", "user", "odd",
    ];
    Bench::new(
        LIMITS,
        &[
            ("/one/{*rest}", &["tokens"]),
            ("/some/{*rest}", &["smooth", "window", "meter"]),
            ("/all/{*rest}", &nine),
            ("/nine", &nine),
            (
                "/more",
                &[
                    "parts", "strict", "log", "day", "minute", "list", "flight", "tokens", "smooth",
                ],
            ),
            ("/flight", &["flight"]),
            ("/once", &["once", "once-each", "net"]),
        ],
    )
}

/// Bursts and pauses of many clients, with some lines out of order and some invalid lines.
fn random(lines: u32, seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut out = String::new();
    let mut now: u64 = 1_795_196_930_000_000;
    for _ in 0..lines {
        now += match random.u32(..100) {
            0 => random.u64(..5_000_000),
            1..40 => 0,
            _ => random.u64(..12_000),
        };
        let at = if random.u32(..50) == 0 {
            now - random.u64(..2_000_000)
        } else {
            now
        };
        let path = [
            "/one/x",
            "/some/y?z=1",
            "/all/a/b",
            "/nine",
            "/more",
            "/flight",
            "/none",
            "/once",
        ][random.usize(..8)];
        let client = random.u32(..60) * random.u32(..5);
        let _ = write!(
            out,
            "{{\"ts\":{}.{:06},\"client\":\"203.0.{}.{}\",\"path\":\"{path}\"",
            at / 1_000_000,
            at % 1_000_000,
            client >> 5,
            client & 31
        );
        if random.u32(..4) > 0 {
            let _ = write!(
                out,
                ",\"headers\":{{\"x-user\":\"u{}\",\"x-api-key\":\"k{}\",\"x-id\":\"{}\"}}",
                random.u32(..25),
                random.u32(..25),
                random.u32(..9)
            );
        }
        if random.u32(..3) == 0 {
            let _ = write!(out, ",\"cost\":{}", random.u32(..15));
        }
        if random.bool() {
            // Some requests last longer than their slot would without a renewal.
            let _ = write!(
                out,
                ",\"duration_ms\":{}.5",
                random.u32(..500) * random.u32(..16)
            );
        }
        match random.u32(..8) {
            0 => out.push_str(",\"status\":503,\"reason\":\"ok\",\"upstream\":\"u\""),
            1 => out.push_str(",\"status\":499,\"reason\":\"client_gone\",\"upstream\":null"),
            2 => out.push_str(",\"status\":499,\"reason\":\"client_gone\",\"delay_ms\":300"),
            _ => {}
        }
        out.push_str("}\n");
        if random.u32(..2_000) == 0 {
            out.push_str("not a line\n");
        }
    }
    out
}

/// 6,000 lines; with `TOLLGATE_LONG=1` a million.
#[tokio::test]
async fn memory_and_redis_give_the_same_bytes() {
    let redis = Redis::start().await;
    let lines = if long() { 1_000_000 } else { 6_000 };
    let bench = bench().trace(random(lines, 3));
    let mut said = Vec::new();
    for arguments in [&["--store", "memory:"], &["--store", &*redis.url()]] {
        let out = format!("{}.jsonl", said.len());
        let done = bench
            .simulate(&[&["--decisions", &*out], &arguments[..]].concat())
            .await;
        assert_eq!(done.code, Some(0), "{done:?}");
        said.push(std::fs::read_to_string(bench.path().join(out)).unwrap());
    }
    for word in ["admit", "delay", "refuse", "no_route"] {
        let count = said[0].matches(&format!("\"decision\":\"{word}\"")).count();
        assert!(count > lines as usize / 100, "{word}: {count}");
    }
    for (one, other) in said[0].lines().zip(said[1].lines()) {
        assert_eq!(one, other);
    }
    assert!(said[0] == said[1]);
    assert!(redis.script_calls().await > u64::from(lines) / 2);
    assert_eq!(
        redis.command::<u64>(&["DBSIZE"]).await,
        0,
        "nothing is left behind"
    );
}

#[tokio::test]
async fn two_files_count_apart_and_other_keys_stay() {
    let redis = Redis::start().await;
    redis
        .command::<()>(&["SET", "tollgate:1:a:tb:{203.0.113.9}", "a gateway's"])
        .await;
    let bench = Bench::limit("rate = \"3/h\"").trace(at([1_000_000; 5]));
    let set = ["--set", "limits.a.rate=2/h", "--store", &redis.url()];
    let report = bench.report(&set).await;
    assert_eq!(
        (&report["file"]["refused"], &report["changed"]["refused"]),
        (&2.into(), &3.into())
    );
    assert_eq!(redis.keys().await, ["tollgate:1:a:tb:{203.0.113.9}"]);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_told() {
    let redis = Redis::absent();
    let bench = Bench::limit("rate = \"3/h\"").trace(at([1]));
    let done = bench.simulate(&["--store", &redis.url()]).await;
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stderr.contains(&redis.url()), "{done:?}");
    let wrong = bench.simulate(&["--store", "mysql://x"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let memory = bench.simulate(&["--store", "memory:"]).await;
    assert_eq!(memory.code, Some(0), "{memory:?}");
}
