//! Shadow limits at the store: they are charged, and have no part in a decision.

use super::told_to_both;
use crate::law::numbers::{
    CLIENT, NOON, SECOND, ask, concurrency, every, fixed_window, limit, token_bucket,
};
use crate::law::under_test::{UnderTest, admitted, ticket_of};
use std::sync::Arc;
use tollgate::limit::verdict::{Ruling, VerdictOutcome};
use tollgate::limit::{Limit, Mode};

told_to_both! {
    they_have_no_vote_and_are_charged_with_the_request
    nothing_is_charged_beside_a_refusal
    one_that_would_refuse_hinders_no_other
    enforced_again_the_count_goes_on
    a_candidate_has_counters_of_its_own
    slots_are_taken_and_freed
}

fn in_mode(limit: Arc<Limit>, mode: Mode) -> Arc<Limit> {
    Arc::new(limit.edited(|policy| policy.mode = mode))
}

fn shadow(limit: Arc<Limit>) -> Arc<Limit> {
    in_mode(limit, Mode::Shadow)
}

async fn left(store: &UnderTest, limit: &Arc<Limit>) -> u64 {
    let decided = store.decide(NOON, &[ask(limit, 0)]).await;
    let aside = decided.shadows.first().and_then(|aside| aside.verdict);
    let verdict = aside.or(decided.decision.verdicts.first().copied());
    verdict.unwrap().remaining
}

async fn they_have_no_vote_and_are_charged_with_the_request(store: &UnderTest) {
    let wide = limit("wide", fixed_window(1_000, 60 * SECOND));
    for (turn, limit) in every(3, 60).into_iter().map(shadow).enumerate() {
        for taken in 1..=5_u64 {
            let checks = [ask(&wide, 1), ask(&limit, 1)];
            let decided = store.decide(NOON, &checks).await;
            assert_eq!(decided.decision.ruling, Ruling::Admit { delay: 0 });
            assert_eq!(decided.decision.verdicts.len(), 1);
            let aside = decided.shadows[0];
            let refuses = matches!(aside.verdict.unwrap().outcome, VerdictOutcome::Refuse(_));
            let charged = ticket_of(&decided, 1, &checks[1]).is_some();
            assert_eq!(
                (refuses, charged),
                (taken > 3, taken <= 3),
                "{}",
                limit.name
            );
            assert_eq!(left(store, &limit).await, 3_u64.saturating_sub(taken));
            let all = 5 * turn as u64 + taken;
            assert_eq!(left(store, &wide).await, 1_000 - all);
        }
    }
}

async fn nothing_is_charged_beside_a_refusal(store: &UnderTest) {
    let one = limit("one", token_bucket(1, 60 * SECOND, 1));
    let beside: Vec<_> = every(3, 60).into_iter().map(shadow).collect();
    let mut checks = vec![ask(&one, 1)];
    checks.extend(beside.iter().map(|limit| ask(limit, 1)));
    for expected in [true, false, false] {
        let decided = store.decide(NOON, &checks).await;
        assert_eq!(admitted(&decided), expected);
        for aside in &decided.shadows {
            assert!(ticket_of(&decided, aside.index, &checks[aside.index]).is_some() == expected);
        }
    }
    for limit in &beside {
        assert_eq!(left(store, limit).await, 2, "{}", limit.name);
    }
}

async fn one_that_would_refuse_hinders_no_other(store: &UnderTest) {
    let (small, large) = (
        shadow(limit("small", fixed_window(1, 60 * SECOND))),
        shadow(limit("large", fixed_window(5, 60 * SECOND))),
    );
    for expected in [4, 3, 2] {
        let checks = [ask(&small, 1), ask(&large, 1)];
        assert!(admitted(&store.decide(NOON, &checks).await));
        assert_eq!(left(store, &large).await, expected);
        assert_eq!(left(store, &small).await, 0);
    }
}

async fn enforced_again_the_count_goes_on(store: &UnderTest) {
    let rule = || token_bucket(3, 60 * SECOND, 3);
    let (enforced, beside) = (limit("l", rule()), shadow(limit("l", rule())));
    store.decide(NOON, &[ask(&beside, 2)]).await;
    assert_eq!(left(store, &enforced).await, 1);
    store.take(NOON, ask(&enforced, 1)).await;
    assert_eq!(left(store, &beside).await, 0);
}

async fn a_candidate_has_counters_of_its_own(store: &UnderTest) {
    let enforced = limit("l", token_bucket(3, 60 * SECOND, 3));
    let candidate = in_mode(limit("l", token_bucket(2, 60 * SECOND, 2)), Mode::Candidate);
    for (three, two) in [(2, 1), (1, 0), (0, 0)] {
        let checks = [ask(&enforced, 1), ask(&candidate, 1)];
        assert!(admitted(&store.decide(NOON, &checks).await));
        assert_eq!(left(store, &enforced).await, three);
        assert_eq!(left(store, &candidate).await, two);
    }
}

async fn slots_are_taken_and_freed(store: &UnderTest) {
    let flight = shadow(limit("flight", concurrency(1, 60 * SECOND)));
    let check = ask(&flight, 1);
    let ticket = store.take(NOON, check).await;
    let second = store.decide(NOON, &[check]).await;
    assert!(admitted(&second) && ticket_of(&second, 0, &check).is_none());
    store.refund(NOON, check, ticket).await;
    assert_eq!(left(store, &flight).await, 1);
    assert!(store.bytes(&flight, CLIENT).await.is_none());
}
