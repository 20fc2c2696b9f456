//! A cluster whose masters fail: replicas take over, and requests of unserved slots are answered without a store, at
//! once.

use super::clusters::{Servers, command_text, eventually};
use super::support::{Late, Server, at_once, fixed_window, limit, until_up};
use crate::clock::Clock;
use crate::limit::rate::Cost;
use crate::limit::verdict::Ruling;
use crate::limit::{Limit, OnDown};
use crate::store::check::Check;
use crate::store::decision::StoreDecision;
use crate::store::error::StoreError;
use crate::store::invalidation::Invalidation;
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisStore, slot_of};
use crate::store::reservation::Amendment;
use crate::store::settings::StoreSettings;
use crate::store::worker_cache::WorkerCache;
use crate::store::{Decider, SharedStore, Store};
use crate::telemetry::metrics::Metrics;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client's answer, and the time that it took.
async fn ask(
    store: &RedisStore,
    limit: &Arc<Limit>,
    key: &str,
) -> (Result<bool, StoreError>, Duration) {
    let begun = Instant::now();
    let outcome = store.decide(&[Check::new(limit, key.as_bytes())]).await;
    let admitted = outcome.map(|decided| matches!(decided.decision.ruling, Ruling::Admit { .. }));
    (admitted, begun.elapsed())
}

fn keys(servers: &Servers, limit: &Limit) -> Vec<String> {
    let on = |master| {
        let mut keys = (0..).map(|number| format!("key-{number}"));
        let found = keys.find(|key| servers.home(slot_of(limit, key.as_bytes())) == master);
        found.unwrap()
    };
    (0..servers.masters.len()).map(on).collect()
}

/// A request with limits on two masters, one of which is unavailable: the other's answer counts, and `on_down` decides
/// the rest.
async fn what_is_known_holds(store: &RedisStore, keys: &[String]) {
    let with = |on_down| {
        Store::Shared(SharedStore {
            redis: store.clone(),
            local: Arc::new(MemoryStore::for_one_thread(Clock::system())),
            on_down,
            fleet: Arc::default(),
            metrics: Metrics::new().store(),
            cache: WorkerCache::new(
                Invalidation::default(),
                StoreSettings::default().timeout,
                Clock::system(),
            ),
        })
    };
    let here = limit("here", fixed_window(10, 3_600_000_000));
    let full = limit("full", fixed_window(1, 3_600_000_000));
    let there = limit("there", fixed_window(1, 3_600_000_000));
    let (one_key, other_key) = (keys[0].as_bytes(), keys[1].as_bytes());
    let left = async || {
        store.settle().await;
        let zero = Check {
            cost: Cost::ZERO,
            ..Check::new(&here, one_key)
        };
        let outcome = store.decide(&[zero]).await.unwrap();
        outcome.decision.verdicts[0].remaining
    };
    let checks = [Check::new(&here, one_key), Check::new(&there, other_key)];
    let admits = |decided: &Option<Box<StoreDecision>>| {
        let ruling = decided.as_ref().unwrap().decision.ruling;
        matches!(ruling, Ruling::Admit { .. })
    };

    let open = with(OnDown::Open);
    let (decided, by) = open.decide(&checks).await.unwrap();
    assert!(admits(&decided) && by == Decider::Redis);
    let decided = decided.unwrap();
    assert!(decided.is_known(&here) && !decided.is_known(&there));
    assert!(decided.reservation(1, &checks[1]).is_none());
    assert_eq!(left().await, 9);
    let both = [Check::new(&full, one_key), Check::new(&there, other_key)];
    assert!(admits(&open.decide(&both).await.unwrap().0));
    assert!(!admits(&open.decide(&both).await.unwrap().0), "it is full");

    assert!(with(OnDown::Closed).decide(&checks).await.is_err());
    assert_eq!(left().await, 9, "charged nothing");

    let local = with(OnDown::Local);
    let (decided, _) = local.decide(&checks).await.unwrap();
    assert!(admits(&decided));
    let charge = decided.unwrap().reservation(1, &checks[1]).unwrap();
    assert!(matches!(charge.by, Decider::Local { .. }));
    assert!(!admits(&local.decide(&checks).await.unwrap().0));
    assert_eq!(
        left().await,
        8,
        "a refusal here gives back what was charged there"
    );
    local.amend(&charge, Amendment::Refund);
    assert!(admits(&local.decide(&checks).await.unwrap().0));
}

#[tokio::test(flavor = "local")]
async fn a_replica_takes_over_and_half_a_cluster_is_away() {
    let mut servers = Servers::start(3, true, &["--cluster-require-full-coverage", "no"]);
    let settings = StoreSettings {
        timeout: Duration::from_millis(300),
        ..servers.settings()
    };
    let store = RedisStore::new(&servers.target(), &settings);
    until_up(&store, Duration::from_secs(10)).await;
    let window = limit("window", fixed_window(1_000_000, 3_600_000_000));
    let keys = keys(&servers, &window);
    for key in &keys {
        assert_eq!(ask(&store, &window, key).await.0, Ok(true));
    }
    let replicated = |servers: &Servers| {
        let replicas = servers.replicas.iter();
        let mut sizes = replicas.map(|node| command_text(node, "DBSIZE"));
        sizes.all(|size| !size.contains("(0)"))
    };
    eventually("the replicas have it", || replicated(&servers));

    // One master dies. Its keys are unavailable at once; the other keys stay served.
    servers.masters[1].kill();
    let (begun, late) = (Instant::now(), Late::watch());
    while ask(&store, &window, &keys[1]).await.0.is_ok() {}
    what_is_known_holds(&store, &keys).await;
    let (mut away, mut worst) = (0, Duration::ZERO);
    loop {
        for (index, key) in keys.iter().enumerate() {
            let (outcome, took) = ask(&store, &window, key).await;
            match index {
                1 => {
                    away += usize::from(outcome.is_err());
                    worst = worst.max(took);
                    if outcome == Ok(true) && away > 0 {
                        away = usize::MAX;
                    }
                }
                _ => assert_eq!(outcome, Ok(true), "{key} lives elsewhere"),
            }
            if away == usize::MAX {
                break;
            }
        }
        if away == usize::MAX {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "nobody takes over"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!(
        "served again after {:?}, worst wait {worst:?}",
        begun.elapsed()
    );
    let most = Duration::from_millis(800) + late.by().await;
    assert!(worst < most, "{worst:?} instead of {most:?}");
    // The replica continues to count: no write that it received is lost.
    let outcome = store
        .decide(&[Check::new(&window, keys[1].as_bytes())])
        .await;
    let left = outcome.unwrap().decision.verdicts[0].remaining;
    assert!(left <= 1_000_000 - 2, "{left}");
    until_up(&store, Duration::from_secs(20)).await;

    // The killed master returns as a replica of the new one, and is killed again; then two more are killed.
    let more = std::mem::take(&mut servers.replicas);
    let mut more: Vec<Server> = more.into_iter().collect();
    servers.masters[0].kill();
    more[0].kill();
    servers.masters[2].kill();
    // The new master is left without the others and serves nothing.
    let begun = Instant::now();
    for key in &keys {
        loop {
            if ask(&store, &window, key).await.0.is_err() {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "a minority serves"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(!store.is_up());
    let (outcome, _) = at_once(ask(&store, &window, &keys[0]));
    assert!(outcome.is_err(), "{outcome:?}");
}
