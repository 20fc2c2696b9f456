//! Gateways that each count alone admit together as much as one gateway would, whatever the sizes of their buckets.

use super::{SECOND, leaky_bucket, token_bucket};
use crate::law::numbers::{NOON, limit};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{Verdict, VerdictOutcome, Wait};
use tollgate::limit::{Limit, Rule, State};

const BURSTS: [u64; 4] = [1, 2, 3, 20];

/// Several gateways, each with its own counter.
struct Alone {
    limit: Arc<Limit>,
    gateways: NonZeroU32,
    states: Vec<Option<State>>,
    /// The present instant, in microseconds since noon.
    at: u64,
}

impl Alone {
    fn of(rule: (Rate, Rule), gateways: u64) -> Self {
        Self {
            limit: limit("shared", rule),
            gateways: NonZeroU32::new(u32::try_from(gateways).unwrap()).unwrap(),
            states: vec![None; gateways as usize],
            at: 0,
        }
    }

    fn would(&self, gateway: usize, ahead: u64, cost: u64) -> (Verdict, Option<State>) {
        let (now, cost) = (NOON.plus(self.at + ahead), Cost::new(cost));
        let state = self.states[gateway].as_ref();
        let (measured, change) = self.limit.check_as_one_of(state, now, cost, self.gateways);
        let verdict = self
            .limit
            .verdict_as_one_of(measured, now, cost, true, self.gateways);
        (verdict, change.map(|change| change.update.after(None)))
    }

    /// The microseconds after which a request of `cost` goes on, or nothing if it is refused.
    fn take(&mut self, gateway: usize, cost: u64) -> Option<u64> {
        let (verdict, state) = self.would(gateway, 0, cost);
        if let Some(state) = state {
            self.states[gateway] = Some(state);
        }
        match verdict.outcome {
            VerdictOutcome::Admit { delay } => Some(delay),
            VerdictOutcome::Refuse(_) => None,
        }
    }
}

fn bucket(kind: u8, rate: u64, burst: u64) -> (Rate, Rule) {
    match kind {
        0 => token_bucket(rate, SECOND, burst),
        _ => leaky_bucket((rate, SECOND), burst, 0, 0),
    }
}

/// Checks that no stretch of time has more units than `size` and the units that `rate` brings in this time.
fn holds(granted: &[(u64, u64)], size: u64, rate: u64) -> Result<(), TestCaseError> {
    for (first, (from, _)) in granted.iter().enumerate() {
        let mut units = 0;
        for (to, cost) in &granted[first..] {
            units += cost;
            prop_assert!(units * SECOND <= size * SECOND + rate * (to - from));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn gateways_alone_admit_together_what_one_would(
        kind in 0..2_u8,
        rate in 1..60_u64,
        burst in prop::sample::select(&BURSTS[..]),
        gateways in 1..=5_u64,
        steps in prop::collection::vec((0..200_000_u64, 0..5_usize, 1..=3_u64), 1..200),
    ) {
        let mut all = Alone::of(bucket(kind, rate, burst), gateways);
        let mut granted = Vec::new();
        for (pause, gateway, cost) in steps {
            all.at += pause;
            let gateway = gateway % gateways as usize;
            let (verdict, _) = all.would(gateway, 0, cost);
            prop_assert!(verdict.remaining <= burst);
            match verdict.outcome {
                VerdictOutcome::Refuse(Wait::Never) => prop_assert!(cost > burst),
                VerdictOutcome::Refuse(Wait::Micros(wait)) => {
                    let admits = |ahead| matches!(all.would(gateway, ahead, cost).0.outcome, VerdictOutcome::Admit { delay: 0 });
                    prop_assert!(!admits(wait - 1) && admits(wait), "the wait is the least");
                    // As many requests of one unit would be admitted as the answer states, and no more.
                    prop_assert!(cost > 1 || verdict.remaining == 0);
                }
                VerdictOutcome::Admit { delay } => prop_assert!(delay == 0 && cost <= burst),
            }
            if all.take(gateway, cost).is_some() {
                granted.push((all.at, cost));
            }
        }
        let dearest = granted.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
        holds(&granted, burst.max(gateways * dearest), rate)?;
    }
}

#[test]
fn a_small_burst_does_not_slow_or_multiply_the_rate() {
    for (kind, burst, gateways, cost) in (0..2)
        .flat_map(|kind| BURSTS.map(|burst| (kind, burst)))
        .flat_map(|(kind, burst)| (1..=5).map(move |gateways| (kind, burst, gateways)))
        .flat_map(|(kind, burst, gateways)| (1..=3).map(move |cost| (kind, burst, gateways, cost)))
    {
        let mut all = Alone::of(bucket(kind, 20, burst), gateways);
        let mut units = 0;
        // All gateways are asked every millisecond, for five seconds.
        for at in 0..=5_000_u64 {
            all.at = at * 1_000;
            for gateway in 0..gateways as usize {
                units += all.take(gateway, cost).map_or(0, |_| cost);
            }
        }
        let told = format!("{units} by {gateways} at a burst of {burst}, {cost} each");
        if cost > burst {
            assert_eq!(units, 0, "{told}");
            continue;
        }
        // Each gateway may have begun to save for one more request.
        let (least, most) = (100, burst.max(gateways * cost) + 100);
        assert!((least..=most).contains(&units), "{told}");
    }
}

#[test]
fn small_queues_let_go_at_the_rate_together() {
    for (queue, burst, gateways) in [(1, 1, 3), (1, 1, 5), (2, 1, 2), (4, 2, 3), (10, 1, 5)] {
        let rule = leaky_bucket((20, SECOND), burst, queue, 10 * SECOND);
        let mut all = Alone::of(rule, gateways);
        let mut gone = Vec::new();
        for at in 0..=5_000_u64 {
            all.at = at * 1_000;
            for gateway in 0..gateways as usize {
                let delay = all.take(gateway, 1);
                gone.extend(delay.map(|delay| (all.at + delay, 1)));
            }
        }
        gone.sort_unstable();
        // Each gateway lets a request go whenever less than the burst is in front of it.
        let size = (burst - 1 + gateways) + (burst - 1);
        holds(&gone, size, 20).unwrap();
        let within = gone.iter().filter(|(at, _)| *at <= 5 * SECOND).count();
        assert!(
            within >= 100,
            "{within} by {gateways} with a queue of {queue}"
        );
    }
}
