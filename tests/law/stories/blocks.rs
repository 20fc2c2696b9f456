//! Blocks: after a refusal the key is refused for the time, whatever its counter says, and never for longer.

use super::dedupe::once;
use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, every, fixed_window, leaky_bucket, limit, sliding_log, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, metered, wait};
use crate::support::stored_state;
use ::redis::Value;
use std::num::NonZeroU64;
use std::sync::Arc;
use tollgate::clock::{Clock, Timestamp};
use tollgate::key::RepeatId;
use tollgate::limit::rate::Cost;
use tollgate::limit::verdict::{GrantedUnits, Ruling, VerdictOutcome, Wait};
use tollgate::limit::{BlockPhase, BlockRule, BlockState, Limit, Mode, RefundCondition};
use tollgate::store::{Check, MemoryStore};

told_to_both! {
    a_refusal_blocks_for_the_time_and_no_refusal_lengthens_it
    the_wait_is_the_longer_of_block_and_count
    blocks_that_follow_each_other_double_up_to_the_longest
    every_limit_that_would_refuse_blocks_and_none_is_charged
    a_running_block_charges_nothing_and_begins_nothing
    what_can_never_fit_blocks_nothing
    a_shadow_and_a_candidate_block_nothing
    who_asks_for_nothing_is_refused_while_blocked
    a_reset_ends_the_block
    what_goes_back_ends_no_block
    a_repeat_does_not_pass_a_block
    a_partial_grant_begins_no_block
    a_full_queue_blocks
    an_overdraft_is_charged_to_a_blocked_key
    a_clock_that_steps_back_lengthens_no_block
    keys_are_blocked_by_themselves
    a_block_is_written_once
    new_times_hold_for_blocks_to_come
    no_history_admits_within_a_block_or_beyond_the_limit
}

fn growing(limit: &Arc<Limit>, first: u64, most: u64) -> Arc<Limit> {
    let time = |micros| NonZeroU64::new(micros).unwrap();
    let rule = BlockRule::new(time(first), time(most));
    Arc::new(limit.edited(|policy| policy.blocking = Some(rule)))
}

fn blocking(limit: &Arc<Limit>, time: u64) -> Arc<Limit> {
    growing(limit, time, time)
}

/// One limit of three units a minute for every kind that blocks.
fn threes() -> Vec<Arc<Limit>> {
    let all = every(3, 60).into_iter();
    let all = all.filter(|limit| limit.rule.concurrency().is_none());
    all.map(|limit| blocking(&limit, 90 * SECOND)).collect()
}

fn one_in_an_hour(name: &str) -> Arc<Limit> {
    limit(name, fixed_window(1, 3600 * SECOND))
}

async fn refused_for(store: &UnderTest, at: Timestamp, limit: &Arc<Limit>) -> Option<u64> {
    let (ruling, verdict) = store.one(at, ask(limit, 1)).await;
    match wait(ruling)? {
        Wait::Micros(wait) => {
            assert_eq!((verdict.remaining, verdict.reset), (0, wait));
            Some(wait)
        }
        Wait::Never => panic!("{}", limit.name),
    }
}

async fn a_refusal_blocks_for_the_time_and_no_refusal_lengthens_it(store: &UnderTest) {
    for limit in threes() {
        for _ in 0..3 {
            assert_eq!(
                refused_for(store, NOON, &limit).await,
                None,
                "{}",
                limit.name
            );
        }
        let first = NOON.plus(SECOND);
        for after in [0, 1, 30 * SECOND, 89 * SECOND, 90 * SECOND - 1] {
            let left = 90 * SECOND - after;
            let waits = refused_for(store, first.plus(after), &limit).await;
            assert_eq!(waits, Some(left), "{}", limit.name);
        }
        let after = first.plus(90 * SECOND);
        assert_eq!(
            refused_for(store, after, &limit).await,
            None,
            "{}",
            limit.name
        );
    }
}

async fn the_wait_is_the_longer_of_block_and_count(store: &UnderTest) {
    let limit = blocking(&one_in_an_hour("slow"), 10 * SECOND);
    assert_eq!(refused_for(store, NOON, &limit).await, None);
    for after in [1, 5, 10] {
        let waits = refused_for(store, NOON.plus(after * SECOND), &limit).await;
        assert_eq!(waits, Some((3600 - after) * SECOND));
    }
    // The block is over, and the count refuses: another begins.
    let decided = store
        .decide(NOON.plus(12 * SECOND), &[ask(&limit, 1)])
        .await;
    assert_eq!(decided.measured(0).unwrap().block, BlockPhase::Begins);
    let end = NOON.plus(3600 * SECOND);
    assert_eq!(refused_for(store, end, &limit).await, None);
}

async fn blocks_that_follow_each_other_double_up_to_the_longest(store: &UnderTest) {
    let limit = growing(&one_in_an_hour("grows"), 10 * SECOND, 50 * SECOND);
    assert_eq!(refused_for(store, NOON, &limit).await, None);
    let mut at = NOON;
    for length in [10, 20, 40, 50, 50].map(|length| length * SECOND) {
        let begins = store.decide(at, &[ask(&limit, 1)]).await;
        let measured = begins.measured(0).unwrap();
        assert_eq!(
            (measured.block, measured.span.whole),
            (BlockPhase::Begins, length)
        );
        let last = store.decide(at.plus(length - 1), &[ask(&limit, 1)]).await;
        let measured = last.measured(0).unwrap();
        assert_eq!((measured.block, measured.span.whole), (BlockPhase::Runs, 1));
        // The last instant at which another block follows this one.
        at = at.plus(2 * length - 1);
    }
    let begins = store.decide(at.plus(1), &[ask(&limit, 1)]).await;
    assert_eq!(begins.measured(0).unwrap().span.whole, 10 * SECOND);
}

async fn every_limit_that_would_refuse_blocks_and_none_is_charged(store: &UnderTest) {
    let wide = blocking(&limit("wide", fixed_window(9, 3600 * SECOND)), 7 * SECOND);
    let (short, long) = (
        blocking(&limit("short", fixed_window(1, 5 * SECOND)), 20 * SECOND),
        blocking(&limit("long", fixed_window(1, 4 * SECOND)), 30 * SECOND),
    );
    let all = [ask(&wide, 1), ask(&short, 1), ask(&long, 1)];
    assert!(admitted(&store.decide(NOON, &all).await));
    let at = NOON.plus(SECOND);
    let decided = store.decide(at, &all).await;
    let wait = Wait::Micros(30 * SECOND);
    assert_eq!(decided.decision.ruling, Ruling::Refuse { by: 2, wait });
    let phases = [0, 1, 2].map(|index| decided.measured(index).unwrap().block);
    assert_eq!(
        phases,
        [BlockPhase::No, BlockPhase::Begins, BlockPhase::Begins]
    );
    assert_eq!(store.one(at, ask(&wide, 0)).await.1.remaining, 8);
    assert_eq!(refused_for(store, at, &short).await, Some(20 * SECOND));
    assert_eq!(refused_for(store, at.plus(20 * SECOND), &short).await, None);
    assert_eq!(
        refused_for(store, at.plus(20 * SECOND), &long).await,
        Some(10 * SECOND)
    );
}

async fn a_running_block_charges_nothing_and_begins_nothing(store: &UnderTest) {
    let wide = blocking(&limit("wide", fixed_window(2, 3600 * SECOND)), 7 * SECOND);
    let narrow = blocking(&limit("narrow", fixed_window(1, SECOND)), 60 * SECOND);
    let all = [ask(&wide, 1), ask(&narrow, 1)];
    assert!(admitted(&store.decide(NOON, &all).await));
    for after in 0..60 {
        let at = NOON.plus(after * SECOND);
        let decided = store.decide(at, &all).await;
        let Ruling::Refuse { by: 1, wait } = decided.decision.ruling else {
            panic!("{decided:?}");
        };
        assert_eq!(wait, Wait::Micros((60 - after) * SECOND));
        // What the other limit says is its own, and is not charged.
        let other = decided.decision.verdicts[0];
        assert_eq!(other.outcome, VerdictOutcome::Admit { delay: 0 });
        assert_eq!(other.remaining, 1);
    }
    assert!(admitted(&store.decide(NOON.plus(60 * SECOND), &all).await));
}

async fn what_can_never_fit_blocks_nothing(store: &UnderTest) {
    for limit in threes() {
        let (ruling, _) = store.one(NOON, ask(&limit, 4)).await;
        assert_eq!(wait(ruling), Some(Wait::Never), "{}", limit.name);
        assert_eq!(
            refused_for(store, NOON, &limit).await,
            None,
            "{}",
            limit.name
        );
    }
}

async fn a_shadow_and_a_candidate_block_nothing(store: &UnderTest) {
    for mode in [Mode::Shadow, Mode::Candidate] {
        let limit = blocking(&limit("aside", fixed_window(1, SECOND)), 60 * SECOND);
        let aside = Arc::new(limit.edited(|policy| policy.mode = mode));
        assert_eq!(aside.blocking, None);
        for _ in 0..3 {
            store.decide(NOON, &[ask(&aside, 1)]).await;
        }
        let decided = store.decide(NOON.plus(SECOND), &[ask(&aside, 1)]).await;
        let verdict = decided.shadows[0].verdict.unwrap();
        assert_eq!(verdict.outcome, VerdictOutcome::Admit { delay: 0 });
    }
}

async fn who_asks_for_nothing_is_refused_while_blocked(store: &UnderTest) {
    let limit = blocking(&limit("peeked", fixed_window(1, SECOND)), 60 * SECOND);
    store.one(NOON, ask(&limit, 1)).await;
    assert_eq!(wait(store.one(NOON, ask(&limit, 0)).await.0), None);
    store.one(NOON, ask(&limit, 1)).await;
    let (ruling, verdict) = store.one(NOON.plus(SECOND), ask(&limit, 0)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(59 * SECOND)));
    assert_eq!(verdict.remaining, 0);
}

async fn a_reset_ends_the_block(store: &UnderTest) {
    let limit = blocking(&one_in_an_hour("reset"), 60 * SECOND);
    for _ in 0..2 {
        store.one(NOON, ask(&limit, 1)).await;
    }
    assert!(store.reset(&limit, CLIENT).await);
    assert!(!store.reset(&limit, CLIENT).await);
    assert_eq!(refused_for(store, NOON, &limit).await, None);
    assert_eq!(refused_for(store, NOON, &limit).await, Some(3600 * SECOND));
}

async fn what_goes_back_ends_no_block(store: &UnderTest) {
    let limit = limit("goes-back", fixed_window(1, 3600 * SECOND));
    let limit = Arc::new(limit.edited(|policy| {
        policy.refund_on = RefundCondition {
            errors: true,
            ..RefundCondition::default()
        };
    }));
    let limit = blocking(&limit, 60 * SECOND);
    let ticket = store.take(NOON, ask(&limit, 1)).await;
    store.one(NOON, ask(&limit, 1)).await;
    store.refund(NOON, ask(&limit, 1), ticket).await;
    let waits = refused_for(store, NOON.plus(SECOND), &limit).await;
    assert_eq!(waits, Some(59 * SECOND));
    assert_eq!(
        refused_for(store, NOON.plus(60 * SECOND), &limit).await,
        None
    );
}

async fn a_repeat_does_not_pass_a_block(store: &UnderTest) {
    let limit = once(limit("once", fixed_window(1, SECOND)), 3600 * SECOND, 5);
    let limit = blocking(&limit, 60 * SECOND);
    let paid = Check {
        id: Some(RepeatId::of("POST", "/pay", 1, b"id")),
        ..ask(&limit, 1)
    };
    assert_eq!(wait(store.one(NOON, paid).await.0), None);
    assert_eq!(
        wait(store.one(NOON, paid).await.0),
        None,
        "a repeat goes free"
    );
    store.one(NOON, ask(&limit, 1)).await;
    let waits = wait(store.one(NOON.plus(SECOND), paid).await.0);
    assert_eq!(waits, Some(Wait::Micros(59 * SECOND)));
    let after = NOON.plus(60 * SECOND);
    assert_eq!(wait(store.one(after, paid).await.0), None);
    assert_eq!(
        refused_for(store, after, &limit).await,
        None,
        "the repeat took nothing"
    );
}

async fn a_partial_grant_begins_no_block(store: &UnderTest) {
    let limit = limit("part", fixed_window(5, 3600 * SECOND));
    let limit = Arc::new(limit.edited(|policy| policy.partial = true));
    let limit = blocking(&limit, 60 * SECOND);
    let decided = store.decide(NOON, &[ask(&limit, 9)]).await;
    assert_eq!(
        decided.measured(0).unwrap().granted,
        GrantedUnits::of(Cost::new(5))
    );
    let decided = store.decide(NOON, &[ask(&limit, 9)]).await;
    assert_eq!(decided.measured(0).unwrap().block, BlockPhase::Begins);
}

async fn a_full_queue_blocks(store: &UnderTest) {
    let queue = limit("queue", leaky_bucket((1, SECOND), 1, 2, 60 * SECOND));
    let queue = blocking(&queue, 60 * SECOND);
    for turn in 0..3 {
        let (ruling, _) = store.one(NOON, ask(&queue, 1)).await;
        assert_eq!(
            ruling,
            Ruling::Admit {
                delay: turn * SECOND
            }
        );
    }
    assert_eq!(refused_for(store, NOON, &queue).await, Some(60 * SECOND));
    assert_eq!(
        refused_for(store, NOON.plus(59 * SECOND), &queue).await,
        Some(SECOND)
    );
}

async fn an_overdraft_is_charged_to_a_blocked_key(store: &UnderTest) {
    let tokens = metered(limit("tokens", token_bucket(10, 100 * SECOND, 10)), 40);
    let tokens = blocking(&tokens, 5 * SECOND);
    let ticket = store.take(NOON, ask(&tokens, 10)).await;
    assert_eq!(refused_for(store, NOON, &tokens).await, Some(10 * SECOND));
    store.correct(NOON, &tokens, ticket, 15).await;
    // Six units must drain, and not one.
    assert_eq!(
        refused_for(store, NOON.plus(SECOND), &tokens).await,
        Some(59 * SECOND)
    );
}

async fn a_clock_that_steps_back_lengthens_no_block(store: &UnderTest) {
    let limit = blocking(&limit("steps", fixed_window(1, SECOND)), 60 * SECOND);
    let ahead = NOON.plus(7200 * SECOND);
    store.one(ahead, ask(&limit, 1)).await;
    store.one(ahead, ask(&limit, 1)).await;
    assert_eq!(refused_for(store, NOON, &limit).await, Some(60 * SECOND));
    assert_eq!(
        refused_for(store, NOON.plus(59 * SECOND), &limit).await,
        Some(SECOND)
    );
    assert_eq!(
        refused_for(store, NOON.plus(60 * SECOND), &limit).await,
        None
    );
}

async fn keys_are_blocked_by_themselves(store: &UnderTest) {
    let limit = blocking(&one_in_an_hour("keys"), 60 * SECOND);
    for _ in 0..2 {
        store.one(NOON, ask(&limit, 1)).await;
    }
    let other = Check {
        key: b"10.0.0.2",
        ..ask(&limit, 1)
    };
    assert_eq!(wait(store.one(NOON, other).await.0), None);
}

async fn a_block_is_written_once(store: &UnderTest) {
    let limit = blocking(&one_in_an_hour("once"), 60 * SECOND);
    for after in 0..5 {
        store.one(NOON.plus(after * SECOND), ask(&limit, 1)).await;
    }
    match store {
        UnderTest::Memory(store) => assert_eq!(store.len(), 2),
        UnderTest::Redis { server, .. } => {
            let key = format!("{}:b", UnderTest::name(&limit, CLIENT));
            let Value::BulkString(bytes) = server.command(&["GET", &key]).await else {
                panic!("{key} holds no text");
            };
            let ends = NOON.plus(61 * SECOND).micros();
            let length = 60 * SECOND;
            assert_eq!(
                stored_state::block(&bytes),
                Some(BlockState { ends, length })
            );
        }
    }
}

async fn new_times_hold_for_blocks_to_come(store: &UnderTest) {
    let plain = limit("edited", fixed_window(1, SECOND));
    let (long, short) = (
        blocking(&plain, 60 * SECOND),
        growing(&plain, 5 * SECOND, 90 * SECOND),
    );
    for _ in 0..2 {
        store.one(NOON, ask(&long, 1)).await;
    }
    let waits = refused_for(store, NOON.plus(SECOND), &short).await;
    assert_eq!(waits, Some(59 * SECOND), "a block stays as it was written");
    // Without `block` nobody asks about it.
    assert_eq!(refused_for(store, NOON.plus(SECOND), &plain).await, None);
}

/// After a refusal at t nothing passes in (t, t + d), and what passes would have passed the limit without blocks, too.
async fn no_history_admits_within_a_block_or_beyond_the_limit(store: &UnderTest) {
    let mut random = fastrand::Rng::with_seed(71);
    let plain = [
        limit("tokens", token_bucket(5, 2 * SECOND, 5)),
        limit("window", fixed_window(4, SECOND)),
        limit("log", sliding_log(4, SECOND)),
    ];
    for (turn, plain) in plain.iter().enumerate() {
        let (first, most) = (700_000, [700_000, 3 * SECOND][turn % 2]);
        let limit = growing(plain, first, most);
        let alone = Check {
            key: b"alone",
            ..ask(plain, 1)
        };
        // The end of the last block and its length.
        let (mut at, mut block) = (NOON, None::<(u64, u64)>);
        let mut blocks = 0;
        for _ in 0..400 {
            at = at.plus(random.u64(..400_000));
            let now = at.micros();
            let decided = store.decide(at, &[ask(&limit, 1)]).await;
            let runs = block.is_some_and(|(ends, _)| now < ends);
            if admitted(&decided) {
                assert!(!runs, "{} at {now}", limit.name);
                assert_eq!(wait(store.one(at, alone).await.0), None, "{}", limit.name);
            } else if !runs {
                let is_soon = |&(ends, length): &(u64, u64)| now - ends < length;
                let length = block
                    .filter(is_soon)
                    .map_or(first, |(_, last)| (2 * last).min(most));
                block = Some((now + length, length));
                blocks += 1;
            }
        }
        assert!(blocks > 20, "{blocks}");
    }
}

/// A block needs a place of its own, and a key without a counter of its own has no block.
#[test]
fn without_room_a_refusal_is_a_refusal() {
    let store = MemoryStore::new(Clock::manual(NOON), 3);
    let limit = blocking(&limit("crowded", fixed_window(1, SECOND)), 60 * SECOND);
    let by = |key: &'static str, at: Timestamp| {
        let check = Check {
            key: key.as_bytes(),
            ..ask(&limit, 1)
        };
        let decided = store.at(at).decide(&[check]);
        let measured = *decided.measured(0).unwrap();
        (admitted(&decided), measured.block)
    };
    for key in ["a", "b"] {
        assert_eq!(by(key, NOON), (true, BlockPhase::No));
    }
    assert_eq!(by("a", NOON), (false, BlockPhase::Begins));
    // The store is full: two counters and a block.
    assert_eq!(by("b", NOON), (false, BlockPhase::No));
    assert_eq!(by("c", NOON), (true, BlockPhase::No));
    assert_eq!(by("c", NOON), (false, BlockPhase::No));
    assert_eq!(store.overflowed(), 3);
    let later = NOON.plus(2 * SECOND);
    assert_eq!(by("a", later), (false, BlockPhase::Runs));
    assert_eq!(by("b", later), (true, BlockPhase::No));
}
