//! Numbers that are edited under a live key, clocks that step back, and other kinds of state.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, fixed_window, leaky_bucket, limit, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, wait};
use tollgate::clock::Timestamp;
use tollgate::limit::BucketState;
use tollgate::limit::WindowState;
use tollgate::limit::verdict::{Ruling, Wait};
use tollgate::limit::{State, Ticket};

told_to_both! {
    another_kind_starts_afresh_and_the_first_goes_on
    raised_numbers_give_room_at_once
    lowered_numbers_of_a_queue_mend_the_state_and_one_interval_later_there_is_room
    lowered_numbers_of_a_bucket_refuse_until_the_used_units_have_drained
    ten_of_ten_raised_to_a_hundred_leave_ninety
    a_clock_that_steps_back_locks_nobody_out
    a_mended_state_is_written_once_and_then_left_alone
    a_state_is_mended_for_the_refusing_limit_only
    a_thousand_charges_of_two_files_in_turn_are_a_thousand_units
    a_fraction_in_a_queue_is_rounded_against_the_client
    a_refund_under_other_numbers_gives_no_more_than_was_taken
}

fn before(at: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(at.micros() - micros)
}

async fn another_kind_starts_afresh_and_the_first_goes_on(store: &UnderTest) {
    let tokens = limit("same", token_bucket(5, 60 * SECOND, 5));
    let editions = [
        limit("same", leaky_bucket((5, 60 * SECOND), 5, 0, 0)),
        limit("same", fixed_window(5, 60 * SECOND)),
        limit("same", fixed_window(5, 61 * SECOND)),
    ];
    store.take(NOON, ask(&tokens, 5)).await;
    for edition in &editions {
        let (_, verdict) = store.one(NOON, ask(edition, 0)).await;
        assert_eq!((verdict.remaining, verdict.reset), (5, 0));
        store.take(NOON, ask(edition, 3)).await;
    }
    for (edition, left) in [(&tokens, 0), (&editions[0], 2), (&editions[2], 2)] {
        let (_, verdict) = store.one(NOON, ask(edition, 0)).await;
        assert_eq!(verdict.remaining, left);
    }
}

async fn raised_numbers_give_room_at_once(store: &UnderTest) {
    for (small, large) in [
        (token_bucket(1, SECOND, 3), token_bucket(1, SECOND, 10)),
        (
            leaky_bucket((1, SECOND), 1, 2, 99 * SECOND),
            leaky_bucket((1, SECOND), 1, 9, 99 * SECOND),
        ),
        (fixed_window(3, SECOND), fixed_window(10, SECOND)),
    ] {
        let (small, large) = (limit("edited", small), limit("edited", large));
        store.take(NOON, ask(&small, 3)).await;
        let (ruling, _) = store.one(NOON, ask(&small, 1)).await;
        assert!(wait(ruling).is_some());
        let (_, verdict) = store.one(NOON, ask(&large, 7)).await;
        assert_eq!(verdict.remaining, 0);
        let (ruling, _) = store.one(NOON, ask(&large, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(SECOND)));
    }
}

async fn lowered_numbers_of_a_queue_mend_the_state_and_one_interval_later_there_is_room(
    store: &UnderTest,
) {
    let large = limit("edited", leaky_bucket((1, SECOND), 1, 99, 200 * SECOND));
    let small = limit("edited", leaky_bucket((1, SECOND), 1, 9, 200 * SECOND));
    store.take(NOON, ask(&large, 100)).await;
    let (ruling, verdict) = store.one(NOON, ask(&small, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(SECOND)));
    assert_eq!(verdict.reset, 10 * SECOND);
    for second in 1..30 {
        let at = NOON.plus(second * SECOND);
        let (ruling, _) = store.one(at, ask(&small, 1)).await;
        assert_eq!(wait(ruling), None);
        let (ruling, _) = store.one(at, ask(&small, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(SECOND)));
    }
}

async fn lowered_numbers_of_a_bucket_refuse_until_the_used_units_have_drained(store: &UnderTest) {
    for rules in [
        [(100, 100), (10, 10)].map(|(count, size)| token_bucket(count, 100 * SECOND, size)),
        [(100, 100), (10, 10)].map(|(count, size)| leaky_bucket((count, 100 * SECOND), size, 0, 0)),
    ] {
        let [large, small] = rules.map(|rule| limit("edited", rule));
        store.take(NOON, ask(&large, 50)).await;
        let held = store.bytes(&large, CLIENT).await;
        let (ruling, verdict) = store.one(NOON, ask(&small, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(41 * SECOND)));
        assert_eq!((verdict.remaining, verdict.reset), (0, 50 * SECOND));
        assert_eq!(store.bytes(&large, CLIENT).await, held);
        let (ruling, _) = store.one(NOON.plus(41 * SECOND - 1), ask(&small, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(1)));
        store.take(NOON.plus(41 * SECOND), ask(&small, 1)).await;
        // From here on the bucket drains at the rate of the small numbers.
        let (ruling, _) = store.one(NOON.plus(41 * SECOND), ask(&small, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(10 * SECOND)));
    }
}

async fn ten_of_ten_raised_to_a_hundred_leave_ninety(store: &UnderTest) {
    let [small, large] = [10, 100].map(|count| {
        let rule = token_bucket(count, 3600 * SECOND, count);
        limit("edited", rule)
    });
    store.take(NOON, ask(&small, 10)).await;
    let (_, verdict) = store.one(NOON, ask(&large, 0)).await;
    assert_eq!(verdict.remaining, 90);
    store.take(NOON, ask(&large, 90)).await;
    let (ruling, _) = store.one(NOON, ask(&large, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(36 * SECOND)));
}

async fn a_clock_that_steps_back_locks_nobody_out(store: &UnderTest) {
    for (name, rule, interval) in [
        ("tokens", token_bucket(7, 3 * SECOND, 5), 428_572),
        (
            "queue",
            leaky_bucket((7, 3 * SECOND), 1, 4, 99 * SECOND),
            428_572,
        ),
        ("meter", leaky_bucket((7, 3 * SECOND), 5, 0, 0), 428_572),
        ("window", fixed_window(5, SECOND), SECOND),
    ] {
        let limit = limit(name, rule);
        store.take(NOON, ask(&limit, 5)).await;
        for back in [10 * SECOND, 3600 * SECOND, 31_536_000 * SECOND] {
            let at = before(NOON, back);
            let (ruling, _) = store.one(at, ask(&limit, 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(interval)), "{name}");
            let (ruling, _) = store.one(at.plus(interval - 1), ask(&limit, 1)).await;
            assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{name}");
            let (ruling, _) = store.one(at.plus(interval), ask(&limit, 1)).await;
            assert_eq!(wait(ruling), None, "{name}");
            // A window has begun anew. It is filled for the next step.
            while wait(store.one(at.plus(interval), ask(&limit, 1)).await.0).is_none() {}
        }
    }
}

async fn a_mended_state_is_written_once_and_then_left_alone(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(7, 3 * SECOND, 5));
    let window = limit("window", fixed_window(5, SECOND));
    store.take(NOON, ask(&tokens, 5)).await;
    store.take(NOON, ask(&window, 5)).await;
    let at = before(NOON, 10 * SECOND);
    // A cost that can never be admitted does not depend on the state, and changes nothing.
    let possible = store.everything(&[&tokens, &window], CLIENT).await;
    for limit in [&tokens, &window] {
        let (ruling, _) = store.one(at, ask(limit, 6)).await;
        assert_eq!(wait(ruling), Some(Wait::Never));
    }
    let seen = store.everything(&[&tokens, &window], CLIENT).await;
    assert_eq!(seen, possible);

    for limit in [&tokens, &window] {
        store.one(at, ask(limit, 1)).await;
    }
    // Five times 428,571 3/7 microseconds.
    let full = BucketState {
        at: at.micros() + 2_142_857,
        part: 1,
        den: 7,
        numbers: tokens.rule.bucket().and_then(|bucket| bucket.numbers),
    };
    assert_eq!(
        store.state(&tokens, CLIENT).await,
        Some(State::Bucket(full))
    );
    let start = at.micros();
    assert_eq!(
        store.state(&window, CLIENT).await,
        Some(State::Window(WindowState { start, count: 5 }))
    );
    let mended = store.everything(&[&tokens, &window], CLIENT).await;
    for later in [0, 1, 400_000] {
        for limit in [&tokens, &window] {
            let (ruling, _) = store.one(at.plus(later), ask(limit, 1)).await;
            assert!(wait(ruling).is_some());
        }
        let seen = store.everything(&[&tokens, &window], CLIENT).await;
        assert_eq!(seen, mended);
    }
}

async fn a_state_is_mended_for_the_refusing_limit_only(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(1, SECOND, 5));
    let window = limit("window", fixed_window(9, SECOND));
    store.take(NOON, ask(&tokens, 5)).await;
    store.take(NOON, ask(&window, 5)).await;
    let at = before(NOON, 60 * SECOND);
    let untouched = store.bytes(&window, CLIENT).await;
    let decided = store.decide(at, &[ask(&window, 1), ask(&tokens, 1)]).await;
    assert!(!admitted(&decided));
    // Four units are left in the window, with or without a mended start.
    assert_eq!(decided.decision.verdicts[0].remaining, 4);
    assert_eq!(store.bytes(&window, CLIENT).await, untouched);
    let full = BucketState {
        at: at.micros() + 5 * SECOND,
        part: 0,
        den: 1,
        numbers: tokens.rule.bucket().and_then(|bucket| bucket.numbers),
    };
    assert_eq!(
        store.state(&tokens, CLIENT).await,
        Some(State::Bucket(full))
    );
    let later = at.plus(SECOND);
    let decided = store
        .decide(later, &[ask(&window, 1), ask(&tokens, 1)])
        .await;
    assert!(admitted(&decided));
}

async fn a_thousand_charges_of_two_files_in_turn_are_a_thousand_units(store: &UnderTest) {
    let seventh = limit("edited", token_bucket(7, 3 * SECOND, 5000));
    let odd = limit("edited", token_bucket(13, 17_000_001, 2000));
    for nth in 0..1000 {
        let file = if nth % 2 == 0 { &seventh } else { &odd };
        store.take(NOON, ask(file, 1)).await;
    }
    for (file, left) in [(&seventh, 4000), (&odd, 1000)] {
        let (_, verdict) = store.one(NOON, ask(file, 0)).await;
        assert_eq!(verdict.remaining, left);
    }
}

async fn a_fraction_in_a_queue_is_rounded_against_the_client(store: &UnderTest) {
    let thirds = limit("edited", leaky_bucket((3, SECOND), 1, 9, 9 * SECOND));
    let sevenths = limit("edited", leaky_bucket((7, SECOND), 1, 9, 9 * SECOND));
    store.take(NOON, ask(&thirds, 1)).await;
    // A third of a microsecond is left, and counts as a whole one under sevenths.
    let (_, verdict) = store.one(NOON.plus(333_333), ask(&thirds, 0)).await;
    assert_eq!(verdict.reset, 1);
    store.take(NOON.plus(333_333), ask(&sevenths, 1)).await;
    let state = BucketState {
        at: NOON.micros() + 333_334 + 142_857,
        part: 1,
        den: 7,
        numbers: None,
    };
    let state = State::Bucket(state);
    assert_eq!(store.state(&thirds, CLIENT).await, Some(state));
    // What a whole number of microseconds says is the same under any.
    let twice = NOON.plus(60 * SECOND);
    store.take(twice, ask(&thirds, 3)).await;
    let (_, verdict) = store.one(twice, ask(&sevenths, 0)).await;
    assert_eq!(verdict.reset, SECOND);
}

async fn a_refund_under_other_numbers_gives_no_more_than_was_taken(store: &UnderTest) {
    // A charge is kept together with the limit under which it was made. An edit does not change that limit.
    let before = limit("edited", token_bucket(100, SECOND, 100));
    let after = limit("edited", token_bucket(3, SECOND, 100));
    store.take(NOON, ask(&before, 50)).await;
    let ticket: Ticket = store.take(NOON, ask(&before, 1)).await;
    let (ruling, _) = store.one(NOON, ask(&after, 0)).await;
    assert_eq!(ruling, Ruling::Admit { delay: 0 });
    store.refund(NOON, ask(&before, 1), ticket).await;
    let (_, verdict) = store.one(NOON, ask(&after, 0)).await;
    assert_eq!(verdict.reset, 500_000);
}
