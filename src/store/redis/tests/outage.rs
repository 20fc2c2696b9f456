//! Faults, the time until they are noticed, and the time until they are over.

use super::support::{Late, Server, at_once, limit, token_bucket, until_down, until_up};
use crate::limit::Limit;
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::settings::StoreSettings;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time beyond the deadline, apart from the machine's own delay, that hundreds of answers take in a debug build.
const GRACE: Duration = Duration::from_millis(250);
/// The time within which limits must be shared again.
const BACK_WITHIN: Duration = Duration::from_secs(2);

fn some_limit() -> Arc<Limit> {
    limit("some", token_bucket(1000, 1_000_000, 1000))
}

async fn decide(store: &RedisStore, limit: &Arc<Limit>) -> (Duration, Result<(), StoreError>) {
    let begun = Instant::now();
    let answer = store.decide(&[Check::new(limit, b"a")]).await;
    (begun.elapsed(), answer.map(|_| ()))
}

/// Many requests at once may fail or pass, but none waits longer than the deadline.
async fn flood(store: &RedisStore, limit: &Arc<Limit>, many: usize) -> usize {
    let late = Late::watch();
    let tasks: Vec<_> = (0..many)
        .map(|_| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::task::spawn_local(async move { decide(&store, &limit).await })
        })
        .collect();
    let (mut failed, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (took, answer) = task.await.unwrap();
        longest = longest.max(took);
        failed += usize::from(answer.is_err());
    }
    within_the_deadline(longest, &late).await;
    failed
}

async fn within_the_deadline(took: Duration, late: &Late) {
    let most = Duration::from_millis(50) + GRACE + late.by().await;
    assert!(took < most, "{took:?} instead of {most:?}");
}

/// No request waits for the deadline, or for anything else.
fn down_at_once(store: &RedisStore, limit: &Arc<Limit>) {
    for _ in 0..100 {
        let (_, answer) = at_once(decide(store, limit));
        assert_eq!(answer, Err(StoreError::Down));
    }
}

async fn back_in_time(store: &RedisStore) {
    let late = Late::watch();
    let took = until_up(store, BACK_WITHIN * 10).await;
    let most = BACK_WITHIN + late.by().await;
    println!("back after {took:?}");
    assert!(took < most, "{took:?} instead of {most:?}");
}

#[tokio::test(flavor = "local")]
async fn a_forgotten_script_is_loaded_again() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    for _ in 0..3 {
        server.client().say("SCRIPT FLUSH");
        assert_eq!(decide(&store, &limit).await.1, Ok(()));
    }
    assert_eq!(store.stats().falls.get(), 0);
    assert_eq!(store.stats().decisions.get(), 3);
}

#[tokio::test(flavor = "local")]
async fn a_killed_server_is_down_at_once_and_back_within_two_seconds() {
    let mut server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
    server.kill();
    flood(&store, &limit, 200).await;
    down_at_once(&store, &limit);
    tokio::time::sleep(Duration::from_millis(700)).await;
    down_at_once(&store, &limit);

    let server = server.restart();
    back_in_time(&store).await;
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
    drop(server);
}

#[tokio::test(flavor = "local")]
async fn an_idle_store_notices_its_servers_death_before_anyone_asks() {
    let mut server = Server::start();
    let store = server.store().await;
    server.kill();
    until_down(&store, BACK_WITHIN * 10).await;
    down_at_once(&store, &some_limit());
}

#[tokio::test(flavor = "local")]
async fn a_stalled_server_costs_one_deadline_and_is_back_when_it_goes_on() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    flood(&store, &limit, 10).await;
    server.stop();
    let failed = flood(&store, &limit, 500).await;
    assert_eq!(failed, 500);
    down_at_once(&store, &limit);
    // The pause is long enough for probes to run into their own deadline.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    down_at_once(&store, &limit);
    let asked = store.stats().calls.get();
    server.go_on();
    back_in_time(&store).await;
    assert_eq!(store.stats().calls.get(), asked, "nothing was repeated");
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn killed_idle_connections_are_replaced_before_anyone_notices() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    for _ in 0..5 {
        assert_eq!(decide(&store, &limit).await.1, Ok(()));
        server.client().say("CLIENT KILL TYPE normal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A decision at the same moment may fail, too.
    server.client().say("CLIENT KILL TYPE normal");
    let _ = decide(&store, &limit).await;
    back_in_time(&store).await;
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn connections_killed_under_load_are_no_outage() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        flood(&store, &limit, 64).await;
        server.client().say("CLIENT KILL TYPE normal");
        back_in_time(&store).await;
    }
    flood(&store, &limit, 64).await;
}

#[tokio::test(flavor = "local")]
async fn without_a_server_the_first_wait_is_short_and_the_rest_do_not() {
    let mut server = Server::start();
    server.kill();
    let store = RedisStore::new(&server.target(), &server.settings());
    let limit = some_limit();
    let late = Late::watch();
    let (took, answer) = decide(&store, &limit).await;
    assert_eq!(answer, Err(StoreError::Down));
    within_the_deadline(took, &late).await;
    down_at_once(&store, &limit);
    let server = server.restart();
    back_in_time(&store).await;
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
    drop(server);
}

#[tokio::test(flavor = "local")]
async fn with_a_server_the_first_request_waits_for_the_connection() {
    let server = Server::start();
    let store = RedisStore::new(&server.target(), &server.settings());
    assert_eq!(decide(&store, &some_limit()).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_server_without_memory_is_away_until_it_has_some() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    server.client().say("CONFIG SET maxmemory 1");
    let (_, answer) = decide(&store, &limit).await;
    // The fault is the server's, rather than the key's that revealed it.
    let Err(StoreError::Refused(reason)) = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("OOM"), "{reason}");
    // A ping would be answered; a decision would not. The pause outlasts the next probe.
    tokio::time::sleep(Duration::from_millis(400)).await;
    down_at_once(&store, &limit);
    assert_eq!(store.stats().falls.get(), 1);
    server.client().say("CONFIG SET maxmemory 0");
    back_in_time(&store).await;
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_demoted_server_is_away_until_it_leads_again() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    server.client().say("REPLICAOF 127.0.0.1 1");
    let (_, answer) = decide(&store, &limit).await;
    assert!(answer.is_err(), "{answer:?}");
    down_at_once(&store, &limit);
    server.client().say("REPLICAOF NO ONE");
    back_in_time(&store).await;
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_wrong_password_is_an_outage_and_a_right_one_is_not() {
    let server = Server::start_with(&[]);
    server.client().say("CONFIG SET requirepass secret");
    let limit = some_limit();
    let store = RedisStore::new(&server.target(), &server.settings());
    assert!(decide(&store, &limit).await.1.is_err());
    let mut target = server.target();
    target.password = Some(crate::store::Secret::new("secret"));
    target.database = 3;
    // A busy machine may need more time for the login and the scripts than a decision may take.
    let patient = StoreSettings {
        timeout: Duration::from_secs(10),
        ..server.settings()
    };
    let store = RedisStore::new(&target, &patient);
    assert_eq!(decide(&store, &limit).await.1, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_slow_server_is_never_waited_for_longer_than_the_deadline() {
    let server = Server::start();
    let store = server.store().await;
    let limit = some_limit();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(800) {
        // Repeated stalls of a third of the deadline and more.
        server.stop();
        let (_, ()) = tokio::join!(flood(&store, &limit, 300), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.go_on();
        });
    }
    back_in_time(&store).await;
}
