//! Refunds for a Redis that is unavailable for a moment: they are applied after its return, exactly once.

use super::support::{
    Client, Server, concurrency, fixed_window, limit, sliding_window, token_bucket, until_down,
    until_up,
};
use crate::key::{Meter, MeterPlace, OnLeave, OnSilent};
use crate::limit::rate::Cost;
use crate::limit::verdict::Ruling;
use crate::limit::{Limit, RefundCondition};
use crate::store::check::Check;
use crate::store::redis::RedisStore;
use crate::store::reservation::{Amendment, Reservation};
use crate::store::settings::StoreSettings;
use std::sync::Arc;
use std::time::Duration;

const MANY: u32 = 8;
pub(super) const KEY: &[u8] = b"a";
/// A Redis that is paused for longer than this is unavailable; a busy machine is late by less.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Only a failing test uses up this time.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

async fn store_of(server: &Server) -> RedisStore {
    let timeout = TIMEOUT;
    let settings = server.settings();
    server
        .store_with(&StoreSettings {
            timeout,
            ..settings
        })
        .await
}

fn slots() -> Arc<Limit> {
    limit("inflight", concurrency(MANY, 30_000_000))
}

/// Takes a slot, if there is one.
async fn take_slot(store: &RedisStore, limit: &Arc<Limit>) -> Option<Reservation> {
    let check = Check::new(limit, KEY);
    let decided = store.decide(&[check]).await.expect("Redis answers");
    let admitted = matches!(decided.decision.ruling, Ruling::Admit { .. });
    admitted.then(|| decided.reservation(0, &check).expect("a slot has a ticket"))
}

async fn take_all(store: &RedisStore, limit: &Arc<Limit>) -> Vec<Reservation> {
    let mut tickets = Vec::new();
    for _ in 0..MANY {
        tickets.push(take_slot(store, limit).await.expect("there is room"));
    }
    assert!(take_slot(store, limit).await.is_none(), "and then none");
    tickets
}

fn free(store: &RedisStore, slots: &[Reservation]) {
    for slot in slots {
        store.amend(slot, Amendment::Refund);
    }
}

/// The number of slots that are taken.
fn held(server: &Server) -> usize {
    held_by(&mut server.client())
}

fn held_by(client: &mut Client) -> usize {
    use bb8_redis::redis::Value;
    match client.say("ZCARD tollgate:1:inflight:cc:{a}") {
        Value::Int(many) => usize::try_from(many).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "local")]
async fn slots_that_end_while_redis_stands_still_are_free_when_it_goes_on() {
    let server = Server::start();
    let (store, limit) = (store_of(&server).await, slots());
    for _ in 0..3 {
        let tickets = take_all(&store, &limit).await;
        server.stop();
        let (early, late) = tickets.split_at(3);
        // These releases find out that the server does not answer; later ones find the store unavailable.
        free(&store, early);
        until_down(&store, PATIENCE).await;
        free(&store, late);
        server.go_on();
        until_up(&store, PATIENCE).await;
        // Slots are free at once: pending updates are sent before checks.
        let retaken = take_all(&store, &limit).await;
        free(&store, &retaken);
        store.settle().await;
        assert_eq!(held(&server), 0);
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

#[tokio::test(flavor = "local")]
async fn slots_that_end_while_connections_are_killed_are_free() {
    let server = Server::start();
    let (store, limit) = (store_of(&server).await, slots());
    for _ in 0..3 {
        let tickets = take_all(&store, &limit).await;
        let (early, late) = tickets.split_at(4);
        free(&store, early);
        tokio::task::yield_now().await;
        server.client().say("CLIENT KILL TYPE normal");
        free(&store, late);
        store.settle().await;
        until_up(&store, PATIENCE).await;
        store.settle().await;
        assert_eq!(held(&server), 0);
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

#[tokio::test(flavor = "local")]
async fn a_slot_that_was_taken_for_somebody_who_heard_nothing_of_it_is_free_again() {
    let server = Server::start();
    let (store, limit) = (store_of(&server).await, slots());
    server.stop();
    let checks = [Check::new(&limit, KEY)];
    let asked = (0..5).map(|_| store.decide(&checks));
    let answers = futures_of(asked).await;
    assert_eq!(answers, [false; 5], "nobody was told");
    until_down(&store, PATIENCE).await;
    // Redis now reads the questions from before, and then the releases of their slots.
    server.go_on();
    until_up(&store, PATIENCE).await;
    let tickets = take_all(&store, &limit).await;
    free(&store, &tickets);
    store.settle().await;
    assert_eq!(held(&server), 0);
}

/// Returns for each future whether it was answered. All run at once.
async fn futures_of<F, T, E>(all: impl Iterator<Item = F>) -> Vec<bool>
where
    F: Future<Output = Result<T, E>>,
{
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut answers = vec![None; all.len()];
    std::future::poll_fn(|context| {
        for (one, answer) in all.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let std::task::Poll::Ready(outcome) = one.as_mut().poll(context)
            {
                *answer = Some(outcome.is_ok());
            }
        }
        if answers.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[tokio::test(flavor = "local")]
async fn a_worker_that_ends_beside_a_redis_that_stands_still_leaves_no_slot_behind() {
    let server = Server::start();
    let (store, limit) = (store_of(&server).await, slots());
    let tickets = take_all(&store, &limit).await;
    assert_eq!(held(&server), 8);
    server.stop();
    free(&store, &tickets);
    let ((), ()) = tokio::join!(store.settle(), async {
        until_down(&store, PATIENCE).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.go_on();
    });
    drop(store);
    assert_eq!(held(&server), 0);
}

#[tokio::test(flavor = "local")]
async fn slots_that_end_while_redis_restarts_are_no_loss() {
    let mut server = Server::start();
    let (store, limit) = (store_of(&server).await, slots());
    let tickets = take_all(&store, &limit).await;
    server.kill();
    until_down(&store, PATIENCE).await;
    free(&store, &tickets);
    let server = server.restart();
    until_up(&store, PATIENCE).await;
    let retaken = take_all(&store, &limit).await;
    free(&store, &retaken);
    store.settle().await;
    assert_eq!(held(&server), 0);
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

/// A release of slots that have lapsed is not sent, and does not count as lost.
#[tokio::test(flavor = "local")]
async fn a_slot_is_owed_for_as_long_as_it_lasts() {
    let server = Server::start();
    let store = store_of(&server).await;
    let short = limit("inflight", concurrency(MANY, 2_000_000));
    let tickets = take_all(&store, &short).await;
    server.stop();
    free(&store, &tickets);
    until_down(&store, PATIENCE).await;
    tokio::time::sleep(Duration::from_millis(2_020)).await;
    let refunds_before = store.stats().refunds.get();
    server.go_on();
    until_up(&store, PATIENCE).await;
    store.settle().await;
    assert_eq!(store.stats().refunds.get(), refunds_before);
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

const HOUR: u64 = 3_600_000_000;

/// Every kind of limit with refunds and settlements, of a thousand units an hour.
pub(super) fn thousands() -> Vec<Arc<Limit>> {
    let gives_back = RefundCondition {
        errors: true,
        cancels: true,
        ..RefundCondition::default()
    };
    let place = MeterPlace::Header(http::HeaderName::from_static("x-units"));
    let rules = [
        ("tokens", token_bucket(1, HOUR, 1000)),
        ("window", fixed_window(1000, HOUR)),
        ("sliding", sliding_window(1000, HOUR, 6, false)),
    ];
    let of = |(name, rule)| {
        let meter = Meter {
            place: place.clone(),
            max: 50,
            on_leave: OnLeave::Max,
            on_silent: OnSilent::Estimate,
            tells_silence: true,
        };
        Arc::new(limit(name, rule).edited(|policy| {
            policy.refund_on = gives_back;
            policy.meter = Some(meter);
        }))
    };
    rules.into_iter().map(of).collect()
}

pub(super) async fn charge(store: &RedisStore, limit: &Arc<Limit>, cost: u64) -> Reservation {
    let check = Check {
        cost: Cost::new(cost),
        ..Check::new(limit, KEY)
    };
    let decided = store.decide(&[check]).await.expect("Redis answers");
    decided.reservation(0, &check).expect("it was charged")
}

pub(super) async fn left(store: &RedisStore, limit: &Arc<Limit>) -> u64 {
    let check = Check {
        cost: Cost::ZERO,
        ..Check::new(limit, KEY)
    };
    let decided = store.decide(&[check]).await.expect("Redis answers");
    decided.decision.verdicts[0].remaining
}

/// Calls `five` twice: before the store notices that Redis is paused, and while Redis is known to be unavailable. Redis
/// reads the first calls when it continues, and their answers are lost.
async fn while_redis_stalls((server, store): (&Server, &RedisStore), five: impl Fn(bool)) {
    server.stop();
    five(true);
    until_down(store, PATIENCE).await;
    five(false);
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.go_on();
    until_up(store, PATIENCE).await;
    store.settle().await;
}

#[tokio::test(flavor = "local")]
async fn charges_that_come_back_while_redis_stands_still_come_back_once() {
    let server = Server::start();
    let store = store_of(&server).await;
    let limits = thousands();
    let mut charges = Vec::new();
    for limit in &limits {
        charge(&store, limit, 200).await;
        for _ in 0..10 {
            charges.push(charge(&store, limit, 50).await);
        }
        assert_eq!(left(&store, limit).await, 300, "{}", limit.name);
    }
    let refund = |early: bool| {
        for (nth, charge) in charges.iter().enumerate() {
            if (nth % 2 == 0) == early {
                store.amend(charge, Amendment::Refund);
            }
        }
    };
    while_redis_stalls((&server, &store), refund).await;
    for limit in &limits {
        assert_eq!(left(&store, limit).await, 800, "{}", limit.name);
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

#[tokio::test(flavor = "local")]
async fn costs_that_are_told_while_redis_stands_still_are_settled_once() {
    let server = Server::start();
    let store = store_of(&server).await;
    let limits = thousands();
    let mut charges = Vec::new();
    for limit in &limits {
        for _ in 0..10 {
            charges.push(charge(&store, limit, 20).await);
        }
    }
    // Ten requests were charged 20 each. Five of them are settled at 50, and five at 5.
    let settle = |early: bool| {
        for (nth, charge) in charges.iter().enumerate() {
            if early == (nth % 4 < 2) {
                let truth = if nth % 2 == 0 { 50 } else { 5 };
                store.amend(charge, Amendment::Settlement(Cost::new(truth)));
            }
        }
    };
    while_redis_stalls((&server, &store), settle).await;
    for limit in &limits {
        let left = left(&store, limit).await;
        assert_eq!(left, 1000 - 5 * 50 - 5 * 5, "{}", limit.name);
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

/// A call under a name that earlier calls have used is distinguished from these.
#[tokio::test(flavor = "local")]
async fn calls_one_after_the_other_are_all_made() {
    let server = Server::start();
    let store = store_of(&server).await;
    for limit in &thousands() {
        for _ in 0..20 {
            let charge = charge(&store, limit, 50).await;
            store.amend(&charge, Amendment::Refund);
            store.settle().await;
            assert_eq!(left(&store, limit).await, 1000, "{}", limit.name);
        }
    }
    use bb8_redis::redis::Value;
    let Value::Array(marks) = server.client().say("KEYS tollgate:1:done:*") else {
        panic!("KEYS answers a list");
    };
    assert!((1..=2).contains(&marks.len()), "{marks:?}");
}
