//! Updates that wait to be sent: slots whose request has ended, charges that are given back, and costs that are
//! settled. No request waits for an update. So an update is kept while Redis is unavailable, and sent after its return.
//!
//! A call without an answer may have been applied. An update that Redis can recognise is sent again, since two calls
//! then have the effect of one. Slots are freed by their number, and a call that gives charges back has a marker
//! ([`AppliedMarker`](crate::store::redis::wire::counter_update::AppliedMarker)). A charge beyond an estimate has an
//! id, like repeated requests (`limit/dedupe`). Updates that a master answered in its last seconds are sent to its
//! successor again (`answered_calls`).

use super::answered_calls::AnsweredCalls;
use super::context::StoreContext;
use super::lanes::Lanes;
use super::suspicion::Suspicion;
use crate::clock;
use crate::store::error::StoreError;
use crate::store::redis::MOST_IN_CALL;
use crate::store::redis::link::health::Health;
use crate::store::redis::link::reply::{self, ScriptReply};
use crate::store::redis::wire::counter_update::{CounterUpdate, MarkerNames, UpdateKind};
use crate::store::redis::wire::layout;
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::slot::CallRoute;
use crate::telemetry::metrics::CallOutcome;
use bb8_redis::redis::Cmd;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// The most updates that one worker keeps for one Redis; further updates are lost.
pub(super) const MOST_PENDING: usize = 16_384;
/// The most attempts to send an update: an update that Redis refuses each time would otherwise make Redis unavailable
/// each time.
pub(crate) const MOST_TRIES: u8 = 16;
/// The pause before a release of slots that were not found is sent again; later pauses are doubled. A call that is
/// still pending may take the slots yet.
const RECHECK: Duration = Duration::from_secs(1);
/// The script's bytes for four outcomes: applied, applied so that no state is left, cannot be applied, applied by an
/// earlier call.
const APPLIED: u8 = 1;
const EMPTY: u8 = 2;
pub(crate) const FAILED: u8 = 3;
const APPLIED_BEFORE: u8 = 4;
/// The pause before an update that the node did not apply is sent again.
const PAUSE: Duration = Duration::from_millis(500);

/// The updates that one worker has for one Redis.
pub(crate) struct PendingRefunds {
    /// Shows whether Redis is available.
    health: Rc<Health>,
    lanes: Rc<Lanes>,
    suspicion: Rc<Suspicion>,
    context: Rc<StoreContext>,
    /// Updates in the order of sending.
    waiting: RefCell<VecDeque<CounterUpdate>>,
    /// Slots of requests in flight, which are sent first: no more than this worker's requests hold.
    registrations: RefCell<VecDeque<CounterUpdate>>,
    /// Updates to be sent again, and the instant for each.
    later: RefCell<Vec<(Instant, CounterUpdate)>>,
    names: MarkerNames,
    /// Updates that Redis has answered.
    pub(crate) answered: AnsweredCalls,
    /// The instant at which Redis became unavailable, until its return.
    fell: Cell<Option<Instant>>,
    /// Are the slots of requests in flight registered with Redis?
    registers: Cell<bool>,
}

/// An answered call: its answer, and its duration.
pub(crate) struct CallResult {
    pub(crate) answer: Result<Vec<u8>, StoreError>,
    pub(crate) took: Duration,
    /// Has the connection become useless meanwhile? It may lead to a former master.
    pub(crate) is_outdated: bool,
}

impl PendingRefunds {
    pub(crate) fn new(
        context: &Rc<StoreContext>,
        health: &Rc<Health>,
        lanes: &Rc<Lanes>,
        suspicion: &Rc<Suspicion>,
    ) -> Self {
        Self {
            suspicion: Rc::clone(suspicion),
            health: Rc::clone(health),
            lanes: Rc::clone(lanes),
            context: Rc::clone(context),
            waiting: RefCell::default(),
            registrations: RefCell::default(),
            later: RefCell::default(),
            names: MarkerNames::default(),
            answered: AnsweredCalls::default(),
            fell: Cell::default(),
            registers: Cell::default(),
        }
    }

    /// Is there nothing to send now?
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty() && self.answered.is_empty() && !self.has_registrations()
    }

    /// Are there slots of requests in flight that the server does not know yet?
    pub(crate) fn has_registrations(&self) -> bool {
        !self.registrations.borrow().is_empty()
    }

    fn is_full(&self) -> bool {
        self.waiting.borrow().len() + self.later.borrow().len() >= MOST_PENDING
    }

    /// Takes an update over. The update is sent soon, or after the return of Redis.
    pub(crate) fn push(&self, mut update: CounterUpdate) {
        let is_down = self.health.is_down();
        if update.kind == UpdateKind::Registration {
            // The update is sent before any check.
            if self.registers.get() {
                self.registrations.borrow_mut().push_back(update);
            }
            return;
        }
        if (is_down && !update.is_kept()) || self.is_full() {
            return self.lose(update, &StoreError::Down);
        }
        if is_down {
            self.count(update.kind, CallOutcome::Down, Duration::ZERO);
            update.fail(&StoreError::Down);
        }
        self.waiting.borrow_mut().push_back(update);
        if !is_down {
            self.lanes.wake();
        }
    }

    /// Frees slots that a call without an answer may have taken. Its requests were answered without the slots.
    pub(crate) fn release(&self, question: &Question, route: CallRoute, why: &StoreError) {
        if let StoreError::Refused(_) | StoreError::Down | StoreError::Overloaded = why {
            return;
        }
        for (question, ttl) in question.releases() {
            let kind = UpdateKind::Release {
                recheck: Some(RECHECK),
            };
            let update = CounterUpdate::new(kind, question, Some(ttl));
            self.push(CounterUpdate { route, ..update });
        }
    }

    /// All updates, for other nodes.
    pub(crate) fn take_all(&self) -> Vec<CounterUpdate> {
        let later = self.later.take().into_iter().map(|(_, update)| update);
        self.waiting.take().into_iter().chain(later).collect()
    }

    /// The first updates that fit into one call: of one clock, and only updates that are still of use. Slots of
    /// requests in flight are first, since a server that does not know them admits too many others. Updates that a
    /// former master has answered are next: their slots have been free for the longest time.
    pub(crate) fn next(&self) -> Vec<CounterUpdate> {
        let registrations = self.next_of(&self.registrations);
        if !registrations.is_empty() {
            return registrations;
        }
        let retries = self.answered.next();
        if !retries.is_empty() {
            return retries;
        }
        self.next_of(&self.waiting)
    }

    /// The first updates of `waiting` that fit into one call.
    fn next_of(&self, waiting: &RefCell<VecDeque<CounterUpdate>>) -> Vec<CounterUpdate> {
        let mut waiting = waiting.borrow_mut();
        if waiting.is_empty() {
            return Vec::new();
        }
        let now = clock::now();
        let mut batch: Vec<CounterUpdate> = Vec::with_capacity(waiting.len().min(MOST_IN_CALL));
        while let Some(next) = waiting.front() {
            let fits = batch.len() < MOST_IN_CALL
                && batch.first().is_none_or(|first| first.goes_with(next));
            if !fits {
                break;
            }
            let Some(next) = waiting.pop_front() else {
                break;
            };
            if next.is_over(now) {
                self.lose(next, &StoreError::Down);
            } else {
                batch.push(next);
            }
        }
        batch
    }

    /// Gives the updates of one call a marker, if the call must not be applied twice. With a clock of the caller no
    /// call is repeated.
    pub(crate) fn mark(&self, batch: &mut [CounterUpdate]) {
        let is_new = batch.first().is_some_and(|first| first.marker.is_none());
        let adds_up = |update: &CounterUpdate| update.adds_up() && update.clock.is_none();
        if !is_new || !batch.iter().any(adds_up) {
            return;
        }
        let marker = self.names.next();
        for update in batch {
            update.marker = Some(marker);
        }
    }

    /// Takes over the outcome of a call for all of `batch`.
    pub(crate) fn conclude(
        &self,
        batch: Vec<CounterUpdate>,
        result: CallResult,
    ) -> Result<(), StoreError> {
        let CallResult {
            answer,
            took,
            is_outdated,
        } = result;
        let bytes = match answer.and_then(|bytes| outcomes(&batch, bytes)) {
            Ok(bytes) => bytes,
            Err(why) => {
                let outcome = match &why {
                    StoreError::Timeout { .. } => CallOutcome::Timeout,
                    _ => CallOutcome::Error,
                };
                // The updates are put back in their order, before later ones.
                for update in batch.into_iter().rev() {
                    self.count(update.kind, outcome, took);
                    self.resend(update, &why);
                }
                return Err(why);
            }
        };
        let byte = |index: usize| bytes.get(index).copied();
        // A failed release is repeated when permissions or memory return with a master. An update that gave nothing
        // back has nothing to give back elsewhere, and slots that were not found are looked up again anyway.
        let is_done = |index: usize| match batch.get(index).map(|update| update.kind) {
            Some(UpdateKind::Release { recheck: None }) => true,
            Some(_) => matches!(byte(index), Some(APPLIED | EMPTY | APPLIED_BEFORE)),
            None => false,
        };
        for marker in self.answered.keep(&batch, is_done, is_outdated) {
            self.names.release(marker);
        }
        for (index, update) in batch.into_iter().enumerate() {
            self.conclude_one(update, bytes.get(index).copied(), took);
        }
        if !self.answered.is_empty() {
            self.lanes.wake();
        }
        Ok(())
    }

    /// Takes over the script's byte for one update of an answered call.
    fn conclude_one(&self, mut update: CounterUpdate, byte: Option<u8>, took: Duration) {
        self.context.stats.refunds.add(1);
        if byte == Some(FAILED) {
            self.count(update.kind, CallOutcome::Lost, took);
            let counter = update.question.keys().next().unwrap_or_default();
            let limit = layout::limit_of(&self.context.prefix, counter).unwrap_or_default();
            self.suspicion.raise(|| {
                format!("a counter of limit `{limit}` cannot be changed: its key in Redis holds another value; delete that key")
            });
        } else if !update.is_repeat {
            self.count(update.kind, CallOutcome::Ok, took);
        }
        if let Some(answer) = update.answer.take() {
            let short = StoreError::Protocol("shorter than the question");
            let _ = answer.send(byte.ok_or(short));
        }
        // A repeated call's answer no longer shows whether the slots were found.
        if matches!(byte, Some(0 | APPLIED_BEFORE)) {
            self.recheck(update);
        }
    }

    /// Repeats recently answered updates: the master was replaced, or has returned.
    pub(crate) fn repeat_answered(&self) {
        let since = self.fell.take().unwrap_or_else(clock::now);
        self.answered.repeat(since);
        // Slots that were not found at the former master may be taken at this one.
        let is_recheck = |(_, update): &mut (Instant, CounterUpdate)| {
            matches!(update.kind, UpdateKind::Release { recheck: Some(_) })
        };
        let mut waiting = self.waiting.borrow_mut();
        for (_, mut update) in self.later.borrow_mut().extract_if(.., is_recheck) {
            update.kind = UpdateKind::Release {
                recheck: Some(RECHECK),
            };
            waiting.push_back(update);
        }
        drop(waiting);
        if !self.is_empty() {
            self.lanes.wake();
        }
    }

    /// Sends the slots of requests in flight to Redis with the next updates.
    pub(crate) async fn register(&self) {
        // A request whose decision has just been answered first keeps its slots, and then waits for this call.
        for _ in 0..3 {
            yield_now().await;
        }
        // The registrations of the last round were not sent, and are listed again.
        self.registrations.borrow_mut().clear();
        self.registers.set(true);
        self.context.registration.notify_waiters();
        yield_now().await;
        self.registers.set(false);
    }

    /// Drops answered updates that no other server can lack any more.
    pub(crate) fn forget_answered(&self) {
        for marker in self.answered.forget_old() {
            self.names.release(marker);
        }
    }

    /// Sends an update of a failed call again, if that is possible.
    fn resend(&self, mut update: CounterUpdate, why: &StoreError) {
        update.tries += 1;
        update.fail(why);
        if !update.is_repeatable() || update.tries >= MOST_TRIES || self.is_full() {
            return self.lose(update, why);
        }
        self.waiting.borrow_mut().push_front(update);
    }

    /// Puts an unsent update back as the first.
    pub(crate) fn put_back(&self, mut update: CounterUpdate) {
        update.unmark();
        self.waiting.borrow_mut().push_front(update);
    }

    /// Sends an update that the node did not apply again, after a pause in which the cause may end.
    pub(crate) fn put_off(&self, mut update: CounterUpdate, why: &StoreError) {
        if !update.is_kept() || self.is_full() {
            return self.lose(update, why);
        }
        update.unmark();
        update.route = CallRoute::to(update.route.slot);
        self.wait_until(clock::now() + PAUSE, update);
    }

    /// Notes that Redis found nothing to update. A release of slots that may still be taken is sent again.
    fn recheck(&self, mut update: CounterUpdate) {
        let UpdateKind::Release {
            recheck: Some(pause),
        } = update.kind
        else {
            return;
        };
        let at = clock::now() + pause;
        if update.until <= at || self.is_full() {
            return;
        }
        update.marker = None;
        update.kind = UpdateKind::Release {
            recheck: Some(pause * 2),
        };
        update.tries = 0;
        self.wait_until(at, update);
    }

    fn wait_until(&self, at: Instant, update: CounterUpdate) {
        self.later.borrow_mut().push((at, update));
        self.lanes.reminder.notify_one();
    }

    /// Abandons the update, and answers a waiting caller.
    fn lose(&self, mut update: CounterUpdate, why: &StoreError) {
        update.fail(why);
        let is_release = matches!(update.kind, UpdateKind::Release { .. });
        // A slot that has lapsed is free.
        if !(is_release && update.until <= clock::now()) {
            self.count(update.kind, CallOutcome::Lost, Duration::ZERO);
        }
    }

    fn count(&self, kind: UpdateKind, outcome: CallOutcome, time: Duration) {
        if let Some(operation) = kind.operation() {
            self.context.stats.updated(operation, outcome, time);
        }
    }

    /// Abandons updates that cannot wait until the return of Redis.
    pub(crate) fn set_down(&self) {
        self.fell.set(Some(clock::now()));
        // They are listed again when Redis has returned.
        self.registrations.borrow_mut().clear();
        for mut update in self.waiting.take() {
            if update.is_kept() {
                update.fail(&StoreError::Down);
                self.waiting.borrow_mut().push_back(update);
            } else {
                self.lose(update, &StoreError::Down);
            }
        }
    }

    /// Waits until postponed updates are due, and queues them.
    pub(crate) async fn remind(&self) {
        let next = self.later.borrow().iter().map(|(at, _)| *at).min();
        match next {
            None => self.lanes.reminder.notified().await,
            Some(at) => {
                tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.lanes.reminder.notified() => {}
                }
            }
        }
        let now = clock::now();
        let due = |(at, _): &mut (Instant, CounterUpdate)| *at <= now;
        let due: Vec<_> = self.later.borrow_mut().extract_if(.., due).collect();
        for (_, update) in due {
            self.push(update);
        }
    }
}

/// The script's byte for each update of a call. Surcharges have another script, which answers like for requests.
fn outcomes(batch: &[CounterUpdate], bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if batch
        .iter()
        .all(|update| update.kind != UpdateKind::Surcharge)
    {
        return Ok(bytes);
    }
    let limits = batch.iter().map(|update| update.question.limits());
    let replies = reply::read_replies(&bytes, limits)?;
    let byte = |reply: &ScriptReply| if reply.is_ok() { APPLIED } else { FAILED };
    Ok(replies.iter().map(byte).collect())
}

/// One call for all of `batch`. In a cluster the call's marker is in the slot of the counters.
pub(crate) fn command(prefix: &str, is_in_cluster: bool, batch: &[CounterUpdate]) -> Cmd {
    let first = batch.first();
    let clock = first.and_then(|first| first.clock);
    let questions = batch.iter().map(|update| &update.question);
    if first.is_some_and(|first| first.kind == UpdateKind::Surcharge) {
        return question::decide(clock, questions);
    }
    let marker = first.and_then(|first| {
        let marker = first.marker?;
        let counter = first.question.keys().next().filter(|_| is_in_cluster);
        Some(question::MarkerKey {
            key: layout::marker(prefix, counter, marker.name),
            number: marker.number,
        })
    });
    question::refund(clock, questions, marker)
}
