//! What is owed to Redis: slots whose request has ended, charges that come back, and costs that are settled. Nobody waits
//! for it, so that it can wait: while Redis is away it is kept, and sent when Redis is back.
//!
//! A call without an answer may have been made. What is known by its id is sent again, for doing it twice is doing it
//! once: slots are freed by their number, and a call that gives charges back leaves a mark in Redis, with a name that one
//! call after the other has, each only when the one before is answered, and its number there. What is charged beyond an estimate has an id as
//! repeated requests have (`limit/dedupe`).

mod applied_marker;
mod surcharge;

pub(super) use applied_marker::AppliedMarker;
pub(super) use surcharge::Surcharge;

use super::batcher::MOST_DECISIONS;
use super::cluster::Route;
use super::node::NodeCore;
use super::question::Question;
use crate::clock::Timestamp;
use crate::store::error::StoreError;
use crate::telemetry::metrics::{CallOutcome, Operation};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

/// What one worker owes to one Redis at most; what is more is lost.
pub(super) const MOST_OWED: usize = 16_384;
/// How often one is sent: what Redis refuses each time is not to be its end each time.
const MOST_TIMES: u8 = 16;
/// A slot that was not found may be taken yet, by a call that is still on its way: it is looked for again so much later,
/// and then twice that.
const DOUBT: Duration = Duration::from_secs(1);
/// The script's byte for what a call before has done.
const MADE_BEFORE: u8 = 4;
/// What could not be done where it was sent is tried again so much later.
const PAUSE: Duration = Duration::from_millis(500);

/// How long what has not been sent is kept.
const KEPT: Duration = Duration::from_hours(1);

/// How long a call is made again that may have been made: for longer than that its mark lasts.
const REPEATED: Duration = Duration::from_mins(2);

/// What is to be done about a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateKind {
    /// Slots are freed.
    Release {
        /// Nobody has heard that they were taken: the call that asked for them had no answer.
        doubted: Option<Duration>,
    },
    /// Slots are held for longer. The next time comes by itself.
    Renewal,
    /// A charge comes back.
    Refund,
    /// A charge was too much.
    Settlement,
    /// The counter is forgotten, and somebody waits to hear so.
    Reset,
}

/// Something that waits to be done, about one counter.
#[derive(Debug)]
pub(super) struct CounterUpdate {
    pub(super) duty: UpdateKind,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) route: Route,
    /// From then on it means nothing any more.
    pub(super) until: Instant,
    /// How often it has been sent in vain.
    pub(super) times: u8,
    /// Of the call that it went with.
    pub(super) mark: Option<AppliedMarker>,
    /// Mostly nobody waits. Told the script's byte.
    pub(super) answer: Option<oneshot::Sender<Result<u8, StoreError>>>,
}

/// What one worker owes to one Redis.
#[derive(Debug, Default)]
pub(super) struct PendingRefunds {
    /// In the order in which it goes.
    waiting: RefCell<VecDeque<CounterUpdate>>,
    /// What is to be tried again, and when.
    later: RefCell<Vec<(Instant, CounterUpdate)>>,
    /// There is more of that.
    put_off: Notify,
    /// What is charged without being asked, while Redis is away.
    debts: RefCell<VecDeque<(Question, Route, Surcharge)>>,
    /// Names that no call has just now, with the last number of each.
    names: RefCell<Vec<(u64, u64)>>,
}

impl PendingRefunds {
    /// Is there anything to send now?
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Is there anything that waits for Redis to be back?
    pub(super) fn is_paid(&self) -> bool {
        self.is_empty() && self.debts.borrow().is_empty()
    }

    fn is_full(&self) -> bool {
        self.waiting.borrow().len() + self.later.borrow().len() >= MOST_OWED
    }
}

impl PendingRefunds {
    fn wait_for(&self, at: Instant, one: CounterUpdate) {
        self.later.borrow_mut().push((at, one));
        self.put_off.notify_one();
    }

    /// All of it: others are to see to it, each slot's own.
    pub(super) fn pass_on(&self, home: impl Fn(Route) -> Rc<NodeCore>) {
        let later = self.later.take().into_iter().map(|(_, one)| one);
        let all: Vec<_> = self.waiting.take().into_iter().chain(later).collect();
        for one in all {
            home(one.route).owe(one);
        }
        for (question, route, debt) in self.debts.take() {
            home(route).owe_debt(None, (question, route), debt);
        }
    }
}

impl UpdateKind {
    /// As what it is counted, if it is.
    fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::Release { .. } => Operation::Release,
            Self::Refund => Operation::Refund,
            Self::Settlement => Operation::Settle,
            Self::Renewal | Self::Reset => return None,
        })
    }
}

impl CounterUpdate {
    /// Of a limit whose slots, if it has any, last so long.
    pub(super) fn new(
        duty: UpdateKind,
        (clock, question, route): (Option<Timestamp>, Question, Route),
        lasts: Option<Duration>,
    ) -> Self {
        Self {
            duty,
            question,
            clock,
            route,
            until: Instant::now() + lasts.unwrap_or(KEPT),
            times: 0,
            mark: None,
            answer: None,
        }
    }

    /// Is it kept while Redis is away? By a clock of the caller's nothing waits.
    fn is_kept(&self) -> bool {
        self.clock.is_none() && self.duty.operation().is_some()
    }

    /// Would it be done twice if it were sent twice?
    fn adds_up(&self) -> bool {
        matches!(self.duty, UpdateKind::Refund | UpdateKind::Settlement)
    }

    /// Can it be sent again though it may have been done?
    fn is_repeatable(&self) -> bool {
        let by_mark = self
            .mark
            .is_some_and(|mark| mark.since.elapsed() < REPEATED);
        self.is_kept() && (by_mark || !self.adds_up())
    }

    /// Does it mean nothing any more, or can it not be told from one that has been done?
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now || (self.times > 0 && !self.is_repeatable())
    }

    /// Whoever waits does not wait until Redis is back.
    fn tell(&mut self, why: &StoreError) {
        if let Some(waiting) = self.answer.take() {
            let _ = waiting.send(Err(why.clone()));
        }
    }

    /// It was not done where it was sent last. If nowhere else either it may go with another call.
    fn unmark(&mut self) {
        if self.times == 0 {
            self.mark = None;
        }
    }
}

impl NodeCore {
    /// Takes over what is to be done: soon, or when Redis is back.
    pub(super) fn owe(&self, mut one: CounterUpdate) {
        let is_down = self.health.is_down();
        if (is_down && !one.is_kept()) || self.owed.is_full() {
            return self.lose(one, &StoreError::Down);
        }
        if is_down {
            self.count(one.duty, CallOutcome::Down, Duration::ZERO);
            one.tell(&StoreError::Down);
        }
        self.owed.waiting.borrow_mut().push_back(one);
        if !self.health.is_down() {
            self.wake();
        }
    }

    /// Slots that a call without an answer may have taken are given back: whoever asked was answered without them.
    pub(super) fn owe_slots(&self, asked: &Question, route: Route, why: &StoreError) {
        if let StoreError::Refused(_) | StoreError::Down | StoreError::Overloaded = why {
            return;
        }
        for (question, ttl) in asked.releases() {
            let doubted = Some(DOUBT);
            let duty = UpdateKind::Release { doubted };
            self.owe(CounterUpdate::new(duty, (None, question, route), Some(ttl)));
        }
    }

    /// Redis is back: it is told what it is owed before it is asked anything, so far as that takes no longer than a call
    /// may.
    ///
    /// # Errors
    /// When it is not back after all.
    pub(super) async fn pay(&self) -> Result<(), StoreError> {
        if self.owed.is_paid() {
            return Ok(());
        }
        let deadline = Instant::now() + self.timeout;
        let taken = timeout_at(deadline, self.connections.take()).await;
        let mut connection = taken.map_err(|_| self.late())??;
        while Instant::now() < deadline {
            let batch = self.next_due();
            if batch.is_empty() {
                break;
            }
            if let Err(why) = self.refund_all(&mut connection, batch).await {
                connection.condemn();
                return Err(why);
            }
        }
        // These go in front of all who ask.
        self.charge_all();
        Ok(())
    }

    /// What goes with the next call.
    pub(super) fn next_owed(&self) -> Vec<CounterUpdate> {
        if self.owed.is_empty() || self.health.is_down() {
            Vec::new()
        } else {
            self.next_due()
        }
    }

    /// The first that can go in one call: of one clock, and only what still means something.
    fn next_due(&self) -> Vec<CounterUpdate> {
        let mut waiting = self.owed.waiting.borrow_mut();
        let now = Instant::now();
        let mut batch: Vec<CounterUpdate> = Vec::with_capacity(waiting.len().min(MOST_DECISIONS));
        while let Some(next) = waiting.front() {
            let fits = batch.len() < MOST_DECISIONS
                && batch
                    .first()
                    .is_none_or(|first| first.clock == next.clock && first.mark == next.mark);
            if !fits {
                break;
            }
            let Some(next) = waiting.pop_front() else {
                break;
            };
            if next.is_over(now) {
                self.lose(next, &StoreError::Down)
            } else {
                batch.push(next)
            }
        }
        batch
    }

    /// Takes over what has become of a call for all of `batch`.
    pub(super) fn refunded(
        &self,
        batch: Vec<CounterUpdate>,
        (answer, took): (Result<Vec<u8>, StoreError>, Duration),
    ) -> Result<(), StoreError> {
        let outcome = match &answer {
            Ok(_) => CallOutcome::Ok,
            Err(StoreError::Timeout { .. }) => CallOutcome::Timeout,
            Err(_) => CallOutcome::Error,
        };
        for one in &batch {
            self.count(one.duty, outcome, took);
        }
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(why) => {
                // In their order, in front of what has come since.
                for one in batch.into_iter().rev() {
                    self.send_again(one, &why);
                }
                return Err(why);
            }
        };
        if let Some(mark) = batch.first().and_then(|first| first.mark) {
            self.owed.names.borrow_mut().push((mark.name, mark.number));
        }
        for (index, mut one) in batch.into_iter().enumerate() {
            let byte = bytes.get(index).copied();
            self.stats.refunds.add(1);
            if let Some(waiting) = one.answer.take() {
                let short = StoreError::Protocol("shorter than the question");
                let _ = waiting.send(byte.ok_or(short));
            }
            // Or nobody knows any more what was found.
            if matches!(byte, Some(0 | MADE_BEFORE)) {
                self.doubt(one);
            }
        }
        Ok(())
    }

    /// What went with a call that failed goes again, if it can.
    fn send_again(&self, mut one: CounterUpdate, why: &StoreError) {
        one.times += 1;
        one.tell(why);
        if !one.is_repeatable() || one.times >= MOST_TIMES || self.owed.is_full() {
            return self.lose(one, why);
        }
        self.owed.waiting.borrow_mut().push_front(one);
    }

    /// It was not sent: it stays the first.
    pub(super) fn put_back(&self, mut one: CounterUpdate) {
        one.unmark();
        self.owed.waiting.borrow_mut().push_front(one);
    }

    /// It was not done where it was sent, and is tried again when that may have changed.
    pub(super) fn put_off(&self, mut one: CounterUpdate, why: &StoreError) {
        if !one.is_kept() || self.owed.is_full() {
            return self.lose(one, why);
        }
        one.unmark();
        one.route = one.route.afresh();
        self.owed.wait_for(Instant::now() + PAUSE, one);
    }

    /// Of `one` nothing was found. Where nobody knows whether there is anything it is looked for again.
    fn doubt(&self, mut one: CounterUpdate) {
        let UpdateKind::Release {
            doubted: Some(pause),
        } = one.duty
        else {
            return;
        };
        let at = Instant::now() + pause;
        if one.until <= at || self.owed.is_full() {
            return;
        }
        one.mark = None;
        one.duty = UpdateKind::Release {
            doubted: Some(pause * 2),
        };
        one.times = 0;
        self.owed.wait_for(at, one);
    }

    /// It is given up, and whoever waits for it is told.
    pub(super) fn lose(&self, mut one: CounterUpdate, why: &StoreError) {
        one.tell(why);
        let has_lapsed =
            matches!(one.duty, UpdateKind::Release { .. }) && one.until <= Instant::now();
        // A slot that has lapsed is free.
        if !has_lapsed {
            self.count(one.duty, CallOutcome::Lost, Duration::ZERO);
        }
    }

    fn count(&self, duty: UpdateKind, outcome: CallOutcome, time: Duration) {
        if let Some(operation) = duty.operation() {
            self.stats.owed(operation, outcome, time);
        }
    }

    /// Redis is away: what cannot wait is given up.
    pub(super) fn set_aside(&self) {
        let waiting = self.owed.waiting.take();
        let (kept, rest): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(CounterUpdate::is_kept);
        *self.owed.waiting.borrow_mut() = kept;
        for one in self.owed.waiting.borrow_mut().iter_mut() {
            one.tell(&StoreError::Down);
        }
        for one in rest {
            self.lose(one, &StoreError::Down);
        }
    }
}

/// Has what was put off be sent when its time has come, until the worker ends.
pub(super) async fn remind(shared: Rc<NodeCore>) {
    loop {
        let later = &shared.owed.later;
        let next = later.borrow().iter().map(|(at, _)| *at).min();
        match next {
            None => shared.owed.put_off.notified().await,
            Some(at) => {
                tokio::select! {
                    () = sleep_until(at) => {}
                    () = shared.owed.put_off.notified() => {}
                }
            }
        }
        let now = Instant::now();
        let due = |(at, _): &mut (Instant, CounterUpdate)| *at <= now;
        let due: Vec<_> = later.borrow_mut().extract_if(.., due).collect();
        for (_, one) in due {
            shared.owe(one);
        }
        if shared.health.is_up() && !shared.owed.debts.borrow().is_empty() {
            shared.charge_all();
            shared.wake();
        }
    }
}
