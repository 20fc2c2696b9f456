//! A cluster most of whose seeds accept connections and answer nothing.

use super::clusters::Servers;
use super::support::{Late, at_once, fixed_window, limit, until_up};
use crate::store::check::Check;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::settings::{RedisTarget, StoreSettings};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(400);

/// Sockets that answer nothing, and their addresses.
fn silent(many: usize) -> (Vec<TcpListener>, Vec<Address>) {
    let seeds: Vec<TcpListener> = (0..many)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let at = seeds
        .iter()
        .map(|seed| Address::new("127.0.0.1", seed.local_addr().unwrap().port()));
    let at = at.collect();
    (seeds, at)
}

fn store(seeds: Vec<Address>) -> RedisStore {
    let seeds = seeds.into();
    let target = RedisTarget::new(RedisEndpoint::Cluster { seeds });
    let settings = StoreSettings {
        timeout: TIMEOUT,
        ..StoreSettings::default()
    };
    RedisStore::new(&target, &settings)
}

#[tokio::test(flavor = "local")]
async fn who_has_waited_in_vain_waited_for_all() {
    let (_silent, seeds) = silent(5);
    let store = store(seeds);
    let one = limit("one", fixed_window(9, 60_000_000));
    let ask = async || {
        let outcome = store.decide(&[Check::new(&one, b"one")]).await;
        assert_eq!(outcome.unwrap_err(), StoreError::Down);
    };
    let (begun, late) = (Instant::now(), Late::watch());
    ask().await;
    let first = begun.elapsed();
    assert!(first < TIMEOUT + late.by().await, "{first:?}");
    assert_eq!(store.stats().falls.get(), 1);
    for _ in 0..100 {
        at_once(ask());
    }
    assert_eq!(store.stats().falls.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn the_one_seed_that_answers_is_soon_found() {
    let servers = Servers::start(2, false, &[]);
    let (_silent, mut seeds) = silent(6);
    seeds.push(Address::new("127.0.0.1", servers.masters[0].port));
    // Queries to the seeds in sequence would wait for each.
    let late = Late::watch();
    let took = until_up(&store(seeds), Duration::from_secs(20)).await;
    println!("up after {took:?}");
    let most = Duration::from_millis(1500) + late.by().await;
    assert!(took < most, "{took:?} instead of {most:?}");
}
