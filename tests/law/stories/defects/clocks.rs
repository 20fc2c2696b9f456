//! The clock that counts, and states that lie ahead of this clock.

use super::{granted, told_to_both};
use crate::law::numbers::{NOON, SECOND, ask, every, limit, sliding_log, sliding_window};
use crate::law::under_test::{UnderTest, connect};
use tollgate::clock::Timestamp;

told_to_both! {
    sl4_what_lies_far_ahead_leaves_as_if_it_came_now
    bz6_whoever_was_ahead_wipes_nothing_of_those_behind
}

async fn sl4_what_lies_far_ahead_leaves_as_if_it_came_now(store: &UnderTest) {
    for (name, rule) in [
        ("strict", sliding_window(3, 3 * SECOND, 3, true)),
        ("log", sliding_log(3, 3 * SECOND)),
    ] {
        let limit = limit(name, rule);
        let at = |second: u64| NOON.plus(second * SECOND);
        assert_eq!(granted(store, at(100), &limit, 1).await, 1);
        assert_eq!(granted(store, at(10), &limit, 3).await, 2, "{name}");
        assert_eq!(granted(store, at(14), &limit, 2).await, 2, "{name}");
    }
}

async fn bz6_whoever_was_ahead_wipes_nothing_of_those_behind(store: &UnderTest) {
    for limit in every(5, 10) {
        assert_eq!(granted(store, NOON, &limit, 5).await, 5, "{}", limit.name);
        // It is too early for any unit to have left, except for one unit of the buckets.
        let ahead = granted(store, NOON.plus(2_100_000), &limit, 5).await;
        assert!(ahead <= 1, "{}", limit.name);
        let behind = Timestamp::from_micros(NOON.micros() - 100_000);
        assert_eq!(granted(store, behind, &limit, 5).await, 0, "{}", limit.name);
    }
}

#[tokio::test(flavor = "local")]
async fn rr2_sl5_if7_no_clock_but_the_stores_counts() {
    let store = UnderTest::redis().await;
    let UnderTest::Redis { store: one, server } = &store else {
        panic!("it is Redis");
    };
    let other = connect(server).await;
    let now = async || {
        let told: (u64, u64) = server.command(&["TIME"]).await;
        Timestamp::from_micros(told.0 * SECOND + told.1)
    };
    for limit in every(5, 3600) {
        for _ in 0..3 {
            for asker in [one, &other] {
                // The question does not contain the time of the gateway that asks.
                let before = now().await;
                let decided = asker.decide(&[ask(&limit, 1)]).await.unwrap();
                let after = now().await;
                let at = decided.decision.at;
                assert!((before..=after).contains(&at), "{}", limit.name);
            }
        }
        let peek = other.decide(&[ask(&limit, 0)]).await.unwrap();
        assert_eq!(peek.decision.verdicts[0].remaining, 0, "{}", limit.name);
    }
}
