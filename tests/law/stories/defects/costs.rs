//! Costs and keys that a script does not expect, refusals without a cause, and fallbacks.

use super::{granted, told_to_both};
use crate::law::numbers::{NOON, SECOND, ask, every, limit, sliding_log, token_bucket};
use crate::law::under_test::{UnderTest, admitted, connect, nothing_near, wait};
use crate::support::{PATIENCE, Redis, eventually};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use tollgate::clock::Clock;
use tollgate::key::Price;
use tollgate::limit::verdict::Wait;
use tollgate::store::{Check, Decider, MemoryStore, OnDown, SharedStore, Store};
use tollgate::telemetry::metrics::Metrics;

told_to_both! {
    bz3_bz4_a_key_is_a_name_and_no_number
    if3_every_refusal_says_how_long
}

async fn bz3_bz4_a_key_is_a_name_and_no_number(store: &UnderTest) {
    let log = limit("log", sliding_log(2, SECOND));
    let tokens = limit("tokens", token_bucket(2, SECOND, 2));
    for limit in [&log, &tokens] {
        for key in [
            "550e8400-e29b-41d4-a716-446655440000",
            "9223372036854775807",
            "1.5e3",
            "nan",
            "-1",
            "0x10",
            " ",
            "",
            "\0\r\n",
            "\u{fc}",
        ] {
            let key = key.as_bytes();
            let check = Check {
                key,
                ..ask(limit, 1)
            };
            for turn in 0..4 {
                let decided = store.decide(NOON, &[check]).await;
                assert_eq!(admitted(&decided), turn < 2, "{key:?}");
            }
            let later = store.decide(NOON.plus(3600 * SECOND), &[check]).await;
            assert!(admitted(&later), "{key:?}");
        }
    }
}

async fn if3_every_refusal_says_how_long(store: &UnderTest) {
    for limit in every(4, 10) {
        assert_eq!(granted(store, NOON, &limit, 4).await, 4);
        let (ruling, _) = store.one(NOON, ask(&limit, 1)).await;
        let told = wait(ruling);
        assert!(
            matches!(told, Some(Wait::Micros(1..=20_000_000))),
            "{}: {told:?}",
            limit.name
        );
    }
}

#[test]
fn rr4_rs10_if8_if9_a_request_cannot_ask_for_less_than_one() {
    let header = HeaderName::from_static("x-cost");
    let price = Price {
        header: header.clone(),
        default: 1,
        max: 8,
        may_peek: false,
    };
    for said in ["-50", "-1", "-0", "0", "0.4", "4.0", "4e0", "+4", "", "x"] {
        let mut fields = HeaderMap::new();
        fields.insert(&header, HeaderValue::from_static(said));
        let (cost, wrong) = price.of(&fields);
        assert_eq!(cost, 8, "{said}");
        assert!(wrong.is_some(), "{said}");
    }
}

/// A store with a fallback, and the fallback.
async fn with_fallback(server: &Redis, on_down: OnDown) -> (Store, Arc<MemoryStore>) {
    let local = Arc::new(MemoryStore::new(Clock::manual(NOON), 100));
    let store = Store::Shared(SharedStore {
        redis: connect(server).await,
        local: Arc::clone(&local),
        on_down,
        fleet: Arc::default(),
        metrics: Metrics::new().store(),
        cache: nothing_near(),
    });
    (store, local)
}

#[tokio::test(flavor = "local")]
async fn rr6_the_fallback_is_asked_only_without_redis_and_for_the_whole_cost() {
    let mut server = Redis::start().await;
    let (store, local) = with_fallback(&server, OnDown::Local).await;
    let tokens = limit("tokens", token_bucket(1, 3600 * SECOND, 10));
    for _ in 0..5 {
        // A refusal is an answer, and no reason to ask the fallback.
        let (_, by) = store.decide(&[ask(&tokens, 4)]).await.unwrap();
        assert!(matches!(by, Decider::Redis | Decider::Remembered));
    }
    assert!(local.is_empty());
    server.kill().await;
    // Until Redis is seen to be back, its remembered refusals still apply.
    let Store::Shared(SharedStore { redis: shared, .. }) = &store else {
        panic!("it was made so");
    };
    eventually(PATIENCE, "the fall is seen", async || !shared.is_up()).await;
    let mut left = Vec::new();
    while left.len() < 3 {
        let (decided, by) = store.decide(&[ask(&tokens, 4)]).await.unwrap();
        assert!(matches!(by, Decider::Local { .. }));
        left.push(decided.unwrap().decision.verdicts[0].remaining);
    }
    assert_eq!(left, [6, 2, 2]);
}

#[tokio::test(flavor = "local")]
async fn rr7_without_a_fallback_an_outage_is_no_refusal() {
    let mut server = Redis::start().await;
    let (closed, _) = with_fallback(&server, OnDown::Closed).await;
    let (open, _) = with_fallback(&server, OnDown::Open).await;
    server.kill().await;
    let tokens = limit("tokens", token_bucket(1, SECOND, 1));
    for _ in 0..3 {
        assert!(closed.decide(&[ask(&tokens, 1)]).await.is_err());
        let (decided, by) = open.decide(&[ask(&tokens, 1)]).await.unwrap();
        assert_eq!((decided, by), (None, Decider::Open));
    }
}
