//! Partial grants: never more than the limit admits, never less than one unit, and the refund is the granted amount.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, concurrency, fixed_window, leaky_bucket, limit,
    sliding_log, sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, wait};
use std::sync::Arc;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{GrantedUnits, Ruling, Wait};
use tollgate::limit::{Limit, Rule};

told_to_both! {
    every_algorithm_grants_exactly_what_is_left
    what_was_granted_goes_back
    with_nothing_left_the_wait_is_for_one
    a_queue_grants_its_free_places
}

fn partial(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    Arc::new(limit(name, rule).edited(|policy| policy.partial = true))
}

/// A limit of ten units for every kind.
fn tens() -> Vec<Arc<Limit>> {
    vec![
        partial("tokens", token_bucket(7, 3 * SECOND, 10)),
        partial("meter", leaky_bucket((7, 3 * SECOND), 10, 0, 0)),
        partial("window", fixed_window(10, 60 * SECOND)),
        partial("clock", clock_window(10, 60 * SECOND, 0)),
        partial("sliding", sliding_window(10, 60 * SECOND, 6, true)),
        partial("log", sliding_log(10, 60 * SECOND)),
        partial("flight", concurrency(10, 60 * SECOND)),
    ]
}

async fn every_algorithm_grants_exactly_what_is_left(store: &UnderTest) {
    for limit in tens() {
        for (asked, granted) in [(4, None), (3, None), (50, GrantedUnits::of(Cost::new(3)))] {
            let decided = store.decide(NOON, &[ask(&limit, asked)]).await;
            assert_eq!(decided.decision.ruling, Ruling::Admit { delay: 0 });
            assert_eq!(
                decided.measured(0).unwrap().granted,
                granted,
                "{}",
                limit.name
            );
        }
        let (ruling, verdict) = store.one(NOON, ask(&limit, 50)).await;
        assert_eq!(verdict.remaining, 0);
        assert!(
            matches!(wait(ruling), Some(Wait::Micros(1..))),
            "{}",
            limit.name
        );
    }
}

async fn what_was_granted_goes_back(store: &UnderTest) {
    let limits = tens();
    let all: Vec<_> = limits.iter().collect();
    for limit in &limits {
        store.take(NOON, ask(limit, 8)).await;
    }
    let before = store.everything(&all, CLIENT).await;
    for limit in &limits {
        let ticket = store.take(NOON, ask(limit, 9)).await;
        assert_eq!(ticket.cost, Cost::new(2), "{}", limit.name);
        store.refund(NOON, ask(limit, 9), ticket).await;
    }
    assert_eq!(store.everything(&all, CLIENT).await, before);
}

async fn with_nothing_left_the_wait_is_for_one(store: &UnderTest) {
    let tokens = partial("tokens", token_bucket(10, SECOND, 5));
    store.take(NOON, ask(&tokens, 5)).await;
    for cost in [1, 5, 6, 4_000_000_000] {
        let (ruling, _) = store.one(NOON, ask(&tokens, cost)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(100_000)));
    }
    let later = NOON.plus(250_000);
    let ticket = store.take(later, ask(&tokens, 4_000_000_000)).await;
    assert_eq!(ticket.cost, Cost::new(2));
}

async fn a_queue_grants_its_free_places(store: &UnderTest) {
    let queue = partial("queue", leaky_bucket((10, SECOND), 1, 5, SECOND));
    store.take(NOON, ask(&queue, 4)).await;
    let decided = store.decide(NOON, &[ask(&queue, 9)]).await;
    assert_eq!(decided.decision.ruling, Ruling::Admit { delay: 400_000 });
    assert_eq!(
        decided.measured(0).unwrap().granted,
        GrantedUnits::of(Cost::new(2))
    );
    // A queue with so short a wait refuses every cost.
    let short = partial("short", leaky_bucket((10, SECOND), 1, 9, 100_000));
    store.take(NOON, ask(&short, 3)).await;
    let (ruling, _) = store.one(NOON, ask(&short, 20)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(200_000)));
}
