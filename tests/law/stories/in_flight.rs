//! Limits on requests in flight, and counters that are reset.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, concurrency, fixed_window, leaky_bucket, limit,
    sliding_log, sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, wait};
use tollgate::limit::verdict::Wait;

told_to_both! {
    slots_are_taken_until_they_are_given_back
    a_request_may_take_several_slots_or_none
    a_refused_request_takes_no_slot
    lowered_to_below_what_is_in_flight
    a_reset_forgets_one_counter
}

async fn slots_are_taken_until_they_are_given_back(store: &UnderTest) {
    let flight = limit("flight", concurrency(2, 30 * SECOND));
    let first = store.take(NOON, ask(&flight, 1)).await;
    let second = store.take(NOON, ask(&flight, 1)).await;
    assert_ne!(first, second);
    for later in [0, 9 * SECOND, 29 * SECOND] {
        let (ruling, verdict) = store.one(NOON.plus(later), ask(&flight, 1)).await;
        // The true wait is unknown. This is a hint.
        assert_eq!(wait(ruling), Some(Wait::Micros(SECOND)));
        assert_eq!((verdict.remaining, verdict.reset), (0, 0));
    }
    store
        .refund(NOON.plus(SECOND), ask(&flight, 1), first)
        .await;
    // A second refund of one slot changes nothing.
    store
        .refund(NOON.plus(SECOND), ask(&flight, 1), first)
        .await;
    let (_, verdict) = store.one(NOON.plus(SECOND), ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 1);
    store
        .refund(NOON.plus(SECOND), ask(&flight, 1), second)
        .await;
    assert_eq!(store.everything(&[&flight], CLIENT).await, [None]);
}

async fn a_request_may_take_several_slots_or_none(store: &UnderTest) {
    let flight = limit("flight", concurrency(5, 30 * SECOND));
    let (ruling, verdict) = store.one(NOON, ask(&flight, 6)).await;
    assert_eq!((wait(ruling), verdict.remaining), (Some(Wait::Never), 5));
    let three = store.take(NOON, ask(&flight, 3)).await;
    let two = store.take(NOON, ask(&flight, 2)).await;
    let (ruling, _) = store.one(NOON, ask(&flight, 1)).await;
    assert!(wait(ruling).is_some());
    store.refund(NOON, ask(&flight, 3), three).await;
    let (_, verdict) = store.one(NOON, ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 3);
    store.refund(NOON, ask(&flight, 2), two).await;
    let (_, verdict) = store.one(NOON, ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 5);
}

async fn a_refused_request_takes_no_slot(store: &UnderTest) {
    let flight = limit("flight", concurrency(5, 30 * SECOND));
    let log = limit("log", sliding_log(1, SECOND));
    let both = [ask(&flight, 1), ask(&log, 1)];
    assert!(admitted(&store.decide(NOON, &both).await));
    let before = store.everything(&[&flight, &log], CLIENT).await;
    let refused = store.decide(NOON, &both).await;
    assert!(!admitted(&refused));
    assert_eq!(refused.decision.verdicts[0].remaining, 4);
    assert_eq!(store.everything(&[&flight, &log], CLIENT).await, before);
}

async fn lowered_to_below_what_is_in_flight(store: &UnderTest) {
    let many = limit("flight", concurrency(5, 30 * SECOND));
    let few = limit("flight", concurrency(2, 30 * SECOND));
    let mut tickets = Vec::new();
    for _ in 0..4 {
        tickets.push(store.take(NOON, ask(&many, 1)).await);
    }
    // Three of the four requests have to end before another one is admitted.
    for ticket in tickets.into_iter().take(3) {
        let (ruling, verdict) = store.one(NOON, ask(&few, 1)).await;
        assert_eq!(
            (wait(ruling), verdict.remaining),
            (Some(Wait::Micros(SECOND)), 0)
        );
        store.refund(NOON, ask(&few, 1), ticket).await;
    }
    let (ruling, verdict) = store.one(NOON, ask(&few, 1)).await;
    assert_eq!((wait(ruling), verdict.remaining), (None, 0));
}

async fn a_reset_forgets_one_counter(store: &UnderTest) {
    for (name, rule) in [
        ("tokens", token_bucket(1, SECOND, 5)),
        ("queue", leaky_bucket((1, SECOND), 1, 4, 9 * SECOND)),
        ("window", fixed_window(5, SECOND)),
        ("clock", clock_window(5, SECOND, 0)),
        ("sliding", sliding_window(5, SECOND, 2, false)),
        ("log", sliding_log(5, SECOND)),
        ("flight", concurrency(5, 30 * SECOND)),
    ] {
        let limit = limit(name, rule);
        assert!(!store.reset(&limit, CLIENT).await);
        store.take(NOON, ask(&limit, 5)).await;
        assert!(store.reset(&limit, CLIENT).await, "{name}");
        assert_eq!(store.everything(&[&limit], CLIENT).await, [None]);
        let (_, verdict) = store.one(NOON, ask(&limit, 0)).await;
        assert_eq!((verdict.remaining, verdict.reset), (5, 0), "{name}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_lease_lapses_unless_it_is_renewed() {
    let store = UnderTest::redis().await;
    let flight = limit("flight", concurrency(2, 30 * SECOND));
    let dead = store.take(NOON, ask(&flight, 1)).await;
    let alive = store.take(NOON, ask(&flight, 1)).await;
    let renew = async |at: u64, ticket| store.renew(NOON.plus(at), &flight, ticket).await;
    renew(20 * SECOND, alive).await;
    let (ruling, _) = store.one(NOON.plus(30 * SECOND - 1), ask(&flight, 1)).await;
    assert!(wait(ruling).is_some());
    let (_, verdict) = store.one(NOON.plus(30 * SECOND), ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 1);
    // The slot of a request in flight has lapsed. It is taken anew.
    renew(31 * SECOND, dead).await;
    let (ruling, _) = store.one(NOON.plus(32 * SECOND), ask(&flight, 1)).await;
    assert!(wait(ruling).is_some());
    // A slot lapses, another request takes its place, and the first request is still in flight: three slots of two are
    // taken.
    let third = store.take(NOON.plus(50 * SECOND), ask(&flight, 1)).await;
    renew(51 * SECOND, alive).await;
    for (at, left) in [(52, 0), (61, 0), (80, 1), (81, 2)] {
        let (_, verdict) = store.one(NOON.plus(at * SECOND), ask(&flight, 0)).await;
        assert_eq!(verdict.remaining, left, "after {at} s");
    }
    // All slots have lapsed, and Redis has no state left: the slot is taken in a new set.
    renew(85 * SECOND, third).await;
    let (_, verdict) = store.one(NOON.plus(86 * SECOND), ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 1);
    store
        .refund(NOON.plus(87 * SECOND), ask(&flight, 1), third)
        .await;
    let (_, verdict) = store.one(NOON.plus(88 * SECOND), ask(&flight, 0)).await;
    assert_eq!(verdict.remaining, 2);
}

#[tokio::test(flavor = "local")]
async fn in_memory_a_slot_never_lapses() {
    let store = UnderTest::memory();
    let flight = limit("flight", concurrency(1, 30 * SECOND));
    let ticket = store.take(NOON, ask(&flight, 1)).await;
    let later = NOON.plus(86_400 * SECOND);
    let (ruling, _) = store.one(later, ask(&flight, 1)).await;
    assert!(wait(ruling).is_some());
    store.refund(later, ask(&flight, 1), ticket).await;
    let (ruling, _) = store.one(later, ask(&flight, 1)).await;
    assert_eq!(wait(ruling), None);
}
