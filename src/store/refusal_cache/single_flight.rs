//! A key whose refusal has just ended is likely over its limit still: one request asks, and those that come meanwhile
//! wait for its answer. If it is refused, or takes the last unit, they are refused; else they ask for themselves.

use super::super::answers::Answers;
use super::super::check::Check;
use super::{Refusal, RefusalCache, lasting, most};
use crate::clock::Timestamp;
use crate::limit::verdict::Wait;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What a request is to do of which no refusal is known.
pub(in crate::store) enum Flight {
    /// It asks.
    Solo,
    /// It asks, and other requests wait for its answer until this is dropped.
    Leader(FlightLeader),
    /// It waits for the answer of the one that asks.
    Follower(FlightFollower),
}

/// Another request asks about that counter.
pub(in crate::store) struct FlightFollower {
    answered: Rc<Notify>,
    patience: Duration,
}

impl FlightFollower {
    /// Waits until that is answered, or has taken too long.
    pub(in crate::store) async fn wait(&self) {
        let _ = tokio::time::timeout(self.patience, self.answered.notified()).await;
    }
}

/// A request asks anew about a counter that refused until now. Dropped when that is answered, or its request leaves.
pub(in crate::store) struct FlightLeader {
    cache: Rc<RefusalCache>,
    hash: u64,
    since: Timestamp,
    answered: Rc<Notify>,
}

impl RefusalCache {
    /// Whether a request asks now or waits for another, for so long at most. For one limit: what more would say is not
    /// known before all are asked.
    pub(in crate::store) fn flight(
        self: &Rc<Self>,
        check: &Check<'_>,
        now: impl FnOnce() -> Timestamp,
        patience: Duration,
    ) -> Flight {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.is_empty() || check.repeats().is_some() || !check.limit.mode.decides() {
            return Flight::Solo;
        }
        let now = now();
        let hash = self.invalidation.hash(check.limit.id, check.key);
        let found = refusals.find_mut(hash, |refusal| refusal.is_of(hash, check));
        let Some(refusal) = found.filter(|refusal| refusal.has_just_ended(check, now)) else {
            return Flight::Solo;
        };
        if let Some(answered) = &refusal.again {
            let answered = Rc::clone(answered);
            return Flight::Follower(FlightFollower { answered, patience });
        }
        let answered = Rc::<Notify>::default();
        refusal.again = Some(Rc::clone(&answered));
        Flight::Leader(FlightLeader {
            cache: Rc::clone(self),
            hash,
            since: now,
            answered,
        })
    }
}

impl FlightLeader {
    /// Takes over that `check` was admitted and charged, as its answer says: what has taken the last there was tells for how
    /// long nothing more of that cost will fit, as a refusal would. Not where charges come back, nor where permits may be
    /// in hand.
    pub(in crate::store) fn admitted(
        &self,
        check: &Check<'_>,
        answers: &Answers,
        told: Timestamp,
        may_pass: bool,
    ) {
        let Check { limit, cost, .. } = *check;
        let is_simple = !limit.may_correct() && !limit.rule.queues() && limit.leases().is_none();
        let Some(answer) = answers.first().filter(|_| is_simple && !limit.partial) else {
            return;
        };
        let Some(measured) = answer
            .measured()
            .filter(|one| !one.spoilt && one.wait == Wait::Micros(0))
        else {
            return;
        };
        let mut refusal = Refusal {
            hash: self.hash,
            limit: Arc::clone(limit),
            key: SmallVec::from_slice(check.key),
            cost,
            at: answer.at,
            measured: *measured,
            asked: self.since,
            told,
            until: self.since,
            again: None,
        };
        let Some(measured) = refusal.measured_at(refusal.at, cost) else {
            return;
        };
        if let Some(wait) = lasting(check, &measured) {
            refusal.measured = measured;
            refusal.until = self.since.plus(wait.min(most(may_pass)));
            self.cache.keep(refusal);
        }
    }
}

impl Refusal {
    /// Has it ended no longer ago than it lasted? A client that comes again so soon is likely refused again.
    fn has_just_ended(&self, check: &Check<'_>, now: Timestamp) -> bool {
        let lasted = self.until.since(self.told);
        self.until <= now && now < self.until.plus(lasted) && self.is_about(check)
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        let mut refusals = self.cache.refusals.borrow_mut();
        let is_mine = |refusal: &Refusal| {
            let again = refusal.again.as_ref();
            again.is_some_and(|again| Rc::ptr_eq(again, &self.answered))
        };
        // The request was admitted, or there was no answer: the next ones ask at once.
        if let Ok(place) = refusals.find_entry(self.hash, is_mine) {
            place.remove();
        }
        self.answered.notify_waiters();
    }
}
