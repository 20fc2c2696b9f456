//! More defects of published scripts, by the names that the notes give them: lives that are lost, ids that are times,
//! and unusual windows.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, concurrency, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, connect, nothing_near};
use crate::support::Redis;
use std::sync::Arc;
use tollgate::clock::Clock;
use tollgate::limit::Limit;
use tollgate::limit::verdict::Ruling;
use tollgate::store::{MemoryStore, OnDown, SharedStore, Store};
use tollgate::telemetry::metrics::Metrics;

told_to_both! {
    fw2_bf3_a_window_shorter_than_a_millisecond_counts_and_ends
    fw3_bf4_a_counter_without_a_life_gets_one
    fw5_rs11_another_window_counts_by_its_own_length
    bz2_bz4_later_requests_are_later_whatever_they_are_called
    bz5_rs2_every_counter_has_a_life
    rs3_rs4_requests_at_one_instant_count_each
    rs5_an_older_clock_breaks_nothing
}

/// The number of admitted requests, of `times` requests at `micros` after noon.
async fn granted(store: &UnderTest, limit: &Arc<Limit>, micros: u64, times: u64) -> u64 {
    let mut granted = 0;
    for _ in 0..times {
        let decided = store.decide(NOON.plus(micros), &[ask(limit, 1)]).await;
        granted += u64::from(admitted(&decided));
    }
    granted
}

/// The milliseconds for which Redis keeps the counter, or nothing without Redis.
async fn life(store: &UnderTest, limit: &Limit) -> Option<i64> {
    let UnderTest::Redis { server, .. } = store else {
        return None;
    };
    let key = UnderTest::name(limit, CLIENT);
    Some(server.command(&["PTTL", &key]).await)
}

async fn fw2_bf3_a_window_shorter_than_a_millisecond_counts_and_ends(store: &UnderTest) {
    let window = limit("window", fixed_window(2, 500));
    assert_eq!(granted(store, &window, 0, 4).await, 2);
    assert_eq!(granted(store, &window, 499, 4).await, 0);
    assert_eq!(granted(store, &window, 500, 4).await, 2);
    assert!(life(store, &window).await.is_none_or(|life| life > 0));
}

async fn fw3_bf4_a_counter_without_a_life_gets_one(store: &UnderTest) {
    let window = limit("window", fixed_window(3, SECOND));
    if let UnderTest::Redis { server, .. } = store {
        let key = UnderTest::name(&window, CLIENT);
        let _: String = server.command(&["SET", &key, "3"]).await;
    }
    assert_eq!(granted(store, &window, 0, 5).await, 3);
    assert!(life(store, &window).await.is_none_or(|life| life > 0));
}

async fn fw5_rs11_another_window_counts_by_its_own_length(store: &UnderTest) {
    let long = limit("window", fixed_window(1, 60 * SECOND));
    let short = limit("window", fixed_window(1, SECOND));
    assert_eq!(granted(store, &long, 0, 2).await, 1);
    assert_eq!(granted(store, &short, 0, 2).await, 1);
    assert_eq!(granted(store, &short, SECOND, 2).await, 1);
    let wider = limit("window", fixed_window(50, SECOND));
    assert_eq!(granted(store, &wider, SECOND, 60).await, 49);
}

async fn bz2_bz4_later_requests_are_later_whatever_they_are_called(store: &UnderTest) {
    let log = limit("log", sliding_log(2, SECOND));
    for (micros, passes) in [(0, 1), (1000, 1), (2000, 0), (3000, 0), (3_600 * SECOND, 1)] {
        assert_eq!(granted(store, &log, micros, 1).await, passes, "at {micros}");
    }
}

async fn bz5_rs2_every_counter_has_a_life(store: &UnderTest) {
    for (name, rule) in [
        ("tokens", token_bucket(7, SECOND, 9)),
        ("queue", leaky_bucket((7, SECOND), 2, 9, SECOND)),
        ("window", fixed_window(9, SECOND)),
        ("parts", sliding_window(9, SECOND, 5, false)),
        ("log", sliding_log(9, SECOND)),
        ("flight", concurrency(9, SECOND)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(granted(store, &limit, 0, 2).await, 2);
        assert!(
            life(store, &limit).await.is_none_or(|life| life > 0),
            "{name}"
        );
    }
}

async fn rs3_rs4_requests_at_one_instant_count_each(store: &UnderTest) {
    let log = limit("log", sliding_log(5, SECOND));
    assert_eq!(granted(store, &log, 0, 9).await, 5);
    assert_eq!(granted(store, &log, SECOND, 9).await, 5);
}

async fn rs5_an_older_clock_breaks_nothing(store: &UnderTest) {
    let log = limit("log", sliding_log(5, SECOND));
    for micros in 0..5 {
        assert_eq!(granted(store, &log, 5 * SECOND + micros, 1).await, 1);
    }
    assert_eq!(granted(store, &log, 0, 2).await, 0);
    assert_eq!(granted(store, &log, SECOND, 9).await, 5);
}

/// Checks the answer of `peek` twice, and the remainder after one request.
async fn peeks(store: Store) {
    let tokens = limit("tokens", token_bucket(1, 3_600 * SECOND, 3));
    let seen = async |left| {
        let decided = store.peek(&tokens, CLIENT).await.unwrap();
        assert_eq!(decided.decision.ruling, Ruling::Admit { delay: 0 });
        assert_eq!(decided.decision.verdicts[0].remaining, left);
    };
    seen(3).await;
    let (decided, _) = store.decide(&[ask(&tokens, 2)]).await.unwrap();
    assert!(admitted(&decided.unwrap()));
    seen(1).await;
    seen(1).await;
    assert!(store.reset(&tokens, CLIENT).await.unwrap());
    assert!(!store.reset(&tokens, CLIENT).await.unwrap());
    seen(3).await;
}

#[tokio::test(flavor = "local")]
async fn memory_tells_how_a_counter_stands_and_forgets_it() {
    let memory = MemoryStore::new(Clock::manual(NOON), 100);
    peeks(Store::Memory(Arc::new(memory))).await;
}

#[tokio::test(flavor = "local")]
async fn redis_tells_how_a_counter_stands_and_forgets_it() {
    let server = Redis::start().await;
    peeks(Store::Shared(SharedStore {
        redis: connect(&server).await,
        local: Arc::new(MemoryStore::new(Clock::manual(NOON), 100)),
        on_down: OnDown::Closed,
        fleet: Arc::default(),
        metrics: Metrics::new().store(),
        cache: nothing_near(),
    }))
    .await;
}
