//! Properties of every history, tested with a thousand kinds of numbers.

mod answers;
mod bounds;
mod repeats;
mod room;
mod shares;
mod together;
mod undone;
mod windows;

use super::numbers::{
    NOON, SECOND, clock_window, fixed_window, leaky_bucket, limit, rate, sliding_log,
    sliding_window, token_bucket,
};
use crate::support::stored_state::StoredState as _;
use proptest::prelude::*;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, MAX_SPAN, Rate};
use tollgate::limit::verdict::Verdict;
use tollgate::limit::{Change, LeaseSetting, Refund, Rule, State, Ticket};

/// A rule with its state after the beginning of a history.
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

    /// The answer to a question for `cost`, without the charge.
    fn would(&self, at: Timestamp, cost: u64) -> (Verdict, Option<Change>) {
        let cost = Cost::new(cost);
        let (measured, change) = self.rule.check(self.state.as_ref(), at, cost);
        (self.rule.verdict(measured, at, cost, true), change)
    }

    /// The answer to a question for `cost`, and the state that would then be stored, with its life.
    fn after(&self, at: Timestamp, cost: u64) -> (Verdict, Option<(State, Timestamp)>) {
        let (verdict, change) = self.would(at, cost);
        let stored = change.map(|change| (change.update.after(self.state.clone()), change.ends));
        (verdict, stored)
    }

    fn take(&mut self, cost: u64) -> (Verdict, Option<Change>) {
        let (verdict, change) = self.would(self.at, cost);
        if let Some(change) = &change {
            // The state that is read is the state that was stored.
            let state = change.update.clone().after(self.state.take());
            let bytes = state.encode();
            let read = State::decode(&self.rule, &bytes);
            assert_eq!(read, Some(state));
            self.state = read;
        }
        (verdict, change)
    }

    fn give_back(&mut self, ticket: Ticket) {
        // From an open bucket the charge comes back like that of a request that was charged just now and does not go
        // on.
        let refunded = self.refunded(self.at, ticket);
        self.left(refunded);
    }

    /// The refund of a charge that was made at `charged` for a request that does not go on.
    fn refunded(&self, charged: Timestamp, ticket: Ticket) -> Refund {
        let limit = limit("refunded", (rate(1, SECOND), self.rule.clone()));
        let limit = limit.edited(|policy| policy.leasing = LeaseSetting::Off);
        let ticket = limit.abandoned(ticket, charged);
        self.rule.refund(self.state.as_ref(), self.at, ticket)
    }

    fn renew(&mut self, ticket: Ticket) {
        let renewed = self.rule.renew(self.state.as_ref(), self.at, ticket);
        self.left(renewed);
    }

    fn left(&mut self, refunded: Refund) {
        match refunded {
            Refund::Nothing => {}
            Refund::Left(change) => self.state = Some(change.update.after(self.state.take())),
            Refund::Gone => self.state = None,
        }
    }

    /// The same counter without a history.
    fn fresh(&self) -> Self {
        Self {
            rule: self.rule.clone(),
            state: None,
            at: self.at,
        }
    }

    fn ago(&self) -> u64 {
        self.at.since(NOON)
    }
}

/// N and P of all sizes. Most intervals are fractions.
fn rates() -> impl Strategy<Value = (u64, u64)> {
    let counts = prop_oneof![1..20_u64, 1..5000_u64, 1..20_000_000_u64];
    let periods = prop_oneof![
        Just(SECOND),
        1..2000_u64,
        1..100 * SECOND,
        1..31 * 86_400 * SECOND
    ];
    (counts, periods)
}

/// Pauses and costs. A pause of `p` is `p` thousandths of the time one unit takes.
fn arrivals(most: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pauses = prop_oneof![
        4 => Just(0_u64),
        4 => 0..1500_u64,
        1 => 0..20_000_u64,
        1 => 0..200_000_u64,
    ];
    prop::collection::vec((pauses, 0..=most), 1..120)
}

fn pause(thousandths: u64, (count, period): (u64, u64)) -> u64 {
    let micros = u128::from(thousandths) * u128::from(period) / (1000 * u128::from(count));
    u64::try_from(micros).unwrap()
}

/// The number of kinds that [`rule`] makes.
const KINDS: u8 = 8;

/// A rule of each kind, with room for `size`. Windows of one length are of one kind, whatever their parts and offsets.
fn rule(kind: u8, (count, period): (u64, u64), size: u64) -> (Rate, Rule) {
    match kind {
        0 => token_bucket(count, period, size),
        1 => leaky_bucket((count, period), 1, size, MAX_SPAN),
        2 => fixed_window(size, period),
        3 => clock_window(size, period, count % period),
        4 => sliding_window(size, in_parts(period), 1, false),
        5 => sliding_window(
            size,
            in_parts(period),
            [1, 2, 3, 6][count as usize % 4],
            false,
        ),
        6 => sliding_window(
            size,
            in_parts(period),
            [1, 2, 3, 6][count as usize % 4],
            true,
        ),
        _ => sliding_log(size, period),
    }
}

/// The next length that six parts of whole milliseconds can have.
fn in_parts(period: u64) -> u64 {
    period.div_ceil(6_000) * 6_000
}
