//! Refunds: right after the charge everything comes back, and later never units that another request relies on.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, fixed_window, leaky_bucket, limit, token_bucket,
};
use crate::law::under_test::{UnderTest, ticket_of, wait};
use tollgate::limit::verdict::{Ruling, Wait};

told_to_both! {
    a_refund_at_once_restores_every_byte
    a_refund_of_the_only_charge_leaves_nothing
    a_refund_behind_whom_somebody_waits_gives_no_place_twice
    those_who_leave_from_the_back_free_their_places
    a_refund_after_a_later_charge_admits_no_more_than_the_limit
    a_refund_from_a_window_that_is_over_gives_nothing
    a_refund_after_a_reset_gives_nothing
    a_refund_never_gives_more_than_was_taken
    a_dear_request_that_leaves_frees_no_place_of_a_cheap_one_behind_it
}

async fn a_refund_at_once_restores_every_byte(store: &UnderTest) {
    let limits = [
        limit("odd", token_bucket(7, 3 * SECOND, 9)),
        limit("large", token_bucket(10_000_000, SECOND, 900)),
        limit("queue", leaky_bucket((7, 3 * SECOND), 2, 20, 9 * SECOND)),
        limit("meter", leaky_bucket((7, 3 * SECOND), 9, 0, 0)),
        limit("window", fixed_window(9, 60 * SECOND)),
    ];
    let all: Vec<_> = limits.iter().collect();
    for limit in &limits {
        store.take(NOON, ask(limit, 2)).await;
    }
    let before = store.everything(&all, CLIENT).await;
    for cost in 1..=7 {
        for limit in &limits {
            let seen = store.one(NOON, ask(limit, 0)).await;
            let ticket = store.take(NOON, ask(limit, cost)).await;
            assert_ne!(store.one(NOON, ask(limit, 0)).await, seen);
            store.refund(NOON, ask(limit, cost), ticket).await;
            assert_eq!(store.one(NOON, ask(limit, 0)).await, seen);
        }
        assert_eq!(store.everything(&all, CLIENT).await, before, "cost {cost}");
    }
}

async fn a_refund_of_the_only_charge_leaves_nothing(store: &UnderTest) {
    let limits = [
        limit("odd", token_bucket(7, 3 * SECOND, 9)),
        limit("queue", leaky_bucket((7, 3 * SECOND), 2, 20, 9 * SECOND)),
        limit("window", fixed_window(9, 60 * SECOND)),
    ];
    let all: Vec<_> = limits.iter().collect();
    for limit in &limits {
        let ticket = store.take(NOON, ask(limit, 3)).await;
        store.refund(NOON, ask(limit, 3), ticket).await;
    }
    let stored = store.everything(&all, CLIENT).await;
    assert!(stored.iter().all(Option::is_none));
    // The same holds when a part of the charge has leaked meanwhile.
    let queue = limits[1].clone();
    let ticket = store.take(NOON, ask(&queue, 3)).await;
    let later = NOON.plus(SECOND);
    store.refund(later, ask(&queue, 3), ticket).await;
    let (_, verdict) = store.one(later, ask(&queue, 0)).await;
    assert_eq!((verdict.remaining, verdict.reset), (22, 0));
}

async fn a_refund_behind_whom_somebody_waits_gives_no_place_twice(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((10, SECOND), 1, 9, SECOND));
    store.take(NOON, ask(&queue, 1)).await;
    let leaver = store.take(NOON, ask(&queue, 1)).await;
    let (stays, _) = store.one(NOON, ask(&queue, 1)).await;
    assert_eq!(stays, Ruling::Admit { delay: 200_000 });
    store.refund(NOON, ask(&queue, 1), leaver).await;
    let (comes, _) = store.one(NOON, ask(&queue, 1)).await;
    assert_eq!(comes, Ruling::Admit { delay: 300_000 });
}

async fn those_who_leave_from_the_back_free_their_places(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((3, SECOND), 1, 9, 9 * SECOND));
    let mut tickets = Vec::new();
    for _ in 0..4 {
        tickets.push(store.take(NOON, ask(&queue, 1)).await);
    }
    for delay in [SECOND, 666_667, 333_334] {
        let last = tickets.pop().unwrap();
        store.refund(NOON, ask(&queue, 1), last).await;
        let (ruling, _) = store.one(NOON, ask(&queue, 1)).await;
        assert_eq!(ruling, Ruling::Admit { delay });
        // This request leaves, too.
        let Some(tollgate::limit::State::Bucket(state)) = store.state(&queue, CLIENT).await else {
            panic!("a bucket is stored");
        };
        let ticket = tollgate::limit::Ticket {
            mark: tollgate::limit::Mark::Bucket(state),
            cost: ask(&queue, 1).cost,
            record: None,
            overflow: false,
        };
        store.refund(NOON, ask(&queue, 1), ticket).await;
    }
}

async fn a_refund_after_a_later_charge_admits_no_more_than_the_limit(store: &UnderTest) {
    // The bucket was full in between: the earlier charge had already come back by itself.
    let tokens = limit("tokens", token_bucket(1, SECOND, 3));
    let early = store.take(NOON, ask(&tokens, 3)).await;
    let full = NOON.plus(3 * SECOND);
    store.take(full, ask(&tokens, 3)).await;
    store.refund(full, ask(&tokens, 3), early).await;
    let (ruling, _) = store.one(full, ask(&tokens, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(SECOND)));

    // The bucket was nearly full: units that had come back by themselves are not given back a second time.
    let tokens = limit("nearly", token_bucket(1, SECOND, 10));
    let early = store.take(NOON, ask(&tokens, 10)).await;
    let nearly = NOON.plus(9 * SECOND);
    store.take(nearly, ask(&tokens, 1)).await;
    store.refund(nearly, ask(&tokens, 10), early).await;
    let (_, verdict) = store.one(nearly, ask(&tokens, 0)).await;
    assert_eq!(verdict.remaining, 9);

    let window = limit("window", fixed_window(3, SECOND));
    let early = store.take(NOON, ask(&window, 2)).await;
    store.take(NOON, ask(&window, 1)).await;
    store.refund(NOON, ask(&window, 2), early).await;
    let (ruling, verdict) = store.one(NOON, ask(&window, 2)).await;
    assert_eq!((wait(ruling), verdict.remaining), (None, 0));
}

async fn a_refund_from_a_window_that_is_over_gives_nothing(store: &UnderTest) {
    let window = limit("window", fixed_window(3, SECOND));
    let early = store.take(NOON, ask(&window, 3)).await;
    let next = NOON.plus(SECOND);
    store.refund(next, ask(&window, 3), early).await;
    store.take(next, ask(&window, 3)).await;
    let before = store.bytes(&window, CLIENT).await;
    store.refund(next, ask(&window, 3), early).await;
    assert_eq!(store.bytes(&window, CLIENT).await, before);
}

async fn a_refund_after_a_reset_gives_nothing(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(1, SECOND, 5));
    let early = store.take(NOON, ask(&tokens, 5)).await;
    let ticket = store.take(NOON.plus(9 * SECOND), ask(&tokens, 1)).await;
    let at = NOON.plus(9 * SECOND);
    let ticket = tokens.abandoned(ticket, at);
    store.refund(at, ask(&tokens, 1), ticket).await;
    assert_eq!(store.bytes(&tokens, CLIENT).await, None);
    store.refund(at, ask(&tokens, 5), early).await;
    assert_eq!(store.bytes(&tokens, CLIENT).await, None);
}

async fn a_refund_never_gives_more_than_was_taken(store: &UnderTest) {
    let limits = [
        limit("tokens", token_bucket(1, 60 * SECOND, 100)),
        limit("meter", leaky_bucket((1, 60 * SECOND), 100, 0, 0)),
        limit("window", fixed_window(100, 3600 * SECOND)),
    ];
    let mut random = fastrand::Rng::with_seed(11);
    for limit in &limits {
        let (mut held, mut taken, mut at) = (Vec::new(), 0, NOON);
        for _ in 0..300 {
            at = at.plus(random.u64(0..1000));
            if random.bool() && !held.is_empty() {
                let (cost, ticket) = held.swap_remove(random.usize(..held.len()));
                store.refund(at, ask(limit, cost), ticket).await;
                taken -= cost;
            } else {
                let cost = random.u64(1..5);
                let decided = store.decide(at, &[ask(limit, cost)]).await;
                if let Some(ticket) = ticket_of(&decided, 0, &ask(limit, cost)) {
                    held.push((cost, ticket));
                    taken += cost;
                }
            }
            // During the whole story less than one unit comes back.
            let (_, verdict) = store.one(at, ask(limit, 0)).await;
            assert!(verdict.remaining <= 100 - taken, "{}", limit.name);
        }
    }
}

async fn a_dear_request_that_leaves_frees_no_place_of_a_cheap_one_behind_it(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((10, SECOND), 1, 20, 9 * SECOND));
    let leaver = store.take(NOON, ask(&queue, 5)).await;
    let (stays, _) = store.one(NOON, ask(&queue, 1)).await;
    assert_eq!(stays, Ruling::Admit { delay: 500_000 });
    store.refund(NOON, ask(&queue, 5), leaver).await;
    let (comes, _) = store.one(NOON, ask(&queue, 1)).await;
    assert_eq!(comes, Ruling::Admit { delay: 600_000 });
}
