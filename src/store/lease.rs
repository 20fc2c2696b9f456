//! Permits in hand: a key that is asked for often is charged for several requests in one call, and those that follow are
//! decided here. What makes that exact is in `limit/lease`.
//!
//! The call is made by a task of its own; who needs it waits for its answer, as for a call of its own, and all who came
//! before it was sent are charged by it. What is not used in time goes back where that is exact. A key that is not asked
//! for often is never leased. Requests with several limits wait for no such call: `hand`.

mod demand;
mod grant;
mod key_lease;

use super::answers::Answers;
use super::check::{Check, Refund};
use super::decider::Decider;
use super::invalidation::Invalidation;
use super::redis::RedisStore;
use super::refusal_cache::CachedRefusal;
use super::worker_cache::WorkerCache;
use crate::limit::rate::Cost;
use crate::limit::verdict::Wait;
use crate::limit::{LeaseTerms, Limit};
use crate::telemetry::metrics::{Operation, Permits, StoreMetrics};
use demand::Demand;
pub use demand::{BUSY as LEASED_FROM, SLOT as LEASED_WITHIN};
pub(super) use grant::Grants;
use grant::{Grant, LeaseRefusal};
use hashbrown::HashTable;
use key_lease::{KeyLease, LeaseCall};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Keys that one worker may have permits of.
const ROOM: usize = 1024;
/// For how long a key is known that nobody asks for any more.
const IDLE: Duration = Duration::from_mins(1);
/// How often one request waits for permits that others then take, before it asks for itself.
const PATIENCE: usize = 4;
/// Who comes while a call is under way waits for what it brings, where the last one did not take longer.
const BRISK: Duration = Duration::from_millis(10);
/// Part of what is left of a window that one call may take for later: its end is used up, too.
const TAIL: u64 = 8;

/// What one worker has in hand.
#[derive(Debug)]
pub(super) struct Leases {
    held: RefCell<HashTable<KeyLease>>,
    demand: RefCell<Demand>,
    news: Invalidation,
}

/// What permits say of a request with one limit.
pub(super) enum LeaseAnswer {
    /// Nothing: it is to ask for itself.
    Nothing,
    /// A refusal that was remembered says enough.
    RefusalCache(CachedRefusal),
    /// It is decided, by one that was brought for it or was in hand, or by there being none.
    Told(Answers, Decider),
}

/// What a request is to do.
enum LeaseStep {
    /// There is one for it.
    Take(Grant),
    /// There is none, nor will be for a while.
    Refused(LeaseRefusal),
    /// It waits for the answer of the call with this number.
    Wait(Rc<Notify>, u64),
    /// The same, and the call is to be made.
    Ask(Rc<Notify>, u64),
    /// It asks for itself.
    Alone,
}

impl Leases {
    /// Nothing in hand.
    pub(super) fn new(news: Invalidation) -> Self {
        Self {
            held: RefCell::default(),
            demand: RefCell::default(),
            news,
        }
    }

    /// What a request for `check` is to do now. `waited` is the number of the call that it has waited for, if that was
    /// sent after it came.
    fn step(&self, check: &Check<'_>, waited: Option<u64>) -> LeaseStep {
        let now = Instant::now();
        let hash = self.news.hash(check.limit.id, check.key);
        let is_new = waited.is_none();
        let busy = is_new && self.demand.borrow().is_busy(hash, now);
        let mut all = self.held.borrow_mut();
        let Some(held) = entry(&mut all, (hash, check), (busy, now)) else {
            return LeaseStep::Alone;
        };
        held.renew(check, &self.news, now);
        if waited == Some(held.turn) {
            if held.due > 0 {
                held.due -= 1;
                return LeaseStep::Take(Grant::of(held, now, Decider::Redis));
            }
            if held.failed {
                return LeaseStep::Alone;
            }
        }
        if held.has(now) {
            held.permits -= 1;
            return LeaseStep::Take(Grant::of(held, now, Decider::Lease));
        }
        if now < held.paused {
            return LeaseStep::Refused(LeaseRefusal::of(held, now));
        }
        if !held.asking {
            if is_new && !busy {
                return LeaseStep::Alone;
            }
            held.leave();
            (held.asking, held.sent, held.waiting) = (true, false, 1);
            return LeaseStep::Ask(Rc::clone(&held.answered), held.turn + 1);
        }
        if !held.sent {
            held.waiting = held.waiting.saturating_add(1);
            return LeaseStep::Wait(Rc::clone(&held.answered), held.turn + 1);
        }
        if held.took > BRISK {
            return LeaseStep::Alone;
        }
        // Of those that the call brings for later there may be one for this.
        LeaseStep::Wait(Rc::clone(&held.answered), 0)
    }
}

/// May a permit in hand stand for asking about it?
pub(super) fn may_take(check: &Check<'_>) -> bool {
    check.cost == Cost::ONE && check.id.is_none() && check.limit.leases().is_some()
}

/// What is held of a key; of one that is `busy` it is held from now on, if there is room.
fn entry<'a>(
    all: &'a mut HashTable<KeyLease>,
    (hash, check): (u64, &Check<'_>),
    (busy, now): (bool, Instant),
) -> Option<&'a mut KeyLease> {
    // Looked for twice, since a borrow that is returned in one case is held in all.
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

/// Decides a request with a single limit by a permit in hand, or by one of those that a call brings for all who wait.
pub(super) async fn take(
    near: &WorkerCache,
    (shared, metrics): (&RedisStore, &StoreMetrics),
    check: &Check<'_>,
) -> LeaseAnswer {
    near.leases.rises(check);
    let mut waited = None;
    for _ in 0..PATIENCE {
        if let Some(recalled) = near.recall(shared, &[*check]) {
            return LeaseAnswer::RefusalCache(recalled);
        }
        let (answered, turn) = match near.leases.step(check, waited) {
            LeaseStep::Take(permit) => return LeaseAnswer::Told(permit.half(check), permit.by),
            LeaseStep::Refused(refusal) => {
                return LeaseAnswer::Told(refusal.half(0, &[*check]), Decider::Remembered);
            }
            LeaseStep::Alone => return LeaseAnswer::Nothing,
            LeaseStep::Wait(answered, turn) => (answered, turn),
            LeaseStep::Ask(answered, turn) => {
                spawn(near, (shared, metrics), check);
                (answered, turn)
            }
        };
        answered.notified().await;
        waited = Some(turn);
    }
    LeaseAnswer::Nothing
}

/// Has the call made, by a task of its own: whoever waits for it may leave.
pub(super) fn spawn(
    near: &WorkerCache,
    (shared, metrics): (&RedisStore, &StoreMetrics),
    check: &Check<'_>,
) {
    let (near, shared, metrics) = (near.clone(), shared.clone(), metrics.clone());
    let (limit, key) = (Arc::clone(check.limit), check.key.into());
    tokio::task::spawn_local(async move {
        ask(&near, (&shared, &metrics), &limit, key).await;
    });
}

/// One call for all who wait, and some permits for those who come soon.
async fn ask(
    near: &WorkerCache,
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
    if units == 0 {
        let (answered, _) = near.leases.told(&check, terms, (None, 0), (sent, sent));
        return answered.notify_waiters();
    }
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
        LeaseCall::of(&order, terms, &half, (sent, asked, told))
    });
    let (answered, until) = near.leases.told(&check, terms, (last, units), (sent, told));
    answered.notify_waiters();
    if let Some(last) = last {
        metrics.permits(Permits::Taken, u64::from(last.charged));
        if terms.give_back() {
            tokio::time::sleep_until(until.into()).await;
            near.leases.give_back(&check, last, (shared, metrics, near));
            // Who had one in hand then has been decided now.
            tokio::time::sleep(near.longest()).await;
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

    /// Who is refused is told to come back when nobody pauses any more, who would else be refused again.
    pub(super) fn lengthen(&self, checks: &[Check<'_>], half: &mut Answers) {
        if self.held.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        for (check, measured) in checks.iter().zip(&mut half.measured) {
            if let Wait::Micros(wait @ 1..) = measured.wait
                && may_take(check)
            {
                let pause = self.with(check, |held| held.pause_left(now));
                measured.wait = Wait::Micros(wait.max(pause.unwrap_or(0)));
            }
        }
    }

    fn with<T>(&self, check: &Check<'_>, then: impl FnOnce(&mut KeyLease) -> T) -> Option<T> {
        let hash = self.news.hash(check.limit.id, check.key);
        let mut all = self.held.borrow_mut();
        all.find_mut(hash, |held| held.is_of(hash, check)).map(then)
    }

    fn order(&self, check: &Check<'_>, terms: &LeaseTerms, now: Instant) -> Option<u32> {
        let hash = self.news.hash(check.limit.id, check.key);
        let demand = self.demand.borrow().of(hash, now);
        self.with(check, |held| held.order(terms, demand, now))
    }

    /// Takes the answer of a call over, or that there is none. Returns who is to be told, and until when the permits last.
    fn told(
        &self,
        check: &Check<'_>,
        terms: &LeaseTerms,
        (last, units): (Option<LeaseCall>, u32),
        (sent, now): (Instant, Instant),
    ) -> (Rc<Notify>, Instant) {
        let told = self.with(check, |held| {
            held.asking = false;
            held.took = now.saturating_duration_since(sent);
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
        last: LeaseCall,
        (shared, metrics, near): (&RedisStore, &StoreMetrics, &WorkerCache),
    ) {
        let units = self.with(check, |held| held.take(last.asked));
        let Check { limit, key, .. } = *check;
        let out = since(last.sent, Instant::now());
        let comes_back = |units: &u32| {
            let terms = limit.leases().filter(|_| *units > 0);
            terms.is_some_and(|terms| terms.comes_back(*units, out))
        };
        // A counter that was reset since knows nothing of that charge.
        let hash = self.news.hash(limit.id, key);
        let units = units.filter(|_| !self.news.is_reset(hash, last.asked));
        let Some(units) = units.filter(comes_back) else {
            return;
        };
        let ticket = limit.rule.ticket(last.at, last.measured, Cost::new(units));
        let ticket = limit.abandoned(ticket, last.at);
        near.returns(limit, key);
        self.with(check, |held| held.has_returned(units));
        metrics.permits(Permits::Returned, u64::from(units));
        shared.refund([Refund { limit, key, ticket }]);
    }

    /// Gives everything back that can go back.
    pub(super) fn end(&self, shared: &RedisStore, metrics: &StoreMetrics, near: &WorkerCache) {
        let mine = |held: &KeyLease| Some((Arc::clone(&held.limit), held.key.clone(), held.last?));
        let all: Vec<_> = self.held.borrow().iter().filter_map(mine).collect();
        for (limit, key, last) in all {
            if limit.leases().is_some_and(LeaseTerms::give_back) {
                self.give_back(&Check::new(&limit, &key), last, (shared, metrics, near));
            }
        }
    }

    /// Forgets what nobody has used for a while. Not sooner: what was lost of a bucket counts until it has come back.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let idle = |held: &KeyLease| !held.asking && held.until + IDLE < now;
        self.held.borrow_mut().retain(|held| !idle(held));
    }
}

fn since(then: Instant, now: Instant) -> u64 {
    let since = now.saturating_duration_since(then);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
