//! Charges that are given back because another slot then refused their request, or because a limit refunds them. A
//! charge comes back whole as long as this does not make room for more than the limit, whatever other charges came
//! meanwhile, and however many permits are in hand.

use super::{Counter, arrivals, pause, rates};
use crate::law::numbers::{NOON, SECOND, leaky_bucket, limit, token_bucket};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{Measurement, VerdictOutcome, Wait};
use tollgate::limit::{Limit, Refund, RefundCondition, Rule, State, Ticket};

/// The counters of one limit, as Redis stores them.
struct Shared {
    limit: Arc<Limit>,
    state: Option<State>,
}

impl Shared {
    fn take(&mut self, limit: &Limit, at: Timestamp, cost: u64) -> Option<Measurement> {
        let (measured, change) = limit.check(self.state.as_ref(), at, Cost::new(cost));
        let change = change.filter(|_| measured.wait == Wait::Micros(0))?;
        self.state = Some(change.update.after(self.state.take()));
        Some(measured)
    }

    /// Charges a request of which it is not yet known whether it goes on.
    fn charge(&mut self, at: Timestamp, cost: u64) -> Option<Ticket> {
        let limit = Arc::clone(&self.limit);
        let asked = limit.with_history().unwrap_or(&limit);
        let measured = self.take(asked, at, cost)?;
        let ticket = asked.ticket(at, measured, Cost::new(cost));
        Some(asked.abandoned(ticket, at))
    }

    fn undo(&mut self, at: Timestamp, ticket: Ticket) {
        match self.limit.rule.refund(self.state.as_ref(), at, ticket) {
            Refund::Nothing => {}
            Refund::Left(change) => {
                self.state = Some(change.update.after(self.state.take()));
            }
            Refund::Gone => self.state = None,
        }
    }
}

/// The same limit, with refunds for failed requests.
fn giving_back(limit: Arc<Limit>) -> Arc<Limit> {
    let gives_back = RefundCondition {
        errors: true,
        cancels: true,
        ..RefundCondition::default()
    };
    Arc::new(limit.edited(|policy| policy.refund_on = gives_back))
}

/// Could the counter have admitted these charges, and nothing else?
fn fits(rule: (Rate, Rule), mut kept: Vec<(Timestamp, u64)>) -> Result<(), String> {
    kept.sort_by_key(|(then, _)| *then);
    let mut alone = Counter::of(rule);
    for (then, cost) in kept {
        alone.at = then;
        let (verdict, _) = alone.take(cost);
        if !matches!(verdict.outcome, VerdictOutcome::Admit { .. }) {
            return Err(format!("{cost} at {}: {verdict:?}", alone.ago()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Of many requests under way, some are refused elsewhere, or fail and are refunded, in any order. Other requests
    /// ask about this limit alone.
    #[test]
    fn what_is_undone_wholly_makes_no_room_for_others(
        meter in any::<bool>(),
        refunds in any::<bool>(),
        rate in rates(),
        size in 1..40_u64,
        arrivals in arrivals(9),
        fates in prop::collection::vec((0..4_u8, 0..6_usize), 120),
    ) {
        let rule = match meter {
            true => leaky_bucket(rate, size, 0, 0),
            false => token_bucket(rate.0, rate.1, size),
        };
        let limit = match refunds {
            true => giving_back(limit("refunds", rule.clone())),
            false => limit("apart", rule.clone()),
        };
        prop_assert!(limit.with_history().is_some() != refunds);
        let mut shared = Shared { limit, state: None };
        let mut pending: VecDeque<(Timestamp, u64, Ticket, bool)> = VecDeque::new();
        let (mut kept, mut at) = (Vec::new(), NOON);
        for ((wait, cost), (fate, under_way)) in arrivals.into_iter().zip(fates) {
            at = at.plus(pause(wait, rate));
            if fate == 0 && cost > 0 {
                let limit = Arc::clone(&shared.limit);
                if shared.take(&limit, at, cost).is_some() {
                    kept.push((at, cost));
                }
            } else if cost > 0 && let Some(ticket) = shared.charge(at, cost) {
                pending.push_back((at, cost, ticket, fate == 1));
            }
            while pending.len() > under_way {
                // The oldest request is not always the one that is given back.
                let index = if fate % 2 == 0 { 0 } else { pending.len() - 1 };
                let (then, cost, ticket, stays) = pending.remove(index).unwrap();
                match stays {
                    true => kept.push((then, cost)),
                    false => shared.undo(at, ticket),
                }
            }
        }
        let fit = fits(rule, kept);
        prop_assert!(fit.is_ok(), "{fit:?}");
    }

    /// A bucket that is never empty gets all refunds back, however long requests are under way, and however many.
    #[test]
    fn a_bucket_that_is_not_empty_gets_back_what_the_refused_were_charged(
        refunds in any::<bool>(),
        rate in rates(),
        held in 2..20_u64,
        many in 1..20_u64,
        steps in prop::collection::vec(0..1000_u64, 1..40),
    ) {
        let (count, period) = rate;
        let rule = token_bucket(count, period, 60);
        let limit = match refunds {
            true => giving_back(limit("refunds", rule)),
            false => limit("kept", rule),
        };
        let mut shared = Shared { limit, state: None };
        let mut alone = Counter::of(token_bucket(count, period, 60));
        let limit = Arc::clone(&shared.limit);
        // The admitted request also asks about limits in other slots.
        prop_assert!(shared.take(limit.with_history().unwrap_or(&limit), NOON, held).is_some());
        alone.take(held);
        let mut at = NOON;
        let (mut pending, mut undone) = (VecDeque::new(), 0);
        for thousandths in steps {
            let next = at.plus(pause(thousandths, rate));
            // Until the next step, a part of the held charge is left, to the microsecond.
            if next.since(NOON) + 2 >= pause(held * 1000, rate) {
                break;
            }
            at = next;
            if pending.len() < many as usize {
                pending.extend(shared.charge(at, 1));
            } else {
                shared.undo(at, pending.pop_front().unwrap());
                undone += 1;
            }
        }
        undone += pending.len() as u64;
        for ticket in pending {
            shared.undo(at, ticket);
        }
        alone.at = at;
        let (left, _) = alone.would(at, 0);
        let (told, _) = shared.limit.check(shared.state.as_ref(), at, Cost::ZERO);
        let told = shared.limit.rule.verdict(told, at, Cost::ZERO, true);
        // The returned amount is counted in whole microseconds, rounded up.
        prop_assert!(told.reset <= left.reset + undone, "{told:?} and {left:?}");
    }

    /// Permits depend on the content of the bucket: a refund of this content must not create one permit too many.
    #[test]
    fn what_is_undone_leaves_permits_in_hand_what_they_rely_on(
        count in 1000..9000_u64,
        period in prop_oneof![Just(SECOND), SECOND..30 * SECOND, Just(86_400 * SECOND)],
        burst in prop_oneof![Just(100), Just(10), Just(1)],
        events in prop::collection::vec((0..6_u8, 0..60_000_u64, 1..1000_u64, 0..1000_u64), 1..120),
    ) {
        let size = (count / burst).max(1000);
        let rule = token_bucket(count, period, size);
        let limit = limit("leased", rule.clone());
        let Some(terms) = limit.leases() else { return Ok(()) };
        let mut shared = Shared { limit: Arc::clone(&limit), state: None };
        let (mut kept, mut at, mut pending) = (Vec::new(), NOON, VecDeque::new());
        for (event, wait, part, when) in events {
            let units = (size * part / 1000).max(1);
            match event {
                0 => if let Some(ticket) = shared.charge(at, units) {
                    pending.push_back((at, ticket));
                },
                1 | 2 => {
                    // Unused charges are given back when their time is over.
                    let ready = |(from, _): &(Timestamp, Ticket)| *from <= at;
                    if let Some(index) = pending.iter().position(ready) {
                        let (_, ticket) = pending.remove(index).unwrap();
                        shared.undo(at, ticket);
                    }
                }
                3 => {
                    // Sometimes the request asks for everything that is left.
                    let (told, _) = limit.check(shared.state.as_ref(), at, Cost::ZERO);
                    let left = limit.rule.verdict(told, at, Cost::ZERO, true).remaining;
                    let units = if part > 600 { left } else { 1 + units / 50 };
                    // Once a request that asks about this limit alone knows of the others, it asks in their form.
                    let asked = if when % 2 == 0 { &limit } else { limit.with_history().unwrap() };
                    if units > 0 && shared.take(asked, at, units).is_some() {
                        kept.push((at, units));
                    }
                }
                4 => {
                    // The call asks for the permits, and for the units that keep them valid.
                    let units = 1 + units / 10 + u64::from(terms.padding(0));
                    let Some(measured) = shared.take(&terms.asks, at, units) else { continue };
                    let charged = measured.charged(Cost::new(units)).units();
                    let units = u32::try_from(charged).unwrap();
                    let (permits, lasting) = terms.permits(units, measured, at);
                    let used = u64::from(permits) * part / 1000;
                    if used > 0 {
                        kept.push((at.plus(lasting * when / 1000), used));
                    }
                    let rest = Cost::new(charged - used);
                    if rest > Cost::ZERO {
                        let ticket = limit.rule.ticket(at, measured, rest);
                        pending.push_back((at.plus(lasting), limit.abandoned(ticket, at)));
                    }
                }
                _ => at = at.plus(wait),
            }
        }
        let fit = fits(rule, kept);
        prop_assert!(fit.is_ok(), "{fit:?}");
    }
}
