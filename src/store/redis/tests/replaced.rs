//! A healthy master is replaced. It continues to answer until the store learns of the new master, to which the same
//! updates are sent again.

use super::pending_refunds::{KEY, PATIENCE, charge, left, thousands};
use super::support::{Client, Server, concurrency, limit, until, until_up};
use super::watched::Watched;
use crate::limit::Limit;
use crate::store::check::Check;
use crate::store::redis::RedisStore;
use crate::store::redis::link::health::Health;
use crate::store::redis::queue::context::StoreContext;
use crate::store::redis::queue::lanes::Lanes;
use crate::store::redis::queue::pending_refunds::{CallResult, PendingRefunds};
use crate::store::redis::wire::counter_update::{CounterUpdate, UpdateKind};
use crate::store::redis::wire::question::Question;
use crate::store::reservation::{Amendment, Reservation};
use crate::store::settings::StoreSettings;
use crate::store::{RedisEndpoint, RedisTarget};
use bb8_redis::redis::Value;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A charge from longer ago was replicated before any replacement that the store has not learned of yet.
const LONG_AGO: Duration = Duration::from_millis(5_500);

async fn connected(watched: &Watched) -> RedisStore {
    let settings = StoreSettings {
        timeout: Duration::from_secs(2),
        ..StoreSettings::default()
    };
    let store = RedisStore::new(&watched.target(), &settings);
    until_up(&store, PATIENCE).await;
    store
}

async fn take_charge(store: &RedisStore, limit: &Arc<Limit>) -> Reservation {
    let check = Check::new(limit, KEY);
    let decided = store.decide(&[check]).await.expect("Redis answers");
    decided.reservation(0, &check).expect("there is room")
}

fn held(server: &Server) -> i64 {
    // A server that changes its role closes connections.
    let asked = Client::of(server.port).map(|mut client| {
        let key = "tollgate:1:inflight:cc:{a}";
        match client.say(&format!("ZCARD {key}")) {
            Value::Int(many) => many,
            other => panic!("{other:?}"),
        }
    });
    asked.unwrap_or(-1)
}

/// The replica has all of the master's data, and becomes master as well; the store does not know it.
fn lead_both(watched: &Watched) {
    let mut client = watched.master.client();
    assert_eq!(client.say("WAIT 1 20000"), Value::Int(1));
    watched.replica.client().say("REPLICAOF NO ONE");
}

async fn follows(watched: &Watched, slots: i64) {
    watched.sentinel.name_another(watched.replica.port);
    until(PATIENCE, &format!("{slots} slots are taken"), async || {
        held(&watched.replica) == slots
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn slots_that_a_replaced_master_freed_are_free_at_the_new_one() {
    let watched = Watched::start();
    let store = connected(&watched).await;
    let slots = limit("inflight", concurrency(200, 600_000_000));
    let mut taken = Vec::new();
    for _ in 0..200 {
        taken.push(take_charge(&store, &slots).await);
    }
    lead_both(&watched);
    for slot in taken.drain(..197) {
        store.amend(&slot, Amendment::Refund);
    }
    store.settle().await;
    assert_eq!((held(&watched.master), held(&watched.replica)), (3, 200));
    follows(&watched, 3).await;
    // Requests that end from now on are released there.
    for slot in taken {
        store.amend(&slot, Amendment::Refund);
    }
    store.settle().await;
    assert_eq!((held(&watched.master), held(&watched.replica)), (3, 0));
    assert_eq!(store.stats().refunds_lost.get(), 0);
}

/// Requests in flight hold slots that only the former master has given.
#[tokio::test(flavor = "local")]
async fn a_new_master_is_told_of_requests_in_flight_before_it_is_asked() {
    let watched = Watched::start();
    let store = connected(&watched).await;
    let slots = limit("inflight", concurrency(3, 600_000_000));
    lead_both(&watched);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (store, slot) = (store.clone(), take_charge(&store, &slots).await);
        tasks.push(tokio::task::spawn_local(async move {
            loop {
                store.registers().await;
                store.amend(&slot, Amendment::Registration);
            }
        }));
    }
    assert_eq!((held(&watched.master), held(&watched.replica)), (3, 0));
    watched.sentinel.name_another(watched.replica.port);
    until(PATIENCE, "the new master has all slots", async || {
        // No other request is admitted during the succession, by either master.
        let check = Check::new(&slots, KEY);
        let decided = store.decide(&[check]).await.expect("Redis answers");
        assert!(decided.reservation(0, &check).is_none(), "there is room");
        held(&watched.replica) == 3
    })
    .await;
    for task in tasks {
        task.abort();
    }
}

/// The release of a call that had no answer, by the script's byte: the slot was found, or not yet.
#[test]
fn a_release_that_a_former_master_has_applied_is_made_again() {
    let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", 1));
    let context = Rc::new(StoreContext::new(&target, &StoreSettings::default()));
    let health = Rc::new(Health::new("it".into(), "limits", Box::new(|_| {})));
    let lanes = Rc::new(Lanes::new(context.timeout));
    for byte in [0, 1, 2] {
        let updates = PendingRefunds::new(&context, &health, &lanes, &Rc::default());
        let recheck = Some(Duration::from_secs(1));
        let kind = UpdateKind::Release { recheck };
        let mut question = Question::default();
        question.forget(b"tollgate:1:inflight:cc:{", KEY, 1_000_000);
        let lasts = Some(Duration::from_secs(600));
        let release = CounterUpdate::new(kind, question, lasts);
        let result = CallResult {
            answer: Ok(vec![byte]),
            took: Duration::ZERO,
            is_outdated: false,
        };
        updates.conclude(vec![release], result).unwrap();
        assert!(updates.next().is_empty(), "{byte}");
        updates.repeat_answered();
        assert_eq!(updates.next().len(), 1, "{byte}");
    }
}

#[tokio::test(flavor = "local")]
async fn charges_come_back_once_whichever_master_was_told() {
    let watched = Watched::start();
    let store = connected(&watched).await;
    let (limits, slots) = (thousands(), limit("inflight", concurrency(2, 600_000_000)));
    let slot = take_charge(&store, &slots).await;
    let mut charges: Vec<Vec<Reservation>> = Vec::new();
    for limit in &limits {
        let mut of_limit = Vec::new();
        for _ in 0..4 {
            of_limit.push(charge(&store, limit, 50).await);
        }
        charges.push(of_limit);
    }
    tokio::time::sleep(LONG_AGO).await;
    for (limit, of_limit) in limits.iter().zip(&mut charges) {
        of_limit.push(charge(&store, limit, 7).await);
        // The new master gets this one.
        store.amend(&of_limit[0], Amendment::Refund);
    }
    store.settle().await;
    lead_both(&watched);
    for (limit, of_limit) in limits.iter().zip(&charges) {
        // And none of these, nor this charge.
        let lost = charge(&store, limit, 11).await;
        for charge in of_limit[1..3].iter().chain(&of_limit[4..]).chain([&lost]) {
            store.amend(charge, Amendment::Refund);
        }
    }
    store.amend(&slot, Amendment::Refund);
    store.settle().await;
    for limit in &limits {
        assert_eq!(left(&store, limit).await, 950, "{}", limit.name);
    }
    follows(&watched, 0).await;
    store.settle().await;
    // The new master may lack so young a charge: it is not given back, since another might be given back instead.
    for limit in &limits {
        assert_eq!(left(&store, limit).await, 1000 - 50 - 7, "{}", limit.name);
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}
