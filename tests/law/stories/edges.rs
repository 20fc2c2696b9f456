//! Extreme numbers: the slowest and the fastest rate, a rate that divides nothing, leap seconds, and the last instants.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, wait};
use crate::support::long;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::Rate;
use tollgate::limit::verdict::{Ruling, Wait};
use tollgate::limit::{Limit, Rule};

told_to_both! {
    seven_in_three_seconds_drift_nowhere
    one_in_thirty_one_days_drifts_nowhere
    ten_million_a_second_are_ten_million
    a_queue_at_an_odd_rate_drifts_nowhere
    a_second_that_a_clock_repeats_is_granted_once
    a_minute_and_a_day_with_a_leap_second_end_where_the_clock_says
    a_day_without_a_zone_knows_no_daylight_saving
    the_last_instants_that_are_counted
    the_longest_window_and_the_largest_count
    a_window_that_began_before_the_epoch_ends_like_any_other
}

const DAY: u64 = 86_400 * SECOND;
const MONTH: u64 = 31 * DAY;
/// The first whole number above those that a double counts exactly.
const END: u64 = 1 << 53;

/// The number of grants of an obedient client. Every run asks the pure functions, whose answers both stores give, for a
/// million grants (`exactness.rs`).
fn grants(store: &UnderTest) -> u64 {
    match (store, long()) {
        (UnderTest::Memory(_), true) => 1_000_000,
        (UnderTest::Redis { .. }, true) => 50_000,
        (UnderTest::Memory(_), false) => 10_000,
        (UnderTest::Redis { .. }, false) => 1_000,
    }
}

/// Asks again after exactly each given wait. Each grant, counted from 0, must come at the instant that `due` returns
/// for it.
async fn obedient(store: &UnderTest, limit: &Arc<Limit>, due: impl Fn(u64) -> u64) {
    let mut at = NOON;
    let mut granted = 0;
    while granted < grants(store) {
        match wait(store.one(at, ask(limit, 1)).await.0) {
            None => {
                let (since, due) = (at.since(NOON), due(granted));
                assert_eq!(since, due, "{}, number {granted}", limit.name);
                granted += 1;
            }
            Some(Wait::Micros(told)) => at = at.plus(told),
            Some(Wait::Never) => panic!("one always fits"),
        }
    }
}

async fn seven_in_three_seconds_drift_nowhere(store: &UnderTest) {
    const THREE: u64 = 3 * SECOND;
    let tokens = limit("tokens", token_bucket(7, THREE, 7));
    obedient(store, &tokens, |n| {
        (n.saturating_sub(6) * THREE).div_ceil(7)
    })
    .await;
    for (name, rule, turn) in [
        ("window", fixed_window(7, THREE), THREE),
        ("log", sliding_log(7, THREE), THREE),
        // Noon is the beginning of a part, and a part counts whole until it has left.
        ("strict", sliding_window(7, THREE, 3, true), THREE + SECOND),
    ] {
        obedient(store, &limit(name, rule), |n| n / 7 * turn).await;
    }
    let clock = limit("clock", clock_window(7, THREE, 0));
    let first = THREE - NOON.micros() % THREE;
    obedient(store, &clock, |n| match n / 7 {
        0 => 0,
        turn => first + (turn - 1) * THREE,
    })
    .await;
}

async fn one_in_thirty_one_days_drifts_nowhere(store: &UnderTest) {
    for (name, rule) in [
        ("tokens", token_bucket(1, MONTH, 1)),
        ("meter", leaky_bucket((1, MONTH), 1, 0, 0)),
        ("window", fixed_window(1, MONTH)),
        ("log", sliding_log(1, MONTH)),
    ] {
        let limit = limit(name, rule);
        // The first fifty months, and the last ten months that can be counted.
        let last = (END - NOON.micros()) / MONTH - 2;
        for month in (0..50).chain(last - 10..last) {
            let at = NOON.plus(month * MONTH);
            store.take(at, ask(&limit, 1)).await;
            let (ruling, _) = store.one(at, ask(&limit, 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(MONTH)), "{name} at {at}");
            let early = at.plus(MONTH - 1);
            let (ruling, _) = store.one(early, ask(&limit, 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name} at {at}");
        }
    }
}

async fn ten_million_a_second_are_ten_million(store: &UnderTest) {
    const MANY: u64 = 10_000_000;
    for (name, rule, turn) in [
        ("tokens", token_bucket(MANY, SECOND, MANY), SECOND),
        ("meter", leaky_bucket((MANY, SECOND), MANY, 0, 0), SECOND),
        ("window", fixed_window(MANY, SECOND), SECOND),
        ("clock", clock_window(MANY, SECOND, 0), SECOND),
        (
            "sliding",
            sliding_window(MANY, SECOND, 1, false),
            2 * SECOND,
        ),
        ("strict", sliding_window(MANY, SECOND, 1, true), 2 * SECOND),
    ] {
        let limit = limit(name, rule);
        for start in 0..3 {
            let at = NOON.plus(start * turn);
            for (cost, left) in [(MANY - 1, 1), (1, 0)] {
                let (_, verdict) = store.one(at, ask(&limit, cost)).await;
                assert_eq!(verdict.remaining, left, "{name}");
            }
            let (ruling, _) = store.one(at, ask(&limit, MANY)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(turn)), "{name}");
            let (ruling, _) = store.one(at, ask(&limit, MANY + 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Never), "{name}");
        }
    }
    // Ten units come back in each microsecond.
    let tokens = limit("few", token_bucket(MANY, SECOND, 64));
    obedient(store, &tokens, |n| n.saturating_sub(63).div_ceil(10)).await;
}

async fn a_queue_at_an_odd_rate_drifts_nowhere(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((7, 3 * SECOND), 1, 20, 9 * SECOND));
    let (mut at, mut number) = (NOON, 0_u64);
    while number < grants(store) {
        match store.one(at, ask(&queue, 1)).await.0 {
            Ruling::Admit { delay } => {
                let goes = at.plus(delay).since(NOON);
                assert_eq!(goes, (number * 3 * SECOND).div_ceil(7), "number {number}");
                number += 1;
            }
            refused @ Ruling::Refuse { .. } => {
                let Some(Wait::Micros(told)) = wait(refused) else {
                    panic!("one always fits");
                };
                at = at.plus(told);
            }
        }
    }
}

/// The instant between the last second of 2016 and the first of 2017. A leap second lay between them, which the count
/// since the epoch does not contain.
const NEW_YEAR: u64 = 1_483_228_800 * SECOND;

fn six_in(period: u64) -> [(&'static str, (Rate, Rule)); 7] {
    [
        ("tokens", token_bucket(6, period, 6)),
        ("meter", leaky_bucket((6, period), 6, 0, 0)),
        ("window", fixed_window(6, period)),
        ("clock", clock_window(6, period, 0)),
        ("sliding", sliding_window(6, period, 1, false)),
        ("strict", sliding_window(6, period, 10, true)),
        ("log", sliding_log(6, period)),
    ]
}

async fn a_second_that_a_clock_repeats_is_granted_once(store: &UnderTest) {
    // Hosts that do not smear the leap second show the last second of the year twice.
    for (name, rule) in six_in(10 * SECOND) {
        let limit = limit(name, rule);
        let (mut granted, mut now) = (0, NEW_YEAR - 3 * SECOND);
        let mut repeated = false;
        while now < NEW_YEAR {
            let at = Timestamp::from_micros(now);
            granted += u64::from(admitted(&store.decide(at, &[ask(&limit, 1)]).await));
            now += 100_000;
            if now == NEW_YEAR && !repeated {
                (repeated, now) = (true, NEW_YEAR - SECOND);
            }
        }
        // In four seconds a bucket gets two units back. The second that comes twice must not bring a third.
        let most = if matches!(name, "tokens" | "meter") {
            8
        } else {
            6
        };
        assert!((6..=most).contains(&granted), "{name}: {granted}");
        let later = Timestamp::from_micros(NEW_YEAR + 20 * SECOND);
        let (_, verdict) = store.one(later, ask(&limit, 0)).await;
        assert_eq!((verdict.remaining, verdict.reset), (6, 0), "{name}");
    }
}

async fn a_minute_and_a_day_with_a_leap_second_end_where_the_clock_says(store: &UnderTest) {
    for (name, length) in [("second", SECOND), ("minute", 60 * SECOND), ("day", DAY)] {
        let window = limit(name, clock_window(2, length, 0));
        let at = |micros: i64| Timestamp::from_micros(NEW_YEAR.saturating_add_signed(micros));
        let (_, verdict) = store.one(at(-(length as i64)), ask(&window, 2)).await;
        assert_eq!((verdict.remaining, verdict.reset), (0, length), "{name}");
        let (ruling, _) = store.one(at(-1), ask(&window, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name}");
        let (_, verdict) = store.one(at(0), ask(&window, 2)).await;
        assert_eq!((verdict.remaining, verdict.reset), (0, length), "{name}");
    }
}

async fn a_day_without_a_zone_knows_no_daylight_saving(store: &UnderTest) {
    // The day 2026-03-29, when clocks in Europe are put forward.
    let start = Timestamp::from_micros(1_774_742_400 * SECOND);
    for (name, rule) in [
        ("first", fixed_window(2, DAY)),
        ("clock", clock_window(2, DAY, 0)),
        ("log", sliding_log(2, DAY)),
    ] {
        let day = limit(name, rule);
        store.take(start, ask(&day, 2)).await;
        let (ruling, _) = store.one(start.plus(DAY - 1), ask(&day, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name}");
        assert!(admitted(
            &store.decide(start.plus(DAY), &[ask(&day, 2)]).await
        ));
    }
}

async fn the_last_instants_that_are_counted(store: &UnderTest) {
    // The test begins three windows before the end of the exact range of doubles. Stored instants stay below this end.
    for (name, rule) in six_in(10 * SECOND) {
        let limit = limit(name, rule);
        let mut at = Timestamp::from_micros((END - 1) / (10 * SECOND) * 10 * SECOND - 60 * SECOND);
        for _ in 0..2 {
            let mut granted = 0;
            let told = loop {
                match wait(store.one(at, ask(&limit, 1)).await.0) {
                    None => granted += 1,
                    Some(Wait::Micros(told)) => break told,
                    Some(Wait::Never) => panic!("one always fits"),
                }
            };
            assert!((1..=6).contains(&granted), "{name}: {granted}");
            assert!(store.state(&limit, CLIENT).await.is_some(), "{name}");
            let (ruling, _) = store.one(at.plus(told - 1), ask(&limit, 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name}");
            at = at.plus(told);
        }
    }
}

async fn the_longest_window_and_the_largest_count(store: &UnderTest) {
    const SPAN: u64 = 1 << 52;
    const MOST: u64 = 4_294_967_295;
    for (name, rule) in [
        ("tokens", token_bucket(MOST, SPAN, MOST)),
        ("window", fixed_window(MOST, SPAN)),
        ("clock", clock_window(MOST, SPAN, SPAN - 1)),
        ("sliding", sliding_window(MOST, 1_000_000_000, 1, false)),
    ] {
        let limit = limit(name, rule);
        let (_, verdict) = store.one(NOON, ask(&limit, MOST - 1)).await;
        assert_eq!(verdict.remaining, 1, "{name}");
        store.take(NOON, ask(&limit, 1)).await;
        let (ruling, _) = store.one(NOON, ask(&limit, 1)).await;
        let Some(Wait::Micros(told)) = wait(ruling) else {
            panic!("{name} is full");
        };
        let (ruling, _) = store.one(NOON.plus(told - 1), ask(&limit, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name}");
        let (ruling, _) = store.one(NOON.plus(told), ask(&limit, 1)).await;
        assert_eq!(wait(ruling), None, "{name}");
    }
}

async fn a_window_that_began_before_the_epoch_ends_like_any_other(store: &UnderTest) {
    // A window of sixty years that ends a second from now. Earlier, its units were counted in the next window as well.
    const YEARS: u64 = 60 * 365 * DAY;
    let window = limit("window", clock_window(2, YEARS, NOON.micros() + SECOND));
    store.take(NOON, ask(&window, 2)).await;
    let (ruling, _) = store.one(NOON.plus(1), ask(&window, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(SECOND - 1)));
    let (_, verdict) = store.one(NOON.plus(SECOND), ask(&window, 2)).await;
    assert_eq!((verdict.remaining, verdict.reset), (0, YEARS));
    let (ruling, _) = store.one(NOON.plus(SECOND), ask(&window, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(YEARS)));
}
