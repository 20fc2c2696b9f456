//! Leases of one worker: one call charges a busy key for several requests, and the following requests are decided here.
//! The proof that leases are exact is in `limit/lease`; `shared/lease_call` makes the calls.
//!
//! 1. A request takes an available permit, or waits for the call that is about to be sent. The call charges the
//!    request.
//! 2. A call requests permits for the waiting requests and for further requests that are expected soon.
//! 3. Unused permits of a window are given back at their end; unused permits of a bucket expire.
//! 4. A rarely requested key is never leased. Requests with several limits wait for no call (`grant`).

mod demand;
mod grant;
mod key_lease;
#[cfg(test)]
mod tests;

use super::answers::{Answers, LimitAnswer};
use super::check::Check;
use super::decider::Decider;
use super::invalidation::Invalidation;
use crate::clock::{Clock, Timestamp};
use crate::limit::rate::Cost;
use crate::limit::verdict::Wait;
use crate::limit::{LeaseTerms, Limit};
use demand::Demand;
pub use demand::{BUSY as LEASED_FROM, SLOT as LEASED_WITHIN};
pub(super) use grant::Grants;
use hashbrown::HashTable;
use key_lease::KeyLease;
pub(super) use key_lease::LeaseCall;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Keys for which one worker may have permits.
const ROOM: usize = 1024;
/// Time for which a key is remembered without requests.
const IDLE: u64 = 60_000_000;
/// The longest duration of the last call for which a request waits for the current call, or for one more call.
const BRISK: u64 = 10_000;
/// Part of a window's remaining units that one call may take for later. The last units of a window should be used, too.
const TAIL: u64 = 8;

/// The leases of one worker.
#[derive(Debug)]
pub(super) struct Leases {
    held: RefCell<HashTable<KeyLease>>,
    demand: RefCell<Demand>,
    invalidation: Invalidation,
    clock: Clock,
}

/// The next step of a request with one limit.
pub(super) enum LeaseStep {
    /// The request is decided: by a permit, or by the pause between calls.
    Decided(LimitAnswer),
    /// The request waits for the answer of the call with this number.
    Wait(Rc<Notify>, u64),
    /// The request starts that call, and waits for its answer.
    Call(Rc<Notify>, u64),
    /// The request makes a call of its own.
    Alone,
}

/// A call for several permits, before it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseOrder {
    /// The number of units in the call.
    pub(super) units: u32,
    /// The instant at which the call is sent.
    pub(super) sent: Timestamp,
}

impl Leases {
    /// No leases yet.
    pub(super) fn new(invalidation: Invalidation, clock: Clock) -> Self {
        Self {
            held: RefCell::default(),
            demand: RefCell::default(),
            invalidation,
            clock,
        }
    }

    /// The next step of a request for `check`. `waited` is the number of the call that the request has waited for, if
    /// that call was sent after the request arrived.
    pub(super) fn step(&self, check: &Check<'_>, waited: Option<u64>) -> LeaseStep {
        let now = self.clock.now();
        let hash = self.invalidation.hash(check.limit.id, check.key);
        let is_new = waited.is_none();
        let busy = is_new && self.demand.borrow().is_busy(hash, now);
        let mut all = self.held.borrow_mut();
        let Some(held) = entry(&mut all, hash, check, busy, now) else {
            return LeaseStep::Alone;
        };
        held.renew(check, &self.invalidation, now);
        if waited == Some(held.turn) {
            if held.due > 0 {
                held.due -= 1;
                return LeaseStep::Decided(held.admission(now, Decider::Redis));
            }
            if held.failed {
                return LeaseStep::Alone;
            }
        }
        if held.has(now) {
            held.permits -= 1;
            return LeaseStep::Decided(held.admission(now, Decider::Lease));
        }
        if now < held.paused {
            return LeaseStep::Decided(held.refusal(now));
        }
        if !is_new && held.took > BRISK {
            // The call brought fewer permits than requests waited. One more wait would take as long as a separate call.
            return LeaseStep::Alone;
        }
        if !held.asking {
            if is_new && !busy {
                return LeaseStep::Alone;
            }
            held.leave();
            (held.asking, held.sent, held.waiting) = (true, false, 1);
            return LeaseStep::Call(Rc::clone(&held.answered), held.turn + 1);
        }
        if !held.sent {
            held.waiting = held.waiting.saturating_add(1);
            return LeaseStep::Wait(Rc::clone(&held.answered), held.turn + 1);
        }
        if held.took > BRISK {
            return LeaseStep::Alone;
        }
        // A permit that the call brings for later may serve this request.
        LeaseStep::Wait(Rc::clone(&held.answered), 0)
    }
}

/// May an available permit replace the check of `check`?
pub(super) fn may_take(check: &Check<'_>) -> bool {
    check.cost == Cost::ONE && check.id.is_none() && check.limit.leases().is_some()
}

/// The lease of a key. Creates the lease of a `busy` key, if there is room.
fn entry<'a>(
    all: &'a mut HashTable<KeyLease>,
    hash: u64,
    check: &Check<'_>,
    busy: bool,
    now: Timestamp,
) -> Option<&'a mut KeyLease> {
    // The key is looked up twice: the borrow checker keeps a borrow that is returned in one case for all cases.
    if all.find(hash, |held| held.is_of(hash, check)).is_some() {
        return all.find_mut(hash, |held| held.is_of(hash, check));
    }
    if !busy {
        return None;
    }
    if all.len() >= ROOM {
        all.retain(|held| held.asking || now < held.until);
    }
    if all.len() >= ROOM {
        return None;
    }
    let new = KeyLease::new(hash, check, now);
    Some(all.insert_unique(hash, new, |held| held.hash).into_mut())
}

impl Leases {
    /// Counts one more request for the key.
    pub(super) fn rises(&self, check: &Check<'_>) {
        let hash = self.invalidation.hash(check.limit.id, check.key);
        self.demand.borrow_mut().rises(hash, self.clock.now());
    }

    /// Makes the waits of refused limits as long as the pause between calls for permits: a client that retried sooner
    /// would be refused again.
    pub(super) fn lengthen(&self, checks: &[Check<'_>], answers: &mut Answers) {
        if self.held.borrow().is_empty() {
            return;
        }
        let now = self.clock.now();
        for (check, answer) in checks.iter().zip(&mut answers.each) {
            if let Some(measured) = answer.measured_mut()
                && let Wait::Micros(wait @ 1..) = measured.wait
                && may_take(check)
            {
                let pause = self.with(check, |held| held.pause_left(now));
                measured.wait = Wait::Micros(wait.max(pause.unwrap_or(0)));
            }
        }
    }

    fn with<T>(&self, check: &Check<'_>, then: impl FnOnce(&mut KeyLease) -> T) -> Option<T> {
        let hash = self.invalidation.hash(check.limit.id, check.key);
        let mut all = self.held.borrow_mut();
        all.find_mut(hash, |held| held.is_of(hash, check)).map(then)
    }

    /// The order of the call for `check`; `None` if the key is no longer known.
    pub(super) fn order(&self, check: &Check<'_>, terms: &LeaseTerms) -> Option<LeaseOrder> {
        let sent = self.clock.now();
        let hash = self.invalidation.hash(check.limit.id, check.key);
        let demand = self.demand.borrow().of(hash, sent);
        let units = self.with(check, |held| held.order(terms, demand, sent))?;
        Some(LeaseOrder { units, sent })
    }

    /// Takes over the result of a call: its permits, or its failure. Wakes the requests that wait for the call, and
    /// returns the instant until which the permits last.
    pub(super) fn called(
        &self,
        check: &Check<'_>,
        terms: &LeaseTerms,
        order: LeaseOrder,
        brought: Option<LeaseCall>,
        now: Timestamp,
    ) -> Timestamp {
        let lasting = self.with(check, |held| {
            held.called(check, terms, order, brought, now);
            (Rc::clone(&held.answered), held.until)
        });
        let Some((answered, until)) = lasting else {
            return now;
        };
        answered.notify_waiters();
        until
    }

    /// The unused units of a call, to be given back.
    pub(super) fn unused(&self, check: &Check<'_>, call: LeaseCall) -> Option<u32> {
        let units = self.with(check, |held| held.take(call.sent))?;
        let hash = self.invalidation.hash(check.limit.id, check.key);
        // A counter that was reset since the call has no trace of the call's charge.
        (units > 0 && !self.invalidation.is_reset(hash, call.sent)).then_some(units)
    }

    /// The last call for every key, with the limit and the key.
    pub(super) fn last_calls(&self) -> Vec<(Arc<Limit>, SmallVec<[u8; 16]>, LeaseCall)> {
        let last = |held: &KeyLease| Some((Arc::clone(&held.limit), held.key.clone(), held.last?));
        self.held.borrow().iter().filter_map(last).collect()
    }

    /// Drops keys that were not used for some time. A younger key stays: its record of a bucket's lost units still
    /// counts.
    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        let idle = |held: &KeyLease| !held.asking && held.until.plus(IDLE) < now;
        self.held.borrow_mut().retain(|held| !idle(held));
    }
}
