//! The lease of one key: the result of the last call, its remaining permits, and the size of the next order.

#[cfg(test)]
mod tests;

use super::{LeaseOrder, TAIL, demand};
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{GrantedUnits, Measurement, Verdict, VerdictOutcome, Wait};
use crate::limit::{LeaseTerms, Limit, State, Ticket};
use crate::store::answers::{Answers, Evidence, LimitAnswer};
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::invalidation::Invalidation;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// A bucket that fills within this number of microseconds can spare lost units while it is less than half used.
const SOON: u64 = 10_000_000;
/// Part of a bucket's rate that one worker may lose.
const LOST: f64 = 100.0;
/// Calls whose unused units are to be given back at once. Beyond this number, the oldest call's units are lost.
const MOST_OWED: usize = 8;

/// Permits for one key.
#[derive(Debug)]
pub(super) struct KeyLease {
    pub(super) hash: u64,
    /// The limit at the time of the call. A reload creates a new limit, whose numbers may differ.
    pub(super) limit: Arc<Limit>,
    pub(super) key: SmallVec<[u8; 16]>,
    /// Unused permits, and the instant until which they may be used.
    pub(super) permits: u32,
    pub(super) until: Timestamp,
    /// Permits charged for the requests that waited when the call was sent.
    pub(super) due: u32,
    /// Calls so far.
    pub(super) turn: u64,
    /// A call is being made, or is about to be.
    pub(super) asking: bool,
    /// The call has been sent: it does not charge a request that arrives now.
    pub(super) sent: bool,
    /// The last call failed.
    pub(super) failed: bool,
    /// Requests that wait for the next call.
    pub(super) waiting: u32,
    /// The duration of the last call.
    pub(super) took: u64,
    /// Units of a bucket that may yet be lost, as of the given instant.
    spare: (f64, Timestamp),
    /// No call is made before this instant, since too few units would have returned.
    pub(super) paused: Timestamp,
    pub(super) last: Option<LeaseCall>,
    /// Units of earlier calls that no request may use any more, each with the instant at which its call was sent.
    pub(super) left: SmallVec<[(Timestamp, u32); 2]>,
    pub(super) answered: Rc<Notify>,
}

/// The last call and its answer.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct LeaseCall {
    /// The instant at which the call was sent.
    pub(super) sent: Timestamp,
    /// The instant at which the answer arrived. Waits count from then on, so that none is too short.
    answered_at: Timestamp,
    pub(super) at: Timestamp,
    pub(super) measured: Measurement,
    /// Units that the call charged.
    pub(in crate::store) charged: u32,
    pub(super) verdict: Verdict,
}

impl KeyLease {
    pub(super) fn new(hash: u64, check: &Check<'_>, now: Timestamp) -> Self {
        Self {
            hash,
            limit: Arc::clone(check.limit),
            key: SmallVec::from_slice(check.key),
            permits: 0,
            until: now,
            due: 0,
            turn: 0,
            asking: false,
            sent: false,
            failed: false,
            waiting: 0,
            took: 0,
            // One worker's share, as soon as the share is known.
            spare: (f64::INFINITY, now),
            paused: now,
            last: None,
            left: SmallVec::new(),
            answered: Rc::default(),
        }
    }

    pub(super) fn is_of(&self, hash: u64, check: &Check<'_>) -> bool {
        self.hash == hash && self.limit.id == check.limit.id && *self.key == *check.key
    }

    /// Drops permits of a counter that was reset, and permits of a limit whose numbers have changed.
    pub(super) fn renew(&mut self, check: &Check<'_>, invalidation: &Invalidation, now: Timestamp) {
        let is_reset = |last: &LeaseCall| invalidation.is_reset(self.hash, last.sent);
        if self.last.as_ref().is_some_and(is_reset) {
            (self.permits, self.last, self.paused) = (0, None, now);
        }
        if !Arc::ptr_eq(&self.limit, check.limit) {
            self.leave();
            self.limit = Arc::clone(check.limit);
            (self.due, self.last, self.paused) = (0, None, now);
        }
    }

    /// Withdraws the unused permits: they are to be given back, and no request uses them any more.
    pub(super) fn leave(&mut self) {
        let units = std::mem::take(&mut self.permits);
        self.lose(units);
        if let Some(last) = self.last {
            self.owe(last.sent, units);
        }
    }

    fn lose(&mut self, units: u32) {
        self.spare.0 -= f64::from(units);
    }

    /// The number of permits that may be taken for later, even if none of them is used.
    ///
    /// - For a window, the unused units of a call are given back.
    /// - For a bucket, they are lost: at most a hundredth of the bucket's rate, and one worker's share at once. A
    ///   bucket that fills within seconds, and is less than half used, regains them before a request lacks them.
    pub(super) fn spare(&mut self, terms: &LeaseTerms, now: Timestamp) -> u32 {
        let capacity = u128::from(self.limit.rule.most());
        let period = u128::from(self.limit.rate.period.get());
        let count = u128::from(self.limit.rate.count.get());
        let is_soon_full = capacity * period <= count * u128::from(SOON);
        let has_room = |last: &LeaseCall| u128::from(last.verdict.remaining) * 2 >= capacity;
        if terms.give_back() || is_soon_full && self.last.as_ref().is_some_and(has_room) {
            return u32::MAX;
        }
        let (spare, then) = self.spare;
        let back = now.since(then) as f64 / self.limit.rate.period.get() as f64
            * self.limit.rate.count.get() as f64
            / LOST;
        let spare = (spare + back).min(f64::from(terms.most));
        self.spare = (spare, now);
        // A cast from a float saturates at the bounds.
        spare.max(0.0) as u32
    }

    /// Notes that this number of units of the call sent at this instant is to be given back at the end of the call's
    /// time.
    pub(super) fn owe(&mut self, sent: Timestamp, units: u32) {
        if units == 0 {
            return;
        }
        if let Some((_, owed)) = self.left.iter_mut().find(|(left, _)| *left == sent) {
            *owed += units;
            return;
        }
        if self.left.len() >= MOST_OWED {
            self.left.remove(0);
        }
        self.left.push((sent, units));
    }

    /// Is there a permit that may be used now?
    pub(super) fn has(&self, now: Timestamp) -> bool {
        self.permits > 0 && now < self.until
    }

    /// Returns a permit of the call that was sent at this instant.
    pub(super) fn put_back(&mut self, sent: Timestamp, now: Timestamp) {
        let is_last = self.last.is_some_and(|last| last.sent == sent);
        if is_last && now < self.until {
            self.permits += 1;
        } else {
            self.owe(sent, 1);
        }
    }

    /// Takes the unused units of the call that was sent at this instant.
    pub(super) fn take(&mut self, sent: Timestamp) -> u32 {
        let mut units = 0;
        if self.last.is_some_and(|last| last.sent == sent) {
            // A request that has not fetched its permit by now has left.
            units = std::mem::take(&mut self.permits) + std::mem::take(&mut self.due);
        }
        self.left.retain(|(left, more)| {
            let is_it = *left == sent;
            units += if is_it { *more } else { 0 };
            !is_it
        });
        units
    }

    /// The answer to a request that takes a permit, charged by a call for the request (`Redis`) or earlier (`Lease`).
    pub(super) fn admission(&self, now: Timestamp, by: Decider) -> LimitAnswer {
        self.answer(by, now, self.verdict(now, by == Decider::Redis))
    }

    /// The answer to a request in the pause before the next call.
    pub(super) fn refusal(&self, now: Timestamp) -> LimitAnswer {
        self.answer(Decider::Remembered, now, self.pause(now))
    }

    fn answer(&self, by: Decider, now: Timestamp, verdict: Verdict) -> LimitAnswer {
        let at = self.last.map(|last| last.at.plus(now.since(last.sent)));
        LimitAnswer {
            limit: self.limit.id,
            by,
            at: at.unwrap_or_default(),
            evidence: Evidence::Verdict(verdict),
        }
    }

    /// The verdict of a permit. Its remainder never exceeds the available units: it counts the permits here, and the
    /// units left in the store only for `by_call`, since other requests may take them.
    fn verdict(&self, now: Timestamp, by_call: bool) -> Verdict {
        let Some(last) = &self.last else {
            return Verdict {
                outcome: VerdictOutcome::Admit { delay: 0 },
                remaining: 0,
                reset: 0,
            };
        };
        let left = if by_call { last.verdict.remaining } else { 0 };
        Verdict {
            outcome: VerdictOutcome::Admit { delay: 0 },
            remaining: left + u64::from(self.permits),
            reset: last.verdict.reset.saturating_sub(now.since(last.sent)),
        }
    }

    /// The verdict during the pause between calls.
    fn pause(&self, now: Timestamp) -> Verdict {
        let pause = self.pause_left(now);
        let wait = self
            .last
            .as_ref()
            .map_or(pause, |last| pause.max(self.next(last, now)));
        let of = |last: &LeaseCall| last.verdict.reset.saturating_sub(now.since(last.sent));
        Verdict {
            outcome: VerdictOutcome::Refuse(Wait::Micros(wait.max(1))),
            remaining: 0,
            reset: self.last.as_ref().map_or(0, of),
        }
    }

    /// The number of microseconds from `now` on in which no call is made.
    pub(super) fn pause_left(&self, now: Timestamp) -> u64 {
        self.paused.since(now)
    }

    /// The instant from which there is room for one more unit, as of `now`, if no unit is taken or refunded.
    fn next(&self, last: &LeaseCall, now: Timestamp) -> u64 {
        let Some(bucket) = self.limit.rule.bucket() else {
            // The store's answer states how long a window stays full. The refusal cache remembers the answer as well,
            // except while a refund may be pending.
            return match last.measured.wait {
                Wait::Micros(full) => full.saturating_sub(now.since(last.answered_at)),
                Wait::Never => 0,
            };
        };
        if let (Some(_), Wait::Micros(wait)) = (last.measured.drains, last.measured.wait) {
            // The bucket drains at a rate that this limit does not know.
            return wait.saturating_sub(now.since(last.answered_at));
        }
        let state = bucket.state_at(last.at, last.measured.span);
        let at = last.at.plus(now.since(last.answered_at));
        let (measured, _) = self.limit.check(Some(&State::Bucket(state)), at, Cost::ONE);
        match measured.wait {
            Wait::Micros(wait) => wait,
            Wait::Never => 0,
        }
    }

    /// The number of units to request: for the waiting requests, and for further requests that are expected soon.
    pub(super) fn order(&mut self, terms: &LeaseTerms, demand: u64, now: Timestamp) -> u32 {
        self.sent = true;
        let soon = demand * terms.life / demand::SLOT;
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        let mut later = soon
            .saturating_sub(self.waiting)
            .min(terms.most)
            .min(self.spare(terms, now));
        if let Some(last) = self.last.filter(|_| !terms.trickles()) {
            let tail = u32::try_from(last.verdict.remaining / TAIL).unwrap_or(u32::MAX);
            later = later.min(tail);
        }
        let padding = match (&self.last, later) {
            (_, 0) => 0,
            (None, _) => terms.padding(0),
            (Some(last), _) => {
                let level = last.measured.span.whole;
                terms.padding(level.saturating_sub(now.since(last.sent)))
            }
        };
        self.waiting.saturating_add(later).saturating_add(padding)
    }

    /// Takes over the result of a call: its permits, or its failure.
    pub(super) fn called(
        &mut self,
        check: &Check<'_>,
        terms: &LeaseTerms,
        order: LeaseOrder,
        brought: Option<LeaseCall>,
        now: Timestamp,
    ) {
        self.asking = false;
        self.took = now.since(order.sent);
        self.turn += 1;
        let is_same = Arc::ptr_eq(&self.limit, check.limit);
        if let Some(gone) = brought.filter(|_| !is_same) {
            self.owe(gone.sent, gone.charged);
        }
        if let (Some(before), due) = (self.last, std::mem::take(&mut self.due)) {
            self.owe(before.sent, due);
        }
        let brought = brought.filter(|_| is_same);
        self.failed = brought.is_none();
        self.permits = 0;
        if let Some(brought) = brought {
            self.fill(terms, brought, order.units, now);
        }
    }

    /// Takes over the answer to a call for `asked` units.
    fn fill(&mut self, terms: &LeaseTerms, last: LeaseCall, asked: u32, now: Timestamp) {
        self.due = self.waiting.min(last.charged);
        let rest = last.charged - self.due;
        let (permits, lasting) = terms.permits(rest, last.measured, last.at);
        self.until = last.sent.plus(lasting);
        self.permits = if now < self.until { permits } else { 0 };
        if terms.give_back() {
            self.owe(last.sent, rest - self.permits);
        }
        if self.permits == 0 {
            self.lose(rest);
        }
        // The window's own refusal, which comes next, states how long the window stays full.
        let is_reported = !terms.give_back() || last.charged == 0;
        if last.charged < asked && terms.trickles() && is_reported {
            self.paused = last.sent.plus(terms.pause);
        }
        self.last = Some(last);
    }
}

impl LeaseCall {
    /// The instant of the charge, by the store's clock.
    pub(in crate::store) fn charged_at(self) -> Timestamp {
        self.at
    }

    /// Takes over the answers to `order`, asked by `check`. They arrived at `answered_at`.
    pub(in crate::store) fn of(
        check: &Check<'_>,
        terms: &LeaseTerms,
        order: LeaseOrder,
        answers: &Answers,
        answered_at: Timestamp,
    ) -> Option<Self> {
        let measured = *answers.first()?.measured()?;
        let charged = match measured.wait {
            Wait::Micros(0) => measured.granted.map_or(check.cost, GrantedUnits::cost),
            _ => Cost::ZERO,
        };
        let verdict = terms.asks.rule.verdict(measured, answers.at, charged, true);
        Some(Self {
            sent: order.sent,
            answered_at,
            at: answers.at,
            measured,
            // No more than the order.
            charged: u32::try_from(charged.units()).unwrap_or(order.units),
            verdict,
        })
    }

    /// The ticket of this number of units of the call, to be given back.
    pub(in crate::store) fn ticket(&self, limit: &Limit, units: u32) -> Ticket {
        let cost = Cost::new(u64::from(units));
        limit.rule.ticket(self.at, self.measured, cost)
    }
}
