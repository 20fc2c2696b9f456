//! Properties of the memory store alone: it is bounded, ended counters are swept, and no live state is lost by that.

use super::numbers::{CLIENT, NOON, SECOND, ask, concurrency, fixed_window, limit, token_bucket};
use super::stories::dedupe::once;
use super::under_test::{admitted, metered, ticket_of};
use std::sync::Arc;
use tollgate::clock::{Clock, Timestamp};
use tollgate::key::RepeatId;
use tollgate::limit::Limit;
use tollgate::limit::Mode;
use tollgate::limit::verdict::Repeat;
use tollgate::store::{Check, MemoryStore};

/// After this number of turns every shard has surely been swept.
const TURNS: usize = 1000;

fn check<'a>(limit: &'a Arc<Limit>, key: &'a str) -> Check<'a> {
    let key = key.as_bytes();
    Check {
        key,
        ..ask(limit, 1)
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("client-{index}")).collect()
}

#[test]
fn a_full_store_keeps_every_live_state_and_limits_the_rest_together() {
    let store = MemoryStore::new(Clock::manual(NOON), 100);
    let limit = limit("per-client", token_bucket(3, 60 * SECOND, 3));
    let early = names(100);
    for key in &early {
        assert!(admitted(&store.decide(&[check(&limit, key)])));
    }
    assert_eq!((store.len(), store.overflowed()), (100, 0));
    let states: Vec<_> = early
        .iter()
        .map(|key| store.stored(&limit, key.as_bytes()).unwrap())
        .collect();

    let late: Vec<_> = (0..500).map(|index| format!("late-{index}")).collect();
    let turn = |key: &&String| admitted(&store.decide(&[check(&limit, key)]));
    let admissions = late.iter().filter(turn).count();
    assert_eq!(admissions, 3, "all of them share one counter");
    assert_eq!(store.overflowed(), 500);
    assert_eq!(store.len(), 101, "the hundred and the shared one");
    for (key, state) in early.iter().zip(&states) {
        assert_eq!(
            store.stored(&limit, key.as_bytes()).as_ref(),
            Some(state),
            "{key}"
        );
        let decided = store.decide(&[check(&limit, key)]);
        assert_eq!(decided.decision.verdicts[0].remaining, 1);
    }
}

#[test]
fn each_limit_of_a_full_store_has_a_shared_counter_of_its_own() {
    let store = MemoryStore::new(Clock::manual(NOON), 0);
    let wide = limit("wide", fixed_window(10, SECOND));
    let narrow = limit("narrow", fixed_window(2, SECOND));
    let keys = names(20);
    let both = |key: &&String| {
        let checks = [check(&wide, key), check(&narrow, key)];
        admitted(&store.decide(&checks))
    };
    assert_eq!(keys.iter().filter(both).count(), 2);
    let wide_only = |key: &&String| admitted(&store.decide(&[check(&wide, key)]));
    assert_eq!(keys.iter().filter(wide_only).count(), 8, "ten less two");
    assert_eq!(store.len(), 2);
}

#[test]
fn what_has_ended_makes_room_at_once() {
    let clock = Clock::manual(NOON);
    let store = MemoryStore::new(clock.clone(), 1000);
    let limit = limit("per-client", fixed_window(1, SECOND));
    for key in &names(1000) {
        assert!(admitted(&store.decide(&[check(&limit, key)])));
    }
    clock.set(NOON.plus(SECOND));
    // Nothing has been swept yet. A new counter removes ended counters of its own shard. So all new keys get counters
    // of their own, except the few whose shard contains no ended counter and is asked before another shard is cleared.
    let late: Vec<_> = (0..1000).map(|index| format!("late-{index}")).collect();
    let turn = |key: &&String| admitted(&store.decide(&[check(&limit, key)]));
    assert!(late.iter().filter(turn).count() > 500);
    assert!(store.len() <= 1001, "{}", store.len());
    let shared = store.overflowed() as usize;
    // A key that was counted together with others may now get its own counter, for the first time. After that, each key
    // has had its one request.
    assert!(late.iter().filter(turn).count() <= shared);
    assert_eq!(late.iter().filter(turn).count(), 0);
}

#[test]
fn sweeping_forgets_what_has_ended_and_nothing_else() {
    let clock = Clock::manual(NOON);
    let store = MemoryStore::new(clock.clone(), 1_000_000);
    // A unit takes 428,571 3/7 microseconds, so states end between two microseconds.
    let limit = limit("odd", token_bucket(7, 3 * SECOND, 100));
    let keys = names(100);
    for (index, key) in keys.iter().enumerate() {
        let cost = ask(&limit, index as u64 + 1).cost;
        let check = Check {
            cost,
            ..check(&limit, key)
        };
        assert!(admitted(&store.decide(&[check])));
    }
    for gone in [1, 2, 50, 100_u64] {
        let end = NOON.plus((gone * 3 * SECOND).div_ceil(7));
        clock.set(Timestamp::from_micros(end.micros() - 1));
        (0..TURNS).for_each(|turn| store.sweep(turn));
        assert_eq!(store.len() as u64, 100 - (gone - 1), "a microsecond early");
        clock.set(end);
        let before: Vec<_> = keys[gone as usize..]
            .iter()
            .map(|key| {
                store.decide(&[Check {
                    cost: ask(&limit, 0).cost,
                    ..check(&limit, key)
                }])
            })
            .collect();
        (0..TURNS).for_each(|turn| store.sweep(turn));
        assert_eq!(store.len() as u64, 100 - gone);
        for (key, before) in keys[gone as usize..].iter().zip(before) {
            let peek = Check {
                cost: ask(&limit, 0).cost,
                ..check(&limit, key)
            };
            assert_eq!(store.decide(&[peek]), before, "{key}");
        }
    }
    assert!(store.is_empty());
}

#[test]
fn a_store_that_has_shrunk_still_finds_everything() {
    let clock = Clock::manual(NOON);
    let store = MemoryStore::new(clock.clone(), 1_000_000);
    let short = limit("short", fixed_window(1, SECOND));
    let long = limit("long", fixed_window(1, 3600 * SECOND));
    let keys = names(20_000);
    for key in &keys {
        store.decide(&[check(&short, key)]);
    }
    let kept = &keys[..500];
    for key in kept {
        store.decide(&[check(&long, key)]);
    }
    clock.set(NOON.plus(SECOND));
    (0..TURNS).for_each(|turn| store.sweep(turn));
    assert_eq!(store.len(), 500);
    for key in kept {
        assert!(!admitted(&store.decide(&[check(&long, key)])), "{key}");
    }
}

#[test]
fn a_request_of_several_limits_overflows_as_a_whole() {
    let store = MemoryStore::new(Clock::manual(NOON), 1);
    let held = limit("held", token_bucket(5, 60 * SECOND, 5));
    let new = limit("new", token_bucket(2, 60 * SECOND, 2));
    assert!(admitted(&store.decide(&[ask(&held, 1)])));
    let both = [ask(&new, 1), ask(&held, 1)];
    assert!(admitted(&store.decide(&both)));
    assert!(admitted(&store.decide(&both)));
    // The overflow key of `new` is empty now. `held` has its own counter, and the refused request is not charged to it.
    assert!(!admitted(&store.decide(&both)));
    let left = store.decide(&[ask(&held, 0)]).decision.verdicts[0].remaining;
    assert_eq!(left, 2);
    assert_eq!(store.stored(&new, CLIENT), None);
}

#[test]
fn a_slot_of_the_shared_counter_comes_back_though_its_key_has_room_since() {
    let clock = Clock::manual(NOON);
    let store = MemoryStore::new(clock.clone(), 2);
    let window = limit("window", fixed_window(1, SECOND));
    let slots = limit("slots", concurrency(2, 30 * SECOND));
    for early in ["early", "as early"] {
        assert!(admitted(&store.decide(&[check(&window, early)])));
    }
    let crowded = store.decide(&[check(&slots, "a")]);
    assert_eq!(store.overflowed(), 1);
    clock.set(NOON.plus(SECOND));
    (0..TURNS).for_each(|turn| store.sweep(turn));
    store.decide(&[check(&slots, "a")]);
    assert!(store.stored(&slots, b"a").is_some(), "it has room now");

    let ticket = ticket_of(&crowded, 0, &check(&slots, "a")).unwrap();
    store.refund(&slots, b"a", ticket);
    assert_eq!(store.stored(&slots, b"%overflow"), None);
    assert!(store.stored(&slots, b"a").is_some());
}

#[test]
fn an_id_without_room_is_charged_and_never_takes_a_live_state() {
    let clock = Clock::manual(NOON);
    let store = MemoryStore::new(clock.clone(), 10);
    let calls = once(
        limit("calls", token_bucket(100, 3600 * SECOND, 100)),
        SECOND,
        3,
    );
    let ids: Vec<_> = (0..30_u8)
        .map(|nth| RepeatId::of("POST", "/", 1, &[nth]))
        .collect();
    let with_id = |id: &RepeatId| Check {
        id: Some(*id),
        ..ask(&calls, 1)
    };
    let told = |id: &RepeatId| store.decide(&[with_id(id)]).measured(0).unwrap().repeat;
    let firsts = ids.iter().filter(|id| told(id) == Repeat::First).count();
    assert_eq!((firsts, store.len(), store.overflowed()), (9, 10, 21));
    // Ids that are remembered go free, and the others are charged.
    assert_eq!(ids.iter().filter(|id| told(id) == Repeat::Free).count(), 9);
    let left = store.decide(&[ask(&calls, 0)]).decision.verdicts[0].remaining;
    assert_eq!(left, 100 - 30 - 21);
    // The charge of such a request can be given back.
    let check = with_id(&ids[29]);
    let ticket = ticket_of(&store.decide(&[check]), 0, &check).unwrap();
    store.refund(&calls, CLIENT, calls.abandoned(ticket, NOON));
    assert_eq!(
        store.decide(&[ask(&calls, 0)]).decision.verdicts[0].remaining,
        left
    );
    // Ended counters make room. Sweeping does not touch this counter.
    clock.set(NOON.plus(SECOND));
    (0..TURNS).for_each(|turn| store.sweep(turn));
    assert_eq!(store.len(), 1);
    assert_eq!(told(&ids[29]), Repeat::First);
}

#[test]
fn what_was_charged_on_the_shared_counter_comes_back_there() {
    let store = MemoryStore::new(Clock::manual(NOON), 2);
    let limit = metered(limit("tokens", token_bucket(10, 10 * SECOND, 10)), 40);
    store.decide(&[check(&limit, "early")]);
    store.decide(&[check(&limit, "earlier")]);
    let late = Check {
        key: b"late",
        ..ask(&limit, 6)
    };
    let ticket = ticket_of(&store.decide(&[late]), 0, &late).unwrap();
    assert!(ticket.overflow);
    store.at(NOON).refund(&limit, late.key, ticket);
    let again = store.decide(&[late]);
    assert_eq!(again.decision.verdicts[0].remaining, 4);
    // Since then the key may have found room.
    assert!(store.reset(&limit, b"early"));
    assert!(store.reset(&limit, b"earlier"));
    let own = store.decide(&[late]);
    assert_eq!(own.decision.verdicts[0].remaining, 4);
    let ticket = ticket_of(&again, 0, &late).unwrap();
    store.at(NOON).refund(&limit, late.key, ticket);
    let peek = store.decide(&[Check {
        key: b"late",
        ..ask(&limit, 0)
    }]);
    assert_eq!(peek.decision.verdicts[0].remaining, 4, "its own stays");
}

#[test]
fn limits_that_do_not_decide_give_way_to_those_that_do() {
    let store = MemoryStore::new(Clock::manual(NOON), 1000);
    let decides = limit("decides", token_bucket(3, 60 * SECOND, 3));
    let watches = limit("watches", token_bucket(3, 60 * SECOND, 3));
    let watches = Arc::new(watches.edited(|policy| policy.mode = Mode::Shadow));
    let all = names(1500);
    for key in &all[..1000] {
        store.decide(&[check(&watches, key)]);
    }
    assert_eq!((store.len(), store.overflowed()), (1000, 0));
    // There is no room for another of these keys: it is not counted, and no other key is removed for it.
    let more = store.decide(&[check(&watches, "more")]);
    assert_eq!(more.shadows[0].verdict, None);
    assert_eq!(store.overflowed(), 1);
    for key in &all[..500] {
        store.decide(&[check(&decides, key), check(&watches, key)]);
    }
    let held = |key: &&String| store.stored(&decides, key.as_bytes()).is_some();
    let many = all[..500].iter().filter(held).count();
    // A deciding limit makes room only in its own shard, and the keys are spread over the shards by chance: 476 to 500
    // in 300 runs.
    assert!(many > 440, "{many} have counters of their own");
    assert!(store.len() <= 1002, "{}", store.len());
}
