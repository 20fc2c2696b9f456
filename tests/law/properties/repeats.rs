//! Repeats that go free, and charges that are refunded: neither admits more than was charged.

use super::{Counter, KINDS, arrivals, pause, rates, rule};
use crate::law::numbers::{NOON, leaky_bucket, limit};
use http::HeaderName;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use tollgate::clock::Timestamp;
use tollgate::key::{IdField, Sameness};
use tollgate::limit::RecordState;
use tollgate::limit::dedupe::Dedupe;
use tollgate::limit::rate::Cost;
use tollgate::limit::verdict::{Repeat, VerdictOutcome, Wait};
use tollgate::limit::{Refund, Ticket};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Except for the few repeats that go free, a history gets the same answers as without ids.
    #[test]
    fn what_is_charged_is_what_the_limit_allows_and_few_repeats_go_free(
        kind in 0..KINDS,
        rate in rates(),
        size in 1..40_u64,
        arrivals in arrivals(9),
        ids in prop::collection::vec(0..5_u8, 120),
        repeats in 1..4_u32,
        life in 1..30_000_u64,
    ) {
        let rule = rule(kind, rate, size);
        let ttl = pause(life, rate).max(1);
        let field = IdField(HeaderName::from_static("idempotency-key"));
        let dedupe = Dedupe { field, ttl, repeats, of: Sameness::Path };
        let limit = limit("once", rule.clone());
        let limit = limit.edited(|policy| policy.dedupe = Some(dedupe.clone()));
        let (mut plain, mut at) = (Counter::of(rule), NOON);
        let mut state = None;
        let mut records: HashMap<u8, RecordState> = HashMap::new();
        let mut firsts: HashMap<u8, Timestamp> = HashMap::new();
        let mut free: HashMap<u8, u64> = HashMap::new();
        for ((wait, cost), id) in arrivals.into_iter().zip(ids) {
            at = at.plus(pause(wait, rate));
            plain.at = at;
            let cost = cost + 1;
            let record = records.get(&id).copied();
            let units = Cost::new(cost);
            let found = limit.check_with_id(&dedupe, record, state.as_ref(), at, units, std::num::NonZeroU32::MIN);
            if let Some(change) = found.change {
                state = Some(change.update.after(state));
            }
            let lives = firsts.get(&id).is_some_and(|first| at.since(*first) < ttl);
            match found.measured.repeat {
                Repeat::Free => {
                    prop_assert!(lives);
                    let free = free.entry(id).or_default();
                    *free += 1;
                    prop_assert!(*free <= u64::from(repeats));
                }
                repeat => {
                    let (verdict, _) = plain.take(cost);
                    let told = limit.rule.verdict(found.measured, at, units, true);
                    prop_assert_eq!(told, verdict);
                    prop_assert_eq!(&state, &plain.state);
                    let admitted = found.measured.wait == Wait::Micros(0);
                    prop_assert_eq!(repeat == Repeat::First, admitted && !lives);
                    if repeat == Repeat::First {
                        firsts.insert(id, at);
                        free.insert(id, 0);
                    }
                }
            }
            if let Some(record) = found.record {
                prop_assert_eq!(record.ends, firsts[&id].plus(ttl).micros());
                records.insert(id, record);
            }
        }
    }

    /// Some of many requests under way are refunded, in any order. The answers are possible for a history that has only
    /// the other requests.
    #[test]
    fn who_is_charged_and_undone_makes_no_room_for_others(
        kind in 0..KINDS,
        rate in rates(),
        size in 1..40_u64,
        arrivals in arrivals(9),
        fates in prop::collection::vec((any::<bool>(), 0..4_usize), 120),
    ) {
        // The first window starts with the first request, even if that request is refunded. A queue gives back places
        // by the rule of refunds.
        let rule = match kind {
            1 => leaky_bucket(rate, size, 0, 0),
            2 => return Ok(()),
            _ => rule(kind, rate, size),
        };
        let (mut counter, mut at) = (Counter::of(rule.clone()), NOON);
        let mut pending: VecDeque<(Timestamp, u64, Ticket, bool)> = VecDeque::new();
        let mut kept = Vec::new();
        for ((wait, cost), (stays, under_way)) in arrivals.into_iter().zip(fates) {
            at = at.plus(pause(wait, rate));
            counter.at = at;
            let (measured, change) = counter.rule.check(counter.state.as_ref(), at, Cost::new(cost));
            if measured.wait == Wait::Micros(0) && cost > 0 {
                counter.state = Some(change.unwrap().update.after(counter.state.take()));
                let ticket = counter.rule.ticket(at, measured, Cost::new(cost));
                pending.push_back((at, cost, ticket, stays));
            }
            while pending.len() > under_way {
                // The oldest request is not always the one that is refunded.
                let index = if stays { 0 } else { pending.len() - 1 };
                let (then, cost, ticket, stays) = pending.remove(index).unwrap();
                if stays {
                    kept.push((then, cost));
                    continue;
                }
                match counter.refunded(then, ticket) {
                    Refund::Nothing => {}
                    Refund::Left(change) => {
                        counter.state = Some(change.update.after(counter.state.take()));
                    }
                    Refund::Gone => counter.state = None,
                }
            }
        }
        kept.sort_by_key(|(then, _)| *then);
        let mut alone = Counter::of(rule);
        for (then, cost) in kept {
            alone.at = then;
            let (verdict, _) = alone.take(cost);
            let admitted = matches!(verdict.outcome, VerdictOutcome::Admit { .. });
            prop_assert!(admitted, "{cost} at {}", alone.ago());
        }
    }

    /// If no other request has come, a refund restores the previous state.
    #[test]
    fn what_is_undone_at_once_was_nothing(
        kind in 0..KINDS,
        rate in rates(),
        size in 3..40_u64,
        before in 0..2_u64,
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        counter.take(before);
        let left = counter.state.clone();
        let (measured, change) = counter.rule.check(left.as_ref(), NOON, Cost::ONE);
        let change = change.unwrap();
        let after = change.update.after(left.clone());
        let ticket = counter.rule.ticket(NOON, measured, Cost::ONE);
        counter.state = Some(after.clone());
        let undone = match counter.refunded(NOON, ticket) {
            Refund::Nothing => Some(after),
            Refund::Left(change) => Some(change.update.after(Some(after))),
            Refund::Gone => None,
        };
        prop_assert_eq!(undone, left);
    }
}
