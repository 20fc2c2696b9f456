//! First calls, states that are lost or half written, and lives.

use super::{CLIENT, granted, life, on_server, told_to_both};
use crate::law::numbers::{NOON, SECOND, ask, every, limit, token_bucket};
use crate::law::under_test::{UnderTest, admitted};
use tollgate::limit::Rule;
use tollgate::limit::rate::Cost;

told_to_both! {
    bt1_bt2_any_first_call_is_decided_and_what_it_stores_has_a_life
    lb8_ir7_rs9_a_counter_is_lost_whole_or_not_at_all
    lb8_half_a_state_is_none
    tb5_no_state_is_below_nothing
    d1_a_bucket_lives_until_it_is_full
}

async fn bt1_bt2_any_first_call_is_decided_and_what_it_stores_has_a_life(store: &UnderTest) {
    for limit in every(4, 10) {
        for cost in [0, 1, 3, 5] {
            store.reset(&limit, CLIENT).await;
            let decided = store.decide(NOON, &[ask(&limit, cost)]).await;
            assert_eq!(admitted(&decided), cost <= 4, "{}", limit.name);
        }
        assert_eq!(granted(store, NOON, &limit, 9).await, 4, "{}", limit.name);
        assert!(life(store, &limit).await.is_none_or(|life| life > 0));
    }
}

async fn lb8_ir7_rs9_a_counter_is_lost_whole_or_not_at_all(store: &UnderTest) {
    for limit in every(4, 10) {
        assert_eq!(granted(store, NOON, &limit, 9).await, 4);
        // There is one key, and no second key beside it: `everything` counts them.
        let stored = store.everything(&[&limit], CLIENT).await;
        assert!(stored[0].is_some(), "{}", limit.name);
        let name = UnderTest::name(&limit, CLIENT);
        if on_server(store, &["UNLINK", &name]).await.is_none() {
            assert!(store.reset(&limit, CLIENT).await);
        }
        assert_eq!(store.everything(&[&limit], CLIENT).await, [None]);
        assert_eq!(granted(store, NOON, &limit, 9).await, 4, "{}", limit.name);
        store.reset(&limit, CLIENT).await;
    }
}

async fn lb8_half_a_state_is_none(store: &UnderTest) {
    for limit in every(4, 10) {
        if matches!(limit.rule, Rule::SlidingLog(_) | Rule::Concurrency(_)) {
            // Each member of these is whole: a double that one command writes.
            continue;
        }
        store.take(NOON, ask(&limit, 4)).await;
        let name = UnderTest::name(&limit, CLIENT);
        for length in 0..8 {
            let half = "x".repeat(length);
            if on_server(store, &["SET", &name, &half]).await.is_some() {
                assert_eq!(granted(store, NOON, &limit, 9).await, 4, "{}", limit.name);
                assert!(life(store, &limit).await.is_some_and(|life| life > 0));
            }
        }
    }
}

async fn tb5_no_state_is_below_nothing(store: &UnderTest) {
    for limit in every(4, 10) {
        granted(store, NOON, &limit, 4).await;
        let before = store.bytes(&limit, CLIENT).await;
        for cost in [1, 2, 3, 4] {
            let (_, verdict) = store.one(NOON, ask(&limit, cost)).await;
            assert_eq!(verdict.remaining, 0, "{}", limit.name);
        }
        assert_eq!(store.bytes(&limit, CLIENT).await, before, "{}", limit.name);
    }
}

async fn d1_a_bucket_lives_until_it_is_full(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(10, SECOND, 10));
    let mut state = None;
    for (at, lives) in [(0, 100_000), (50_000, 150_000), (99_000, 201_000)] {
        let now = NOON.plus(at);
        let (_, change) = tokens.rule.check(state.as_ref(), now, Cost::ONE);
        let change = change.unwrap();
        assert_eq!(change.ends.since(now), lives);
        state = Some(change.update.after(state));
        store.take(now, ask(&tokens, 1)).await;
        if let Some(life) = life(store, &tokens).await {
            // With a clock of the test the life is an hour longer.
            assert!(life <= 3_600_000 + lives as i64 / 1000, "{life}");
            assert!(life > 3_590_000, "{life}");
        }
    }
}
