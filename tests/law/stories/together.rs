//! Several limits of one request: all are charged or none, and the refusal names one of them.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, every, fixed_window, leaky_bucket, limit, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, ticket_of, wait};
use tollgate::limit::verdict::{Ruling, VerdictOutcome, Wait};
use tollgate::store::Check;

told_to_both! {
    a_refused_request_is_charged_nowhere
    a_refusal_changes_no_byte
    no_algorithm_writes_for_a_refusal_or_a_peek
    an_admitted_request_is_charged_everywhere
    the_longest_wait_is_named
    never_is_the_longest_wait
    on_a_tie_the_first_is_named
    the_longest_delay_is_waited
    a_peek_writes_nothing
    a_peek_beside_a_refusal_and_a_refusal_beside_a_peek
    a_cost_above_the_limit_is_never_admitted_and_writes_nothing
    keys_and_names_are_counted_apart
    what_is_past_does_not_count_as_a_charge_elsewhere
}

async fn a_refused_request_is_charged_nowhere(store: &UnderTest) {
    let wide = limit("wide", token_bucket(100, SECOND, 100));
    let queue = limit("queue", leaky_bucket((100, SECOND), 1, 50, SECOND));
    let window = limit("window", fixed_window(100, SECOND));
    let narrow = limit("narrow", token_bucket(1, SECOND, 1));
    // The refusing limit is first, in the middle, and last. Limits that were checked before it are not charged either.
    for place in 0..4 {
        let at = NOON.plus(place as u64 * 10 * SECOND);
        store.take(at, ask(&narrow, 1)).await;
        let mut checks = vec![ask(&wide, 3), ask(&queue, 3), ask(&window, 3)];
        checks.insert(place, ask(&narrow, 1));
        let decision = store.decide(at, &checks).await.decision;
        let wait = Wait::Micros(SECOND);
        assert_eq!(decision.ruling, Ruling::Refuse { by: place, wait });
        for (index, verdict) in decision.verdicts.iter().enumerate() {
            if index == place {
                assert_eq!(verdict.remaining, 0);
            } else {
                // The fields of the response show the counters as if the request had not come.
                assert!(matches!(verdict.outcome, VerdictOutcome::Admit { .. }));
                assert_eq!(verdict.reset, 0, "limit {index}, refused at {place}");
                assert!(verdict.remaining >= 51);
            }
        }
        let limits = [&wide, &queue, &window, &narrow];
        let stored = store.everything(&limits, CLIENT).await;
        assert!(stored[..3].iter().all(Option::is_none));
    }
}

async fn a_refusal_changes_no_byte(store: &UnderTest) {
    let limits = [
        limit("odd", token_bucket(7, 3 * SECOND, 9)),
        limit("queue", leaky_bucket((7, 3 * SECOND), 1, 20, 9 * SECOND)),
        limit("window", fixed_window(9, 60 * SECOND)),
        limit("narrow", fixed_window(2, 60 * SECOND)),
    ];
    let all: Vec<_> = limits.iter().map(|limit| ask(limit, 1)).collect();
    for _ in 0..2 {
        assert!(admitted(&store.decide(NOON, &all).await));
    }
    let limits: Vec<_> = limits.iter().collect();
    let before = store.everything(&limits, CLIENT).await;
    assert!(before.iter().all(Option::is_some));
    for later in [0, 1, 1000, SECOND / 3] {
        let at = NOON.plus(later);
        // All limits together, each limit at a cost for which it alone has no room, and a cost for which no limit ever
        // has room.
        assert!(!admitted(&store.decide(at, &all).await));
        for limit in &limits {
            assert!(!admitted(&store.decide(at, &[ask(limit, 21)]).await));
            assert!(!admitted(
                &store.decide(at, &[ask(limit, u64::from(u32::MAX))]).await
            ));
        }
        assert!(!admitted(&store.decide(at, &[ask(limits[0], 9)]).await));
        assert_eq!(store.everything(&limits, CLIENT).await, before);
    }
}

async fn no_algorithm_writes_for_a_refusal_or_a_peek(store: &UnderTest) {
    let limits = every(5, 60);
    let all: Vec<_> = limits.iter().collect();
    let none = store.everything(&all, CLIENT).await;
    for limit in &limits {
        for cost in [0, 6, u64::from(u32::MAX)] {
            store.one(NOON, ask(limit, cost)).await;
        }
    }
    assert_eq!(store.everything(&all, CLIENT).await, none);
    for limit in &limits {
        store.take(NOON, ask(limit, 3)).await;
    }
    let some = store.everything(&all, CLIENT).await;
    for later in [0, 1, 500_000] {
        for limit in &limits {
            for cost in [0, 3, 4, 5, 6] {
                let (ruling, _) = store.one(NOON.plus(later), ask(limit, cost)).await;
                assert_eq!(wait(ruling).is_none(), cost == 0, "{}", limit.name);
            }
        }
        // Each limit in turn refuses, and the limits that would have admitted the request are not charged either.
        for turn in 0..limits.len() {
            let mut checks: Vec<_> = limits.iter().map(|limit| ask(limit, 1)).collect();
            checks[turn].cost = ask(&limits[turn], 3).cost;
            let decided = store.decide(NOON.plus(later), &checks).await;
            assert!(!admitted(&decided), "{turn}");
        }
    }
    assert_eq!(store.everything(&all, CLIENT).await, some);
}

async fn an_admitted_request_is_charged_everywhere(store: &UnderTest) {
    let tokens = limit("tokens", token_bucket(10, SECOND, 10));
    let queue = limit("queue", leaky_bucket((10, SECOND), 1, 9, SECOND));
    let window = limit("window", fixed_window(10, SECOND));
    let checks = [ask(&tokens, 2), ask(&queue, 3), ask(&window, 4)];
    let decision = store.decide(NOON, &checks).await.decision;
    assert_eq!(decision.ruling, Ruling::Admit { delay: 0 });
    let left: Vec<_> = decision.verdicts.iter().map(|v| v.remaining).collect();
    assert_eq!(left, [8, 7, 6]);
    let peeks = [ask(&tokens, 0), ask(&queue, 0), ask(&window, 0)];
    let seen = store.decide(NOON, &peeks).await.decision;
    let left: Vec<_> = seen.verdicts.iter().map(|v| v.remaining).collect();
    assert_eq!(left, [8, 7, 6]);
}

async fn the_longest_wait_is_named(store: &UnderTest) {
    let second = limit("second", token_bucket(1, SECOND, 1));
    let minute = limit("minute", token_bucket(1, 60 * SECOND, 1));
    let hour = limit("hour", fixed_window(1, 3600 * SECOND));
    let wide = limit("wide", token_bucket(100, SECOND, 100));
    let all = [
        ask(&second, 1),
        ask(&minute, 1),
        ask(&hour, 1),
        ask(&wide, 1),
    ];
    assert!(admitted(&store.decide(NOON, &all).await));
    let ruling = |by, wait| Ruling::Refuse {
        by,
        wait: Wait::Micros(wait),
    };
    let decision = store.decide(NOON, &all).await.decision;
    assert_eq!(decision.ruling, ruling(2, 3600 * SECOND));
    // Each limit states its own wait all the same.
    let outcomes: Vec<_> = decision.verdicts.iter().map(|v| v.outcome).collect();
    let refuse = |wait| VerdictOutcome::Refuse(Wait::Micros(wait));
    assert_eq!(
        outcomes,
        [
            refuse(SECOND),
            refuse(60 * SECOND),
            refuse(3600 * SECOND),
            VerdictOutcome::Admit { delay: 0 },
        ]
    );
    let backwards = [all[3], all[1], all[0]];
    let decision = store.decide(NOON, &backwards).await.decision;
    assert_eq!(decision.ruling, ruling(1, 60 * SECOND));
}

async fn never_is_the_longest_wait(store: &UnderTest) {
    let year = limit("year", token_bucket(1, 31_536_000 * SECOND, 1));
    let five = limit("five", token_bucket(5, 1, 5));
    store.take(NOON, ask(&year, 1)).await;
    let wait = Wait::Never;
    for (checks, by) in [
        ([ask(&year, 1), ask(&five, 6)], 1),
        ([ask(&five, 6), ask(&year, 1)], 0),
        ([ask(&year, 2), ask(&five, 6)], 0),
    ] {
        let decision = store.decide(NOON, &checks).await.decision;
        assert_eq!(decision.ruling, Ruling::Refuse { by, wait });
    }
}

async fn on_a_tie_the_first_is_named(store: &UnderTest) {
    let first = limit("first", token_bucket(1, SECOND, 1));
    let second = limit("second", fixed_window(1, SECOND));
    let third = limit("third", leaky_bucket((1, SECOND), 1, 0, 0));
    let all = [ask(&first, 1), ask(&second, 1), ask(&third, 1)];
    assert!(admitted(&store.decide(NOON, &all).await));
    for turn in 0..3 {
        let mut turned = all;
        turned.rotate_left(turn);
        let decision = store.decide(NOON, &turned).await.decision;
        let wait = Wait::Micros(SECOND);
        assert_eq!(decision.ruling, Ruling::Refuse { by: 0, wait });
    }
}

async fn the_longest_delay_is_waited(store: &UnderTest) {
    let fast = limit("fast", leaky_bucket((10, SECOND), 1, 50, 9 * SECOND));
    let slow = limit("slow", leaky_bucket((3, SECOND), 1, 50, 9 * SECOND));
    let tokens = limit("tokens", token_bucket(100, SECOND, 100));
    let all = [ask(&fast, 1), ask(&slow, 1), ask(&tokens, 1)];
    for delay in [0, 333_334, 666_667, SECOND] {
        let decision = store.decide(NOON, &all).await.decision;
        assert_eq!(decision.ruling, Ruling::Admit { delay });
    }
    let delays = store.decide(NOON, &all).await.decision.verdicts;
    assert_eq!(delays[0].outcome, VerdictOutcome::Admit { delay: 400_000 });
    assert_eq!(
        delays[1].outcome,
        VerdictOutcome::Admit { delay: 1_333_334 }
    );
    assert_eq!(delays[2].outcome, VerdictOutcome::Admit { delay: 0 });
}

async fn a_peek_writes_nothing(store: &UnderTest) {
    let limits = [
        limit("odd", token_bucket(7, 3 * SECOND, 9)),
        limit("queue", leaky_bucket((7, 3 * SECOND), 1, 20, 9 * SECOND)),
        limit("window", fixed_window(9, 60 * SECOND)),
    ];
    let peeks: Vec<_> = limits.iter().map(|limit| ask(limit, 0)).collect();
    let takes: Vec<_> = limits.iter().map(|limit| ask(limit, 9)).collect();
    let limits: Vec<_> = limits.iter().collect();
    let decided = store.decide(NOON, &peeks).await;
    assert!(admitted(&decided));
    for (index, peek) in peeks.iter().enumerate() {
        assert_eq!(
            ticket_of(&decided, index, peek),
            None,
            "nothing to give back"
        );
    }
    let stored = store.everything(&limits, CLIENT).await;
    assert!(stored.iter().all(Option::is_none));
    assert!(admitted(&store.decide(NOON, &takes).await));
    let before = store.everything(&limits, CLIENT).await;
    // Drained buckets, a later instant, and a clock that has stepped back so far that the states are impossible.
    for at in [NOON, NOON.plus(SECOND), NOON] {
        assert!(admitted(&store.decide(at, &peeks).await));
    }
    let long_ago = tollgate::clock::Timestamp::from_micros(NOON.micros() - 3600 * SECOND);
    assert!(admitted(&store.decide(long_ago, &peeks).await));
    assert_eq!(store.everything(&limits, CLIENT).await, before);
}

async fn a_peek_beside_a_refusal_and_a_refusal_beside_a_peek(store: &UnderTest) {
    let wide = limit("wide", token_bucket(10, SECOND, 10));
    let narrow = limit("narrow", token_bucket(1, SECOND, 1));
    store.take(NOON, ask(&wide, 4)).await;
    store.take(NOON, ask(&narrow, 1)).await;
    let checks = [ask(&wide, 0), ask(&narrow, 1)];
    let decision = store.decide(NOON, &checks).await.decision;
    assert!(matches!(decision.ruling, Ruling::Refuse { by: 1, .. }));
    assert_eq!(decision.verdicts[0].remaining, 6);
    // A peek at an empty bucket does not refuse the request.
    let checks = [ask(&wide, 2), ask(&narrow, 0)];
    let decision = store.decide(NOON, &checks).await.decision;
    assert_eq!(decision.ruling, Ruling::Admit { delay: 0 });
    assert_eq!(decision.verdicts[0].remaining, 4);
}

async fn a_cost_above_the_limit_is_never_admitted_and_writes_nothing(store: &UnderTest) {
    let month = 2_678_400 * SECOND;
    let limits = [
        limit("tokens", token_bucket(1, month, 5)),
        limit("queue", leaky_bucket((1, month), 2, 3, SECOND)),
        limit("meter", leaky_bucket((1, month), 5, 0, 0)),
        limit("window", fixed_window(5, month)),
    ];
    let all: Vec<_> = limits.iter().collect();
    for cost in [6, 7, 6_887_303, u64::from(u32::MAX)] {
        for limit in &limits {
            let (ruling, verdict) = store.one(NOON, ask(limit, cost)).await;
            assert_eq!(wait(ruling), Some(Wait::Never), "{} {cost}", limit.name);
            // The wait for a place in the queue would be too long: one place takes half a month.
            let left = if &*limit.name == "queue" { 2 } else { 5 };
            assert_eq!((verdict.remaining, verdict.reset), (left, 0));
        }
    }
    let stored = store.everything(&all, CLIENT).await;
    assert!(stored.iter().all(Option::is_none));
    for limit in &limits {
        store.take(NOON, ask(limit, 5)).await;
        for cost in [6, u64::from(u32::MAX)] {
            let (ruling, verdict) = store.one(NOON, ask(limit, cost)).await;
            assert_eq!(wait(ruling), Some(Wait::Never), "{} {cost}", limit.name);
            assert_eq!(verdict.remaining, 0);
        }
    }
}

async fn keys_and_names_are_counted_apart(store: &UnderTest) {
    let one = limit("one", token_bucket(1, SECOND, 1));
    let other = limit("other", token_bucket(1, SECOND, 1));
    let mut checks = Vec::new();
    for limit in [&one, &other] {
        for key in [b"a".as_slice(), b"b", b"", b"a%", b"A", b"{a}", b"a:b"] {
            let check = ask(limit, 1);
            checks.push(Check { key, ..check });
        }
    }
    for check in &checks {
        assert!(admitted(&store.decide(NOON, &[*check]).await));
    }
    for check in &checks {
        assert!(!admitted(&store.decide(NOON, &[*check]).await));
    }
}

async fn what_is_past_does_not_count_as_a_charge_elsewhere(store: &UnderTest) {
    let short = limit("short", fixed_window(1, SECOND));
    let long = limit("long", fixed_window(2, 60 * SECOND));
    let both = [ask(&short, 1), ask(&long, 1)];
    assert!(admitted(&store.decide(NOON, &both).await));
    for _ in 0..5 {
        assert!(!admitted(&store.decide(NOON, &both).await));
    }
    // If the refused requests had been charged to the longer window, it would be full by now.
    assert!(admitted(&store.decide(NOON.plus(SECOND), &both).await));
    let decision = store.decide(NOON.plus(2 * SECOND), &both).await.decision;
    let wait = Wait::Micros(58 * SECOND);
    assert_eq!(decision.ruling, Ruling::Refuse { by: 1, wait });
}
