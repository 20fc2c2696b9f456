//! Whose wait has just ended is likely over the limit still: one request asks, and those that come meanwhile wait for
//! what it is told. If it is refused, or has taken the last there was, so are they; else they ask for themselves.

use super::super::answers::Answers;
use super::super::check::Check;
use super::{Refusal, RefusalCache, lasting, most};
use crate::limit::verdict::Wait;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What a request is to do of which no refusal is known.
pub(in crate::store) enum Flight {
    /// It asks.
    Solo,
    /// The same, and others wait for its answer until this is dropped.
    Leader(FlightLeader),
    /// It waits for the answer of the one that asks.
    Follower(FlightFollower),
}

/// Somebody else asks about the same.
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

/// A request asks anew about a counter that refused until now. Dropped when that is answered, or nobody waits for it.
pub(in crate::store) struct FlightLeader {
    known: Rc<RefusalCache>,
    hash: u64,
    since: Instant,
    answered: Rc<Notify>,
}

impl RefusalCache {
    /// Whether a request asks now or waits for another, for so long at most. For one limit: what more would say is not
    /// known before all are asked.
    pub(in crate::store) fn turn(
        self: &Rc<Self>,
        checks: &[Check<'_>],
        (now, patience): (impl FnOnce() -> Instant, Duration),
    ) -> Flight {
        let [check] = checks else { return Flight::Solo };
        let mut refusals = self.refusals.borrow_mut();
        if refusals.is_empty() || check.repeats().is_some() || !check.limit.mode.decides() {
            return Flight::Solo;
        }
        let now = now();
        let hash = self.news.hash(check.limit.id, check.key);
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
            known: Rc::clone(self),
            hash,
            since: now,
            answered,
        })
    }
}

impl FlightLeader {
    /// Takes over that `check` was admitted and charged, as `half` says: what has taken the last there was tells for how
    /// long nothing more of that cost will fit, as a refusal would. Not where charges come back, nor where permits may be
    /// in hand.
    pub(in crate::store) fn admitted(
        &self,
        check: &Check<'_>,
        half: &Answers,
        (told, may_pass): (Instant, bool),
    ) {
        let Check { limit, cost, .. } = *check;
        let is_simple = !limit.may_correct() && !limit.rule.queues() && limit.leases().is_none();
        let Some(measured) = half.measured.first().filter(|one| {
            is_simple && !limit.partial && !one.spoilt && one.wait == Wait::Micros(0)
        }) else {
            return;
        };
        let mut refusal = Refusal {
            hash: self.hash,
            limit: Arc::clone(limit),
            key: SmallVec::from_slice(check.key),
            cost,
            at: half.instant(0),
            measured: *measured,
            asked: self.known.news.instant(self.since),
            told,
            until: self.since,
            again: None,
        };
        let Some(measured) = refusal.measured_at(refusal.at, cost) else {
            return;
        };
        if let Some(wait) = lasting(check, &measured) {
            refusal.measured = measured;
            refusal.until += wait.min(most(may_pass));
            self.known.keep(refusal);
        }
    }
}

impl Refusal {
    /// Has it ended no longer ago than it lasted? Who comes again so soon is likely refused again.
    fn has_just_ended(&self, check: &Check<'_>, now: Instant) -> bool {
        let lasted = self.until.saturating_duration_since(self.told);
        self.until <= now && now < self.until + lasted && self.is_about(check)
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        let mut refusals = self.known.refusals.borrow_mut();
        let is_mine = |refusal: &Refusal| {
            let again = refusal.again.as_ref();
            again.is_some_and(|again| Rc::ptr_eq(again, &self.answered))
        };
        // It was admitted, or nobody knows: the next ask at once.
        if let Ok(place) = refusals.find_entry(self.hash, is_mine) {
            place.remove();
        }
        self.answered.notify_waiters();
    }
}
