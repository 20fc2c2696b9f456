//! Defects of windows: too short, too long, shared, lost, or never ended.

use super::{CLIENT, granted, life, told_to_both};
use crate::law::numbers::{
    NOON, SECOND, ask, clock_window, concurrency, every, fixed_window, leaky_bucket, limit,
    sliding_log, sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, wait};
use crate::support::{PATIENCE, eventually};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::Limit;
use tollgate::limit::verdict::Wait;

told_to_both! {
    sh1_no_twenty_of_ten_in_four_seconds
    sl2_a_lowered_limit_counts_all_that_is_there
    sl3_a_refusal_under_a_lowered_limit_loses_nothing
    rr3_windows_of_other_lengths_share_no_counter
    rr5_windows_shorter_than_a_second
    if1_ir4_a_window_of_no_whole_milliseconds
    if2_ir5_a_window_ends_at_its_microsecond
    if10_a_burst_late_in_a_window_and_one_in_the_next
}

const fn seconds(micros: u64) -> Timestamp {
    NOON.plus(micros)
}

/// The wait for one further unit, if it is refused.
async fn told(store: &UnderTest, at: Timestamp, limit: &Arc<Limit>) -> Option<Wait> {
    wait(store.one(at, ask(limit, 1)).await.0)
}

const fn micros(micros: u64) -> Option<Wait> {
    Some(Wait::Micros(micros))
}

async fn sh1_no_twenty_of_ten_in_four_seconds(store: &UnderTest) {
    let strict = limit("strict", sliding_window(10, 5 * SECOND, 5, true));
    assert_eq!(granted(store, seconds(999_000), &strict, 10).await, 10);
    assert_eq!(
        told(store, seconds(4_999_000), &strict).await,
        micros(1_001_000)
    );
    assert_eq!(granted(store, seconds(5 * SECOND), &strict, 11).await, 0);
    assert_eq!(told(store, seconds(5_999_999), &strict).await, micros(1));
    assert_eq!(granted(store, seconds(6 * SECOND), &strict, 11).await, 10);

    let log = limit("log", sliding_log(10, 5 * SECOND));
    assert_eq!(granted(store, seconds(999_000), &log, 10).await, 10);
    assert_eq!(
        told(store, seconds(5 * SECOND), &log).await,
        micros(999_000)
    );
    assert_eq!(told(store, seconds(5_998_999), &log).await, micros(1));
    assert_eq!(granted(store, seconds(5_999_000), &log, 11).await, 10);
}

async fn sl2_a_lowered_limit_counts_all_that_is_there(store: &UnderTest) {
    let four = limit("edited", sliding_window(4, 4 * SECOND, 4, false));
    let two = limit("edited", sliding_window(2, 4 * SECOND, 4, false));
    for second in 1..=4 {
        assert_eq!(granted(store, seconds(second * SECOND), &four, 1).await, 1);
    }
    // The unit of the third second is about to leave, and still counts in full.
    assert_eq!(told(store, seconds(7 * SECOND), &two).await, micros(SECOND));
}

async fn sl3_a_refusal_under_a_lowered_limit_loses_nothing(store: &UnderTest) {
    let four = limit("edited", sliding_window(4, 3 * SECOND, 3, false));
    let two = limit("edited", sliding_window(2, 3 * SECOND, 3, false));
    // Parts begin at whole seconds, and noon is a whole second.
    assert_eq!(granted(store, seconds(10 * SECOND), &four, 1).await, 1);
    assert_eq!(granted(store, seconds(12 * SECOND), &four, 3).await, 3);
    assert_eq!(
        told(store, seconds(13 * SECOND), &two).await,
        micros(2_667_000)
    );
    for (at, passes) in [(15, 1), (18, 3), (21, 1)] {
        let at = seconds(at * SECOND);
        assert_eq!(granted(store, at, &four, 5).await, passes);
    }
}

async fn rr3_windows_of_other_lengths_share_no_counter(store: &UnderTest) {
    let minute = |offset| limit("a", clock_window(9, 60 * SECOND, offset));
    let hour = limit("a", clock_window(9, 3600 * SECOND, 0));
    // Each of the two is the thousandth window of its length.
    let (early, late) = (60_005 * SECOND, 3_600_005 * SECOND);
    let early = Timestamp::from_micros(early);
    let late = Timestamp::from_micros(late);
    assert_eq!(granted(store, early, &minute(0), 4).await, 4);
    let (_, verdict) = store.one(late, ask(&hour, 1)).await;
    assert_eq!(verdict.remaining, 8);
    let (_, verdict) = store.one(early, ask(&minute(0), 1)).await;
    assert_eq!(verdict.remaining, 4);
    let first = limit("a", fixed_window(9, 60 * SECOND));
    let longer = limit("a", fixed_window(9, 61 * SECOND));
    assert_eq!(first.kind, minute(7).kind, "an anchor is edited in place");
    assert_ne!(first.id, longer.id);
}

async fn rr5_windows_shorter_than_a_second(store: &UnderTest) {
    for (name, length) in [("a", 1), ("b", 999), ("c", 999_999)] {
        for rule in [fixed_window(2, length), clock_window(2, length, length / 2)] {
            let limit = limit(
                &format!(
                    "{name}{}",
                    matches!(rule.1, tollgate::limit::Rule::FixedWindow(_))
                ),
                rule,
            );
            for window in 0..3 {
                // The instant is also half a window into a window of the clock.
                let start = NOON.micros() - NOON.micros() % length + length / 2;
                let at = Timestamp::from_micros(start + window * length);
                assert_eq!(granted(store, at, &limit, 4).await, 2, "{}", limit.name);
            }
        }
    }
}

async fn if1_ir4_a_window_of_no_whole_milliseconds(store: &UnderTest) {
    const LENGTH: u64 = 1500;
    for (name, rule) in [
        ("tokens", token_bucket(2, LENGTH, 2)),
        ("meter", leaky_bucket((2, LENGTH), 2, 0, 0)),
        ("window", fixed_window(2, LENGTH)),
        ("clock", clock_window(2, LENGTH, 0)),
        ("log", sliding_log(2, LENGTH)),
        ("flight", concurrency(2, LENGTH)),
    ] {
        let limit = limit(name, rule);
        let start = NOON.micros().next_multiple_of(LENGTH);
        for window in 0..3 {
            let at = Timestamp::from_micros(start + window * LENGTH);
            let passes = match (name, store) {
                // In memory slots never lapse.
                ("flight", UnderTest::Memory(_)) if window > 0 => 0,
                _ => 2,
            };
            assert_eq!(granted(store, at, &limit, 3).await, passes, "{name}");
            assert!(life(store, &limit).await.is_none_or(|life| life > 0));
        }
    }
}

async fn if2_ir5_a_window_ends_at_its_microsecond(store: &UnderTest) {
    for limit in every(4, 10) {
        if matches!(&*limit.name, "flight" | "sliding" | "queue") {
            // The waits of these limits are only a hint, are whole milliseconds, or do not exist.
            continue;
        }
        let at = NOON.plus(7);
        assert_eq!(granted(store, at, &limit, 5).await, 4, "{}", limit.name);
        let Some(Wait::Micros(told)) = told(store, at, &limit).await else {
            panic!("{} is full", limit.name);
        };
        for early in [2, 1] {
            let at = at.plus(told - early);
            let left = wait(store.one(at, ask(&limit, 1)).await.0);
            assert_eq!(left, micros(early), "{}", limit.name);
        }
        assert_eq!(granted(store, at.plus(told), &limit, 1).await, 1);
    }
}

async fn if10_a_burst_late_in_a_window_and_one_in_the_next(store: &UnderTest) {
    // What a window admits if it begins with its first request, and what other algorithms admit: docs/configuration.md
    // states it.
    for (name, rule, passes) in [
        ("window", fixed_window(10, SECOND), 10),
        ("strict", sliding_window(10, SECOND, 1, true), 0),
        ("log", sliding_log(10, SECOND), 1),
    ] {
        let limit = limit(name, rule);
        assert_eq!(granted(store, NOON, &limit, 1).await, 1);
        assert_eq!(granted(store, NOON.plus(990_000), &limit, 9).await, 9);
        let at = NOON.plus(SECOND);
        assert_eq!(granted(store, at, &limit, 10).await, passes, "{name}");
    }
}

#[tokio::test(flavor = "local")]
async fn ir1_bl2_bt2_nothing_is_left_when_it_is_useless() {
    const LENGTH: u64 = 20_000;
    let store = UnderTest::redis().await;
    let UnderTest::Redis {
        store: redis,
        server,
    } = &store
    else {
        panic!("it is Redis");
    };
    // With the server's own clock: the server keeps no state longer than the script says.
    for rule in [
        token_bucket(9, LENGTH, 9),
        leaky_bucket((9, LENGTH), 1, 8, LENGTH),
        fixed_window(9, LENGTH),
        clock_window(9, LENGTH, 3),
        sliding_window(9, LENGTH, 1, false),
        sliding_window(9, LENGTH, 10, true),
        sliding_log(9, LENGTH),
        concurrency(9, LENGTH),
    ] {
        let limit = limit("short", rule);
        for cost in [5, 1, 4] {
            redis.decide(&[ask(&limit, cost)]).await.unwrap();
            let life = life(&store, &limit).await.unwrap();
            // The state may be gone already, which Redis reports as -2.
            assert!((-2..=42).contains(&life) && life != -1, "{limit:?}: {life}");
        }
    }
    eventually(PATIENCE, "nothing is left", async || {
        server.keys().await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "local")]
async fn sh5_sg2_a_decision_reads_little_however_much_is_there() {
    let store = UnderTest::redis().await;
    let UnderTest::Redis { server, .. } = &store else {
        panic!("it is Redis");
    };
    let parts = limit("parts", sliding_window(1000, 100 * SECOND, 100, true));
    let log = limit("log", sliding_log(10_000, 10 * SECOND));
    for part in 0..101 {
        granted(&store, NOON.plus(part * SECOND), &parts, 1).await;
    }
    for step in 0..10 {
        let at = NOON.plus(step * 900_000);
        store.take(at, ask(&log, 1000)).await;
    }
    for (limit, at, most) in [(&parts, 101 * SECOND, 2), (&log, 13_000_001, 40)] {
        let _: String = server.command(&["CONFIG", "RESETSTAT"]).await;
        assert_eq!(granted(&store, NOON.plus(at), limit, 1).await, 1);
        let told: String = server.command(&["INFO", "commandstats"]).await;
        let calls: u64 = ["get", "set", "lindex", "llen", "ltrim", "rpush", "pexpire"]
            .iter()
            .filter_map(|name| {
                let name = format!("cmdstat_{name}:calls=");
                let line = told.lines().find_map(|line| line.strip_prefix(&name))?;
                line.split(',').next()?.parse::<u64>().ok()
            })
            .sum();
        assert!((1..=most).contains(&calls), "{}: {told}", limit.name);
    }
    let held = store.bytes(&parts, CLIENT).await.unwrap();
    assert_eq!(held.len(), 8 + 4 * 101);
}
