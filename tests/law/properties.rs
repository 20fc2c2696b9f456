//! What holds for every history: bounds over any stretch of time, answers as the plain textbook gives them, lives.

use super::numbers::{NOON, SECOND, fixed_window, leaky_bucket, token_bucket};
use proptest::prelude::*;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, MAX_SPAN, Rate};
use tollgate::limit::verdict::{Outcome, Verdict, Wait};
use tollgate::limit::{Change, Rule, State};

/// A rule that has been told the beginning of a history.
struct Counter {
    rule: Rule,
    state: Option<State>,
    at: Timestamp,
}

impl Counter {
    fn of((_, rule): (Rate, Rule)) -> Self {
        Self {
            rule,
            state: None,
            at: NOON,
        }
    }

    /// What would be said to `cost`, without its being taken.
    fn would(&self, at: Timestamp, cost: u32) -> (Verdict, Option<Change>) {
        let cost = Cost::new(cost);
        let (measured, change) = self.rule.check(self.state, at, cost);
        (self.rule.verdict(measured, cost, true), change)
    }

    fn take(&mut self, cost: u32) -> (Verdict, Option<Change>) {
        let (verdict, change) = self.would(self.at, cost);
        if let Some(change) = change {
            // What is stored is what is read again.
            let bytes = change.state.encode();
            let read = State::decode(&self.rule, &bytes);
            assert_eq!(read, Some(change.state));
            self.state = read;
        }
        (verdict, change)
    }

    /// As it would be had nothing ever happened.
    fn fresh(&self) -> Self {
        Self {
            rule: self.rule,
            state: None,
            at: self.at,
        }
    }

    fn ago(&self) -> u64 {
        self.at.since(NOON)
    }
}

/// N and P of all sizes, so that most intervals are fractions.
fn rates() -> impl Strategy<Value = (u32, u64)> {
    let counts = prop_oneof![1..20_u32, 1..5000_u32, 1..20_000_000_u32];
    let periods = prop_oneof![
        Just(SECOND),
        1..2000_u64,
        1..100 * SECOND,
        1..31 * 86_400 * SECOND
    ];
    (counts, periods)
}

/// Pauses and costs. A pause of `p` is `p` thousandths of the time one unit takes.
fn arrivals(most: u32) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let pauses = prop_oneof![
        4 => Just(0_u64),
        4 => 0..1500_u64,
        1 => 0..20_000_u64,
        1 => 0..200_000_u64,
    ];
    prop::collection::vec((pauses, 0..=most), 1..120)
}

fn pause(thousandths: u64, (count, period): (u32, u64)) -> u64 {
    let micros = u128::from(thousandths) * u128::from(period) / (1000 * u128::from(count));
    u64::try_from(micros).unwrap()
}

/// Does `units` in `micros` stay within `free` + rate * time?
fn within(units: u64, free: u64, micros: u64, (count, period): (u32, u64)) -> bool {
    let over = u128::from(units.saturating_sub(free)) * u128::from(period);
    over <= u128::from(micros) * u128::from(count)
}

/// Tokens or water in units of 1/period, as a textbook counts them: every number whole, nothing stored but the level.
struct Textbook {
    count: i128,
    period: i128,
    level: i128,
    at: Timestamp,
}

impl Textbook {
    fn new((count, period): (u32, u64)) -> Self {
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

    /// With a bucket of `capacity`, in which `free` are not waited behind, and at most `max_wait` behind the others.
    fn take(&mut self, cost: u32, capacity: u32, free: u32, max_wait: u64) -> Verdict {
        let units = |n: u32| i128::from(n) * self.period;
        let over = self.level + units(cost) - units(capacity);
        let late = self.level - units(free) - self.count * i128::from(max_wait);
        let delay = self.micros(self.level - units(free));
        let outcome = if cost == 0 {
            Outcome::Admit { delay: 0 }
        } else if cost > capacity {
            Outcome::Refuse(Wait::Never)
        } else if over > 0 || late > 0 {
            Outcome::Refuse(Wait::Micros(self.micros(over.max(late))))
        } else {
            self.level += units(cost);
            Outcome::Admit { delay }
        };
        let left = (i128::from(capacity) * self.period - self.level) / self.period;
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
        burst in 1..40_u32,
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
            if matches!(verdict.outcome, Outcome::Admit { .. }) {
                granted.push((counter.ago(), u64::from(cost)));
            }
        }
        for (first, (from, _)) in granted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &granted[first..] {
                sum += cost;
                prop_assert!(within(sum, u64::from(burst), to - from, rate));
            }
        }
    }

    #[test]
    fn a_leaky_bucket_answers_as_the_textbook_and_lets_go_in_order_and_apart(
        rate in rates(),
        burst in 1..10_u32,
        queue in 1..30_u32,
        patience in 1..40_000_u64,
        arrivals in arrivals(5),
    ) {
        let (count, period) = rate;
        let max_wait = pause(patience, rate).max(1);
        let mut counter = Counter::of(leaky_bucket(rate, burst, queue, max_wait));
        prop_assert_eq!(count, rate.0);
        prop_assert!(period > 0);
        let mut textbook = Textbook::new(rate);
        let mut gone: Vec<(u64, u64)> = Vec::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            textbook.leak(counter.at);
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict, textbook.take(cost, queue + burst, burst - 1, max_wait));
            if let Outcome::Admit { delay } = verdict.outcome && cost > 0 {
                prop_assert!(delay <= max_wait);
                gone.push((counter.ago() + delay, u64::from(cost)));
            }
        }
        prop_assert!(gone.is_sorted_by_key(|(at, _)| *at), "nobody overtakes");
        for (first, (from, _)) in gone.iter().enumerate() {
            // Whoever goes finds at most B - 1 of what went before it. Each instant is rounded up to a microsecond.
            let mut before = 0;
            for (to, cost) in &gone[first..] {
                prop_assert!(within(before, u64::from(burst) - 1, to - from + 1, rate));
                before += cost;
            }
        }
    }

    #[test]
    fn a_meter_is_a_token_bucket_seen_from_the_other_side(
        rate in rates(),
        burst in 1..40_u32,
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
        count in 1..40_u32,
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
                Outcome::Refuse(Wait::Never)
            } else if cost > 0 && taken + cost > count {
                Outcome::Refuse(Wait::Micros(left))
            } else {
                taken += cost;
                if cost > 0 {
                    start = start.or(Some(now));
                }
                Outcome::Admit { delay: 0 }
            };
            prop_assert_eq!(verdict.outcome, expected);
            prop_assert_eq!(verdict.remaining, u64::from(count - taken));
            prop_assert_eq!(verdict.reset, if taken > 0 { left } else { 0 });
        }
    }

    #[test]
    fn a_state_lives_exactly_as_long_as_it_matters(
        rate in rates(),
        kind in 0..3_u8,
        size in 1..20_u32,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let (_, change) = counter.take(cost);
            let Some(change) = change else { continue };
            prop_assert!(change.ends > counter.at);
            for cost in [0, 1, size, size + 1, 25] {
                let (with, none) = (&counter, counter.fresh());
                for later in [0, 1, 1000, 3600 * SECOND] {
                    let at = change.ends.plus(later);
                    prop_assert_eq!(with.would(at, cost), none.would(at, cost));
                }
            }
            let last = Timestamp::from_micros(change.ends.micros() - 1);
            prop_assert_ne!(counter.would(last, 0).0, counter.fresh().would(last, 0).0);
        }
    }

    #[test]
    fn a_peek_agrees_with_what_then_happens(
        rate in rates(),
        kind in 0..3_u8,
        size in 1..20_u32,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let (peek, change) = counter.would(counter.at, 0);
            prop_assert_eq!(change, None);
            prop_assert_eq!(peek.outcome, Outcome::Admit { delay: 0 });
            let left = u32::try_from(peek.remaining).unwrap();
            let admits = |cost| {
                let (verdict, _) = counter.would(counter.at, cost);
                (matches!(verdict.outcome, Outcome::Admit { .. }), verdict)
            };
            prop_assert!(left == 0 || admits(left).0);
            prop_assert!(!admits(left + 1).0);
            // A refusal shows the state unchanged, and so does a peek.
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
        kind in 0..3_u8,
        editions in prop::collection::vec((rates(), 1..20_u32), 1..5),
        history in prop::collection::vec((0..8_usize, any::<i8>(), 0..2000_u64, 0..25_u32), 1..80),
    ) {
        // A window of another length is another counter.
        let length = editions[0].0.1;
        let rules: Vec<_> = editions
            .iter()
            .map(|((count, period), size)| match kind {
                2 => rule(kind, (*count, length), *size),
                _ => rule(kind, (*count, *period), *size),
            })
            .collect();
        let mut counter = Counter::of(rules[0]);
        for (edition, direction, thousandths, cost) in history {
            let edition = edition % rules.len();
            counter.rule = rules[edition].1;
            let by = pause(thousandths, editions[edition].0);
            counter.at = match direction < -90 {
                true => Timestamp::from_micros(counter.at.micros() - by),
                false => counter.at.plus(by),
            };
            let before = counter.state;
            let (verdict, change) = counter.take(cost);
            let Outcome::Refuse(wait) = verdict.outcome else { continue };
            let Wait::Micros(wait) = wait else {
                prop_assert_eq!(counter.state, before);
                continue;
            };
            let at = |micros| counter.would(counter.at.plus(micros), cost).0.outcome;
            let admitted = matches!(at(wait), Outcome::Admit { .. });
            prop_assert!(admitted, "after {wait}: {:?}", at(wait));
            prop_assert_eq!(at(wait - 1), Outcome::Refuse(Wait::Micros(1)));
            // Mended at most once: the second refusal changes nothing.
            let (again, second) = counter.would(counter.at, cost);
            prop_assert_eq!(again, verdict);
            prop_assert!(second.is_none(), "{change:?}, then {second:?}");
        }
    }

    #[test]
    fn a_refund_right_after_the_charge_restores_the_state(
        rate in rates(),
        kind in 0..3_u8,
        size in 1..20_u32,
        arrivals in arrivals(20),
    ) {
        let mut counter = Counter::of(rule(kind, rate, size));
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, rate));
            let before = counter.would(counter.at, 0).0;
            let (measured, _) = counter.rule.check(counter.state, counter.at, Cost::new(cost));
            let (verdict, _) = counter.take(cost);
            if cost == 0 || !matches!(verdict.outcome, Outcome::Admit { .. }) {
                continue;
            }
            let ticket = counter.rule.ticket(counter.at, measured, Cost::new(cost));
            prop_assert_eq!(Some(ticket.state), counter.state);
            let mut returned = counter.fresh();
            match counter.rule.refund(counter.state, counter.at, ticket) {
                tollgate::limit::Refunded::Left(change) => returned.state = Some(change.state),
                tollgate::limit::Refunded::Gone => {}
                tollgate::limit::Refunded::Nothing => prop_assert!(false, "nothing went back"),
            }
            prop_assert_eq!(returned.would(counter.at, 0).0, before);
        }
    }
}

/// Of each kind, room for `size`.
fn rule(kind: u8, (count, period): (u32, u64), size: u32) -> (Rate, Rule) {
    match kind {
        0 => token_bucket(count, period, size),
        1 => leaky_bucket((count, period), 1, size, MAX_SPAN),
        _ => fixed_window(size, period),
    }
}
