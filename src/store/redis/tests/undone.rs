//! Repeated and concurrent requests over several slots of which one refuses: the charges of the other slots are given
//! back.

use super::clusters::Servers;
use super::masters::{admitted, key_on};
use super::support::{
    fixed_window, leaky_bucket, limit, sliding_log, sliding_window, token_bucket,
};
use crate::clock::Timestamp;
use crate::key::{IdField, RepeatId, Sameness};
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::limit::verdict::Repeat;
use crate::limit::{LeaseSetting, Limit};
use crate::store::check::Check;
use crate::store::redis::RedisStore;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
const DAY: u64 = 86_400_000_000;

async fn left(store: &RedisStore, at: Option<Timestamp>, limit: &Arc<Limit>, key: &str) -> u64 {
    let peek = [Check {
        cost: Cost::ZERO,
        ..Check::new(limit, key.as_bytes())
    }];
    let outcome = match at {
        Some(at) => store.at(at).decide(&peek).await,
        None => store.decide(&peek).await,
    };
    outcome.unwrap().decision.verdicts[0].remaining
}

pub(super) async fn refusals_take_nothing(servers: &Servers) {
    let store = servers.store().await;
    let unleased =
        |limit: Arc<Limit>| Arc::new(limit.edited(|policy| policy.leasing = LeaseSetting::Off));
    let shared = [
        limit("tokens", token_bucket(900, DAY, 900)),
        limit("leased", token_bucket(1000, DAY, 1000)),
        limit("quick", token_bucket(1000, 10_000_000, 1000)),
        limit("meter", leaky_bucket(900, DAY, 900, 0, 0)),
        limit("fast", token_bucket(50, 1_000_000, 50)),
        unleased(limit("faster", token_bucket(5000, 1_000_000, 5000))),
        limit("window", fixed_window(900, DAY)),
        limit("parts", sliding_window(900, DAY, 6, false)),
    ];
    let empty = limit("empty", fixed_window(1, DAY));
    for limit in &shared {
        let (a, b) = (key_on(servers, limit, 0), key_on(servers, &empty, 1));
        one_after_the_other(&store, limit, &empty, (&a, &b)).await;
    }
    for limit in &shared {
        servers.flush();
        let (a, b) = (key_on(servers, limit, 0), key_on(servers, &empty, 1));
        many_at_once(&store, limit, &empty, (&a, &b)).await;
    }
}

/// A repeat that another slot refuses was not free: later as many are free as the limit states, and the charge that
/// they depend on is still present.
pub(super) async fn refused_repeats_do_not_count(servers: &Servers) {
    let store = servers.store().await;
    let dedupe = Dedupe {
        field: IdField(http::HeaderName::from_static("id")),
        ttl: 600_000_000,
        repeats: 2,
        of: Sameness::Path,
    };
    let rules = [
        token_bucket(100, DAY, 100),
        fixed_window(100, DAY),
        sliding_log(100, DAY),
        leaky_bucket(1, 1_000_000, 1, 50, 60_000_000),
    ];
    for (nth, rule) in rules.into_iter().enumerate() {
        let once = limit(&format!("once-{nth}"), rule);
        let once = Arc::new(once.edited(|policy| policy.dedupe = Some(dedupe.clone())));
        let all = limit(&format!("all-{nth}"), fixed_window(1, 1_000_000));
        let (a, b) = (key_on(servers, &once, 0), key_on(servers, &all, 1));
        let both = [
            Check {
                id: Some(RepeatId::of("POST", "/pay", 1, b"one")),
                ..Check::new(&once, a.as_bytes())
            },
            Check::new(&all, b.as_bytes()),
        ];
        let mut seen = Vec::new();
        // In each second the first request is admitted.
        for tenth in [0, 1, 2, 10, 11, 12, 20, 21, 30] {
            let now = NOW.plus(tenth * 100_000);
            let decided = store.at(now).decide(&both).await.unwrap();
            let repeat = decided.measured(0).unwrap().repeat;
            seen.push((admitted(&decided), repeat));
        }
        let free = |passes| (passes, Repeat::Free);
        let expected = [
            (true, Repeat::First),
            free(false),
            free(false),
            free(true),
            free(false),
            free(false),
            free(true),
            // Both were free: this one is charged, and its charge is given back.
            (false, Repeat::No),
            (true, Repeat::No),
        ];
        assert_eq!(seen, expected, "{}", once.name);
    }
}

/// With a clock of the test: no unit is missing.
async fn one_after_the_other(
    store: &RedisStore,
    limit: &Arc<Limit>,
    empty: &Arc<Limit>,
    (a, b): (&str, &str),
) {
    let both = [
        Check::new(limit, a.as_bytes()),
        Check::new(empty, b.as_bytes()),
    ];
    let first = store.at(NOW).decide(&both).await.unwrap();
    assert!(admitted(&first), "{}", limit.name);
    // Half of the bucket is used, so that it is not empty in the meantime.
    let partial = Check {
        cost: Cost::new(limit.rule.most() / 2),
        ..both[0]
    };
    assert!(admitted(&store.at(NOW).decide(&[partial]).await.unwrap()));
    // By the counter's history, no gateway has had permits for that long.
    let later = NOW.plus(150_000);
    let before = left(store, Some(later), limit, a).await;
    for _ in 0..50 {
        let refused = store.at(later).decide(&both).await.unwrap();
        assert!(!admitted(&refused));
    }
    let after = left(store, Some(later), limit, a).await;
    assert_eq!(after, before, "{}", limit.name);
    store.reset(empty, b.as_bytes()).await.unwrap();
}

/// Sixteen clients over their limit, for some time, and one that is admitted occasionally.
async fn many_at_once(
    store: &RedisStore,
    limit: &Arc<Limit>,
    empty: &Arc<Limit>,
    (a, b): (&str, &str),
) {
    let used = [Check::new(empty, b.as_bytes())];
    assert!(admitted(&store.decide(&used).await.unwrap()));
    // Half of the bucket is used, so that it is not empty in the meantime.
    let most = limit.rule.most();
    let partial = Check {
        cost: Cost::new(most / 2),
        ..Check::new(limit, a.as_bytes())
    };
    assert!(admitted(&store.decide(&[partial]).await.unwrap()));
    let both = [Check::new(limit, a.as_bytes()), used[0]];
    assert!(!admitted(&store.decide(&both).await.unwrap()));
    // By the counter's history, no gateway has had permits for that long.
    tokio::time::sleep(Duration::from_millis(120)).await;
    let before = left(store, None, limit, a).await;
    let over = Instant::now() + Duration::from_millis(300);
    let clients = (0..16).map(|_| {
        let (store, limit, empty) = (store.clone(), Arc::clone(limit), Arc::clone(empty));
        let (a, b) = (a.to_owned(), b.to_owned());
        tokio::task::spawn_local(async move {
            let mut refused = 0;
            while Instant::now() < over {
                let both = [
                    Check::new(&limit, a.as_bytes()),
                    Check::new(&empty, b.as_bytes()),
                ];
                assert!(!admitted(&store.decide(&both).await.unwrap()));
                refused += 1;
            }
            refused
        })
    });
    let mut refused: u64 = 0;
    for client in clients.collect::<Vec<_>>() {
        refused += client.await.unwrap();
    }
    store.settle().await;
    assert!(refused > 100, "{refused}");
    let after = left(store, None, limit, a).await;
    println!(
        "{}: {refused} refused, {before} before, {after} after",
        limit.name
    );
    // Units that return by themselves only increase the remainder.
    assert!(after >= before, "{}: {before} and {after}", limit.name);
}
