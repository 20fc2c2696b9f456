//! A Redis that has reached its `maxmemory` and may not evict keys: it counts as away, and never causes a wrong answer.

use super::numbers::{NOON, SECOND, ask, limit, sliding_log, token_bucket};
use super::under_test::{connect, nothing_near};
use crate::support::{Answer, File, Gateway, PATIENCE, Redis, Upstream, eventually};
use std::sync::Arc;
use tollgate::clock::Clock;
use tollgate::store::{Decider, MemoryStore, OnDown, SharedStore, Store, StoreError};
use tollgate::telemetry::metrics::Metrics;

const MOST: u64 = 8_000_000;

/// A server with little memory.
async fn small() -> Redis {
    let most = MOST.to_string();
    let words = ["--maxmemory", &most, "--maxmemory-policy", "noeviction"];
    Redis::start_with(&words).await
}

/// Fills the server's memory. The last piece is far too large, because a server refuses only writes that come when it
/// is full.
async fn fill(redis: &Redis) {
    let used = async || -> u64 {
        let told: String = redis.command(&["INFO", "memory"]).await;
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().parse().unwrap()
    };
    let mut number = 0;
    while used().await < MOST - 700_000 {
        number += 1;
        let key = format!("other:{number}");
        redis
            .command::<()>(&["SETRANGE", &key, "500000", "x"])
            .await;
    }
    redis
        .command::<()>(&["SETRANGE", "other:0", "3000000", "x"])
        .await;
    assert!(used().await > MOST + 1_000_000);
}

/// Frees the memory.
async fn free(redis: &Redis) {
    let keys: Vec<String> = redis.command(&["KEYS", "other:*"]).await;
    let mut words = vec!["DEL"];
    words.extend(keys.iter().map(String::as_str));
    redis.command::<()>(&words).await;
}

#[tokio::test]
async fn a_redis_without_memory_is_a_store_that_is_away() {
    // By its own numbers a local limit admits five requests. The limit that Redis counts has two units left.
    for (on_down, statuses) in [
        ("closed", [503; 8]),
        ("open", [200; 8]),
        ("local", [200, 200, 200, 200, 200, 429, 429, 429]),
    ] {
        let (upstream, redis) = (Upstream::echo().await, small().await);
        let store = format!("timeout = \"2s\"\non_down = \"{on_down}\"");
        let file = File::to(&upstream, &["calls", "log"])
            .limit("calls", "by = \"everyone\"\nrate = \"5/h\"")
            .limit(
                "log",
                "by = \"everyone\"\nrate = \"100/h\"\nalgorithm = \"sliding-log\"",
            )
            .redis(&redis, &store)
            .server("workers = 1");
        let gateway = Gateway::start(&file).await;
        let ask = async || -> Answer { gateway.get("/").await };
        for left in [4, 3] {
            assert_eq!(ask().await.expect(200).remaining("calls"), left);
        }
        fill(&redis).await;
        let mut told = Vec::new();
        for _ in statuses {
            told.push(ask().await.status);
        }
        assert_eq!(told, statuses, "{on_down}");
        // Redis was charged for none of these requests, and lost no earlier charge.
        free(&redis).await;
        eventually(PATIENCE, "limits are shared again", async || {
            let answer = ask().await;
            // A gateway that decides without Redis has another count, or none.
            let left = answer.fields.get("ratelimit").unwrap_or_default();
            answer.status == 200 && left.contains("\"calls\";r=2") && left.contains("\"log\";r=97")
        })
        .await;
        let said = gateway.said.text();
        assert!(said.contains("OOM"), "{said}");
        assert!(!said.contains("delete that key"), "{said}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_store_without_memory_is_asked_once_and_then_left_alone() {
    let redis = small().await;
    let store = Store::Shared(SharedStore {
        redis: connect(&redis).await,
        local: Arc::new(MemoryStore::new(Clock::manual(NOON), 100)),
        on_down: OnDown::Closed,
        fleet: Arc::default(),
        metrics: Metrics::new().store(),
        cache: nothing_near(),
    });
    let tokens = limit("tokens", token_bucket(5, 3600 * SECOND, 5));
    let log = limit("log", sliding_log(5, 3600 * SECOND));
    let both = [ask(&tokens, 1), ask(&log, 1)];
    let (decided, by) = store.decide(&both).await.unwrap();
    assert_eq!(by, Decider::Redis);
    fill(&redis).await;
    let before = redis.script_calls().await;
    let first = store.decide(&both).await;
    assert!(matches!(first, Err(StoreError::Refused(_))), "{first:?}");
    for _ in 0..100 {
        let next = store.decide(&both).await;
        assert_eq!(next, Err(StoreError::Down));
    }
    // The calls are the refused one, and the later attempts of the watch.
    let calls = redis.script_calls().await - before;
    assert!((1..20).contains(&calls), "{calls}");
    free(&redis).await;
    let Store::Shared(SharedStore { redis: shared, .. }) = &store else {
        panic!("it is Redis");
    };
    eventually(PATIENCE, "it is back", async || shared.is_up()).await;
    let (again, _) = store.decide(&both).await.unwrap();
    let left = |index: usize, decided: &Option<Box<tollgate::store::StoreDecision>>| {
        decided.as_ref().unwrap().decision.verdicts[index].remaining
    };
    for index in [0, 1] {
        assert_eq!(left(index, &decided), 4);
        assert_eq!(left(index, &again), 3);
    }
}
