//! Properties of lives, peeks, waits and refunds.

use super::{Counter, KINDS, arrivals, pause, rates, rule};
use crate::law::numbers::SECOND;
use proptest::prelude::*;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::Cost;
use tollgate::limit::verdict::{VerdictOutcome, Wait};
use tollgate::limit::{Mark, State};

proptest! {
    #[test]
    fn a_state_lives_exactly_as_long_as_it_matters(
        rate in rates(),
        kind in 0..KINDS,
        size in 1..20_u64,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let (_, change) = counter.take(cost);
            let Some(change) = change else { continue };
            prop_assert!(change.ends > counter.at, "{:?}", counter.state);
            for cost in [0, 1, size, size + 1, 25] {
                let (with, none) = (&counter, counter.fresh());
                for later in [0, 1, 1000, 3600 * SECOND] {
                    let at = change.ends.plus(later);
                    prop_assert_eq!(with.after(at, cost), none.after(at, cost));
                }
            }
            let last = Timestamp::from_micros(change.ends.micros() - 1);
            prop_assert_ne!(counter.would(last, 0).0, counter.fresh().would(last, 0).0);
        }
    }

    #[test]
    fn a_peek_agrees_with_what_then_happens(
        rate in rates(),
        kind in 0..KINDS,
        size in 1..20_u64,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let (peek, change) = counter.would(counter.at, 0);
            prop_assert_eq!(change, None);
            prop_assert_eq!(peek.outcome, VerdictOutcome::Admit { delay: 0 });
            let left = peek.remaining;
            let admits = |cost| {
                let (verdict, _) = counter.would(counter.at, cost);
                (matches!(verdict.outcome, VerdictOutcome::Admit { .. }), verdict)
            };
            prop_assert!(left == 0 || admits(left).0);
            prop_assert!(!admits(left + 1).0);
            // A refusal states the unchanged state, and so does a peek.
            let (_, refused) = admits(left + 1);
            prop_assert_eq!((refused.remaining, refused.reset), (peek.remaining, peek.reset));
            if left > 0 {
                prop_assert_eq!(admits(left).1.remaining, 0);
            }
            counter.take(cost);
        }
    }

    #[test]
    fn a_wait_is_exact_whatever_was_edited_and_however_the_clock_went(
        kind in 0..KINDS,
        editions in prop::collection::vec((rates(), 1..20_u64), 1..5),
        history in prop::collection::vec((0..8_usize, any::<i8>(), 0..2000_u64, 0..25_u64), 1..80),
    ) {
        // Windows of different lengths have different counters.
        let length = editions[0].0.1;
        let rules: Vec<_> = editions
            .iter()
            .map(|((count, period), size)| match kind {
                0 | 1 => rule(kind, (*count, *period), *size),
                _ => rule(kind, (*count, length), *size),
            })
            .collect();
        let mut counter = Counter::of(rules[0].clone());
        for (edition, direction, thousandths, cost) in history {
            let edition = edition % rules.len();
            counter.rule = rules[edition].1.clone();
            let by = pause(thousandths, editions[edition].0);
            counter.at = match direction < -90 {
                true => Timestamp::from_micros(counter.at.micros() - by),
                false => counter.at.plus(by),
            };
            let before = counter.state.clone();
            let (verdict, change) = counter.take(cost);
            let VerdictOutcome::Refuse(wait) = verdict.outcome else { continue };
            let Wait::Micros(wait) = wait else {
                prop_assert_eq!(counter.state.clone(), before);
                continue;
            };
            let at = |micros| counter.would(counter.at.plus(micros), cost).0.outcome;
            let admitted = matches!(at(wait), VerdictOutcome::Admit { .. });
            prop_assert!(admitted, "after {wait}: {:?}", at(wait));
            prop_assert_eq!(at(wait - 1), VerdictOutcome::Refuse(Wait::Micros(1)));
            // A state is mended at most once: the second refusal changes nothing.
            let (again, second) = counter.would(counter.at, cost);
            prop_assert_eq!(again, verdict);
            prop_assert!(second.is_none(), "{change:?}, then {second:?}");
        }
    }

    #[test]
    fn a_refund_right_after_the_charge_restores_the_state(
        rate in rates(),
        kind in 0..KINDS,
        size in 1..20_u64,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let before = counter.would(counter.at, 0).0;
            let (measured, _) = counter.rule.check(counter.state.as_ref(), counter.at, Cost::new(cost));
            let (verdict, _) = counter.take(cost);
            if cost == 0 || !matches!(verdict.outcome, VerdictOutcome::Admit { .. }) {
                continue;
            }
            let ticket = counter.rule.ticket(counter.at, measured, Cost::new(cost));
            if let Mark::Bucket(state) = ticket.mark {
                prop_assert_eq!(Some(State::Bucket(state)), counter.state.clone());
            }
            let taken = counter.state.clone();
            counter.give_back(ticket);
            prop_assert_eq!(counter.would(counter.at, 0).0, before);
            counter.state = taken;
        }
    }
}
