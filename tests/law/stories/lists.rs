//! Several rates in one limit: windows that are checked together.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, fixed_window, leaky_bucket, limit, sliding_log, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted};
use std::sync::Arc;
use tollgate::limit::rate::Rate;
use tollgate::limit::verdict::{Ruling, Wait};
use tollgate::limit::{Limit, Rule};

told_to_both! {
    every_rate_counts_for_itself_and_none_alone
    the_rate_with_the_longest_wait_is_named
    buckets_of_one_name_have_counters_of_their_own
}

fn listed(rate: (Rate, Rule), window: &str) -> Arc<Limit> {
    let limit = limit("many", rate);
    Arc::new(limit.edited(|policy| policy.window = Some(window.into())))
}

async fn every_rate_counts_for_itself_and_none_alone(store: &UnderTest) {
    for (short, long) in [
        (sliding_log(2, SECOND), sliding_log(3, 60 * SECOND)),
        (fixed_window(2, SECOND), fixed_window(3, 60 * SECOND)),
    ] {
        let (short, long) = (listed(short, "2/s"), listed(long, "3/min"));
        let both = [ask(&short, 1), ask(&long, 1)];
        for at in [0, 0, SECOND] {
            assert!(admitted(&store.decide(NOON.plus(at), &both).await));
        }
        // The minute is full, so the second must not be charged.
        assert!(!admitted(&store.decide(NOON.plus(SECOND), &both).await));
        let (_, verdict) = store.one(NOON.plus(SECOND), ask(&short, 0)).await;
        assert_eq!(verdict.remaining, 1);
    }
}

async fn the_rate_with_the_longest_wait_is_named(store: &UnderTest) {
    let (short, long) = (
        listed(sliding_log(15, 60 * SECOND), "15/min"),
        listed(sliding_log(10, 30 * SECOND), "10/30s"),
    );
    let both = [ask(&short, 1), ask(&long, 1)];
    for _ in 0..10 {
        assert!(admitted(&store.decide(NOON, &both).await));
    }
    let refused = store.decide(NOON, &both).await.decision.ruling;
    let wait = Wait::Micros(30 * SECOND);
    assert_eq!(refused, Ruling::Refuse { by: 1, wait });
    let later = NOON.plus(31 * SECOND);
    for _ in 0..5 {
        assert!(admitted(&store.decide(later, &both).await));
    }
    let refused = store.decide(later, &both).await.decision.ruling;
    let wait = Wait::Micros(29 * SECOND);
    assert_eq!(refused, Ruling::Refuse { by: 0, wait });
    assert_eq!(both[0].limit.window.as_deref(), Some("15/min"));
}

async fn buckets_of_one_name_have_counters_of_their_own(store: &UnderTest) {
    let single = limit("many", token_bucket(5, SECOND, 5));
    let (short, long) = (
        listed(token_bucket(5, SECOND, 5), "5/s"),
        listed(token_bucket(60, 60 * SECOND, 8), "60/min"),
    );
    let queue = listed(leaky_bucket((5, SECOND), 1, 4, SECOND), "5/s");
    let decided = store.decide(NOON, &[ask(&short, 5), ask(&long, 5)]).await;
    assert!(admitted(&decided));
    let seen = store
        .everything(&[&short, &long, &single, &queue], CLIENT)
        .await;
    assert_eq!(seen.iter().flatten().count(), 2);
    for (limit, left) in [(&short, 0), (&long, 3), (&single, 5), (&queue, 5)] {
        let (_, verdict) = store.one(NOON, ask(limit, 0)).await;
        assert_eq!(verdict.remaining, left);
    }
}
