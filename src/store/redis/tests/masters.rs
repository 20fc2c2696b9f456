//! A cluster whose masters stay: decisions in one slot and in several, and slots that move.

use super::clusters::Servers;
use super::moving::{new_ids_wait_for_the_end_of_a_move, slots_move};
use super::support::{
    concurrency, fixed_window, leaky_bucket, limit, sliding_log, sliding_window, token_bucket,
};
use super::undone::{refusals_take_nothing, refused_repeats_do_not_count};
use crate::clock::{Clock, Timestamp};
use crate::key::IdField;
use crate::limit::Limit;
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::limit::verdict::Ruling;
use crate::store::check::{Check, Intent};
use crate::store::decider::Decider;
use crate::store::decision::StoreDecision;
use crate::store::memory::MemoryStore;
use crate::store::redis::slot_of;
use crate::store::reservation::Amendment;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

pub(super) fn admitted(decided: &StoreDecision) -> bool {
    matches!(decided.decision.ruling, Ruling::Admit { .. })
}

/// A key of `limit` on that master.
pub(super) fn key_on(servers: &Servers, limit: &Limit, master: usize) -> String {
    let mut keys = (0..).map(|number| format!("key-{number}"));
    let found = keys.find(|key| servers.home(slot_of(limit, key.as_bytes())) == master);
    found.unwrap()
}

/// One cluster serves all of these tests: none of them leaves data behind.
#[tokio::test(flavor = "local")]
async fn a_cluster_is_one_store() {
    let servers = Servers::start(3, false, &[]);
    as_in_memory(&servers).await;
    servers.flush();
    all_or_none(&servers).await;
    servers.flush();
    never_too_much(&servers).await;
    servers.flush();
    less_for_a_moment(&servers).await;
    servers.flush();
    refusals_take_nothing(&servers).await;
    servers.flush();
    refused_repeats_do_not_count(&servers).await;
    servers.flush();
    who_leaves(&servers).await;
    servers.flush();
    forgotten_scripts(&servers).await;
    servers.flush();
    under_one_tag(&servers).await;
    servers.flush();
    new_ids_wait_for_the_end_of_a_move(&servers).await;
    servers.flush();
    slots_move(&servers).await;
}

/// Random histories of requests in one slot each, by a clock of the test's.
async fn as_in_memory(servers: &Servers) {
    let store = servers.store().await;
    let memory = MemoryStore::for_one_thread(Clock::manual(NOW));
    let limits = [
        limit("bucket", token_bucket(7, 3_000_000, 5)),
        limit("queue", leaky_bucket(7, 3_000_000, 1, 5, 9_000_000)),
        limit("window", fixed_window(6, 2_000_000)),
        limit("parts", sliding_window(6, 4_000_000, 4, false)),
        limit("log", sliding_log(5, 2_000_000)),
    ];
    let mut random = fastrand::Rng::with_seed(9);
    let mut now = NOW;
    let mut refused = 0;
    for step in 0..1_500 {
        now = now.plus(random.u64(0..60_000));
        let key = format!("10.0.0.{}", random.u32(0..12));
        let checks: Vec<Check<'_>> = limits
            .iter()
            .filter_map(|limit| {
                let cost = Cost::new(random.u64(1..3));
                let check = Check::new(limit, key.as_bytes());
                random.bool().then_some(Check { cost, ..check })
            })
            .collect();
        let decided = store.at(now).decide(&checks).await.unwrap();
        let expected = memory
            .at(now)
            .measure(&checks, Intent::Charge, Decider::Redis);
        let expected = StoreDecision::of(&checks, expected);
        assert_eq!(decided, expected, "step {step}: {checks:?}");
        refused += usize::from(!admitted(&decided));
        // Some of the charges are refunded.
        if admitted(&decided) && random.u32(0..4) == 0 {
            for (index, check) in checks.iter().enumerate() {
                let Some(charge) = decided.reservation(index, check) else {
                    continue;
                };
                memory.at(now).amend(&charge, Amendment::Cancellation);
                store.at(now).amend(&charge, Amendment::Cancellation);
            }
            store.settle().await;
        }
    }
    assert!(refused > 100, "{refused}");
    let calls: Vec<u64> = servers
        .masters
        .iter()
        .map(|master| master.client().script_calls().0)
        .collect();
    assert!(calls.iter().all(|calls| *calls > 50), "{calls:?}");
    assert_eq!(store.stats().failures.get(), 0);
}

/// A request over three masters of which one refuses leaves the others unchanged.
async fn all_or_none(servers: &Servers) {
    let store = servers.store().await;
    let rules = [
        limit("bucket", token_bucket(100, 1_000_000, 100)),
        limit("window", fixed_window(100, 60_000_000)),
        limit("narrow", fixed_window(2, 60_000_000)),
    ];
    let keys: Vec<String> = (0..3)
        .map(|master| key_on(servers, &rules[master], master))
        .collect();
    let checks: Vec<Check<'_>> = rules
        .iter()
        .zip(&keys)
        .map(|(limit, key)| Check::new(limit, key.as_bytes()))
        .collect();
    for _ in 0..2 {
        assert!(admitted(&store.at(NOW).decide(&checks).await.unwrap()));
    }
    assert_eq!(servers.keys().len(), 3);
    for _ in 0..20 {
        let decided = store.at(NOW).decide(&checks).await.unwrap();
        assert!(matches!(
            decided.decision.ruling,
            Ruling::Refuse { by: 2, .. }
        ));
        let left: Vec<u64> = decided
            .decision
            .verdicts
            .iter()
            .map(|verdict| verdict.remaining)
            .collect();
        assert_eq!(left, [98, 98, 0], "each says where it stands");
    }
    // All charges were taken back.
    let decided = store.at(NOW.plus(60_000_000)).decide(&checks).await;
    let decided = decided.unwrap();
    for (index, check) in checks.iter().enumerate() {
        let charge = decided.reservation(index, check).unwrap();
        let later = store.at(NOW.plus(60_000_000));
        later.amend(&charge, Amendment::Refund);
    }
    store.settle().await;
    let decided = store.at(NOW.plus(60_000_000)).decide(&checks).await;
    let left = decided.unwrap().decision.verdicts;
    assert_eq!(left[1].remaining, 99);
    assert_eq!(left[2].remaining, 1);
}

/// Many requests at once, through two gateways, with costs and ids: in the end the charges equal the admissions.
async fn never_too_much(servers: &Servers) {
    let stores = [servers.store().await, servers.store().await];
    let narrow = limit("narrow", fixed_window(60, 3_600_000_000));
    let wide = limit("wide", fixed_window(10_000, 3_600_000_000));
    let log = limit("log", sliding_log(500, 3_600_000_000));
    let (mut admitted_in_all, mut asked) = (0_u64, 0_u64);
    let begun = Instant::now();
    let before = script_calls(servers);
    while asked < 2_000 {
        let tasks: Vec<_> = (0..100)
            .map(|number: usize| {
                let store = stores[number % 2].clone();
                let (narrow, wide, log) = (narrow.clone(), wide.clone(), log.clone());
                tokio::task::spawn_local(async move {
                    let checks = [
                        Check::new(&wide, b"w"),
                        Check::new(&narrow, b"n"),
                        Check::new(&log, b"l"),
                    ];
                    store.decide(&checks).await
                })
            })
            .collect();
        for task in tasks {
            admitted_in_all += u64::from(admitted(&task.await.unwrap().unwrap()));
            asked += 1;
        }
    }
    let calls = (script_calls(servers) - before) as f64;
    println!(
        "{asked} asked in {:?}, {:.2} calls each",
        begun.elapsed(),
        calls / asked as f64
    );
    for store in &stores {
        store.settle().await;
        assert_eq!(store.stats().refunds_lost.get(), 0);
    }
    // No other request can take units for a moment now: all units are available.
    let checks = |limit| [Check::new(limit, b"n")];
    while admitted(&stores[0].decide(&checks(&narrow)).await.unwrap()) {
        admitted_in_all += 1;
    }
    assert_eq!(admitted_in_all, 60, "exactly as many as there are");
    let zero = |limit, key| Check {
        cost: Cost::ZERO,
        ..Check::new(limit, key)
    };
    let wide_left = stores[0].decide(&[zero(&wide, b"w")]).await.unwrap();
    let log_left = stores[0].decide(&[zero(&log, b"l")]).await.unwrap();
    let taken = 10_000 - wide_left.decision.verdicts[0].remaining;
    assert_eq!(500 - log_left.decision.verdicts[0].remaining, taken);
    assert!(taken <= 60, "{taken}");
}

/// Units that a refused request took from another slot are missing there until they are given back, and no longer.
async fn less_for_a_moment(servers: &Servers) {
    let store = servers.store().await;
    let shared = limit("shared", fixed_window(4, 3_600_000_000));
    let empty = limit("empty", fixed_window(1, 3_600_000_000));
    let (a, b) = (key_on(servers, &shared, 0), key_on(servers, &empty, 1));
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let both = [Check::new(&shared, a), Check::new(&empty, b)];
    let first = store.decide(&both).await.unwrap();
    let charge = first.reservation(0, &both[0]).unwrap();
    store.amend(&charge, Amendment::Refund);
    store.settle().await;
    let (mut missed, mut longest, rounds) = (0, Duration::ZERO, 200);
    for _ in 0..rounds {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (store, shared, empty) = (store.clone(), shared.clone(), empty.clone());
                let (a, b) = (a.to_vec(), b.to_vec());
                tokio::task::spawn_local(async move {
                    let both = [Check::new(&shared, &a), Check::new(&empty, &b)];
                    assert!(!admitted(&store.decide(&both).await.unwrap()));
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let mut refused_calls = 0;
        let decided = loop {
            let decided = store.decide(&[Check::new(&shared, a)]).await.unwrap();
            if admitted(&decided) {
                break decided;
            }
            refused_calls += 1;
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "it does not come back"
            );
        };
        missed += usize::from(refused_calls > 0);
        if refused_calls > 0 {
            longest = longest.max(begun.elapsed());
        }
        for task in tasks {
            task.await.unwrap();
        }
        let charge = decided.reservation(0, &Check::new(&shared, a)).unwrap();
        store.amend(&charge, Amendment::Refund);
        store.settle().await;
    }
    println!("{missed} of {rounds} found less than there was, for {longest:?} at most");
    let zero = Check {
        cost: Cost::ZERO,
        ..Check::new(&shared, a)
    };
    let left = store.decide(&[zero]).await.unwrap();
    assert_eq!(left.decision.verdicts[0].remaining, 4, "all of it is back");
}

/// A leaving request is charged nothing if it is refused, keeps no slot, and pays if it is admitted.
async fn who_leaves(servers: &Servers) {
    let store = servers.store().await;
    let wide = limit("wide", fixed_window(100, 3_600_000_000));
    let flying = limit("flying", concurrency(9, 600_000_000));
    let narrow = limit("narrow", fixed_window(1, 3_600_000_000));
    let keys = [&wide, &flying, &narrow].map(|limit| limit.name.clone());
    let (a, b) = (key_on(servers, &wide, 0), key_on(servers, &wide, 1));
    let c = key_on(servers, &wide, 2);
    let checks = [
        Check::new(&wide, a.as_bytes()),
        Check::new(&flying, b.as_bytes()),
        Check::new(&narrow, c.as_bytes()),
    ];
    let left = async |limit: &Arc<Limit>, key: &str| {
        let peek = Check {
            cost: Cost::ZERO,
            ..Check::new(limit, key.as_bytes())
        };
        let decided = store.decide(&[peek]).await.unwrap();
        decided.decision.verdicts[0].remaining
    };
    for (round, expected) in [(0, [99, 9, 0]), (1, [99, 9, 0])] {
        let mut asking = Box::pin(store.decide(&checks));
        let asked = std::future::poll_fn(|context| {
            let _ = asking.as_mut().poll(context);
            std::task::Poll::Ready(())
        });
        asked.await;
        drop(asking);
        store.settle().await;
        let now = [
            left(&wide, &a).await,
            left(&flying, &b).await,
            left(&narrow, &c).await,
        ];
        assert_eq!(now, expected, "round {round} of {keys:?}");
    }
}

/// A master that was restarted, or flushed, has no script.
async fn forgotten_scripts(servers: &Servers) {
    let store = servers.store().await;
    let one = limit("one", token_bucket(1000, 600_000_000, 1000));
    let dedupe = Dedupe {
        field: IdField(http::HeaderName::from_static("id")),
        ttl: 60_000_000,
        repeats: 1,
        of: crate::key::Sameness::Path,
    };
    let once = limit("once", fixed_window(100, 60_000_000));
    let once = Arc::new(once.edited(|policy| policy.dedupe = Some(dedupe)));
    for round in 0..3 {
        servers.masters[round].client().say("SCRIPT FLUSH");
        let keys: Vec<String> = (0..30).map(|number| format!("{round}-{number}")).collect();
        let asked = keys.iter().map(|key| {
            let (store, one, once) = (store.clone(), one.clone(), once.clone());
            let key = key.clone();
            tokio::task::spawn_local(async move {
                let checks = [Check::new(&one, key.as_bytes()), Check::new(&once, b"all")];
                store.decide(&checks).await
            })
        });
        for task in asked.collect::<Vec<_>>() {
            assert!(admitted(&task.await.unwrap().unwrap()));
        }
    }
    assert_eq!(store.stats().falls.get(), 0);
    assert!(store.reset(&one, b"0-0").await.unwrap());
    assert!(!store.reset(&one, b"0-0").await.unwrap());
}

/// Limits with one tag are decided by one call, for any keys.
async fn under_one_tag(servers: &Servers) {
    let store = servers.store().await;
    let with =
        |limit: Arc<Limit>| Arc::new(limit.edited(|policy| policy.with = Some("shop".into())));
    let wide = with(limit("wide", fixed_window(100, 60_000_000)));
    let narrow = with(limit("narrow", fixed_window(2, 60_000_000)));
    assert_eq!(slot_of(&wide, b"a"), slot_of(&narrow, b""));
    let before: u64 = script_calls(servers);
    for round in 0..5 {
        let checks = [Check::new(&wide, b"a"), Check::new(&narrow, b"")];
        let decided = store.decide(&checks).await.unwrap();
        assert_eq!(admitted(&decided), round < 2);
    }
    assert_eq!(script_calls(servers) - before, 5);
    assert_eq!(
        servers.keys(),
        [
            "tollgate:1:narrow:fw60000000:{shop}{*}",
            "tollgate:1:wide:fw60000000:{shop}{a}"
        ]
    );
    assert_eq!(store.stats().refunds.get(), 0);
    assert_eq!(
        store.clear().await.unwrap(),
        2 + 3,
        "and each master's probe"
    );
}

fn script_calls(servers: &Servers) -> u64 {
    let masters = servers.masters.iter();
    masters.map(|master| master.client().script_calls().0).sum()
}
