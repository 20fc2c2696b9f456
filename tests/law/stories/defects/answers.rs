//! Wrong answers that published scripts give, and the right ones.

use super::told_to_both;
use crate::law::numbers::{
    NOON, SECOND, ask, fixed_window, leaky_bucket, limit, sliding_log, sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, wait};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::Limit;
use tollgate::limit::verdict::{Ruling, Wait};

told_to_both! {
    fw1_the_double_burst_is_in_the_fixed_window_only
    fw6_a_refund_does_not_stretch_the_window
    sh2_sh3_ir3_a_clock_that_jumps_ahead_wipes_nothing
    sl1_d5_what_the_limit_cannot_hold_never_passes_and_leaves_nothing
    lb1_lb2_tb1_tb2_any_capacity_beside_any_rate_is_let_through
    lb3_tb3_a_turn_of_the_second_gives_nothing_away
    lb4_tb4_half_a_unit_a_second
    lb6_lb7_tb7_bl3_bt3_d2_a_clock_that_steps_back_adds_no_water
    tb5_tb8_lowered_numbers_give_no_second_burst
    rr1_bf2_refusals_are_not_charged
    ir2_sg1_no_nineteen_of_ten_in_nine_seconds
    bz1_bz6_alike_requests_count_each
    bl1_waits_have_fractions
    bt4_polling_does_not_drift
    d1_d3_d6_odd_rates_are_whole_after_a_second
    rs1_a_wait_is_for_all_that_must_leave
    rs6_nine_thousand_that_leave_at_once_poison_nothing
    rs7_more_than_the_limit_is_an_answer
    rs8_edited_numbers_count_at_once
}

/// The number of admitted requests, of `times` requests at `millis`, and the answer to the last one.
async fn ask_times(
    store: &UnderTest,
    limit: &Arc<Limit>,
    millis: u64,
    times: u64,
) -> (u64, Option<Wait>) {
    let at = NOON.plus(millis * 1000);
    let (mut granted, mut last) = (0, None);
    for _ in 0..times {
        let (ruling, _) = store.one(at, ask(limit, 1)).await;
        last = wait(ruling);
        granted += u64::from(last.is_none());
    }
    (granted, last)
}

const fn micros(micros: u64) -> Option<Wait> {
    Some(Wait::Micros(micros))
}

async fn fw1_the_double_burst_is_in_the_fixed_window_only(store: &UnderTest) {
    for (name, rule, [late, next]) in [
        (
            "fixed",
            fixed_window(10, SECOND),
            [(9, 100_000), (10, SECOND)],
        ),
        (
            "two",
            sliding_window(10, SECOND, 1, false),
            [(9, 200_000), (0, 100_000)],
        ),
        (
            "strict",
            sliding_window(10, SECOND, 1, true),
            [(9, 1_100_000), (0, SECOND)],
        ),
        ("log", sliding_log(10, SECOND), [(9, 100_000), (1, 900_000)]),
    ] {
        let limit = limit(name, rule);
        assert_eq!(ask_times(store, &limit, 0, 1).await, (1, None));
        let (granted, wait) = late;
        assert_eq!(
            ask_times(store, &limit, 900, 12).await,
            (granted, micros(wait)),
            "{name}"
        );
        let (granted, wait) = next;
        assert_eq!(
            ask_times(store, &limit, 1000, 12).await,
            (granted, micros(wait)),
            "{name}"
        );
    }
}

async fn fw6_a_refund_does_not_stretch_the_window(store: &UnderTest) {
    let window = limit("window", fixed_window(2, SECOND));
    store.take(NOON, ask(&window, 1)).await;
    let later = NOON.plus(600_000);
    let ticket = store.take(later, ask(&window, 1)).await;
    store.refund(later, ask(&window, 1), ticket).await;
    assert_eq!(
        ask_times(store, &window, 700, 2).await,
        (1, micros(300_000))
    );
    assert_eq!(
        ask_times(store, &window, 1000, 3).await,
        (2, micros(SECOND))
    );
}

async fn sh2_sh3_ir3_a_clock_that_jumps_ahead_wipes_nothing(store: &UnderTest) {
    for (name, rule) in [
        ("parts", sliding_window(3, 3 * SECOND, 3, true)),
        ("log", sliding_log(3, 3 * SECOND)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(ask_times(store, &limit, 10_000, 3).await.0, 3);
        assert_eq!(ask_times(store, &limit, 12_000, 1).await.0, 0, "{name}");
        // The clock is back at the earlier instant, and the count is still there.
        assert_eq!(ask_times(store, &limit, 10_000, 4).await.0, 0, "{name}");
    }
}

async fn sl1_d5_what_the_limit_cannot_hold_never_passes_and_leaves_nothing(store: &UnderTest) {
    let none = limit("one", sliding_window(1, SECOND, 1, false));
    let (ruling, _) = store.one(NOON, ask(&none, 2)).await;
    assert_eq!(wait(ruling), Some(Wait::Never));
    assert_eq!(
        store
            .everything(&[&none], crate::law::numbers::CLIENT)
            .await,
        [None]
    );
}

async fn lb1_lb2_tb1_tb2_any_capacity_beside_any_rate_is_let_through(store: &UnderTest) {
    for (name, rule, granted, wait) in [
        ("t3", token_bucket(3, SECOND, 10), 10, 333_334),
        ("t10", token_bucket(10, SECOND, 5), 5, 100_000),
        ("l3", leaky_bucket((3, SECOND), 10, 0, 0), 10, 333_334),
        ("l10", leaky_bucket((10, SECOND), 5, 0, 0), 5, 100_000),
    ] {
        let limit = limit(name, rule);
        assert_eq!(
            ask_times(store, &limit, 0, 12).await,
            (granted, micros(wait))
        );
    }
}

async fn lb3_tb3_a_turn_of_the_second_gives_nothing_away(store: &UnderTest) {
    for (name, rule) in [
        ("t", token_bucket(10, SECOND, 10)),
        ("l", leaky_bucket((10, SECOND), 10, 0, 0)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(ask_times(store, &limit, 999, 10).await.0, 10);
        assert_eq!(
            ask_times(store, &limit, 1000, 10).await,
            (0, micros(99_000))
        );
    }
}

async fn lb4_tb4_half_a_unit_a_second(store: &UnderTest) {
    for (name, rule) in [
        ("t", token_bucket(1, 2 * SECOND, 2)),
        ("l", leaky_bucket((1, 2 * SECOND), 2, 0, 0)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(
            ask_times(store, &limit, 0, 3).await,
            (2, micros(2 * SECOND))
        );
        assert_eq!(ask_times(store, &limit, 1000, 1).await, (0, micros(SECOND)));
        assert_eq!(ask_times(store, &limit, 2000, 1).await, (1, None));
    }
}

async fn lb6_lb7_tb7_bl3_bt3_d2_a_clock_that_steps_back_adds_no_water(store: &UnderTest) {
    for (name, rule) in [
        ("t", token_bucket(1, SECOND, 10)),
        ("l", leaky_bucket((1, SECOND), 10, 0, 0)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(ask_times(store, &limit, 110_000, 10).await.0, 10);
        assert_eq!(
            ask_times(store, &limit, 100_000, 1).await,
            (0, micros(SECOND))
        );
        assert_eq!(
            ask_times(store, &limit, 101_000, 2).await,
            (1, micros(SECOND))
        );
    }
}

async fn tb5_tb8_lowered_numbers_give_no_second_burst(store: &UnderTest) {
    let large = limit("edited", token_bucket(1, SECOND, 100));
    let small = limit("edited", token_bucket(1, SECOND, 10));
    let at: Timestamp = NOON;
    store.take(at, ask(&large, 100)).await;
    // A hundred units stay used, and ninety-one of them have to drain.
    let wait = micros(91 * SECOND);
    assert_eq!(ask_times(store, &small, 0, 5).await, (0, wait));
    for second in 91..95 {
        assert_eq!(ask_times(store, &small, second * 1000, 3).await.0, 1);
    }
}

async fn rr1_bf2_refusals_are_not_charged(store: &UnderTest) {
    for (name, rule) in [
        ("fixed", fixed_window(10, 60 * SECOND)),
        ("parts", sliding_window(10, 60 * SECOND, 6, false)),
        ("log", sliding_log(10, 60 * SECOND)),
        ("tokens", token_bucket(10, 60 * SECOND, 10)),
    ] {
        let limit = limit(name, rule);
        store.take(NOON, ask(&limit, 7)).await;
        let (ruling, _) = store.one(NOON, ask(&limit, 7)).await;
        assert!(wait(ruling).is_some());
        let (ruling, verdict) = store.one(NOON, ask(&limit, 3)).await;
        assert_eq!((wait(ruling), verdict.remaining), (None, 0), "{name}");
    }
}

async fn ir2_sg1_no_nineteen_of_ten_in_nine_seconds(store: &UnderTest) {
    for (name, rule) in [
        ("log", sliding_log(10, 10 * SECOND)),
        ("strict", sliding_window(10, 10 * SECOND, 10, true)),
    ] {
        let limit = limit(name, rule);
        assert_eq!(ask_times(store, &limit, 0, 1).await.0, 1);
        assert_eq!(ask_times(store, &limit, 900, 9).await.0, 9);
        assert!(ask_times(store, &limit, 10_000, 11).await.0 <= 1, "{name}");
        assert!(ask_times(store, &limit, 10_899, 11).await.0 == 0, "{name}");
    }
}

async fn bz1_bz6_alike_requests_count_each(store: &UnderTest) {
    let log = limit("log", sliding_log(2, SECOND));
    assert_eq!(ask_times(store, &log, 0, 4).await, (2, micros(SECOND)));
}

async fn bl1_waits_have_fractions(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((10, SECOND), 1, 19, 99 * SECOND));
    for place in 0..20 {
        let (ruling, _) = store.one(NOON, ask(&queue, 1)).await;
        let delay = place * 100_000;
        assert_eq!(ruling, Ruling::Admit { delay });
    }
    assert_eq!(ask_times(store, &queue, 0, 2).await, (0, micros(100_000)));
}

async fn bt4_polling_does_not_drift(store: &UnderTest) {
    let slow = limit("slow", token_bucket(1, 10 * SECOND, 1));
    for second in 0..41 {
        let granted = u64::from(second % 10 == 0);
        assert_eq!(
            ask_times(store, &slow, second * 1000, 1).await.0,
            granted,
            "{second}"
        );
    }
}

async fn d1_d3_d6_odd_rates_are_whole_after_a_second(store: &UnderTest) {
    for count in [15, 29, 30, 51, 55, 57] {
        let limit = limit(&format!("n{count}"), token_bucket(count, SECOND, count));
        assert_eq!(ask_times(store, &limit, 0, count).await.0, count);
        let (granted, _) = ask_times(store, &limit, 1000, count + 1).await;
        assert_eq!(granted, count);
    }
}

async fn rs1_a_wait_is_for_all_that_must_leave(store: &UnderTest) {
    let log = limit("log", sliding_log(5, 10 * SECOND));
    store.take(NOON, ask(&log, 1)).await;
    store.take(NOON.plus(5 * SECOND), ask(&log, 4)).await;
    for (at, told) in [
        (6_000_000, micros(9 * SECOND)),
        (14_999_999, micros(1)),
        (15_000_000, None),
    ] {
        let (ruling, _) = store.one(NOON.plus(at), ask(&log, 5)).await;
        assert_eq!(wait(ruling), told);
    }
}

async fn rs6_nine_thousand_that_leave_at_once_poison_nothing(store: &UnderTest) {
    let log = limit("log", sliding_log(10_000, SECOND));
    store.take(NOON, ask(&log, 9_000)).await;
    let (_, verdict) = store.one(NOON.plus(10 * SECOND), ask(&log, 1)).await;
    assert_eq!(verdict.remaining, 9_999);
    let held = store
        .bytes(&log, crate::law::numbers::CLIENT)
        .await
        .unwrap();
    assert_eq!(held.len(), 8);
}

async fn rs7_more_than_the_limit_is_an_answer(store: &UnderTest) {
    for (name, rule) in [
        ("fixed", fixed_window(5, SECOND)),
        ("parts", sliding_window(5, SECOND, 5, true)),
        ("log", sliding_log(5, SECOND)),
        ("tokens", token_bucket(5, SECOND, 5)),
        ("queue", leaky_bucket((5, SECOND), 1, 4, SECOND)),
    ] {
        let limit = limit(name, rule);
        let (ruling, _) = store.one(NOON, ask(&limit, 6)).await;
        assert_eq!(wait(ruling), Some(Wait::Never));
        assert_eq!(store.bytes(&limit, crate::law::numbers::CLIENT).await, None);
    }
}

async fn rs8_edited_numbers_count_at_once(store: &UnderTest) {
    for (few, many) in [
        (sliding_log(5, SECOND), sliding_log(50, SECOND)),
        (
            sliding_window(5, SECOND, 2, true),
            sliding_window(50, SECOND, 2, true),
        ),
    ] {
        let (few, many) = (limit("edited", few), limit("edited", many));
        store.take(NOON, ask(&few, 5)).await;
        assert_eq!(ask_times(store, &many, 0, 46).await.0, 45);
        assert_eq!(ask_times(store, &few, 0, 8).await.0, 0);
    }
}
