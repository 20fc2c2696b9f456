//! The given wait is long enough, and a microsecond less is too short.

use super::told_to_both;
use crate::law::numbers::{NOON, SECOND, ask, fixed_window, leaky_bucket, limit, token_bucket};
use crate::law::under_test::{UnderTest, wait};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::Limit;
use tollgate::limit::verdict::{Ruling, Wait};

told_to_both! {
    a_wait_is_exact_under_every_algorithm_and_rate
    a_wait_stays_exact_while_time_passes
    a_delay_is_never_beyond_max_wait
    a_client_that_obeys_gets_every_unit_of_an_odd_rate
}

/// Limits of all algorithms. In most of their rates a unit does not take a whole number of microseconds.
fn limits() -> Vec<Arc<Limit>> {
    let rules = [
        token_bucket(10, SECOND, 10),
        token_bucket(7, 3 * SECOND, 7),
        token_bucket(13, 17_000_001, 5),
        token_bucket(10_000_000, SECOND, 50),
        token_bucket(3, 10_000_000_000_007, 3),
        token_bucket(1, 2_678_400 * SECOND, 2),
        leaky_bucket((10, SECOND), 1, 5, SECOND),
        leaky_bucket((7, 3 * SECOND), 1, 9, 400_000),
        leaky_bucket((7, 3 * SECOND), 3, 9, 428_571),
        leaky_bucket((7, 3 * SECOND), 3, 9, 428_572),
        leaky_bucket((13, 17_000_001), 2, 9, 2_500_000),
        leaky_bucket((3_000_000, SECOND), 4, 9, 1),
        leaky_bucket((7, 3 * SECOND), 7, 0, 0),
        leaky_bucket((1, 2_678_400 * SECOND), 1, 3, 2_678_400 * SECOND + 1),
        fixed_window(10, SECOND),
        fixed_window(3, 1),
        fixed_window(5000, 2_592_000 * SECOND),
    ];
    let named = rules.into_iter().enumerate();
    named
        .map(|(index, rule)| limit(&format!("limit-{index}"), rule))
        .collect()
}

/// Asks for `cost` a microsecond before the given wait ends, and then at its end.
async fn obey(store: &UnderTest, limit: &Arc<Limit>, at: Timestamp, cost: u64) -> Timestamp {
    let name = &limit.name;
    let (ruling, _) = store.one(at, ask(limit, cost)).await;
    let Some(told) = wait(ruling) else {
        return at;
    };
    let Wait::Micros(told) = told else {
        panic!("{name} never admits {cost}");
    };
    assert!(told > 0);
    let (early, _) = store.one(at.plus(told - 1), ask(limit, cost)).await;
    assert_eq!(
        wait(early),
        Some(Wait::Micros(1)),
        "{name}, cost {cost}, told {told}"
    );
    let (ruling, _) = store.one(at.plus(told), ask(limit, cost)).await;
    assert_eq!(wait(ruling), None, "{name}, cost {cost}, told {told}");
    at.plus(told)
}

async fn a_wait_is_exact_under_every_algorithm_and_rate(store: &UnderTest) {
    for limit in &limits() {
        // The largest cost comes first, then each smaller one behind it.
        let mut at = NOON;
        for cost in [2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 2, 2] {
            at = obey(store, limit, at, cost).await;
        }
    }
}

async fn a_wait_stays_exact_while_time_passes(store: &UnderTest) {
    for limit in &limits() {
        loop {
            let (ruling, _) = store.one(NOON, ask(limit, 1)).await;
            if wait(ruling).is_some() {
                break;
            }
        }
        let (ruling, _) = store.one(NOON, ask(limit, 1)).await;
        let Some(Wait::Micros(told)) = wait(ruling) else {
            panic!("{} is full", limit.name);
        };
        for passed in [1, told / 3, told / 2, told.saturating_sub(2)] {
            if passed < told {
                let (ruling, _) = store.one(NOON.plus(passed), ask(limit, 1)).await;
                assert_eq!(wait(ruling), Some(Wait::Micros(told - passed)));
            }
        }
    }
}

async fn a_delay_is_never_beyond_max_wait(store: &UnderTest) {
    for (name, max_wait) in [
        ("whole", 857_143),
        ("short", 857_142),
        ("none", 1),
        ("long", 9 * SECOND),
    ] {
        let limit = limit(name, leaky_bucket((7, 3 * SECOND), 2, 40, max_wait));
        let mut held = Vec::new();
        let mut at = NOON;
        for _ in 0..60 {
            match store.one(at, ask(&limit, 1)).await.0 {
                Ruling::Admit { delay } => held.push(delay),
                Ruling::Refuse { .. } => at = obey(store, &limit, at, 1).await,
            }
        }
        assert!(held.iter().all(|delay| *delay <= max_wait), "{held:?}");
        // After a burst of two, the places are 428,571 3/7 microseconds apart.
        let expected: &[u64] = match name {
            "whole" => &[0, 0, 428_572, 857_143],
            "short" => &[0, 0, 428_572],
            "none" => &[0, 0],
            _ => &[0, 0, 428_572, 857_143, 1_285_715],
        };
        assert_eq!(&held[..expected.len()], expected, "{name}");
    }
}

async fn a_client_that_obeys_gets_every_unit_of_an_odd_rate(store: &UnderTest) {
    let limit = limit("odd", token_bucket(7, 3 * SECOND, 7));
    let mut at = NOON;
    for _ in 0..7 + 140 {
        at = obey(store, &limit, at, 1).await;
    }
    // Seven requests at once, and 140 more in exactly a minute.
    assert_eq!(at.since(NOON), 60 * SECOND);
}
