//! Charges that are given back to a limit: unused units, and slots whose request has ended.

use super::rate::{MAX_SPAN, Span};
use super::{
    BucketState, Change, ChargeKind, History, HistoryMark, Limit, Mark, Refund, Rule, State,
    Ticket, lease,
};
use super::{bucket, fixed_window};
use crate::clock::Timestamp;
use std::sync::Arc;

/// The least time for which a store remembers that a counter was emptied, in microseconds: updates wait as long for an
/// unavailable Redis.
const MARKED: u64 = 3_600_000_000;

impl Limit {
    /// The time for which a store remembers that a counter of the limit was emptied, in microseconds: as long as any of
    /// its charges may come back.
    #[must_use]
    pub fn mark_life(&self) -> u64 {
        self.refill.saturating_mul(2).clamp(MARKED, MAX_SPAN)
    }

    /// The variant of the limit for a request that others may refuse after this charge: its state holds the history
    /// that a full refund needs. `None` if no history is needed: windows count units, and a place in a queue is given
    /// back in its order.
    #[must_use]
    pub fn with_history(&self) -> Option<&Arc<Self>> {
        let made = self.variants.revocable.get_or_init(|| {
            let is_needed = self.rule.open_bucket().is_some() && !self.history;
            is_needed.then(|| self.variant(ChargeKind::Revocable, self.rule.clone()))
        });
        made.as_ref()
    }

    /// The variant with a history, if it has charged a request in this process. A charge without history makes the
    /// counter forget the history of its state.
    #[must_use]
    pub fn with_history_if_asked(&self) -> Option<&Arc<Self>> {
        self.variants.revocable.get()?.as_ref()
    }

    /// Has this process checked the limit together with limits of other slots?
    #[must_use]
    pub fn is_asked_with_history(&self) -> bool {
        self.variants.revocable.get().is_some()
    }

    /// Takes back all of `ticket`, charged at `at`, of a request that was not forwarded. Only the waits of requests
    /// after it in a queue depend on the charge.
    ///
    /// Permits of a bucket are valid for as long as the bucket is not empty without them, and this charge may be the
    /// one that keeps it from being empty. A call that takes permits leaves a state without history. If the history
    /// begins more than 100 ms before the charge, no permit has been valid since, and the whole charge is refunded.
    /// Otherwise the charge is treated as older by the longest life of permits, and the part that drains until the last
    /// permit has ended stays.
    #[must_use]
    pub fn abandoned(&self, ticket: Ticket, at: Timestamp) -> Ticket {
        if self.rule.queues() {
            return ticket;
        }
        let relied = self.leases().map_or(0, |_| lease::LONGEST);
        let before = |at: Timestamp| Timestamp::from_micros(at.micros().saturating_sub(relied));
        let mark = match ticket.mark {
            Mark::History(mark) => HistoryMark {
                at: before(mark.at),
                ..mark
            },
            Mark::Bucket(was) => HistoryMark {
                // All other content of the bucket may have drained by now.
                was: BucketState {
                    at: 0,
                    part: 0,
                    den: 1,
                    numbers: was.numbers,
                },
                at: before(at),
                charged: at,
                back: MAX_SPAN,
                cost: ticket.cost,
            },
            Mark::Window { .. } | Mark::Instant(_) | Mark::Slot(_) | Mark::Repeat => return ticket,
        };
        Ticket {
            mark: Mark::History(mark),
            ..ticket
        }
    }
}

impl Rule {
    /// Renews a ticket's slots. Charges of other rules are never renewed.
    #[must_use]
    pub fn renew(&self, state: Option<&State>, now: Timestamp, ticket: Ticket) -> Refund {
        match (self, ticket.mark) {
            (Self::Concurrency(rule), Mark::Slot(first)) => {
                rule.renew(state.and_then(State::slots), first, ticket.cost, now)
            }
            _ => Refund::Nothing,
        }
    }

    /// Gives back the cost of `ticket` at `now`: the whole charge, or its surplus. The part that other requests depend
    /// on stays. The record of an id is checked by the store ([`Ticket::is_unrepeated`]).
    #[must_use]
    pub fn refund(&self, state: Option<&State>, now: Timestamp, ticket: Ticket) -> Refund {
        let Some(state) = state else {
            return Refund::Nothing;
        };
        let cost = ticket.cost;
        match (self, state, ticket.mark) {
            (rule, _, Mark::History(mark)) => match rule.open_bucket() {
                Some(bucket) => mark.refund(state, now, cost, bucket.interval),
                None => Refund::Nothing,
            },
            (Self::LeakyBucket(rule), _, Mark::Bucket(was)) if rule.queue > 0 => {
                let interval = rule.bucket.interval;
                let charge = interval.times(cost.units());
                let held = state.bucket();
                let left = held.and_then(|held| bucket::refund(held, was, charge, now, interval));
                left.map_or(Refund::Nothing, |left| {
                    Refund::of_bucket(left, rule.bucket.state_at(now, left), None)
                })
            }
            (
                Self::FixedWindow(_) | Self::ClockWindow(_),
                State::Window(state),
                Mark::Window { start, end },
            ) => fixed_window::refund(*state, start, end, cost, now),
            (Self::SlidingWindow(rule), State::Parts(state), Mark::Window { start, .. }) => {
                rule.refund(state, start, cost, now)
            }
            (Self::SlidingLog(rule), State::Log(state), Mark::Instant(at)) => {
                rule.refund(state, at, cost, now)
            }
            (Self::Concurrency(rule), State::Slots(state), Mark::Slot(first)) => {
                rule.release(state, first, cost, now)
            }
            _ => Refund::Nothing,
        }
    }
}

impl Refund {
    /// The remainder when a bucket is reduced to `level`, as `bucket`, with its history if it has one.
    pub(super) fn of_bucket(level: Span, bucket: BucketState, history: Option<History>) -> Self {
        if level == Span::default() {
            return Self::Gone;
        }
        let state = State::of_bucket(bucket, history);
        Self::Left(Change::put(state, bucket.ends()))
    }
}
