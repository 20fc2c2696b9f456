//! Costs that are known afterwards: what was too much comes back, what was too little is owed, and nobody gains by either.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, leaky_bucket, limit, sliding_window,
    token_bucket,
};
use crate::law::under_test::{UnderTest, metered, wait};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::verdict::Wait;
use tollgate::limit::{Limit, Ticket};

told_to_both! {
    what_was_too_much_comes_back_to_the_byte
    what_is_owed_is_waited_for
    a_debt_has_a_bottom
    no_time_comes_back_in_which_the_bucket_would_have_been_full
    what_is_owed_counts_in_the_present_window
    whatever_is_settled_nobody_has_more_than_the_truth_allows
}

/// One limit of each kind that settles, ten units each.
fn tens() -> Vec<Arc<Limit>> {
    vec![
        metered(limit("tokens", token_bucket(10, 30 * SECOND, 10)), 40),
        metered(limit("odd", token_bucket(7, 3 * SECOND, 10)), 40),
        metered(limit("meter", leaky_bucket((10, 7 * SECOND), 10, 0, 0)), 40),
        metered(limit("window", fixed_window(10, 60 * SECOND)), 40),
        metered(limit("clock", clock_window(10, 60 * SECOND, 0)), 40),
        metered(
            limit("sliding", sliding_window(10, 60 * SECOND, 6, false)),
            40,
        ),
        metered(
            limit("strict", sliding_window(10, 60 * SECOND, 6, true)),
            40,
        ),
    ]
}

async fn what_was_too_much_comes_back_to_the_byte(store: &UnderTest) {
    for limit in tens() {
        // A request that is charged 2 from the start, and one that turns out to have cost 2.
        store.take(NOON, ask(&limit, 2)).await;
        let wanted = store.bytes(&limit, CLIENT).await;
        store.reset(&limit, CLIENT).await;
        let ticket = store.take(NOON, ask(&limit, 9)).await;
        store.correct(NOON.plus(1_000), &limit, ticket, 2).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, wanted, "{}", limit.name);
        // And one that has cost nothing.
        store.reset(&limit, CLIENT).await;
        let ticket = store.take(NOON, ask(&limit, 9)).await;
        store.correct(NOON, &limit, ticket, 0).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, None, "{}", limit.name);
    }
}

async fn what_is_owed_is_waited_for(store: &UnderTest) {
    for limit in tens() {
        let ticket = store.take(NOON, ask(&limit, 1)).await;
        store.correct(NOON, &limit, ticket, 13).await;
        let (ruling, verdict) = store.one(NOON, ask(&limit, 1)).await;
        assert_eq!(verdict.remaining, 0, "{}", limit.name);
        let Some(Wait::Micros(wait)) = wait(ruling) else {
            panic!("{}: {ruling:?}", limit.name);
        };
        let (ruling, _) = store.one(NOON.plus(wait - 1), ask(&limit, 1)).await;
        assert!(self::wait(ruling).is_some(), "{} at {wait}", limit.name);
        let (ruling, _) = store.one(NOON.plus(wait), ask(&limit, 1)).await;
        assert_eq!(self::wait(ruling), None, "{} at {wait}", limit.name);
        if &*limit.name == "tokens" {
            // 3 owed and 1 asked for, at one in three seconds.
            assert_eq!(wait, 12 * SECOND);
        }
    }
}

async fn a_debt_has_a_bottom(store: &UnderTest) {
    // Ten requests of 1 may each cost 39 more.
    let limit = metered(limit("tokens", token_bucket(10, 10 * SECOND, 10)), 40);
    for _ in 0..10 {
        store.take(NOON, ask(&limit, 1)).await;
    }
    let ticket = Ticket {
        ..store.ticket_of(&limit, NOON, 1).await
    };
    for _ in 0..30 {
        store.correct(NOON, &limit, ticket, 40).await;
    }
    let (ruling, _) = store.one(NOON, ask(&limit, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(391 * SECOND)));
}

async fn no_time_comes_back_in_which_the_bucket_would_have_been_full(store: &UnderTest) {
    let limit = metered(limit("tokens", token_bucket(10, 10 * SECOND, 10)), 40);
    // All ten at once, nine more nine seconds later: had the first cost nothing, nine would be gone now.
    let ticket = store.take(NOON, ask(&limit, 10)).await;
    store.take(NOON.plus(9 * SECOND), ask(&limit, 9)).await;
    store
        .correct(NOON.plus(9 * SECOND), &limit, ticket, 0)
        .await;
    let (_, verdict) = store.one(NOON.plus(9 * SECOND), ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 1);
    // Where the bucket would never have been full, all of it comes back, whoever came later.
    store.reset(&limit, CLIENT).await;
    store.take(NOON, ask(&limit, 4)).await;
    let ticket = store.take(NOON, ask(&limit, 5)).await;
    store.take(NOON.plus(SECOND), ask(&limit, 2)).await;
    store
        .correct(NOON.plus(2 * SECOND), &limit, ticket, 1)
        .await;
    let (_, verdict) = store.one(NOON.plus(2 * SECOND), ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 10 - (4 + 1 + 2 - 2));
}

async fn what_is_owed_counts_in_the_present_window(store: &UnderTest) {
    let limit = metered(limit("window", fixed_window(10, 10 * SECOND)), 40);
    let ticket = store.take(NOON, ask(&limit, 4)).await;
    let later = NOON.plus(15 * SECOND);
    store.correct(later, &limit, ticket, 10).await;
    let (_, verdict) = store.one(later, ask(&limit, 0)).await;
    assert_eq!((verdict.remaining, verdict.reset), (4, 10 * SECOND));
    // What was too much in a window that is over is nobody's.
    let ticket = store.take(later, ask(&limit, 4)).await;
    let over = NOON.plus(40 * SECOND);
    store.take(over, ask(&limit, 4)).await;
    store.correct(over, &limit, ticket, 0).await;
    let (_, verdict) = store.one(over, ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 6);
}

/// What has been admitted, and what it has cost as far as that is known.
struct Admitted {
    at: u64,
    cost: u64,
}

/// How full a bucket of one a second is at `now` that was charged all of it as it came.
fn truth(admitted: &[Admitted], now: u64) -> u64 {
    let mut empty = 0;
    for Admitted { at, cost } in admitted {
        empty = empty.max(*at) + cost * SECOND;
    }
    empty.saturating_sub(now)
}

async fn whatever_is_settled_nobody_has_more_than_the_truth_allows(store: &UnderTest) {
    let mut random = fastrand::Rng::with_seed(7);
    let limit = metered(limit("tokens", token_bucket(1, SECOND, 20)), 60);
    for _ in 0..40 {
        store.reset(&limit, CLIENT).await;
        let (mut admitted, mut open) = (Vec::new(), Vec::<(usize, Ticket)>::new());
        let mut now = NOON;
        for _ in 0..40 {
            now = now.plus(random.u64(0..3 * SECOND));
            if random.bool() || open.is_empty() {
                let cost = random.u32(1..8);
                let check = ask(&limit, cost);
                let decided = store.decide(now, &[check]).await;
                if let Some(ticket) = decided.ticket(0, &check) {
                    open.push((admitted.len(), ticket));
                    let (at, cost) = (now.micros(), u64::from(cost));
                    admitted.push(Admitted { at, cost });
                }
            } else {
                let (index, ticket) = open.swap_remove(random.usize(..open.len()));
                let most = if random.u8(..4) == 0 { 20 } else { 6 };
                let cost = random.u32(0..most);
                store.correct(now, &limit, ticket, cost).await;
                admitted[index].cost = u64::from(cost);
            }
            let (_, verdict) = store.one(now, ask(&limit, 0)).await;
            let wanted = truth(&admitted, now.micros());
            assert!(verdict.reset >= wanted, "{} of {wanted}", verdict.reset);
        }
        // What is owed is never lost, but for what has been worked off.
        let end = Timestamp::from_micros(now.micros() + 1_000 * SECOND);
        let (_, verdict) = store.one(end, ask(&limit, 0)).await;
        assert_eq!(verdict.remaining, 20);
    }
}
