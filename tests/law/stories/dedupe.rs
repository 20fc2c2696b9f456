//! A repeated request is charged once: the records of ids, their lives, and their ends.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, clock_window, concurrency, fixed_window, leaky_bucket, limit,
    sliding_log, sliding_window, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, ticket_of, wait};
use crate::support::stored_state;
use http::HeaderName;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::key::{IdField, RepeatId, Sameness};
use tollgate::limit::RecordState;
use tollgate::limit::dedupe::Dedupe;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{GrantedUnits, Repeat, Ruling, Wait};
use tollgate::limit::{Limit, Rule};
use tollgate::store::{Check, StoreDecision, StoreError};

told_to_both! {
    the_same_id_is_charged_once_and_gets_the_same_answer
    an_id_is_remembered_exactly_as_long_as_it_says
    one_repeat_too_many_is_charged_and_remembers_nothing_new
    what_is_refused_is_not_remembered
    all_limits_remember_or_none_does
    a_repeat_is_granted_what_the_first_was
    a_repeat_is_not_held_a_second_time
    what_goes_back_is_forgotten
    a_charge_that_was_repeated_stays
    an_id_that_costs_nothing_is_none
    a_clock_that_steps_back_makes_no_record_last_longer
    new_numbers_hold_for_what_is_remembered
    a_reset_forgets_the_counter_and_not_who_has_paid
    what_is_no_record_is_charged_and_overwritten
    several_rates_remember_together
    if4_an_id_outlives_its_window
    if5_an_id_that_asks_for_more_is_charged_for_it
}

const TTL: u64 = 10 * SECOND;

pub(in crate::law) fn once(limit: Arc<Limit>, ttl: u64, repeats: u32) -> Arc<Limit> {
    let dedupe = Dedupe {
        field: IdField(HeaderName::from_static("idempotency-key")),
        ttl,
        repeats,
        of: Sameness::Path,
    };
    Arc::new(limit.edited(|policy| policy.dedupe = Some(dedupe)))
}

fn make(name: &str, rule: (Rate, Rule)) -> Arc<Limit> {
    once(limit(name, rule), TTL, 3)
}

/// One limit of ten units for every kind that lets repeats go free. In the time of the test hardly any unit comes back.
fn tens() -> Vec<Arc<Limit>> {
    vec![
        make("tokens", token_bucket(10, 3600 * SECOND, 10)),
        make("meter", leaky_bucket((7, 3600 * SECOND), 10, 0, 0)),
        make(
            "queue",
            leaky_bucket((7, 3600 * SECOND), 1, 9, 5000 * SECOND),
        ),
        make("window", fixed_window(10, 3600 * SECOND)),
        make("clock", clock_window(10, 86_400 * SECOND, 0)),
        make("sliding", sliding_window(10, 3600 * SECOND, 6, true)),
        make("log", sliding_log(10, 3600 * SECOND)),
    ]
}

fn id(nth: u64, cost: u64) -> RepeatId {
    RepeatId::of("POST", "/pay", cost, &nth.to_be_bytes())
}

fn with_id(limit: &Arc<Limit>, cost: u64, nth: u64) -> Check<'_> {
    Check {
        id: Some(id(nth, cost)),
        ..ask(limit, cost)
    }
}

fn repeat(decided: &StoreDecision) -> Repeat {
    assert!(admitted(decided), "{decided:?}");
    decided.measured(0).unwrap().repeat
}

/// The record of an id in the store.
async fn record(store: &UnderTest, check: Check<'_>) -> Option<RecordState> {
    let id = check.id.unwrap();
    match store {
        UnderTest::Memory(memory) => {
            let name = [check.key, &[0], id.bytes()].concat();
            memory.stored(check.limit, &name)?.record()
        }
        UnderTest::Redis { server, .. } => {
            let name = record_name(check);
            match server.command(&["GET", &name]).await {
                ::redis::Value::BulkString(bytes) => stored_state::record(&bytes),
                _ => None,
            }
        }
    }
}

fn record_name(check: Check<'_>) -> String {
    let digits = check.id.unwrap().digits();
    let counter = UnderTest::name(check.limit, check.key);
    format!("{counter}:d:{}", str::from_utf8(&digits).unwrap())
}

async fn the_same_id_is_charged_once_and_gets_the_same_answer(store: &UnderTest) {
    for limit in tens() {
        let first = store.decide(NOON, &[with_id(&limit, 2, 1)]).await;
        assert_eq!(repeat(&first), Repeat::First, "{}", limit.name);
        let before = store.bytes(&limit, CLIENT).await;
        let peeked = store.one(NOON, ask(&limit, 0)).await.1;
        for later in [0, 1, SECOND] {
            let decided = store
                .decide(NOON.plus(later), &[with_id(&limit, 2, 1)])
                .await;
            assert_eq!(repeat(&decided), Repeat::Free, "{}", limit.name);
            assert_eq!(decided.decision.ruling, Ruling::Admit { delay: 0 });
            assert_eq!(decided.decision.verdicts[0].remaining, peeked.remaining);
            assert_eq!(
                decided.measured(0).unwrap().granted,
                first.measured(0).unwrap().granted
            );
            assert_eq!(ticket_of(&decided, 0, &with_id(&limit, 2, 1)), None);
        }
        assert_eq!(store.bytes(&limit, CLIENT).await, before, "{}", limit.name);
        // Requests with another id, of another client or without an id are other requests.
        let other = Check {
            key: b"else",
            ..with_id(&limit, 2, 1)
        };
        for check in [with_id(&limit, 2, 2), other, ask(&limit, 2)] {
            let decided = store.decide(NOON, &[check]).await;
            assert_ne!(repeat(&decided), Repeat::Free, "{}", limit.name);
        }
        let left = store.one(NOON, ask(&limit, 0)).await.1.remaining;
        assert_eq!(left, peeked.remaining - 4, "{}", limit.name);
    }
}

async fn an_id_is_remembered_exactly_as_long_as_it_says(store: &UnderTest) {
    let tokens = once(
        limit("tokens", token_bucket(10, 3600 * SECOND, 10)),
        1_500,
        9,
    );
    let check = with_id(&tokens, 1, 1);
    let start = NOON.plus(7);
    assert_eq!(repeat(&store.decide(start, &[check]).await), Repeat::First);
    let kept = record(store, check).await.unwrap();
    assert_eq!(kept.ends, start.plus(1_500).micros());
    // Repeats do not lengthen the life of the record.
    for later in [1, 700, 1_499] {
        let decided = store.decide(start.plus(later), &[check]).await;
        assert_eq!(repeat(&decided), Repeat::Free, "{later}");
    }
    let decided = store.decide(start.plus(1_500), &[check]).await;
    assert_eq!(repeat(&decided), Repeat::First);
}

async fn one_repeat_too_many_is_charged_and_remembers_nothing_new(store: &UnderTest) {
    let tokens = make("tokens", token_bucket(10, 3600 * SECOND, 10));
    let check = with_id(&tokens, 3, 1);
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(repeat(&store.decide(NOON, &[check]).await));
    }
    let (first, free, no) = (Repeat::First, Repeat::Free, Repeat::No);
    assert_eq!(seen, [first, free, free, free, no, no]);
    let (ruling, verdict) = store.one(NOON, check).await;
    assert!(matches!(wait(ruling), Some(Wait::Micros(_))), "{verdict:?}");
    let kept = record(store, check).await.unwrap();
    assert_eq!((kept.free, kept.ends), (3, NOON.plus(TTL).micros()));
}

async fn what_is_refused_is_not_remembered(store: &UnderTest) {
    for limit in tens() {
        store.take(NOON, ask(&limit, 9)).await;
        let check = with_id(&limit, 2, 1);
        let before = store.bytes(&limit, CLIENT).await;
        let (ruling, _) = store.one(NOON, check).await;
        let Some(Wait::Micros(wait)) = wait(ruling) else {
            panic!("{}: {ruling:?}", limit.name);
        };
        assert_eq!(record(store, check).await, None);
        assert_eq!(store.bytes(&limit, CLIENT).await, before);
        let decided = store.decide(NOON.plus(wait), &[check]).await;
        assert_eq!(repeat(&decided), Repeat::First, "{}", limit.name);
    }
}

async fn all_limits_remember_or_none_does(store: &UnderTest) {
    let tokens = make("tokens", token_bucket(10, 3600 * SECOND, 10));
    let window = make("window", fixed_window(2, 3600 * SECOND));
    let gate = limit("gate", fixed_window(2, SECOND));
    let both = [
        with_id(&tokens, 1, 1),
        with_id(&window, 1, 1),
        ask(&gate, 1),
    ];
    store.take(NOON, ask(&gate, 2)).await;
    assert!(!admitted(&store.decide(NOON, &both).await));
    assert_eq!(record(store, both[0]).await, None);
    assert_eq!(record(store, both[1]).await, None);
    let later = NOON.plus(SECOND);
    for free in 0..2 {
        let decided = store.decide(later, &both).await;
        assert!(admitted(&decided));
        for (index, check) in both.iter().enumerate() {
            let measured = decided.measured(index).unwrap();
            // A limit that counts no ids counts the repeat as usual.
            let expected = match (check.id, free) {
                (None, _) => Repeat::No,
                (_, 0) => Repeat::First,
                _ => Repeat::Free,
            };
            assert_eq!(measured.repeat, expected);
        }
    }
    // A repeat that another limit refuses does not count as a repeat.
    assert!(!admitted(&store.decide(later, &both).await));
    for check in &both[..2] {
        assert_eq!(record(store, *check).await.unwrap().free, 1);
    }
}

async fn a_repeat_is_granted_what_the_first_was(store: &UnderTest) {
    for limit in tens() {
        let limit = Arc::new(limit.edited(|policy| policy.partial = true));
        store.take(NOON, ask(&limit, 7)).await;
        let check = with_id(&limit, 5, 1);
        let first = store.decide(NOON, &[check]).await;
        let granted = first.measured(0).unwrap().granted;
        assert_eq!(granted, GrantedUnits::of(Cost::new(3)), "{}", limit.name);
        let again = store.decide(NOON, &[check]).await;
        assert_eq!(repeat(&again), Repeat::Free);
        assert_eq!(again.measured(0).unwrap().granted, granted);
        assert_eq!(again.decision.verdicts[0].remaining, 0);
    }
}

async fn a_repeat_is_not_held_a_second_time(store: &UnderTest) {
    let queue = make("queue", leaky_bucket((1, SECOND), 1, 9, 60 * SECOND));
    store.take(NOON, ask(&queue, 4)).await;
    let check = with_id(&queue, 1, 1);
    let first = store.decide(NOON, &[check]).await;
    assert_eq!(first.decision.ruling, Ruling::Admit { delay: 4 * SECOND });
    let again = store.decide(NOON, &[check]).await;
    assert_eq!(again.decision.ruling, Ruling::Admit { delay: 0 });
    let (ruling, _) = store.one(NOON, ask(&queue, 1)).await;
    assert_eq!(ruling, Ruling::Admit { delay: 5 * SECOND });
}

async fn what_goes_back_is_forgotten(store: &UnderTest) {
    for limit in tens() {
        store.take(NOON, ask(&limit, 1)).await;
        let before = store.bytes(&limit, CLIENT).await;
        let check = with_id(&limit, 4, 1);
        let ticket = store.take(NOON, check).await;
        store.refund(NOON, check, ticket).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, before, "{}", limit.name);
        assert_eq!(record(store, check).await, None, "{}", limit.name);
        // The next request with this id is charged. A second refund with the old ticket does not touch that charge.
        let decided = store.decide(NOON.plus(1), &[check]).await;
        assert_eq!(repeat(&decided), Repeat::First, "{}", limit.name);
        let paid = store.bytes(&limit, CLIENT).await;
        store.refund(NOON.plus(1), check, ticket).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, paid, "{}", limit.name);
        assert!(record(store, check).await.is_some(), "{}", limit.name);
    }
}

async fn a_charge_that_was_repeated_stays(store: &UnderTest) {
    for limit in tens() {
        let check = with_id(&limit, 2, 1);
        let ticket = store.take(NOON, check).await;
        assert_eq!(repeat(&store.decide(NOON, &[check]).await), Repeat::Free);
        let paid = store.bytes(&limit, CLIENT).await;
        store.refund(NOON, check, ticket).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, paid, "{}", limit.name);
        assert_eq!(record(store, check).await.unwrap().free, 1);
        // Two more repeats go free. The one after them is charged itself, and gets this charge back.
        for _ in 0..2 {
            assert_eq!(repeat(&store.decide(NOON, &[check]).await), Repeat::Free);
        }
        let last = store.take(NOON, check).await;
        assert_eq!(last.record, None);
        store.refund(NOON, check, last).await;
        assert_eq!(store.bytes(&limit, CLIENT).await, paid, "{}", limit.name);
    }
}

async fn an_id_that_costs_nothing_is_none(store: &UnderTest) {
    let tokens = make("tokens", token_bucket(10, 3600 * SECOND, 10));
    let peek = Check {
        id: Some(id(1, 1)),
        ..ask(&tokens, 0)
    };
    assert_eq!(repeat(&store.decide(NOON, &[peek]).await), Repeat::No);
    assert_eq!(record(store, peek).await, None);
    let check = with_id(&tokens, 1, 1);
    store.take(NOON, check).await;
    assert_eq!(repeat(&store.decide(NOON, &[peek]).await), Repeat::No);
    assert_eq!(record(store, check).await.unwrap().free, 0);
}

async fn a_clock_that_steps_back_makes_no_record_last_longer(store: &UnderTest) {
    let tokens = make("tokens", token_bucket(10, 3600 * SECOND, 10));
    let check = with_id(&tokens, 1, 1);
    store.take(NOON, check).await;
    let back = Timestamp::from_micros(NOON.micros() - 5 * SECOND);
    assert_eq!(repeat(&store.decide(back, &[check]).await), Repeat::Free);
    let kept = record(store, check).await.unwrap();
    assert_eq!((kept.ends, kept.free), (back.plus(TTL).micros(), 1));
    let decided = store.decide(back.plus(TTL), &[check]).await;
    assert_eq!(repeat(&decided), Repeat::First);
}

async fn new_numbers_hold_for_what_is_remembered(store: &UnderTest) {
    let rule = || token_bucket(10, 3600 * SECOND, 10);
    let (long, short) = (make("l", rule()), once(limit("l", rule()), SECOND, 1));
    let check = |limit| with_id(limit, 1, 1);
    store.take(NOON, check(&long)).await;
    assert_eq!(
        repeat(&store.decide(NOON, &[check(&short)]).await),
        Repeat::Free
    );
    // The limit now allows one repeat only. Its answer said that the id lasts a second.
    assert_eq!(
        repeat(&store.decide(NOON, &[check(&short)]).await),
        Repeat::No
    );
    assert_eq!(
        repeat(&store.decide(NOON, &[check(&long)]).await),
        Repeat::Free
    );
    let later = NOON.plus(SECOND);
    assert_eq!(
        repeat(&store.decide(later, &[check(&long)]).await),
        Repeat::First
    );
}

async fn a_reset_forgets_the_counter_and_not_who_has_paid(store: &UnderTest) {
    let tokens = make("tokens", token_bucket(10, 3600 * SECOND, 10));
    let check = with_id(&tokens, 4, 1);
    let ticket = store.take(NOON, check).await;
    assert!(store.reset(&tokens, CLIENT).await);
    let decided = store.decide(NOON, &[check]).await;
    assert_eq!(repeat(&decided), Repeat::Free);
    assert_eq!(decided.decision.verdicts[0].remaining, 10);
    store.refund(NOON, check, ticket).await;
    assert_eq!(store.bytes(&tokens, CLIENT).await, None);
}

async fn what_is_no_record_is_charged_and_overwritten(store: &UnderTest) {
    let UnderTest::Redis { server, .. } = store else {
        return;
    };
    let tokens = make("tokens", token_bucket(1000, 3600 * SECOND, 1000));
    let check = with_id(&tokens, 1, 1);
    let name = record_name(check);
    let far = NOON.plus(SECOND).micros() as f64;
    for (ends, rest) in [
        (far, &[0; 7][..]),
        (f64::NAN, &[0, 0, 0, 1, 0, 0, 0, 0]),
        (far, &[0; 8]),
    ] {
        let bytes = [&ends.to_be_bytes()[..], rest].concat();
        server.put(&name, &bytes).await;
        assert_eq!(repeat(&store.decide(NOON, &[check]).await), Repeat::First);
        assert_eq!(repeat(&store.decide(NOON, &[check]).await), Repeat::Free);
    }
    // The key has a value of another type: the request cannot be decided, and nothing is charged.
    server.command::<()>(&["DEL", &name]).await;
    server.command::<()>(&["RPUSH", &name, "x"]).await;
    let before = store.bytes(&tokens, CLIENT).await;
    let UnderTest::Redis { store: redis, .. } = store else {
        return;
    };
    let error = redis.at(NOON).decide(&[check]).await.unwrap_err();
    assert!(matches!(error, StoreError::Answer { .. }), "{error}");
    assert_eq!(store.bytes(&tokens, CLIENT).await, before);
}

async fn several_rates_remember_together(store: &UnderTest) {
    let one = |rule, window: &str| {
        let limit = make("rates", rule);
        Arc::new(limit.edited(|policy| policy.window = Some(window.into())))
    };
    let minute = one(fixed_window(3, 60 * SECOND), "3/min");
    let hour = one(fixed_window(9, 3600 * SECOND), "9/h");
    let both = [with_id(&minute, 1, 1), with_id(&hour, 1, 1)];
    for expected in [
        Repeat::First,
        Repeat::Free,
        Repeat::Free,
        Repeat::Free,
        Repeat::No,
    ] {
        let decided = store.decide(NOON, &both).await;
        let seen: Vec<_> = (0..decided.answers.len())
            .map(|index| decided.measured(index).unwrap().repeat)
            .collect();
        assert_eq!(seen, [expected; 2]);
    }
    let left = store
        .decide(NOON, &[ask(&minute, 0), ask(&hour, 0)])
        .await
        .decision;
    let left: Vec<_> = left
        .verdicts
        .iter()
        .map(|verdict| verdict.remaining)
        .collect();
    assert_eq!(left, [1, 7]);
}

/// The defect: records ended with the window, and in its last millisecond an id was charged twice.
async fn if4_an_id_outlives_its_window(store: &UnderTest) {
    let window = make("window", fixed_window(10, SECOND));
    store.take(NOON, ask(&window, 4)).await;
    let check = with_id(&window, 1, 1);
    let late = NOON.plus(SECOND - 500);
    assert_eq!(repeat(&store.decide(late, &[check]).await), Repeat::First);
    assert_eq!(repeat(&store.decide(late, &[check]).await), Repeat::Free);
    assert_eq!(store.one(late, ask(&window, 0)).await.1.remaining, 5);
    // The id goes free in the next window too, since it was charged.
    let next = store.decide(NOON.plus(SECOND), &[check]).await;
    assert_eq!(repeat(&next), Repeat::Free);
    assert_eq!(next.decision.verdicts[0].remaining, 10);
}

/// The defect: an id that had been charged 4 let a request for 9 pass.
async fn if5_an_id_that_asks_for_more_is_charged_for_it(store: &UnderTest) {
    let window = make("window", fixed_window(20, 60 * SECOND));
    for (cost, left) in [(4, 16), (9, 7), (4, 7), (9, 7)] {
        let (ruling, verdict) = store.one(NOON, with_id(&window, cost, 1)).await;
        assert_eq!(ruling, Ruling::Admit { delay: 0 });
        assert_eq!(verdict.remaining, left, "{cost}");
    }
    let slots = limit("flight", concurrency(2, SECOND));
    assert!(slots.dedupe.is_none(), "a configuration cannot have both");
}
