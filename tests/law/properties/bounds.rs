//! Bounds over any stretch of time, and answers that agree with a plain textbook algorithm.

use super::{Counter, arrivals, pause, rates};
use crate::law::numbers::{NOON, SECOND, fixed_window, leaky_bucket, token_bucket};
use proptest::prelude::*;
use tollgate::clock::Timestamp;
use tollgate::limit::Ticket;
use tollgate::limit::rate::{Cost, MAX_SPAN};
use tollgate::limit::verdict::{Verdict, VerdictOutcome, Wait};

/// Does `units` in `micros` stay within `free` + rate * time?
fn within(units: u64, free: u64, micros: u64, (count, period): (u64, u64)) -> bool {
    let over = u128::from(units.saturating_sub(free)) * u128::from(period);
    over <= u128::from(micros) * u128::from(count)
}

/// The bucket of a textbook, in units of 1/period: all numbers are whole, and only the level is stored.
struct Textbook {
    count: i128,
    period: i128,
    level: i128,
    at: Timestamp,
}

impl Textbook {
    fn new((count, period): (u64, u64)) -> Self {
        Self {
            count: i128::from(count),
            period: i128::from(period),
            level: 0,
            at: NOON,
        }
    }

    fn leak(&mut self, to: Timestamp) {
        let leaked = self.count * i128::from(to.since(self.at));
        self.level = (self.level - leaked).max(0);
        self.at = to;
    }

    fn micros(&self, level: i128) -> u64 {
        u64::try_from((level.max(0) + self.count - 1) / self.count).unwrap()
    }

    /// Takes `cost` from a bucket of `capacity`. A request does not wait for the first `free` units in front of it, and
    /// waits at most `max_wait` for the others.
    fn take(&mut self, cost: u64, capacity: u64, free: u64, max_wait: u64) -> Verdict {
        let units = |n: u64| i128::from(n) * self.period;
        let over = self.level + units(cost) - units(capacity);
        let late = self.level - units(free) - self.count * i128::from(max_wait);
        let delay = self.micros(self.level - units(free));
        let outcome = if cost == 0 {
            VerdictOutcome::Admit { delay: 0 }
        } else if cost > capacity {
            VerdictOutcome::Refuse(Wait::Never)
        } else if over > 0 || late > 0 {
            VerdictOutcome::Refuse(Wait::Micros(self.micros(over.max(late))))
        } else {
            self.level += units(cost);
            VerdictOutcome::Admit { delay }
        };
        // Places that are behind the longest wait do not count as left.
        let waited_for = units(free) + self.period + self.count * i128::from(max_wait);
        let left = (units(capacity).min(waited_for) - self.level).max(0) / self.period;
        Verdict {
            outcome,
            remaining: u64::try_from(left).unwrap(),
            reset: self.micros(self.level),
        }
    }
}

proptest! {
    #[test]
    fn a_token_bucket_answers_as_the_textbook_and_keeps_its_bound(
        rate in rates(),
        burst in 1..40_u64,
        arrivals in arrivals(45),
    ) {
        let (count, period) = rate;
        let mut counter = Counter::of(token_bucket(count, period, burst));
        let mut textbook = Textbook::new(rate);
        let mut granted: Vec<(u64, u64)> = Vec::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            textbook.leak(counter.at);
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict, textbook.take(cost, burst, burst, MAX_SPAN));
            if matches!(verdict.outcome, VerdictOutcome::Admit { .. }) {
                granted.push((counter.ago(), cost));
            }
        }
        for (first, (from, _)) in granted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &granted[first..] {
                sum += cost;
                prop_assert!(within(sum, burst, to - from, rate));
            }
        }
    }

    #[test]
    fn a_leaky_bucket_answers_as_the_textbook_and_lets_go_in_order_and_apart(
        rate in rates(),
        burst in 1..10_u64,
        queue in 1..30_u64,
        patience in 1..40_000_u64,
        arrivals in arrivals(5),
    ) {
        let max_wait = pause(patience, rate).max(1);
        let mut counter = Counter::of(leaky_bucket(rate, burst, queue, max_wait));
        let mut textbook = Textbook::new(rate);
        let mut gone: Vec<(u64, u64)> = Vec::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            textbook.leak(counter.at);
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict, textbook.take(cost, queue + burst, burst - 1, max_wait));
            if let VerdictOutcome::Admit { delay } = verdict.outcome && cost > 0 {
                prop_assert!(delay <= max_wait);
                gone.push((counter.ago() + delay, cost));
            }
        }
        prop_assert!(gone.is_sorted_by_key(|(at, _)| *at), "nobody overtakes");
        for (first, (from, _)) in gone.iter().enumerate() {
            // In front of a request that goes on there are at most B - 1 units of earlier requests. Each instant is
            // rounded up to a microsecond.
            let mut before = 0;
            for (to, cost) in &gone[first..] {
                prop_assert!(within(before, burst - 1, to - from + 1, rate));
                before += cost;
            }
        }
    }

    #[test]
    fn leavers_of_a_queue_let_nobody_overtake_and_no_two_go_at_once(
        rate in rates(),
        burst in 1..4_u64,
        queue in 5..30_u64,
        cost in 1..5_u64,
        history in prop::collection::vec((0..1500_u64, any::<bool>(), any::<prop::sample::Index>()), 1..120),
    ) {
        let mut counter = Counter::of(leaky_bucket(rate, burst, queue, MAX_SPAN));
        let cost = Cost::new(cost);
        let mut held: Vec<(u64, Ticket)> = Vec::new();
        for (thousandths, leaves, which) in history {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let waiting = held.iter().filter(|(goes, _)| *goes > counter.ago()).count();
            if leaves && waiting > 0 {
                let (_, ticket) = held.remove(held.len() - waiting + which.index(waiting));
                counter.give_back(ticket);
                continue;
            }
            let (measured, _) = counter.rule.check(counter.state.as_ref(), counter.at, cost);
            let ticket = counter.rule.ticket(counter.at, measured, cost);
            let (verdict, _) = counter.take(cost.units());
            if let VerdictOutcome::Admit { delay } = verdict.outcome {
                held.push((counter.ago() + delay, ticket));
            }
        }
        prop_assert!(held.is_sorted_by_key(|(at, _)| *at), "nobody overtakes");
        for (first, (from, _)) in held.iter().enumerate() {
            for (gap, (to, _)) in held[first..].iter().enumerate() {
                let before = gap as u64 * cost.units();
                prop_assert!(within(before, burst - 1, to - from + 1, rate));
            }
        }
    }

    #[test]
    fn a_meter_is_a_token_bucket_seen_from_the_other_side(
        rate in rates(),
        burst in 1..40_u64,
        arrivals in arrivals(45),
    ) {
        let mut tokens = Counter::of(token_bucket(rate.0, rate.1, burst));
        let mut meter = Counter::of(leaky_bucket(rate, burst, 0, 0));
        for (thousandths, cost) in arrivals {
            let by = pause(thousandths, rate);
            (tokens.at, meter.at) = (tokens.at.plus(by), meter.at.plus(by));
            prop_assert_eq!(tokens.take(cost), meter.take(cost));
        }
    }

    #[test]
    fn a_window_never_holds_more_than_the_limit_and_refuses_nothing_that_fits(
        count in 1..40_u64,
        period in prop_oneof![1..5_u64, 1..2000_u64, Just(SECOND)],
        arrivals in arrivals(45),
    ) {
        let rate = (count, period);
        let mut counter = Counter::of(fixed_window(count, period));
        let (mut start, mut taken) = (None, 0);
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let now = counter.ago();
            if start.is_some_and(|start| now >= start + period) {
                (start, taken) = (None, 0);
            }
            let left = start.map_or(period, |start| start + period - now);
            let (verdict, _) = counter.take(cost);
            let expected = if cost > count {
                VerdictOutcome::Refuse(Wait::Never)
            } else if cost > 0 && taken + cost > count {
                VerdictOutcome::Refuse(Wait::Micros(left))
            } else {
                taken += cost;
                if cost > 0 {
                    start = start.or(Some(now));
                }
                VerdictOutcome::Admit { delay: 0 }
            };
            prop_assert_eq!(verdict.outcome, expected);
            prop_assert_eq!(verdict.remaining, count - taken);
            prop_assert_eq!(verdict.reset, if taken > 0 { left } else { 0 });
        }
    }
}
