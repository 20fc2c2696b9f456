//! What comes back to a limit: charges that were not used, and slots whose request has ended.

use super::bucket::{self, BucketState};
use super::leaky_bucket::LeakyBucket;
use super::rate::{MAX_SPAN, Span};
use super::trail::TrailMark;
use super::{Change, Limit, Mark, Refunded, Rule, State, Ticket, lease};
use crate::clock::Timestamp;
use std::sync::Arc;

impl Limit {
    /// The same counters for a request that others may refuse when this one has been charged: the state then says what
    /// must be known for all of the charge to come back. Nothing where it does so anyhow or need not: windows count units,
    /// and a place in a queue comes back in its order.
    #[must_use]
    pub fn apart(&self) -> Option<&Arc<Self>> {
        let made = self.apart.get_or_init(|| {
            if !self.rule.is_open_bucket() || self.trails {
                return None;
            }
            let mut made = Self {
                window: self.window.clone(),
                cost: self.cost,
                partial: self.partial,
                dedupe: self.dedupe.clone(),
                gives_back: self.gives_back,
                leasing: self.leasing,
                trails: true,
                ..self.alike(self.rule.clone())
            };
            made.block = made.block_of(self.cost, Timestamp::default());
            Some(Arc::new(made))
        });
        made.as_ref()
    }

    /// The same if anybody in this process has asked so: who asks in another way forgets what the state says beside.
    #[must_use]
    pub fn apart_if_made(&self) -> Option<&Arc<Self>> {
        self.apart.get()?.as_ref()
    }

    /// Has anybody in this process asked about it beside limits of other slots?
    #[must_use]
    pub fn was_asked_apart(&self) -> bool {
        self.apart.get().is_some()
    }

    /// Takes back all of what `ticket` says was charged at `at` for a request that did not go on: nobody but who came
    /// behind it in a queue was told of it.
    ///
    /// Permits of a bucket are good for as long as it is not empty without them, and this charge may be what it is not
    /// empty by. The call that brings permits leaves a state that says nothing beside: if it says for longer than 100 ms before
    /// the charge what has been, no permit was in hand since, and all comes back as ever. Else the charge counts as so
    /// much older, and what drains until the last permit has ended stays.
    #[must_use]
    pub fn undone(&self, ticket: Ticket, at: Timestamp) -> Ticket {
        if self.rule.queues() {
            return ticket;
        }
        let relied = self.leases().map_or(0, |_| lease::LONGEST);
        let before = |at: Timestamp| Timestamp::from_micros(at.micros().saturating_sub(relied));
        let mark = match ticket.mark {
            Mark::Trailed(mark) => TrailMark {
                at: before(mark.at),
                ..mark
            },
            Mark::Bucket(_) => TrailMark {
                // What else was in the bucket is not known to be there still.
                was: BucketState {
                    at: 0,
                    part: 0,
                    den: 1,
                },
                at: before(at),
                back: MAX_SPAN,
                cost: ticket.cost,
            },
            Mark::Window { .. } | Mark::Instant(_) | Mark::Slot(_) => return ticket,
        };
        Ticket {
            mark: Mark::Trailed(mark),
            ..ticket
        }
    }
}

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
                Self::LeakyBucket(LeakyBucket { interval, .. }),
                State::Bucket(_) | State::Trailed(_),
                Mark::Bucket(was),
            ) if self.queues() => {
                let charge = interval.times(u64::from(cost.units()));
                let Some(state) = state.bucket() else {
                    return Refunded::Nothing;
                };
                match bucket::refund(state, was, charge, now, *interval) {
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
