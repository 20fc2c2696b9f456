//! A counter's key with a foreign value, or a store whose clock is wrong: only the limits concerned cannot be counted.

use crate::support::{File, Gateway, Redis, Upstream, eventually};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// Asks for `path` several times as this client, and returns the number of admitted requests.
async fn passed(gateway: &Gateway, path: &str, client: &str, times: usize) -> usize {
    let mut passed = 0;
    for _ in 0..times {
        let answer = gateway.get_with(path, &[("x-client", client)]).await;
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        passed += usize::from(answer.status == 200);
    }
    passed
}

#[tokio::test]
async fn a_limit_that_cannot_be_counted_takes_no_other_with_it() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let by = "by = \"header:x-client\"\nmissing = \"refuse\"";
    let mut file = File::to(&upstream, &[])
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .limit("other", &format!("{by}\nrate = \"6/h\"\nburst = 6"))
        .limit(
            "worse",
            &format!("{by}\nrate = \"9/h\"\non_down = \"open\""),
        );
    for on_down in ["open", "local", "closed"] {
        let bad = format!("{by}\nrate = \"3/h\"\nburst = 3\non_down = \"{on_down}\"");
        let good = format!("{by}\nrate = \"5/h\"\nalgorithm = \"sliding-log\"\non_down = \"open\"");
        let (bad_name, good_name) = (format!("bad-{on_down}"), format!("good-{on_down}"));
        file = file.limit(&bad_name, &bad).limit(&good_name, &good).route(
            on_down,
            &format!("/{on_down}"),
            "main",
            &[&bad_name, &good_name, "worse", "other"],
        );
    }
    let gateway = Gateway::start(&file).await;
    let spoil = async |name: &str, client: &str| {
        let key = format!("tollgate:1:{name}:tb:{{{client}}}");
        redis.command::<i64>(&["RPUSH", &key, "not", "ours"]).await
    };
    eventually(SOON, "Redis decides", async || {
        gateway.get_with("/open", &[("x-client", "first")]).await;
        redis.keys().await.iter().any(|key| key.contains("{first}"))
    })
    .await;
    // Each spoilt limit follows its own `on_down`. The other limits are still counted in Redis, however many limits are
    // spoilt.
    for (client, spoilt) in [("ann", &["bad"][..]), ("ben", &["worse", "bad"])] {
        for (on_down, most) in [("open", 5), ("local", 3)] {
            let client = format!("{client}-{on_down}");
            for name in spoilt {
                let name = name.replace("bad", &format!("bad-{on_down}"));
                spoil(&name, &client).await;
            }
            let path = format!("/{on_down}");
            assert_eq!(passed(&gateway, &path, &client, 12).await, most, "{client}");
            // Each admitted request was charged once. If a limit that is counted here refused a request, its charge was
            // given back.
            for name in spoilt {
                let name = name.replace("bad", &format!("bad-{on_down}"));
                let key = format!("tollgate:1:{name}:tb:{{{client}}}");
                assert_eq!(redis.command::<i64>(&["DEL", &key]).await, 1);
            }
            let log = format!("tollgate:1:good-{on_down}:sl3600000000:{{{client}}}");
            eventually(SOON, "each is charged once", async || {
                redis.command::<usize>(&["LLEN", &log]).await == most
            })
            .await;
        }
    }
    // With `on_down = "closed"` the requests are refused, and nothing is charged.
    spoil("bad-closed", "cid").await;
    for _ in 0..8 {
        gateway
            .get_with("/closed", &[("x-client", "cid")])
            .await
            .expect(503);
    }
    redis
        .command::<i64>(&["DEL", "tollgate:1:bad-closed:tb:{cid}"])
        .await;
    for key in ["good-closed:sl3600000000:{cid}", "other:tb:{cid}"] {
        let key = format!("tollgate:1:{key}");
        assert_eq!(redis.command::<i64>(&["EXISTS", &key]).await, 0, "{key}");
    }
    assert_eq!(passed(&gateway, "/closed", "cid", 8).await, 3);
    let told = |line: &str| line.contains("cannot be counted") && line.contains("delete that key");
    gateway.said.line(0, "what to do", told).await;
}

#[tokio::test]
async fn a_calendar_that_cannot_be_followed_takes_no_other_with_it() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start_with_clock().await);
    let daily = "by = \"everyone\"\nrate = \"100/d\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"\ntimezone = \"Europe/Berlin\"\non_down = \"open\"";
    let file = File::to(&upstream, &["daily", "good"])
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .limit("daily", daily)
        .limit("good", "by = \"everyone\"\nrate = \"5/h\"\nburst = 5");
    redis.set_clock(4 * 86_400);
    let gateway = Gateway::start(&file).await;
    assert_eq!(passed(&gateway, "/", "any", 12).await, 5);
    let told = |line: &str| line.contains("daily") && line.contains("set the clocks");
    gateway.said.line(0, "what to do", told).await;
}

#[tokio::test]
async fn gateways_that_cannot_be_counted_are_told_of_and_cost_nothing() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let there = "tollgate:1:gateways:{*}";
    redis.command::<i64>(&["RPUSH", there, "not ours"]).await;
    let file = File::to(&upstream, &["calls"])
        .server("workers = 2")
        .limit("calls", "by = \"everyone\"\nrate = \"90/h\"")
        .redis(&redis, "timeout = \"2s\"");
    let gateway = Gateway::start(&file).await;
    let told = |line: &str| line.contains(there) && line.contains("delete that key in Redis");
    gateway.said.line(0, "what to do", told).await;

    let beats = async || {
        let stats: String = redis.command(&["INFO", "commandstats"]).await;
        let line = stats.lines().find(|line| line.starts_with("cmdstat_eval:"));
        let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    let connections = async || -> BTreeSet<String> {
        let list: String = redis.command(&["CLIENT", "LIST"]).await;
        let ours = list.lines().filter(|line| !line.contains(" cmd=client"));
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        ours.map(id).collect()
    };
    eventually(SOON, "both workers have connections", async || {
        connections().await.len() >= 4
    })
    .await;
    let (first, before, begun) = (beats().await, connections().await, Instant::now());
    eventually(SOON, "it beats again, and again", async || {
        beats().await >= first + 2
    })
    .await;
    // The next beat comes a second and a half later at the earliest.
    assert!(
        begun.elapsed() > Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let after = connections().await;
    assert!(before.is_subset(&after), "{before:?} {after:?}");
    let lines = gateway.said.lines();
    assert_eq!(lines.iter().filter(|line| told(line)).count(), 1);

    redis.command::<i64>(&["DEL", there]).await;
    eventually(SOON, "they are counted", async || {
        redis.command::<i64>(&["EXISTS", there]).await == 1
    })
    .await;
}
