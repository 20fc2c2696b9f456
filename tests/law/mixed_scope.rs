//! One decision about limits that a gateway counts alone and limits that all gateways share. The result is the same as
//! if both were in one store.

use super::numbers::{
    CLIENT, SECOND, ask, concurrency, fixed_window, leaky_bucket, limit, sliding_log, token_bucket,
};
use super::stories::dedupe;
use super::under_test::{admitted, connect, nothing_near};
use crate::support::Redis;
use std::sync::Arc;
use std::time::Duration;
use tollgate::clock::Clock;
use tollgate::key::RepeatId;
use tollgate::limit::rate::Rate;
use tollgate::limit::verdict::{Repeat, Ruling, VerdictOutcome, Wait};
use tollgate::limit::{Limit, Mode, Rule, Scope};
use tollgate::store::{
    Amendment, Check, Decider, MemoryStore, OnDown, Reservation, SharedStore, Store, StoreDecision,
    StoreError,
};
use tollgate::telemetry::metrics::Metrics;

const HOUR: u64 = 3600 * SECOND;

/// A gateway's store, for its own counters and for those in a Redis.
struct Both {
    store: Store,
    memory: Arc<MemoryStore>,
    redis: Redis,
}

impl Both {
    async fn new(on_down: OnDown) -> Self {
        let redis = Redis::start().await;
        let memory = Arc::new(MemoryStore::new(Clock::system(), 100_000));
        let store = Store::Shared(SharedStore {
            redis: connect(&redis).await,
            local: Arc::clone(&memory),
            on_down,
            fleet: Arc::default(),
            metrics: Metrics::new().store(),
            cache: nothing_near(),
        });
        Self {
            store,
            memory,
            redis,
        }
    }

    async fn decide(&self, checks: &[Check<'_>]) -> StoreDecision {
        let (decided, _) = self.store.decide(checks).await.unwrap();
        *decided.unwrap()
    }

    async fn left(&self, limit: &Arc<Limit>) -> u64 {
        let decided = self.store.peek(limit, CLIENT).await.unwrap();
        decided.decision.verdicts[0].remaining
    }
}

fn own(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    Arc::new(limit(name, rule).edited(|policy| policy.scope = Scope::Gateway))
}

fn once(limit: Arc<Limit>) -> Arc<Limit> {
    dedupe::once(limit, HOUR, 3)
}

fn with_id(limit: &Arc<Limit>, cost: u64) -> Check<'_> {
    Check {
        id: Some(RepeatId::of("POST", "/pay", cost, b"id")),
        ..ask(limit, cost)
    }
}

/// A limit of ten units for each kind of charge that a refused request may have made.
fn tens() -> Vec<Arc<Limit>> {
    vec![
        own("tokens", token_bucket(10, HOUR, 10)),
        own("meter", leaky_bucket((10, HOUR), 10, 0, 0)),
        own("queue", leaky_bucket((10, HOUR), 1, 9, 2 * HOUR)),
        own("window", fixed_window(10, HOUR)),
        own("log", sliding_log(10, HOUR)),
        own("flight", concurrency(10, HOUR)),
        once(own("once", token_bucket(10, HOUR, 10))),
    ]
}

#[tokio::test(flavor = "local")]
async fn what_the_other_half_refuses_is_charged_in_neither() {
    let both = Both::new(OnDown::Closed).await;
    let shared = limit("shared", fixed_window(3, HOUR));
    for own in tens() {
        both.store.reset(&shared, CLIENT).await.unwrap();
        let checks = [with_id(&own, 2), ask(&shared, 2)];
        let first = both.decide(&checks).await;
        assert!(admitted(&first), "{}", own.name);
        let before = (both.left(&own).await, both.left(&shared).await);
        assert_eq!(before, (8, 1), "{}", own.name);
        // Redis refuses the second request, and this process refuses the third.
        let other = [
            Check {
                id: None,
                ..checks[0]
            },
            checks[1],
        ];
        let refused = both.decide(&other).await.decision;
        assert!(
            matches!(refused.ruling, Ruling::Refuse { by: 1, .. }),
            "{}",
            own.name
        );
        assert_eq!(refused.verdicts[0].remaining, 8, "{}", own.name);
        let dear = [ask(&own, 9), ask(&shared, 1)];
        let refused = both.decide(&dear).await.decision;
        assert!(
            matches!(refused.ruling, Ruling::Refuse { by: 0, .. }),
            "{}",
            own.name
        );
        assert_eq!(refused.verdicts[1].remaining, 1, "{}", own.name);
        assert!(matches!(
            refused.verdicts[1].outcome,
            VerdictOutcome::Admit { .. }
        ));
        assert_eq!((both.left(&own).await, both.left(&shared).await), before);
    }
}

#[tokio::test(flavor = "local")]
async fn the_longest_wait_of_both_is_named_and_every_limit_is_told() {
    let both = Both::new(OnDown::Closed).await;
    let (brief, long) = (
        own("brief", fixed_window(1, HOUR)),
        own("long", fixed_window(1, 3 * HOUR)),
    );
    let shared = limit("shared", fixed_window(1, 2 * HOUR));
    for (checks, named) in [
        ([ask(&brief, 1), ask(&shared, 1)], 1),
        ([ask(&shared, 1), ask(&brief, 1)], 0),
        ([ask(&shared, 1), ask(&long, 1)], 1),
        // `Never` is longer than any other wait.
        ([ask(&shared, 2), ask(&long, 1)], 0),
        ([ask(&shared, 1), ask(&brief, 2)], 1),
    ] {
        for limit in [&brief, &long, &shared] {
            both.store.reset(limit, CLIENT).await.unwrap();
            both.decide(&[ask(limit, 1)]).await;
        }
        let decision = both.decide(&checks).await.decision;
        let Ruling::Refuse { by, wait } = decision.ruling else {
            panic!("{decision:?}");
        };
        assert_eq!(by, named);
        assert_eq!(wait == Wait::Never, checks[named].cost.units() == 2);
        for verdict in &decision.verdicts {
            assert!(
                matches!(verdict.outcome, VerdictOutcome::Refuse(_)),
                "{decision:?}"
            );
            assert_eq!(verdict.remaining, 0);
        }
    }
}

#[tokio::test(flavor = "local")]
async fn limits_of_its_own_alone_ask_no_redis_and_outlive_it() {
    let mut both = Both::new(OnDown::Closed).await;
    let alone = own("alone", token_bucket(4, HOUR, 4));
    let shared = limit("shared", token_bucket(4, HOUR, 4));
    for expected in [true, true] {
        let (decided, by) = both.store.decide(&[ask(&alone, 1)]).await.unwrap();
        assert_eq!(
            (admitted(&decided.unwrap()), by),
            (expected, Decider::Memory)
        );
    }
    let Store::Shared(SharedStore { redis: asked, .. }) = &both.store else {
        panic!("it was made so");
    };
    assert_eq!(asked.stats().decisions.get(), 0);
    assert!(both.redis.keys().await.is_empty());
    both.redis.kill().await;
    let (decided, _) = both.store.decide(&[ask(&alone, 1)]).await.unwrap();
    assert!(admitted(&decided.unwrap()));
    // If another limit cannot be asked, the charge is given back.
    let error = both.store.decide(&[ask(&alone, 1), ask(&shared, 1)]).await;
    assert!(error.is_err());
    assert_eq!(both.left(&alone).await, 1);
    // A refusal by this gateway holds, whatever Redis would have answered.
    let (decided, by) = both
        .store
        .decide(&[ask(&shared, 1), ask(&alone, 2)])
        .await
        .unwrap();
    let decided = decided.unwrap();
    assert!(matches!(
        decided.decision.ruling,
        Ruling::Refuse { by: 1, .. }
    ));
    assert_eq!(
        (by, decided.decider(&shared)),
        (Decider::Closed, Some(Decider::Closed))
    );
    assert!(!decided.is_known(&shared) && decided.is_known(&alone));
}

#[tokio::test(flavor = "local")]
async fn its_own_counters_are_not_those_of_an_outage() {
    for on_down in [OnDown::Local, OnDown::Open] {
        let mut both = Both::new(on_down).await;
        both.redis.kill().await;
        let rule = || token_bucket(2, HOUR, 2);
        // One name in two scopes, as after a change of the file.
        let (alone, shared) = (own("l", rule()), limit("l", rule()));
        let other = own("other", token_bucket(9, HOUR, 9));
        for _ in 0..2 {
            assert!(admitted(
                &both.decide(&[ask(&shared, 1), ask(&other, 1)]).await
            ));
        }
        assert_eq!(both.left(&alone).await, 2, "{on_down:?}");
        let last = both.decide(&[ask(&shared, 1), ask(&other, 1)]).await;
        assert_eq!(admitted(&last), on_down == OnDown::Open);
        assert_eq!(!last.is_whole(), on_down == OnDown::Open);
        let charged = if admitted(&last) { 3 } else { 2 };
        assert_eq!(both.left(&other).await, 9 - charged, "{on_down:?}");
    }
}

#[tokio::test(flavor = "local")]
async fn tickets_of_both_halves_go_back_where_they_came_from() {
    let both = Both::new(OnDown::Closed).await;
    let shared = limit("shared", token_bucket(10, HOUR, 10));
    for own in tens() {
        let checks = [with_id(&own, 3), ask(&shared, 3)];
        let (decided, _) = both.store.decide(&checks).await.unwrap();
        let decided = decided.unwrap();
        assert_eq!((both.left(&own).await, both.left(&shared).await), (7, 7));
        for (index, check) in checks.iter().enumerate() {
            let charge = decided.reservation(index, check).unwrap();
            both.store.amend(&charge, Amendment::Renewal);
            let at = decided.decision.at.plus(60_000_000);
            let late = Reservation { at, ..charge };
            both.store.amend(&late, Amendment::Cancellation);
        }
        both.store.settle().await;
        assert_eq!(
            (both.left(&own).await, both.left(&shared).await),
            (10, 10),
            "{}",
            own.name
        );
    }
    assert!(both.memory.is_empty());
}

#[tokio::test(flavor = "local")]
async fn whoever_leaves_before_the_answer_has_taken_nothing_here() {
    let both = Both::new(OnDown::Closed).await;
    let shared = limit("shared", token_bucket(10, HOUR, 10));
    let limits = tens();
    both.redis.freeze();
    for own in &limits {
        let checks = [with_id(own, 4), ask(&shared, 1)];
        let asking = both.store.decide(&checks);
        let left = tokio::time::timeout(Duration::from_millis(20), asking).await;
        assert!(left.is_err());
    }
    both.redis.thaw();
    for own in &limits {
        assert_eq!(both.left(own).await, 10, "{}", own.name);
    }
    assert!(both.memory.is_empty());
}

#[tokio::test(flavor = "local")]
async fn a_repeat_that_redis_refuses_was_none() -> Result<(), StoreError> {
    let both = Both::new(OnDown::Closed).await;
    let shared = limit("shared", fixed_window(2, HOUR));
    let own = once(own("once", token_bucket(10, HOUR, 10)));
    let checks = [with_id(&own, 3), ask(&shared, 1)];
    for repeat in [Repeat::First, Repeat::Free] {
        let decided = both.decide(&checks).await;
        assert_eq!(decided.measured(0).unwrap().repeat, repeat);
    }
    for _ in 0..5 {
        let refused = both.decide(&checks).await;
        assert!(!admitted(&refused));
        assert_eq!(refused.decision.verdicts[0].remaining, 7);
    }
    // Two repeats may go free. Then the record is reset.
    both.store.reset(&shared, CLIENT).await?;
    for repeat in [Repeat::Free, Repeat::Free] {
        let decided = both.decide(&checks).await;
        assert_eq!(decided.measured(0).unwrap().repeat, repeat);
    }
    both.store.reset(&shared, CLIENT).await?;
    assert_eq!(
        both.decide(&checks).await.measured(0).unwrap().repeat,
        Repeat::No
    );
    Ok(())
}

#[tokio::test(flavor = "local")]
async fn what_only_counts_goes_with_the_request_in_either_half() {
    let both = Both::new(OnDown::Closed).await;
    let beside = |limit: Arc<Limit>| Arc::new(limit.edited(|policy| policy.mode = Mode::Shadow));
    let (here, there) = (
        beside(own("here", token_bucket(10, HOUR, 10))),
        beside(limit("there", token_bucket(10, HOUR, 10))),
    );
    let (one, two) = (
        own("one", token_bucket(10, HOUR, 10)),
        limit("two", fixed_window(2, HOUR)),
    );
    let checks = [ask(&one, 1), ask(&two, 1), ask(&here, 6), ask(&there, 6)];
    let mut left = Vec::new();
    for _ in 0..3 {
        let decided = both.decide(&checks).await;
        let charged = [2, 3].map(|index| decided.reservation(index, &checks[index]).is_some());
        left.push((
            admitted(&decided),
            charged,
            both.left(&here).await,
            both.left(&there).await,
            both.left(&one).await,
        ));
    }
    // The shadow limits have no room for the second request. A shared limit refuses the third.
    assert_eq!(
        left,
        [
            (true, [true, true], 4, 4, 9),
            (true, [false, false], 4, 4, 8),
            (false, [false, false], 4, 4, 8),
        ]
    );
    // The first request is refused by the gateway's own limit. The second is refused by the shared limit, after the own
    // limit was charged.
    for check in [ask(&one, 99), ask(&two, 99)] {
        let other = if check.limit.name == one.name {
            checks[1]
        } else {
            checks[0]
        };
        let decided = both
            .decide(&[check, other, ask(&here, 1), ask(&there, 1)])
            .await;
        assert!(!admitted(&decided));
        assert_eq!((both.left(&here).await, both.left(&there).await), (4, 4));
    }
}
