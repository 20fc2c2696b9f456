//! What comes back to a limit: charges that were not used, and slots whose request has ended.

use super::bucket::{self, BucketState};
use super::leaky_bucket::LeakyBucket;
use super::rate::Span;
use super::token_bucket::TokenBucket;
use super::{Change, Mark, Refunded, Rule, State, Ticket};
use crate::clock::Timestamp;

impl Rule {
    /// Takes back at `now` what was charged at `at` for a request that another limit then refused. Nobody was told of
    /// it but who came after it in a queue.
    #[must_use]
    pub fn undo(
        &self,
        state: Option<&State>,
        (at, now): (Timestamp, Timestamp),
        ticket: Ticket,
    ) -> Refunded {
        if let Mark::Trailed(_) = ticket.mark {
            return self.settle(state, now, ticket);
        }
        let (interval, brim) = match self {
            Self::TokenBucket(rule) => (rule.interval, rule.brim),
            Self::LeakyBucket(rule) if !self.queues() => (rule.interval, rule.brim),
            _ => return self.refund(state, now, ticket),
        };
        let Some(state) = state.and_then(State::bucket) else {
            return Refunded::Nothing;
        };
        let charge = interval.times(u64::from(ticket.cost.units()));
        let level = bucket::level(Some(state), now, interval, brim).span;
        let left = bucket::undo(level, charge, now.since(at), interval);
        match left {
            left if left == level => Refunded::Nothing,
            left if left == Span::default() => Refunded::Gone,
            left => {
                let state = BucketState::at_level(now, left, interval);
                Refunded::Left(Change::put(State::Bucket(state), state.ends()))
            }
        }
    }

    /// Renews a ticket's slots; nothing of any other rule's is ever renewed.
    #[must_use]
    pub fn renew(&self, state: Option<&State>, now: Timestamp, ticket: Ticket) -> Refunded {
        match (self, ticket.mark) {
            (Self::Concurrency(rule), Mark::Slot(first)) => {
                rule.renew(state.and_then(State::leases), first, ticket.cost, now)
            }
            _ => Refunded::Nothing,
        }
    }

    /// Gives a ticket's charge back, as far as nobody counts on it. Its record is looked at by whoever holds both.
    #[must_use]
    pub fn refund(&self, state: Option<&State>, now: Timestamp, ticket: Ticket) -> Refunded {
        if let Mark::Trailed(_) = ticket.mark {
            return self.settle(state, now, ticket);
        }
        let Some(state) = state else {
            return Refunded::Nothing;
        };
        let cost = ticket.cost;
        match (self, state, ticket.mark) {
            (
                Self::TokenBucket(TokenBucket { interval, .. })
                | Self::LeakyBucket(LeakyBucket { interval, .. }),
                State::Bucket(_) | State::Trailed(_),
                Mark::Bucket(was),
            ) => {
                let charge = interval.times(u64::from(cost.units()));
                let Some(state) = state.bucket() else {
                    return Refunded::Nothing;
                };
                match bucket::refund(state, was, charge, now, *interval, self.queues()) {
                    None => Refunded::Nothing,
                    Some(left) if left == Span::default() => Refunded::Gone,
                    Some(left) => {
                        let state = BucketState::at_level(now, left, *interval);
                        Refunded::Left(Change::put(State::Bucket(state), state.ends()))
                    }
                }
            }
            (Self::FixedWindow(rule), State::Window(state), Mark::Window { start, .. }) => {
                rule.refund(*state, start, cost, now)
            }
            (Self::ClockWindow(rule), State::Window(state), Mark::Window { start, end }) => {
                rule.refund(*state, (start, end), cost, now)
            }
            (Self::SlidingWindow(rule), State::Parts(state), Mark::Window { start, .. }) => {
                rule.refund(state, start, cost, now)
            }
            (Self::SlidingLog(rule), State::Log(state), Mark::Instant(at)) => {
                rule.refund(state, at, cost, now)
            }
            (Self::Concurrency(rule), State::Leases(state), Mark::Slot(first)) => {
                rule.release(state, first, cost, now)
            }
            _ => Refunded::Nothing,
        }
    }
}
