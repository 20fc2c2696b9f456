//! A counter that was emptied has begun anew: nothing of a charge of before comes back to it, and charges since then come
//! back as always.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, charged, metered};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::Cost;
use tollgate::limit::{Limit, Ticket};
use tollgate::store::{Amendment, Check, Reservation};

told_to_both! {
    nothing_of_before_comes_back_to_a_counter_that_began_anew
    what_was_charged_since_comes_back_as_always
    a_counter_is_emptied_once
}

/// Another client, whose counter is never emptied.
const OTHER: &[u8] = b"other";

/// One limit of each algorithm, and those whose costs are settled.
fn all() -> Vec<Arc<Limit>> {
    vec![
        limit("tokens", token_bucket(10, 30 * SECOND, 10)),
        limit("meter", leaky_bucket((10, 30 * SECOND), 10, 0, 0)),
        limit("queue", leaky_bucket((10, 30 * SECOND), 2, 20, 90 * SECOND)),
        limit("window", fixed_window(20, 60 * SECOND)),
        limit("clock", clock_window(20, 60 * SECOND, 0)),
        limit("sliding", sliding_window(20, 60 * SECOND, 6, false)),
        limit("strict", sliding_window(20, 60 * SECOND, 6, true)),
        limit("log", sliding_log(20, 60 * SECOND)),
        metered(limit("settled", token_bucket(10, 30 * SECOND, 10)), 40),
        metered(limit("odd", token_bucket(7, 3 * SECOND, 10)), 40),
        metered(limit("settled-window", fixed_window(20, 60 * SECOND)), 40),
    ]
}

fn at(seconds: u64) -> Timestamp {
    NOON.plus(seconds * SECOND)
}

fn of<'a>(limit: &'a Arc<Limit>, key: &'a [u8], cost: u64) -> Check<'a> {
    Check {
        key,
        ..ask(limit, cost)
    }
}

fn charge(limit: &Arc<Limit>, key: &[u8], ticket: Ticket, made: Timestamp) -> Reservation {
    Reservation {
        at: made,
        ..charged(limit, key, ticket)
    }
}

/// Everything that may give back a part of a charge of 5.
fn amendments(limit: &Limit) -> Vec<Amendment> {
    let mut all = vec![Amendment::Refund, Amendment::Cancellation];
    if limit.meter.is_some() {
        all.push(Amendment::Settlement(Cost::new(1)));
    }
    all
}

async fn nothing_of_before_comes_back_to_a_counter_that_began_anew(store: &UnderTest) {
    for limit in all() {
        let before = store.take(NOON, ask(&limit, 5)).await;
        assert!(
            store.reset_at(at(1), &limit, CLIENT).await,
            "{}",
            limit.name
        );
        store.take(at(2), ask(&limit, 5)).await;
        let held = store.bytes(&limit, CLIENT).await;
        assert!(held.is_some());
        for amendment in amendments(&limit) {
            let older = charge(&limit, CLIENT, before, NOON);
            store.amend(at(3), &older, amendment).await;
            let name = &limit.name;
            assert_eq!(
                store.bytes(&limit, CLIENT).await,
                held,
                "{name} {amendment:?}"
            );
        }
    }
}

async fn what_was_charged_since_comes_back_as_always(store: &UnderTest) {
    for limit in all() {
        for amendment in amendments(&limit) {
            for key in [CLIENT, OTHER] {
                store.reset_at(NOON, &limit, key).await;
            }
            store.take(at(1), of(&limit, CLIENT, 4)).await;
            store.reset_at(at(2), &limit, CLIENT).await;
            for key in [CLIENT, OTHER] {
                let ticket = store.take(at(3), of(&limit, key, 5)).await;
                let made = charge(&limit, key, ticket, at(3));
                store.amend(at(3), &made, amendment).await;
            }
            let (name, others) = (&limit.name, store.bytes(&limit, OTHER).await);
            assert_eq!(
                store.bytes(&limit, CLIENT).await,
                others,
                "{name} {amendment:?}"
            );
        }
    }
}

async fn a_counter_is_emptied_once(store: &UnderTest) {
    for limit in all() {
        store.take(NOON, ask(&limit, 2)).await;
        assert!(store.reset_at(at(1), &limit, CLIENT).await);
        assert!(
            !store.reset_at(at(1), &limit, CLIENT).await,
            "{}",
            limit.name
        );
        assert_eq!(store.bytes(&limit, CLIENT).await, None);
    }
}
