//! The room of a memory store: counters never exceed it, and the reserved room of each limit is available to it.

use crate::law::numbers::{NOON, ask, fixed_window, limit};
use crate::law::stories::dedupe::once;
use crate::law::under_test::ticket_of;
use proptest::prelude::*;
use std::sync::Arc;
use tollgate::clock::Clock;
use tollgate::key::RepeatId;
use tollgate::limit::{Limit, Mode};
use tollgate::store::{Check, MemoryStore};

const WINDOW: u64 = 1_000_000;
const KEYS: u8 = 60;

fn name(key: u8) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// Several limits. One of them also counts ids, and one is a shadow.
fn limits() -> Vec<Arc<Limit>> {
    let window = |index: u64| {
        let rule = fixed_window(1000, WINDOW * (1 + index % 3));
        limit(&format!("limit-{index}"), rule)
    };
    let mut limits: Vec<_> = (0..5).map(window).collect();
    limits[0] = once(window(0), WINDOW, 1);
    let watches = limits.remove(4);
    limits.push(Arc::new(
        watches.edited(|policy| policy.mode = Mode::Shadow),
    ));
    limits
}

/// The number of a limit's counters that have their own keys.
fn held(store: &MemoryStore, limit: &Limit) -> usize {
    let keys = (0..KEYS).map(name);
    keys.filter(|key| store.stored(limit, key).is_some())
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn there_is_never_more_than_the_store_holds_and_each_limit_has_its_part(
        most in 16..90_usize,
        turns in prop::collection::vec((0..5_usize, 0..5_usize, 0..KEYS, 0..12_u8, 0..90_000_u64), 1..250),
    ) {
        let clock = Clock::manual(NOON);
        let store = MemoryStore::new(clock.clone(), most);
        let limits = limits();
        store.keep_room_for(limits.iter());
        let part = most / 4 / 4 - 1;
        let mut now = NOON;
        for (one, other, key, what, pause) in turns {
            now = now.plus(pause);
            clock.set(now);
            let key = name(key);
            let check = |index: usize| Check { key: &key, ..ask(&limits[index], 1) };
            match what {
                0 => drop(store.reset(&limits[one], &key)),
                1 => store.sweep(usize::from(key[4])),
                2 => {
                    // A file without one of the limits, and then a file with it again.
                    store.keep_room_for(limits.iter().take(one));
                    store.keep_room_for(limits.iter());
                }
                3 => {
                    let id = Some(RepeatId::of("POST", "/", 1, &key));
                    let decided = store.decide(&[Check { id, ..check(0) }]);
                    if let Some(ticket) = ticket_of(&decided, 0, &check(0)) {
                        store.refund(&limits[0], &key, ticket);
                    }
                }
                4 | 5 if one != other => drop(store.decide(&[check(one.min(other)), check(one.max(other))])),
                _ => {
                    let id = (what > 9).then(|| RepeatId::of("POST", "/", 1, &[what]));
                    let has_room = one != 0 && one != 4 && held(&store, &limits[one]) < part;
                    let decided = store.decide(&[Check { id, ..check(one) }]);
                    prop_assert!(!(has_room && decided.measured(0).unwrap().overflow), "what is kept for it is there");
                }
            }
            prop_assert!(store.len() <= most, "{} of {most}", store.len());
        }
        // No request was counted twice or forgotten.
        clock.set(now.plus(10 * WINDOW));
        (0..64).for_each(|turn| store.sweep(turn));
        prop_assert_eq!(store.len(), 0);
        store.keep_room_for(limits.iter());
        for key in (0..KEYS).take(part) {
            let key = name(key);
            for limit in &limits[..4] {
                let decided = store.decide(&[Check { key: &key, ..ask(limit, 1) }]);
                prop_assert!(!decided.measured(0).unwrap().overflow);
            }
        }
    }
}
