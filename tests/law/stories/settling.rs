//! Costs that are known afterwards: an overcharge comes back, an undercharge is owed, and neither gives a client more.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, leaky_bucket, limit, sliding_window,
    token_bucket,
};
use crate::law::under_test::{UnderTest, metered, ticket_of, wait};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::verdict::Wait;
use tollgate::limit::{Limit, Rule, Ticket};

told_to_both! {
    what_was_too_much_comes_back_to_the_byte
    what_is_owed_is_waited_for
    a_debt_has_a_bottom
    no_time_comes_back_in_which_the_bucket_would_have_been_full
    what_is_owed_counts_in_the_present_window
    whatever_is_settled_nobody_has_more_than_the_truth_allows
    those_under_way_together_give_back_no_time_twice
    those_under_way_together_give_back_all_that_is_not_idle
    a_limit_that_gives_back_has_a_counter_of_its_own
}

/// One limit of ten units for each kind that settles.
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

/// The state of a bucket without the history behind it.
fn untrailed(limit: &Limit, bytes: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let behind = match limit.rule {
        // The history, and the numbers of the limit.
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => 32,
        _ => 0,
    };
    bytes.map(|bytes| bytes[..bytes.len() - behind].to_vec())
}

async fn what_was_too_much_comes_back_to_the_byte(store: &UnderTest) {
    for limit in tens() {
        // One request is charged 2 from the start, and another is settled at a cost of 2.
        store.take(NOON, ask(&limit, 2)).await;
        let wanted = untrailed(&limit, store.bytes(&limit, CLIENT).await);
        store.reset(&limit, CLIENT).await;
        let ticket = store.take(NOON, ask(&limit, 9)).await;
        store.correct(NOON.plus(1_000), &limit, ticket, 2).await;
        let held = untrailed(&limit, store.bytes(&limit, CLIENT).await);
        assert_eq!(held, wanted, "{}", limit.name);
        // A request is settled at a cost of nothing.
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
            // Three units are owed and one is asked for, and one comes back every three seconds.
            assert_eq!(wait, 12 * SECOND);
        }
    }
}

async fn a_debt_has_a_bottom(store: &UnderTest) {
    // Ten requests of 1 may each cost 39 units more.
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
    // Ten units are charged at once, and nine more nine seconds later. If the first charge had been nothing, nine units
    // would be missing now.
    let ticket = store.take(NOON, ask(&limit, 10)).await;
    store.take(NOON.plus(9 * SECOND), ask(&limit, 9)).await;
    store
        .correct(NOON.plus(9 * SECOND), &limit, ticket, 0)
        .await;
    let (_, verdict) = store.one(NOON.plus(9 * SECOND), ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 1);
    // If the bucket would never have been full, the whole surplus comes back, whichever requests came later.
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
    // An overcharge in a window that is over is given back to nobody.
    let ticket = store.take(later, ask(&limit, 4)).await;
    let over = NOON.plus(40 * SECOND);
    store.take(over, ask(&limit, 4)).await;
    store.correct(over, &limit, ticket, 0).await;
    let (_, verdict) = store.one(over, ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 6);
}

/// An admitted request, with its cost as far as the cost is known.
struct Admitted {
    at: u64,
    cost: u64,
}

/// The level at `now` of a bucket that was charged the true costs from the start, rounded down.
fn truth(admitted: &[Admitted], limit: &Limit, now: u64) -> u64 {
    let (count, period) = (limit.rate.count.get(), limit.rate.period.get());
    let mut empty = 0;
    for Admitted { at, cost } in admitted {
        empty = empty.max(*at * count) + cost * period;
    }
    empty.saturating_sub(now * count) / count
}

async fn whatever_is_settled_nobody_has_more_than_the_truth_allows(store: &UnderTest) {
    let mut random = fastrand::Rng::with_seed(7);
    let slow = limit("tokens", token_bucket(1, SECOND, 20));
    let odd = limit("odd", token_bucket(7, 3 * SECOND, 30));
    let meter = limit("meter", leaky_bucket((1, SECOND), 20, 0, 0));
    for limit in [metered(slow, 60), metered(odd, 60), metered(meter, 60)] {
        for step in [3 * SECOND, SECOND, SECOND / 4, 3] {
            for _ in 0..12 {
                store.reset(&limit, CLIENT).await;
                overlapping(store, &limit, step, &mut random).await;
            }
        }
    }
}

/// Requests that overlap and are settled once each, in any order. Some charges come back whole.
async fn overlapping(store: &UnderTest, limit: &Arc<Limit>, step: u64, random: &mut fastrand::Rng) {
    let (mut admitted, mut open) = (Vec::new(), Vec::<(usize, Ticket)>::new());
    let mut now = NOON;
    for _ in 0..60 {
        now = now.plus(random.u64(0..step));
        // Sometimes the bucket fills up.
        if random.u8(..16) == 0 {
            now = now.plus(random.u64(0..12 * SECOND));
        }
        if random.u8(..5) < 3 || open.is_empty() {
            let cost = random.u64(1..8);
            let check = ask(limit, cost);
            let decided = store.decide(now, &[check]).await;
            if let Some(ticket) = ticket_of(&decided, 0, &check) {
                open.push((admitted.len(), ticket));
                let (at, cost) = (now.micros(), cost);
                admitted.push(Admitted { at, cost });
            }
        } else {
            let (index, ticket) = open.swap_remove(random.usize(..open.len()));
            let most = if random.u8(..6) == 0 { 20 } else { 4 };
            let cost = random.u64(0..most);
            match cost {
                0 => store.refund(now, ask(limit, 1), ticket).await,
                _ => store.correct(now, limit, ticket, cost).await,
            }
            admitted[index].cost = cost;
        }
        let (_, verdict) = store.one(now, ask(limit, 0)).await;
        let wanted = truth(&admitted, limit, now.micros());
        assert!(
            verdict.reset >= wanted,
            "{}: {} of {wanted}",
            limit.name,
            verdict.reset
        );
    }
    // No owed unit is lost, except those that came back in the course of time.
    let end = Timestamp::from_micros(now.micros() + 1_000 * SECOND);
    let (_, verdict) = store.one(end, ask(limit, 0)).await;
    assert_eq!(verdict.remaining, limit.rule.most());
}

async fn those_under_way_together_give_back_no_time_twice(store: &UnderTest) {
    // One bucket of a hundred units, which gets one unit back every second, and three requests under way. The first two
    // cost nothing.
    let limit = metered(limit("tokens", token_bucket(1, SECOND, 100)), 200);
    let first = store.take(NOON, ask(&limit, 50)).await;
    let second = store.take(NOON, ask(&limit, 50)).await;
    let later = NOON.plus(50 * SECOND);
    store.take(later, ask(&limit, 50)).await;
    store.correct(later, &limit, second, 0).await;
    store.correct(later, &limit, first, 0).await;
    let (_, verdict) = store.one(later, ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 50);
}

async fn those_under_way_together_give_back_all_that_is_not_idle(store: &UnderTest) {
    let limit = metered(limit("tokens", token_bucket(1, SECOND, 100)), 200);
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(store.take(NOON, ask(&limit, 10)).await);
    }
    for (index, ticket) in open.into_iter().enumerate() {
        let at = NOON.plus((index as u64 + 1) * SECOND / 10);
        store.correct(at, &limit, ticket, 2).await;
    }
    let (_, verdict) = store.one(NOON.plus(SECOND), ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 100 - 20 + 1);
}

async fn a_limit_that_gives_back_has_a_counter_of_its_own(store: &UnderTest) {
    // The same limit without settlement has another kind of state, since it needs no history.
    let plain = limit("tokens", token_bucket(1, SECOND, 20));
    let limit = metered(limit("tokens", token_bucket(1, SECOND, 20)), 60);
    let ticket = store.take(NOON, ask(&limit, 5)).await;
    store.take(NOON, ask(&plain, 10)).await;
    let later = NOON.plus(3 * SECOND);
    store.correct(later, &limit, ticket, 0).await;
    for (limit, left) in [(&limit, 20), (&plain, 20 - 10 + 3)] {
        let (_, verdict) = store.one(later, ask(limit, 0)).await;
        assert_eq!(verdict.remaining, left);
    }
    let ticket = store.take(later, ask(&limit, 5)).await;
    store
        .correct(later.plus(6 * SECOND), &limit, ticket, 0)
        .await;
    let (_, verdict) = store.one(later.plus(6 * SECOND), ask(&limit, 0)).await;
    assert_eq!(verdict.remaining, 20);
}
