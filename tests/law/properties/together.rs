//! Partial grants, lists of rates, and requests in flight.

use super::{Counter, KINDS, arrivals, pause, rates, rule};
use crate::law::numbers::{CLIENT, NOON, concurrency, limit, sliding_log, token_bucket};
use proptest::prelude::*;
use std::sync::Arc;
use tollgate::clock::{Clock, Timestamp};
use tollgate::limit::rate::Cost;
use tollgate::limit::verdict::{Ruling, VerdictOutcome, Wait};
use tollgate::limit::{Limit, Mark, Ticket};
use tollgate::store::{Check, MemoryStore};

/// One step of a history of slots.
#[derive(Debug, Clone, Copy)]
enum Step {
    Take(u64),
    Release(prop::sample::Index),
    Renew(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => (0..5_u64).prop_map(Step::Take),
        2 => any::<prop::sample::Index>().prop_map(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Renew),
    ];
    prop::collection::vec((0..600_u64, step), 1..80)
}

fn admits(outcome: VerdictOutcome) -> bool {
    matches!(outcome, VerdictOutcome::Admit { .. })
}

proptest! {
    #[test]
    fn what_is_granted_in_part_is_the_most_that_could_have_been_asked_for(
        rate in rates(),
        kind in 0..KINDS,
        size in 1..20_u64,
        arrivals in arrivals(45),
    ) {
        let (rate, rule) = rule(kind, rate, size);
        let whole = limit("any", (rate, rule.clone()));
        let partial = limit("any", (rate, rule)).edited(|policy| policy.partial = true);
        let mut counter = Counter::of((rate, partial.rule.clone()));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, (rate.count.get(), rate.period.get())));
            let state = counter.state.as_ref();
            let left = counter.would(counter.at, 0).0.remaining;
            let (measured, change) = partial.check(state, counter.at, Cost::new(cost));
            let granted = measured.granted.map_or(cost, |grant| grant.cost().units());
            if measured.wait == Wait::Micros(0) {
                prop_assert_eq!(granted, cost.min(left));
                prop_assert_eq!(measured.granted.is_some(), cost > left);
            } else {
                prop_assert_eq!(left, 0);
            }
            // The granted units are charged exactly. With nothing left, the wait is the wait for one unit.
            let asked = if left == 0 && cost > 0 { 1 } else { granted };
            let (plain, same) = whole.check(state, counter.at, Cost::new(asked));
            prop_assert_eq!((measured.wait, measured.span), (plain.wait, plain.span));
            prop_assert_eq!(&change, &same);
            if let Some(change) = change {
                counter.state = Some(change.update.after(counter.state.take()));
            }
        }
    }

    #[test]
    fn a_list_of_rates_holds_each_of_them_and_waits_for_the_slowest(
        logs in any::<bool>(),
        short in (1..8_u64, 10..100_u64),
        long in (1..20_u64, 100..2000_u64),
        arrivals in arrivals(9),
    ) {
        let store = MemoryStore::new(Clock::manual(NOON), 100);
        let of = |(count, millis): (u64, u64), window: &str| -> Arc<Limit> {
            let period = millis * 1000;
            let rule = match logs {
                true => sliding_log(count, period),
                false => token_bucket(count, period, count),
            };
            Arc::new(limit("many", rule).edited(|policy| policy.window = Some(window.into())))
        };
        let list = [of(short, "short"), of(long, "long")];
        let ask = |cost, at| {
            let cost = Cost::new(cost);
            let checks = [0, 1].map(|index| Check { limit: &list[index], key: CLIENT, cost, id: None });
            store.at(at).decide(&checks)
        };
        let states = || [0, 1].map(|index| store.stored(&list[index], CLIENT));
        let (mut at, mut granted) = (NOON, Vec::new());
        for (thousandths, cost) in arrivals {
            at = at.plus(pause(thousandths, (short.0, short.1 * 1000)));
            let before = states();
            match ask(cost, at).decision.ruling {
                Ruling::Admit { .. } => granted.push((at.micros(), cost)),
                Ruling::Refuse { by, wait } => {
                    prop_assert_eq!(states(), before, "a refusal changes nothing");
                    let Wait::Micros(wait) = wait else {
                        prop_assert!(cost > short.0.min(long.0));
                        continue;
                    };
                    // A microsecond early, the same limit refuses. After that both limits admit, and the charges are
                    // given back.
                    let early = ask(cost, at.plus(wait - 1)).decision.ruling;
                    prop_assert_eq!(early, Ruling::Refuse { by, wait: Wait::Micros(1) });
                    at = at.plus(wait);
                    let told = ask(cost, at).decision.ruling;
                    prop_assert_eq!(told, Ruling::Admit { delay: 0 });
                    granted.push((at.micros(), cost));
                }
            }
        }
        for (first, (from, _)) in granted.iter().enumerate() {
            for (count, millis) in [short, long] {
                let mut units = 0;
                for (to, cost) in &granted[first..] {
                    units += cost;
                    let (count, period) = (u128::from(count), u128::from(millis * 1000));
                    let time = u128::from(to - from);
                    let most = match logs {
                        true => count * (time / period + 1),
                        false => count + time * count / period,
                    };
                    prop_assert!(u128::from(units) <= most);
                }
            }
        }
    }

    #[test]
    fn nobody_is_admitted_beyond_what_may_be_in_flight_and_what_lapses_is_free(
        max in 1..8_u64,
        steps in steps(),
    ) {
        const TTL: u64 = 1000;
        let mut counter = Counter::of(concurrency(max, TTL));
        // The slots of each ticket, and the instant until which they are taken.
        let mut held: Vec<(Ticket, u64)> = Vec::new();
        for (by, step) in steps {
            counter.at = counter.at.plus(by);
            let now = counter.at.micros();
            let live = |held: &[(Ticket, u64)]| -> u64 {
                let live = held.iter().filter(|(_, until)| *until > now);
                live.map(|(ticket, _)| ticket.cost.units()).sum()
            };
            let taken = live(&held);
            let (peek, change) = counter.would(counter.at, 0);
            prop_assert_eq!((peek.remaining, change), (max.saturating_sub(taken), None));
            match step {
                Step::Take(cost) => {
                    let units = Cost::new(cost);
                    let (measured, _) = counter.rule.check(counter.state.as_ref(), counter.at, units);
                    let before = counter.state.clone();
                    let (verdict, change) = counter.take(cost);
                    prop_assert_eq!(admits(verdict.outcome), cost == 0 || taken + cost <= max);
                    if cost == 0 || !admits(verdict.outcome) {
                        prop_assert_eq!(&counter.state, &before, "nothing is changed");
                        continue;
                    }
                    prop_assert_eq!(change.unwrap().ends, counter.at.plus(TTL));
                    let ticket = counter.rule.ticket(counter.at, measured, units);
                    let slot = |ticket: &Ticket| match ticket.mark {
                        Mark::Slot(first) => first..first + ticket.cost.units(),
                        mark => panic!("{mark:?} is no slot"),
                    };
                    let mine = slot(&ticket);
                    let live = held.iter().filter(|(_, until)| *until > now);
                    for (other, _) in live {
                        let theirs = slot(other);
                        prop_assert!(mine.end <= theirs.start || theirs.end <= mine.start);
                    }
                    held.push((ticket, now + TTL));
                }
                Step::Release(which) if !held.is_empty() => {
                    let (ticket, _) = held.swap_remove(which.index(held.len()));
                    counter.give_back(ticket);
                }
                Step::Renew(which) if !held.is_empty() => {
                    let index = which.index(held.len());
                    let (ticket, until) = &mut held[index];
                    counter.renew(*ticket);
                    *until = now + TTL;
                }
                Step::Release(_) | Step::Renew(_) => {}
            }
            let last = held.iter().map(|(_, until)| *until).max();
            let ends = Timestamp::from_micros(last.unwrap_or(now).max(now));
            prop_assert_eq!(counter.would(ends, 0).0.remaining, max);
        }
    }
}
