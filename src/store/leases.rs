//! Permits in hand: a key that is asked for often is charged for several requests in one call, and those that follow are
//! decided here. What makes that exact is in `limit/lease`.
//!
//! The call is made by a task of its own; who needs it waits for its answer, as for a call of its own, and all who came
//! before it was sent are charged by it. What is not used in time goes back where that is exact. A key that is not asked
//! for often is never leased.

mod demand;
mod held;

use super::batch::{Check, Decided, Refund};
use super::decided_by::DecidedBy;
use super::near::Near;
use super::news::News;
use super::redis::RedisStore;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::Verdict;
use crate::limit::{Limit, Terms};
use crate::telemetry::metrics::{Operation, Permits, StoreMetrics};
use demand::Demand;
pub use demand::{BUSY as LEASED_FROM, SLOT as LEASED_WITHIN};
use hashbrown::HashTable;
use held::{Held, Last};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Keys that one worker may have permits of.
const ROOM: usize = 1024;
/// How often one request waits for permits that others then take, before it asks for itself.
const PATIENCE: usize = 4;
/// Part of what is left of a window that one call may take for later: its end is used up, too.
const TAIL: u64 = 8;

/// What one worker has in hand.
#[derive(Debug)]
pub(super) struct Leases {
    held: RefCell<HashTable<Held>>,
    demand: RefCell<Demand>,
    news: News,
}

/// What a request is to do.
enum Step {
    /// It is decided.
    Decided(Verdict, DecidedBy),
    /// It waits for the answer of the call with this number.
    Wait(Rc<Notify>, u64),
    /// The same, and the call is to be made.
    Ask(Rc<Notify>, u64),
    /// It asks for itself.
    Alone,
}

impl Leases {
    /// Nothing in hand.
    pub(super) fn new(news: News) -> Self {
        Self {
            held: RefCell::default(),
            demand: RefCell::default(),
            news,
        }
    }

    /// What a request for `check` is to do now. `waited` is the number of the call that it has waited for, if that was
    /// sent after it came.
    fn step(&self, check: &Check<'_>, waited: Option<u64>) -> Step {
        let now = Instant::now();
        let hash = self.news.hash(check.limit.id, check.key);
        let is_new = waited.is_none();
        let busy = is_new && self.demand.borrow().is_busy(hash, now);
        let mut all = self.held.borrow_mut();
        let found = all.find_mut(hash, |held| held.is_of(hash, check));
        let held = match found {
            Some(held) => held,
            None if !busy => return Step::Alone,
            None => {
                if all.len() >= ROOM {
                    all.retain(|held| held.asking || now < held.until);
                }
                if all.len() >= ROOM {
                    return Step::Alone;
                }
                let new = Held::new(hash, check, now);
                all.insert_unique(hash, new, |held| held.hash).into_mut()
            }
        };
        held.renew(check, &self.news, now);
        if waited == Some(held.turn) {
            if held.due > 0 {
                held.due -= 1;
                return Step::Decided(held.verdict(now, true), DecidedBy::Redis);
            }
            if held.failed {
                return Step::Alone;
            }
        }
        if held.permits > 0 && now < held.until {
            held.permits -= 1;
            return Step::Decided(held.verdict(now, false), DecidedBy::Lease);
        }
        if now < held.paused {
            return Step::Decided(held.refusal(now), DecidedBy::Remembered);
        }
        if !held.asking {
            if is_new && !busy {
                return Step::Alone;
            }
            held.leave();
            (held.asking, held.sent, held.waiting) = (true, false, 1);
            return Step::Ask(Rc::clone(&held.answered), held.turn + 1);
        }
        if !held.sent {
            held.waiting = held.waiting.saturating_add(1);
            return Step::Wait(Rc::clone(&held.answered), held.turn + 1);
        }
        // Of those that the call brings for later there may be one for this.
        Step::Wait(Rc::clone(&held.answered), 0)
    }
}

/// Decides a request with a single limit by permits in hand, or by those that one call brings for all who wait. Nothing
/// where it is to ask for itself.
pub(super) async fn decide(
    near: &Near,
    (shared, metrics): (&RedisStore, &StoreMetrics),
    check: &Check<'_>,
) -> Option<(Decided, DecidedBy)> {
    if check.cost != Cost::ONE || check.id.is_some() {
        return None;
    }
    let hash = near.leases.news.hash(check.limit.id, check.key);
    near.leases.demand.borrow_mut().rises(hash, Instant::now());
    let mut waited = None;
    for _ in 0..PATIENCE {
        if let Some(recalled) = near.recall(shared, &[*check]) {
            return Some((recalled.decided(&[*check]), DecidedBy::Remembered));
        }
        let (answered, turn) = match near.leases.step(check, waited) {
            Step::Decided(verdict, by) => {
                return Some((Decided::by_lease(near.leases.at(check), verdict), by));
            }
            Step::Alone => return None,
            Step::Wait(answered, turn) => (answered, turn),
            Step::Ask(answered, turn) => {
                let (near, shared, metrics) = (near.clone(), shared.clone(), metrics.clone());
                let (limit, key) = (Arc::clone(check.limit), check.key.into());
                tokio::task::spawn_local(async move {
                    ask(&near, (&shared, &metrics), &limit, key).await;
                });
                (answered, turn)
            }
        };
        answered.notified().await;
        waited = Some(turn);
    }
    None
}

/// One call for all who wait, and some permits for those who come soon.
async fn ask(
    near: &Near,
    (shared, metrics): (&RedisStore, &StoreMetrics),
    limit: &Arc<Limit>,
    key: SmallVec<[u8; 16]>,
) {
    let Some(terms) = limit.leases() else { return };
    let check = Check::new(limit, &key);
    let sent = Instant::now();
    let asked = near.leases.news.instant(sent);
    let Some(units) = near.leases.order(&check, terms, sent) else {
        return;
    };
    let order = Check {
        limit: &terms.asks,
        cost: Cost::new(units),
        ..check
    };
    let answer = shared.measure(&[order], false).await;
    let told = Instant::now();
    metrics.called(Operation::Decide, super::outcome(&answer), told - sent);
    let last = answer.ok().and_then(|half| {
        near.known.remember(&[check], &half, (sent, told), |limit| {
            shared.may_pass(limit)
        });
        Last::of(&order, terms, &half, (sent, asked))
    });
    let (answered, until) = near.leases.told(&check, terms, (last, units), told);
    answered.notify_waiters();
    if let Some(last) = last {
        metrics.permits(Permits::Taken, u64::from(last.charged));
        if terms.give_back() {
            tokio::time::sleep_until(until.into()).await;
            near.leases.give_back(&check, last, (shared, metrics, near));
        }
    }
}

impl Leases {
    /// By which store clock a request is decided that was not asked about.
    fn at(&self, check: &Check<'_>) -> Timestamp {
        let now = Instant::now();
        let at = |held: &mut Held| held.last.map(|last| last.at.plus(since(last.sent, now)));
        self.with(check, at).flatten().unwrap_or_default()
    }

    fn with<T>(&self, check: &Check<'_>, then: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let hash = self.news.hash(check.limit.id, check.key);
        let mut all = self.held.borrow_mut();
        all.find_mut(hash, |held| held.is_of(hash, check)).map(then)
    }

    fn order(&self, check: &Check<'_>, terms: &Terms, now: Instant) -> Option<u32> {
        let hash = self.news.hash(check.limit.id, check.key);
        let demand = self.demand.borrow().of(hash, now);
        self.with(check, |held| held.order(terms, demand, now))
    }

    /// Takes the answer of a call over, or that there is none. Returns who is to be told, and until when the permits last.
    fn told(
        &self,
        check: &Check<'_>,
        terms: &Terms,
        (last, units): (Option<Last>, u32),
        now: Instant,
    ) -> (Rc<Notify>, Instant) {
        let told = self.with(check, |held| {
            held.asking = false;
            held.turn += 1;
            let is_same = Arc::ptr_eq(&held.limit, check.limit);
            if let Some(gone) = last.filter(|_| !is_same) {
                held.owe(gone.asked, gone.charged);
            }
            if let (Some(before), due) = (held.last, std::mem::take(&mut held.due)) {
                held.owe(before.asked, due);
            }
            let last = last.filter(|_| is_same);
            held.failed = last.is_none();
            held.permits = 0;
            if let Some(last) = last {
                held.fill(terms, (last, units), now);
            }
            (Rc::clone(&held.answered), held.until)
        });
        told.unwrap_or_else(|| (Rc::default(), now))
    }

    /// Gives back what was not used of a call.
    fn give_back(
        &self,
        check: &Check<'_>,
        last: Last,
        (shared, metrics, near): (&RedisStore, &StoreMetrics, &Near),
    ) {
        let units = self.with(check, |held| held.take(last.asked));
        let Some(units) = units.filter(|units| *units > 0) else {
            return;
        };
        let Check { limit, key, .. } = *check;
        let rule = &limit.rule;
        let ticket = rule.ticket(last.at, last.measured, Cost::new(units));
        near.returns(limit, key);
        metrics.permits(Permits::Returned, u64::from(units));
        shared.refund([Refund { limit, key, ticket }]);
    }

    /// Gives everything back that can go back.
    pub(super) fn end(&self, shared: &RedisStore, metrics: &StoreMetrics, near: &Near) {
        let mine = |held: &Held| Some((Arc::clone(&held.limit), held.key.clone(), held.last?));
        let all: Vec<_> = self.held.borrow().iter().filter_map(mine).collect();
        for (limit, key, last) in all {
            if limit.leases().is_some_and(Terms::give_back) {
                self.give_back(&Check::new(&limit, &key), last, (shared, metrics, near));
            }
        }
    }

    /// Forgets what nobody has used for a while.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let idle = |held: &Held| !held.asking && held.until + Duration::from_secs(1) < now;
        self.held.borrow_mut().retain(|held| !idle(held));
    }
}

fn since(then: Instant, now: Instant) -> u64 {
    let since = now.saturating_duration_since(then);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
