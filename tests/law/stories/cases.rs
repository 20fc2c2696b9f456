//! Cases from the test suites of other limiters that no vector and no other story contains. `tests/law/README.md` lists
//! all of them.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, limit, sliding_log, sliding_window,
    token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, wait};
use crate::support::{PATIENCE, Redis, eventually};
use ::redis::Value;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{GrantedUnits, Wait};
use tollgate::limit::{Limit, Rule};
use tollgate::store::Check;

told_to_both! {
    thirty_within_a_tenth_of_a_second_meet_ten_tokens_and_one_more
    five_a_second_and_costs_of_one_two_and_three
    a_thousand_a_second_waits_a_millisecond_at_most
    a_hundred_microseconds_are_a_life
    ten_obedient_ones_at_one_in_five_seconds
    four_hundred_a_second_against_a_hundred
    a_minute_by_the_clock_ends_with_it
    lowered_after_two_and_raised_after_five
    best_effort_gives_what_is_there
    more_comes_back_than_there_is
    a_second_refusal_lengthens_nothing
    methods_may_count_apart
    a_limit_that_is_gone_and_comes_back
}

fn millis(millis: u64) -> Timestamp {
    NOON.plus(millis * 1000)
}

fn partial(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    Arc::new(limit(name, rule).edited(|policy| policy.partial = true))
}

async fn thirty_within_a_tenth_of_a_second_meet_ten_tokens_and_one_more(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(10, SECOND, 10));
    let mut passed = 0;
    for request in 0..30 {
        let at = NOON.plus(request * 100_000 / 29);
        let (ruling, _) = store.one(at, ask(&tokens, 1)).await;
        passed += u64::from(wait(ruling).is_none());
    }
    assert_eq!(passed, 11);
}

async fn five_a_second_and_costs_of_one_two_and_three(store: &UnderTest) {
    for (name, rule, told) in [
        // The unit from the beginning has to leave, and leaves after a second.
        ("log", sliding_log(5, SECOND), 400_000),
        ("window", fixed_window(5, SECOND), 400_000),
        // Five units come back in a second: two and a half have come since 100 ms.
        ("tokens", token_bucket(5, SECOND, 5), 0),
    ] {
        let limit = limit(name, rule);
        for (at, cost) in [(0, 1), (100, 2)] {
            let (ruling, _) = store.one(millis(at), ask(&limit, cost)).await;
            assert_eq!(wait(ruling), None, "{name}");
        }
        let (ruling, _) = store.one(millis(600), ask(&limit, 3)).await;
        let waits = (told > 0).then_some(Wait::Micros(told));
        assert_eq!(wait(ruling), waits, "{name}");
        if told > 0 {
            let at = millis(600).plus(told);
            let (ruling, _) = store.one(at, ask(&limit, 3)).await;
            assert_eq!(wait(ruling), None, "{name}");
        }
    }
}

async fn a_thousand_a_second_waits_a_millisecond_at_most(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(1, 1000, 1));
    for micros in [0, 1, 999] {
        let (ruling, _) = store.one(NOON.plus(micros), ask(&tokens, 1)).await;
        let told = (micros > 0).then_some(Wait::Micros(1000 - micros));
        assert_eq!(wait(ruling), told);
    }
}

async fn a_hundred_microseconds_are_a_life(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(10_000, SECOND, 1));
    store.take(NOON, ask(&tokens, 1)).await;
    let (ruling, _) = store.one(NOON.plus(99), ask(&tokens, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(1)));
    if let UnderTest::Redis { server, .. } = store {
        let name = UnderTest::name(&tokens, CLIENT);
        let life: i64 = server.command(&["PTTL", &name]).await;
        assert!(life > 0, "{life}");
    }
}

async fn ten_obedient_ones_at_one_in_five_seconds(store: &UnderTest) {
    for (name, rule) in [
        ("tokens", token_bucket(1, 5 * SECOND, 1)),
        ("window", fixed_window(1, 5 * SECOND)),
        ("log", sliding_log(1, 5 * SECOND)),
    ] {
        let limit = limit(name, rule);
        let (mut at, mut passed) = (NOON, 0);
        while passed < 11 {
            match wait(store.one(at, ask(&limit, 1)).await.0) {
                None => passed += 1,
                Some(Wait::Micros(told)) => at = at.plus(told),
                Some(Wait::Never) => panic!("one always fits"),
            }
        }
        assert_eq!(at.since(NOON), 50 * SECOND, "{name}");
    }
}

async fn four_hundred_a_second_against_a_hundred(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(100, SECOND, 1));
    let mut passed = 0;
    for request in 0..=800 {
        let at = NOON.plus(request * 2500);
        passed += u64::from(admitted(&store.decide(at, &[ask(&tokens, 1)]).await));
    }
    assert_eq!(passed, 201, "a hundred a second, and the burst once");
}

async fn a_minute_by_the_clock_ends_with_it(store: &UnderTest) {
    let minute = limit("minute", clock_window(2, 60 * SECOND, 0));
    let start = NOON.micros().next_multiple_of(60 * SECOND);
    let at = |micros: u64| Timestamp::from_micros(start + micros);
    let (_, verdict) = store.one(at(59 * SECOND), ask(&minute, 2)).await;
    assert_eq!((verdict.remaining, verdict.reset), (0, SECOND));
    let (_, verdict) = store.one(at(60 * SECOND), ask(&minute, 1)).await;
    assert_eq!((verdict.remaining, verdict.reset), (1, 60 * SECOND));
}

async fn lowered_after_two_and_raised_after_five(store: &UnderTest) {
    for rule in [fixed_window, sliding_log] {
        let edition = |count| limit("edited", rule(count, 60 * SECOND));
        for (count, takes, left) in [(100, 2, 98), (10, 1, 7), (200, 2, 195)] {
            let edition = edition(count);
            for _ in 0..takes {
                store.take(NOON, ask(&edition, 1)).await;
            }
            let (_, verdict) = store.one(NOON, ask(&edition, 0)).await;
            assert_eq!(verdict.remaining, left);
        }
    }
}

async fn best_effort_gives_what_is_there(store: &UnderTest) {
    let granted = async |at, limit: &Arc<Limit>, cost| {
        let decided = store.decide(at, &[ask(limit, cost)]).await;
        let wait = wait(decided.decision.ruling);
        wait.map_or(Ok(decided.measured(0).unwrap().granted), Err)
    };
    let fifty = partial("fifty", fixed_window(50, 30 * SECOND));
    assert_eq!(
        granted(NOON, &fifty, 60).await,
        Ok(GrantedUnits::of(Cost::new(50))),
        "all there is"
    );
    let full = Err(Wait::Micros(30 * SECOND));
    assert_eq!(granted(NOON, &fifty, 60).await, full);
    assert_eq!(granted(NOON, &fifty, 1).await, full);
    let after = NOON.plus(30 * SECOND);
    assert_eq!(granted(after, &fifty, 30).await, Ok(None));
    assert_eq!(granted(after, &fifty, 20).await, Ok(None));

    let ten = partial("ten", token_bucket(10, SECOND, 10));
    assert_eq!(granted(NOON, &ten, 3).await, Ok(None));
    assert_eq!(
        granted(NOON, &ten, 10).await,
        Ok(GrantedUnits::of(Cost::new(7)))
    );
    // A request for a thousand units waits for one unit only. If it waited for all, the answer would be 99 s.
    assert_eq!(granted(NOON, &ten, 1000).await, Err(Wait::Micros(100_000)));
    // Two and a half units have come back: two are granted, and two are charged.
    let later = millis(250);
    assert_eq!(
        granted(later, &ten, 9).await,
        Ok(GrantedUnits::of(Cost::new(2)))
    );
    let (_, verdict) = store.one(millis(300), ask(&ten, 0)).await;
    assert_eq!(verdict.remaining, 1);
}

async fn more_comes_back_than_there_is(store: &UnderTest) {
    for (name, rule) in [
        ("window", fixed_window(20, 60 * SECOND)),
        ("sliding", sliding_window(20, 60 * SECOND, 6, false)),
        ("log", sliding_log(20, 60 * SECOND)),
        ("tokens", token_bucket(20, 60 * SECOND, 20)),
    ] {
        let limit = limit(name, rule);
        let large = store.take(NOON, ask(&limit, 15)).await;
        store.reset(&limit, CLIENT).await;
        // The counter is empty.
        store.refund(NOON, ask(&limit, 15), large).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, None, "{name}");
        // The counter has less than the ticket says. The refund never leaves more than a full limit.
        store.take(NOON, ask(&limit, 5)).await;
        store.refund(NOON, ask(&limit, 15), large).await;
        let (_, verdict) = store.one(NOON, ask(&limit, 0)).await;
        assert!(
            (15..=20).contains(&verdict.remaining),
            "{name}: {verdict:?}"
        );
        let mut passed = 0;
        while passed <= 20 && admitted(&store.decide(NOON, &[ask(&limit, 1)]).await) {
            passed += 1;
        }
        assert!(passed <= 20, "{name}");
    }
}

async fn a_second_refusal_lengthens_nothing(store: &UnderTest) {
    for (name, rule) in [
        ("window", fixed_window(1, 10 * SECOND)),
        ("sliding", sliding_window(1, 10 * SECOND, 5, true)),
        ("log", sliding_log(1, 10 * SECOND)),
        ("tokens", token_bucket(1, 10 * SECOND, 1)),
    ] {
        let limit = limit(name, rule);
        store.take(NOON, ask(&limit, 1)).await;
        let (ruling, _) = store.one(NOON, ask(&limit, 1)).await;
        let Some(Wait::Micros(first)) = wait(ruling) else {
            panic!("{name} is full");
        };
        for passed in [1, SECOND, 9 * SECOND] {
            for _ in 0..3 {
                let (ruling, _) = store.one(NOON.plus(passed), ask(&limit, 1)).await;
                assert_eq!(wait(ruling), Some(Wait::Micros(first - passed)), "{name}");
            }
        }
    }
}

async fn methods_may_count_apart(store: &UnderTest) {
    // A method that counts apart has its own key, with the same numbers of the limit.
    let each = limit("each", fixed_window(1, SECOND));
    for method in [b"GET".as_slice(), b"POST"] {
        let check = Check {
            key: method,
            ..ask(&each, 1)
        };
        assert!(admitted(&store.decide(NOON, &[check]).await));
        assert!(!admitted(&store.decide(NOON, &[check]).await));
    }
}

async fn a_limit_that_is_gone_and_comes_back(store: &UnderTest) {
    let stays = limit("stays", fixed_window(5, 60 * SECOND));
    let goes = limit("goes", fixed_window(5, 60 * SECOND));
    let both = [ask(&stays, 2), ask(&goes, 2)];
    assert!(admitted(&store.decide(NOON, &both).await));
    // In this file one limit is missing: the other limit keeps its count, and the missing one is not charged.
    store.take(NOON, ask(&stays, 1)).await;
    let left = async |limit, at| store.one(at, ask(limit, 0)).await.1.remaining;
    assert_eq!(left(&stays, NOON).await, 2);
    // If the limit comes back while its window lasts, its count goes on. Later it begins anew.
    assert_eq!(left(&goes, NOON.plus(59 * SECOND)).await, 3);
    assert_eq!(left(&goes, NOON.plus(60 * SECOND)).await, 5);
}

#[tokio::test(flavor = "local")]
async fn a_counter_survives_being_dumped_copied_and_replicated() {
    let store = UnderTest::redis().await;
    let UnderTest::Redis {
        store: asked,
        server,
    } = &store
    else {
        panic!("it is Redis");
    };
    let limits = [
        limit("tokens", token_bucket(7, 3600 * SECOND, 7)),
        limit("window", fixed_window(7, 3600 * SECOND)),
        limit("sliding", sliding_window(7, 3600 * SECOND, 6, true)),
        limit("log", sliding_log(7, 3600 * SECOND)),
    ];
    let take = async |cost| {
        for limit in &limits {
            asked.decide(&[ask(limit, cost)]).await.unwrap();
        }
    };
    let replica = Redis::start().await;
    // First everything is copied as a dump, then key by key: the value is copied, not the decision.
    take(3).await;
    let url = server.url();
    let port = url.rsplit(':').next().unwrap().trim_end_matches("/0");
    let _: Value = replica.command(&["REPLICAOF", "127.0.0.1", port]).await;
    for turn in 0..2 {
        for limit in &limits {
            let key = UnderTest::name(limit, CLIENT);
            eventually(PATIENCE, "the replica has it", async || {
                let here: Value = server.command(&["DUMP", &key]).await;
                let there: Value = replica.command(&["DUMP", &key]).await;
                let life: i64 = replica.command(&["PTTL", &key]).await;
                here == there && life > 0
            })
            .await;
        }
        if turn == 0 {
            take(1).await;
        }
    }
    for limit in &limits {
        let left = async || {
            let peek = asked.decide(&[ask(limit, 0)]).await.unwrap();
            peek.decision.verdicts[0].remaining
        };
        assert_eq!(left().await, 3);
        let key = UnderTest::name(limit, CLIENT);
        let _: Value = server.command(&["COPY", &key, "copy", "REPLACE"]).await;
        assert!(asked.reset(limit, CLIENT).await.unwrap());
        assert_eq!(left().await, 7);
        let _: Value = server.command(&["RENAME", "copy", &key]).await;
        assert_eq!(left().await, 3, "{}", limit.name);
    }
}
