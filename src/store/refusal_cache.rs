//! Cached refusals that are still valid: a client that is over a limit and retries costs no call.
//!
//! A refusal gives the state of the counter, and the time for which no request of that cost will fit. During this time
//! the counter can only become fuller, unless a charge is refunded or the counter is reset. So the cache refuses no
//! request that Redis would have admitted, except after refunds and resets by other gateways (for [`MOST`] at the
//! longest). The cache does not know the answers of a refused request's other limits, and does not show them. It knows
//! only the answers of the other rates of the same list (`sibling_rates`), since they charge nothing while one rate of
//! the list refuses.
//!
//! The state of the counter is known as long as no possible cost of a request would fit. As soon as a cheaper request
//! may be admitted, by any gateway, the remainder may be smaller than Redis answered, and the wait longer: then Redis
//! is called.

mod sibling_rates;
mod single_flight;
#[cfg(test)]
mod tests;

use super::answers::{Answers, Evidence, UnknownCause};
use super::check::Check;
use super::decider::Decider;
use super::invalidation::Invalidation;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Measurement, Wait};
use crate::limit::{BlockPhase, Limit};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use sibling_rates::SiblingRate;
pub(super) use single_flight::Flight;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Refusals that one worker caches.
const ROOM: usize = 16_384;
/// The longest time for which a refusal counts without a call. After it, refunds and resets by other gateways take
/// effect.
const MOST: u64 = 60_000_000;
/// The longest time in a cluster, where a counter may be full of charges that are given back in a moment, since another
/// slot refuses their request.
const MOST_APART: u64 = 250_000;

/// The refusals of one worker.
#[derive(Debug)]
pub(super) struct RefusalCache {
    refusals: RefCell<HashTable<Refusal>>,
    invalidation: Invalidation,
}

#[derive(Debug)]
struct Refusal {
    hash: u64,
    /// The limit at the time of the call. A reload creates a new limit, whose numbers may differ.
    limit: Arc<Limit>,
    key: SmallVec<[u8; 16]>,
    cost: Cost,
    /// The instant of the refusal, by the store's clock.
    at: Timestamp,
    measured: Measurement,
    /// On the gateway's clock: the instants of the call and of its answer, and the end of the refusal.
    asked: Timestamp,
    answered_at: Timestamp,
    until: Timestamp,
    /// The other rates of the limit's list, which admitted the request.
    siblings: Box<[SiblingRate]>,
    /// Set once the refusal has ended and a request calls again.
    in_flight: Option<Rc<Notify>>,
}

/// A refusal some time later.
#[derive(Debug)]
struct Recalled<'a> {
    /// The instant, by the store's clock.
    at: Timestamp,
    measured: Measurement,
    /// The time since the answer.
    passed: u64,
    siblings: &'a [SiblingRate],
}

/// The instants at which a call to Redis was sent and answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
}

impl RefusalCache {
    /// An empty cache.
    pub(super) fn new(invalidation: Invalidation) -> Self {
        Self {
            refusals: RefCell::default(),
            invalidation,
        }
    }

    /// The answers of a request with these limits, if a deciding limit is known to refuse the request. A counter that
    /// the store does not currently serve (`is_served`) is unknown.
    pub(super) fn recall(
        &self,
        checks: &[Check<'_>],
        now: impl Fn() -> Timestamp,
        is_served: impl Fn(&Check<'_>) -> bool,
    ) -> Option<Answers> {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.is_empty() {
            return None;
        }
        let now = now();
        let mut answers = Answers::unknown(checks, Decider::Remembered, UnknownCause::Unasked);
        let mut refused_at = None;
        for (index, check) in checks.iter().enumerate() {
            let refusal = self.find(&mut refusals, check, now);
            let Some(recalled) = refusal.filter(|_| is_served(check)) else {
                continue;
            };
            let (at, siblings) = (recalled.at, recalled.siblings);
            if check.limit.mode.decides() {
                refused_at.get_or_insert(at);
            }
            let answer = &mut answers.each[index];
            (answer.at, answer.evidence) = (at, Evidence::Measured(recalled.measured));
            if !siblings.is_empty() {
                sibling_rates::recall(siblings, checks, recalled.passed, &mut answers.each);
            }
        }
        answers.at = refused_at?;
        Some(answers)
    }

    /// The refusal of `check`, at the present time of the store's clock. An outdated refusal is removed.
    fn find<'a>(
        &self,
        refusals: &'a mut HashTable<Refusal>,
        check: &Check<'_>,
        now: Timestamp,
    ) -> Option<Recalled<'a>> {
        let hash = self.invalidation.hash(check.limit.id, check.key);
        let found = refusals
            .find_entry(hash, |refusal| refusal.is_of(hash, check))
            .ok()?;
        let refusal = found.get();
        let passed = now.since(refusal.answered_at);
        let at = refusal.at.plus(passed);
        let holds = refusal.is_about(check) && self.invalidation.is_valid(hash, refusal.asked);
        if holds && now >= refusal.until {
            // The refusal has ended: the next request calls for all requests that arrive meanwhile.
            return None;
        }
        if holds {
            // A repeat of an earlier request may be free, but not while its key is blocked.
            if check.repeats().is_some() && refusal.measured.block == BlockPhase::No {
                return None;
            }
            let measured = refusal.measured_at(at, check.cost)?;
            let siblings = &found.into_mut().siblings;
            return Some(Recalled {
                at,
                measured,
                passed,
                siblings,
            });
        }
        found.remove();
        None
    }

    /// Caches the refusals among `answers`, which Redis gave during `call`.
    pub(super) fn remember(
        &self,
        checks: &[Check<'_>],
        answers: &Answers,
        call: CallTimes,
        may_pass: impl Fn(&Limit) -> bool,
    ) {
        for (check, answer) in checks.iter().zip(&answers.each) {
            let Some(measured) = answer.measured() else {
                continue;
            };
            let Some(wait) = lasting(check, measured) else {
                continue;
            };
            // No charge that comes back ends a block.
            let most = most(may_pass(check.limit) && measured.block == BlockPhase::No);
            // A request that may be granted less than its cost is refused only if not even one unit fits.
            let cost = if check.limit.partial {
                check.cost.min(Cost::ONE)
            } else {
                check.cost
            };
            self.keep(Refusal {
                hash: self.invalidation.hash(check.limit.id, check.key),
                limit: Arc::clone(check.limit),
                key: SmallVec::from_slice(check.key),
                cost,
                at: answer.at,
                measured: running(*measured),
                asked: call.sent,
                answered_at: call.answered,
                // The end counts from the call's start, so that no request is refused for longer than by a call. Waits
                // count from the answer, so that none is too short.
                until: call.sent.plus(wait.min(most)),
                siblings: sibling_rates::sibling_rates(check, checks, answers),
                in_flight: None,
            });
        }
    }

    fn keep(&self, refusal: Refusal) {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.len() >= ROOM {
            make_room(&mut refusals, refusal.answered_at);
        }
        let is_same = |other: &Refusal| {
            other.hash == refusal.hash
                && other.limit.id == refusal.limit.id
                && other.key == refusal.key
        };
        match refusals.entry(refusal.hash, is_same, |other| other.hash) {
            Slot::Vacant(place) => {
                place.insert(refusal);
            }
            // The refusal of a smaller cost is more informative.
            Slot::Occupied(place)
                if place.get().cost < refusal.cost && place.get().stands(refusal.answered_at) => {}
            Slot::Occupied(mut place) => *place.get_mut() = refusal,
        }
    }

    /// Drops ended refusals. Called periodically by the store.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut refusals = self.refusals.borrow_mut();
        refusals.retain(|refusal| now < refusal.until);
        if refusals.capacity() > 64 && refusals.capacity() / 4 > refusals.len() {
            let room = refusals.len() * 2;
            refusals.shrink_to(room, |refusal| refusal.hash);
        }
    }
}

impl Refusal {
    fn is_of(&self, hash: u64, check: &Check<'_>) -> bool {
        self.hash == hash && self.limit.id == check.limit.id && *self.key == *check.key
    }

    /// Does the refusal, while valid, apply to `check`? A cheaper request may be admitted, and then the remainder is
    /// smaller than answered.
    fn is_about(&self, check: &Check<'_>) -> bool {
        Arc::ptr_eq(&self.limit, check.limit)
            && (check.cost >= self.cost || check.cost == Cost::ZERO)
    }

    /// Is the state of the counter still known at `now`?
    fn stands(&self, now: Timestamp) -> bool {
        let at = self.at.plus(now.since(self.answered_at));
        now < self.until && self.measured_at(at, self.cost).is_some()
    }

    /// The measurement for a request of `cost` at `at`, if the request would certainly be refused. That is certain only
    /// while no request can have been admitted since the answer.
    fn measured_at(&self, at: Timestamp, cost: Cost) -> Option<Measurement> {
        if self.measured.block != BlockPhase::No {
            // The wait is the count's where that is longer, so it is known for this cost only. A partial limit waits for
            // one unit, whatever the cost.
            let is_known = cost == self.cost || self.limit.partial;
            return self.nearer(at).filter(|_| is_known);
        }
        let least = least(&self.limit).min(cost);
        let none_passes = least == cost || self.refused_at(at, least).is_some();
        self.refused_at(at, cost).filter(|_| none_passes)
    }

    /// The measurement at `at`, if no request was admitted since the answer.
    fn refused_at(&self, at: Timestamp, cost: Cost) -> Option<Measurement> {
        let known = self.limit.rule.state_of(self.at, self.measured.span);
        let Some(state) = known.filter(|_| self.measured.drains.is_none()) else {
            // The measurement does not show when units leave, or at which rate.
            return self.nearer(at).filter(|_| cost == self.cost);
        };
        let (measured, _) = self.limit.check(Some(&state), at, cost);
        (measured.wait != Wait::Micros(0)).then_some(measured)
    }

    /// The refusal some time later. Units that have left a log or a window since are not counted: the shown remainder
    /// is too small rather than too large.
    fn nearer(&self, at: Timestamp) -> Option<Measurement> {
        let passed = at.since(self.at);
        let wait = match self.measured.wait {
            Wait::Never => Wait::Never,
            Wait::Micros(wait) => Wait::Micros(wait.checked_sub(passed).filter(|left| *left > 0)?),
        };
        let mut measured = Measurement {
            wait,
            ..self.measured
        };
        match &mut measured.drains {
            Some(drains) => *drains = drains.saturating_sub(passed),
            None => measured.span.whole = measured.span.whole.saturating_sub(passed),
        }
        Some(measured)
    }
}

/// The least cost of a request with any cost. A request without a cost takes nothing.
fn least(limit: &Limit) -> Cost {
    match limit.price {
        Some(_) => Cost::ONE,
        None => limit.cost.max(Cost::ONE),
    }
}

/// The time for which a refusal is valid, if it is worth keeping. The refusal of a slot is not: a slot may be freed at
/// any time.
fn lasting(check: &Check<'_>, measured: &Measurement) -> Option<u64> {
    if measured.spoilt || check.limit.rule.concurrency().is_some() {
        return None;
    }
    match measured.wait {
        // After the block the count is asked again, and may begin another.
        Wait::Micros(_) if measured.block != BlockPhase::No => Some(measured.span.whole),
        Wait::Micros(0) => None,
        Wait::Micros(wait) => Some(wait),
        Wait::Never => Some(MOST),
    }
}

/// The measurement of later requests: the block that began with this one runs.
fn running(measured: Measurement) -> Measurement {
    Measurement {
        block: measured.block.min(BlockPhase::Runs),
        ..measured
    }
}

/// The longest time for which a refusal counts without a call.
fn most(may_pass: bool) -> u64 {
    if may_pass { MOST_APART } else { MOST }
}

/// Removes ended refusals, and a quarter of the others if that is not enough.
fn make_room(refusals: &mut HashTable<Refusal>, now: Timestamp) {
    refusals.retain(|refusal| now < refusal.until);
    if refusals.len() > ROOM / 4 * 3 {
        refusals.retain(|_| fastrand::u8(..4) > 0);
    }
}
