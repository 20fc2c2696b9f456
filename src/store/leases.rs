//! Permits in hand: a key that is asked for often is charged for several requests in one call, and those that follow are
//! decided here. What makes that exact is in `limit/lease`.
//!
//! The call is made by a task of its own; who needs it waits for its answer, as for a call of its own, and all who came
//! before it was sent are charged by it. What is not used in time goes back where that is exact. A key that is not asked
//! for often is never leased.

mod demand;
mod hand;
mod held;

use super::batch::{Check, Refund};
use super::decided_by::DecidedBy;
use super::near::Near;
use super::news::News;
use super::redis::RedisStore;
use super::sparing::Taken;
use crate::limit::rate::Cost;
use crate::limit::verdict::INLINE_LIMITS;
use crate::limit::{Limit, Terms};
use crate::telemetry::metrics::{Operation, Permits, StoreMetrics};
use demand::Demand;
pub use demand::{BUSY as LEASED_FROM, SLOT as LEASED_WITHIN};
pub(super) use hand::Hand;
use hand::{Permit, Refusal};
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

/// What a request is to do about one of its limits.
enum Step {
    /// There is one for it.
    Take(Permit),
    /// There is none, nor will be for a while.
    Refused(Refusal),
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
                return Step::Take(Permit::of(held, now, DecidedBy::Redis));
            }
            if held.failed {
                return Step::Alone;
            }
        }
        if held.permits > 0 && now < held.until {
            held.permits -= 1;
            return Step::Take(Permit::of(held, now, DecidedBy::Lease));
        }
        if now < held.paused {
            return Step::Refused(Refusal::of(held, now));
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

/// May a permit in hand stand for asking about it?
pub(super) fn may_take(check: &Check<'_>) -> bool {
    check.cost == Cost::ONE && check.id.is_none() && check.limit.leases().is_some()
}

/// Takes a permit of each limit of a request of which there is one, or will be when the calls are answered that bring some
/// for all who wait. What is left in nobody's hand is to be asked for.
pub(super) async fn take<'a>(
    near: &'a Near,
    (shared, metrics): (&RedisStore, &StoreMetrics),
    checks: &[Check<'a>],
) -> Taken<'a> {
    let mut hand = Hand::empty(&near.leases);
    let mut wanted: SmallVec<[(usize, Option<u64>); INLINE_LIMITS]> = (0..checks.len())
        .filter(|index| may_take(&checks[*index]))
        .map(|index| (index, None))
        .collect();
    for round in 0..PATIENCE {
        let recalled = near.recall(shared, checks);
        let asked_for = |check: &Check<'_>| match &recalled {
            // Whom another limit refuses needs no permit.
            Some(recalled) => recalled.known.contains(&check.limit.id),
            None => true,
        };
        let new = wanted.iter().filter(|_| round == 0);
        for check in new
            .map(|(index, _)| &checks[*index])
            .filter(|check| asked_for(check))
        {
            near.leases.rises(check);
        }
        if let Some(recalled) = recalled {
            return Taken::Known(recalled);
        }
        let (mut calls, mut refused) = (SmallVec::<[_; INLINE_LIMITS]>::new(), None);
        wanted.retain(|(index, waited)| {
            let check = &checks[*index];
            let (answered, turn) = match near.leases.step(check, *waited) {
                Step::Take(permit) => {
                    hand.take(*index, check, permit);
                    return false;
                }
                Step::Refused(refusal) => {
                    refused = Some((*index, refusal));
                    return false;
                }
                Step::Alone => {
                    if checks.len() > 1 {
                        hand.lacks(check);
                    }
                    return false;
                }
                Step::Wait(answered, turn) => (answered, turn),
                Step::Ask(answered, turn) => {
                    spawn(near, (shared, metrics), check);
                    (answered, turn)
                }
            };
            calls.push(answered);
            *waited = Some(turn);
            true
        });
        if let Some((index, refusal)) = refused {
            return Taken::Refused(refusal.half(index, checks));
        }
        if calls.is_empty() {
            break;
        }
        // All are listened for before any is waited for: who is told while nobody listens is not told again.
        let answers: SmallVec<[_; INLINE_LIMITS]> =
            calls.iter().map(|one| one.notified()).collect();
        for answer in answers {
            answer.await;
        }
    }
    match checks {
        [_] if hand.is_empty() => Taken::Nothing,
        _ => Taken::Permits(hand),
    }
}

/// Has the call made, by a task of its own: whoever waits for it may leave.
fn spawn(near: &Near, (shared, metrics): (&RedisStore, &StoreMetrics), check: &Check<'_>) {
    let (near, shared, metrics) = (near.clone(), shared.clone(), metrics.clone());
    let (limit, key) = (Arc::clone(check.limit), check.key.into());
    tokio::task::spawn_local(async move {
        ask(&near, (&shared, &metrics), &limit, key).await;
    });
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
    /// A request is one more for the key.
    fn rises(&self, check: &Check<'_>) {
        let hash = self.news.hash(check.limit.id, check.key);
        self.demand.borrow_mut().rises(hash, Instant::now());
    }

    /// A request for the key was none: another limit has refused it, or it has left. No permits are ordered for such.
    fn falls(&self, check: &Check<'_>) {
        let hash = self.news.hash(check.limit.id, check.key);
        self.demand.borrow_mut().falls(hash, Instant::now());
    }

    /// Nobody has used this permit.
    fn put_back(&self, check: &Check<'_>, permit: Permit) {
        self.with(check, |held| held.put_back(permit.asked, Instant::now()));
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
