//! One request calls when a refusal has just ended, since its key is probably still over the limit. The requests that
//! arrive meanwhile wait for the answer. If the calling request is refused, or takes the last unit, the waiting
//! requests are refused; else each makes its own call.

use super::{Refusal, RefusalCache, lasting, most};
use crate::clock::Timestamp;
use crate::limit::verdict::Wait;
use crate::store::answers::Answers;
use crate::store::check::Check;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The next step of a request without a cached refusal.
pub(in crate::store) enum Flight {
    /// The request makes a call.
    Solo,
    /// The request makes a call, and others wait for its answer until this value is dropped.
    Leader(FlightLeader),
    /// The request waits for the answer of the calling request.
    Follower(FlightFollower),
}

/// A wait for another request's call about the same counter.
pub(in crate::store) struct FlightFollower {
    answered: Rc<Notify>,
    patience: Duration,
}

impl FlightFollower {
    /// Waits until the call is answered, or has taken too long.
    pub(in crate::store) async fn wait(&self) {
        let _ = tokio::time::timeout(self.patience, self.answered.notified()).await;
    }
}

/// The call of one request about a counter whose refusal has ended. Dropped at the answer, or when the request leaves.
pub(in crate::store) struct FlightLeader {
    cache: Rc<RefusalCache>,
    hash: u64,
    since: Timestamp,
    answered: Rc<Notify>,
}

impl RefusalCache {
    /// The role of a request: it makes a call now, or waits for another's answer, for at most `patience`. Only a
    /// request with one limit has a role: the answers of several limits are unknown before all are checked.
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
        if let Some(answered) = &refusal.in_flight {
            let answered = Rc::clone(answered);
            return Flight::Follower(FlightFollower { answered, patience });
        }
        let answered = Rc::<Notify>::default();
        refusal.in_flight = Some(Rc::clone(&answered));
        Flight::Leader(FlightLeader {
            cache: Rc::clone(self),
            hash,
            since: now,
            answered,
        })
    }
}

impl FlightLeader {
    /// Notes that `check` was admitted and charged. A charge that took the last unit shows, like a refusal, for how
    /// long no request of that cost will fit. Charges that may be refunded, limits with leases, and limits whose
    /// refusals block, are left out.
    pub(in crate::store) fn admitted(
        &self,
        check: &Check<'_>,
        answers: &Answers,
        answered_at: Timestamp,
        may_pass: bool,
    ) {
        let Check { limit, cost, .. } = *check;
        let is_simple = !limit.may_correct()
            && !limit.rule.queues()
            && limit.leases().is_none()
            && limit.blocking.is_none();
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
            answered_at,
            until: self.since,
            siblings: Box::default(),
            in_flight: None,
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
    /// Has the refusal ended no longer ago than it lasted? A client that retries so soon is probably refused again.
    fn has_just_ended(&self, check: &Check<'_>, now: Timestamp) -> bool {
        let lasted = self.until.since(self.answered_at);
        self.until <= now && now < self.until.plus(lasted) && self.is_about(check)
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        let mut refusals = self.cache.refusals.borrow_mut();
        let is_mine = |refusal: &Refusal| {
            let in_flight = refusal.in_flight.as_ref();
            in_flight.is_some_and(|in_flight| Rc::ptr_eq(in_flight, &self.answered))
        };
        // The request was admitted, or there was no answer: the next requests call at once.
        if let Ok(place) = refusals.find_entry(self.hash, is_mine) {
            place.remove();
        }
        self.answered.notify_waiters();
    }
}
