//! Refusals that a worker remembers, and the work that this saves Redis.

use super::numbers::{SECOND, limit, token_bucket};
use super::under_test::{connect, nothing_near};
use crate::support::{Redis, long};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tollgate::clock::Clock;
use tollgate::store::redis::RedisStore;
use tollgate::store::{Check, MemoryStore, OnDown, SharedStore, Store};
use tollgate::telemetry::metrics::Metrics;

/// The store of one worker of a gateway, in front of Redis.
pub(super) fn gateway(shared: RedisStore) -> Store {
    Store::Shared(SharedStore {
        redis: shared,
        local: Arc::new(MemoryStore::new(Clock::system(), 1000)),
        on_down: OnDown::Closed,
        fleet: Arc::default(),
        metrics: Metrics::new().store(),
        cache: nothing_near(),
    })
}

/// The processor time that the server has used, in seconds.
async fn cpu(redis: &Redis) -> f64 {
    let info: String = redis.command(&["INFO", "cpu"]).await;
    let used = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse::<f64>().unwrap()
    };
    used("used_cpu_user:") + used("used_cpu_sys:")
}

/// Sends an attack: of every twenty requests, nineteen come from clients over their limit, and one from a client that
/// is never over its limit.
async fn attack(
    redis: &Redis,
    rate: u64,
    (tasks, requests): (u64, u64),
    decide: impl AsyncFn(&Check<'_>) + 'static,
) -> f64 {
    let decide = Rc::new(decide);
    // A server that has just started still does other work, so the first round is not measured.
    round(("first", rate), (tasks, requests / 10), &decide).await;
    let mut least = f64::MAX;
    for name in ["second", "third", "fourth"] {
        let before = cpu(redis).await;
        round((name, rate), (tasks, requests), &decide).await;
        least = least.min((cpu(redis).await - before) / requests as f64 * 1e6);
    }
    least
}

async fn round<D: AsyncFn(&Check<'_>) + 'static>(
    (name, rate): (&str, u64),
    (tasks, requests): (u64, u64),
    decide: &Rc<D>,
) {
    let tokens = limit(name, token_bucket(rate, 3600 * SECOND, 10));
    let asking = (0..tasks).map(|task| {
        let (tokens, decide) = (Arc::clone(&tokens), Rc::clone(decide));
        tokio::task::spawn_local(async move {
            for number in 0..requests / tasks {
                let key = match number % 20 {
                    0 => format!("{task}-{}", number / 20 / 10),
                    other => format!("attacker-{}", other % 5),
                };
                decide(&Check::new(&tokens, key.as_bytes())).await;
            }
        })
    });
    for task in asking.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// The cost of a request of the attack to Redis: with a question to Redis for each request, and with remembered
/// refusals.
async fn spent(rate: u64, (tasks, requests): (u64, u64)) -> (f64, f64) {
    let redis = Redis::start().await;
    let store = connect(&redis).await;
    let ask = async move |check: &Check<'_>| drop(store.decide(&[*check]).await.unwrap());
    let always = attack(&redis, rate, (tasks, requests), ask).await;
    let redis = Redis::start().await;
    let store = gateway(connect(&redis).await);
    let Store::Shared(SharedStore { redis: shared, .. }) = &store else {
        panic!("it was made so");
    };
    let stats = shared.stats();
    let begun = Instant::now();
    let ask = async move |check: &Check<'_>| drop(store.decide(&[*check]).await.unwrap());
    let known = attack(&redis, rate, (tasks, requests), ask).await;
    println!(
        "{tasks} at a time: {always:.2} us of Redis a request when always asked, {known:.2} us when refusals are \
         remembered: {:.3}",
        known / always
    );
    // Redis was asked for the other clients' requests, for the attackers' first ones, and for requests that came while
    // these were under way. Whenever a unit has come back, one request asks for all others. On a busy machine more
    // units may have come back, and then all ask.
    let (asked, least) = (stats.decisions.get(), requests / 20 / 10 * 31);
    let again = begun.elapsed().as_secs_f64() * rate as f64 / 3600.0 * 5.0;
    let most = least + 4 * 5 * (11 + tasks) + (again * (1 + tasks) as f64) as u64;
    assert!((least..most).contains(&asked), "{asked} of {requests}");
    (always, known)
}

/// The cost to Redis is printed and not asserted, since it depends on the machine as much as on the code. The number of
/// questions depends on the code alone.
#[tokio::test(flavor = "local")]
async fn of_an_attack_only_the_others_are_asked_about() {
    let requests = if long() { 400_000 } else { 2_000 };
    for (rate, tasks) in [(10, 2), (10, 16), (360_000, 2), (360_000, 16)] {
        let (always, known) = spent(rate, (tasks, requests)).await;
        assert!(always > 0.0 && known > 0.0, "nothing was measured");
    }
}
