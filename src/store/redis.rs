//! Counters in Redis, where all gateways share them: one script call decides all limits of a request.
//!
//! Belongs to one worker and is used by no other: no lock, no thread is woken. Redis' own clock decides.

mod beat;
mod clear;
mod dial;
mod gather;
mod health;
mod layout;
mod leavers;
mod library;
mod pool;
mod probe;
mod question;
mod reply;
mod script;
mod sentinel;
mod stats;
#[cfg(test)]
mod tests;

pub use probe::{Found, probe};
pub use stats::{Counter, SIZES, Stats};

use super::batch::{Check, Decided, Half, Refund};
use super::beside;
use super::error::StoreError;
use super::settings::{RedisTarget, Settings};
use crate::clock::{self, Timestamp};
use crate::limit::{Limit, LimitId, wire};
use gather::{Asked, MOST_WAITING, Returned};
use health::Health;
use leavers::{Left, Waiting};
use pool::Connections;
use question::Question;
use reply::Wrong;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// More would be no deadline.
const LONGEST: Duration = Duration::from_secs(60);

/// One worker's way to Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    shared: Rc<Shared>,
    _tasks: Rc<Tasks>,
}

/// What the face, the lanes and the watch work on together.
struct Shared {
    target: RedisTarget,
    timeout: Duration,
    prefix: Arc<str>,
    connections: Connections,
    health: Health,
    stats: Arc<Stats>,
    decisions: RefCell<VecDeque<Asked>>,
    refunds: RefCell<VecDeque<Returned>>,
    /// Questions asked so far; each has its number.
    asked: Cell<u64>,
    /// Those who have left while their decision was under way, by their question's number.
    left: RefCell<hashbrown::HashMap<u64, Left, foldhash::fast::RandomState>>,
    prefixes: RefCell<hashbrown::HashMap<LimitId, Rc<[u8]>, foldhash::fast::RandomState>>,
    /// There is something to do.
    work: Notify,
    /// A lane has been told so and has not come yet.
    woken: Cell<bool>,
    /// Lanes at work.
    busy: Cell<usize>,
    /// Lanes that have a connection.
    serving: Cell<usize>,
    /// A lane has nothing left to do.
    quiet: Notify,
}

/// Ends with the last clone of the store.
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl RedisStore {
    /// Starts to connect and waits for nothing. Inside a worker's own runtime, where tasks need not be `Send`.
    #[must_use]
    pub fn new(target: &RedisTarget, settings: &Settings) -> Self {
        let shared = Rc::new(Shared {
            target: target.clone(),
            timeout: settings.timeout.min(LONGEST),
            prefix: settings.prefix.clone(),
            connections: Connections::new(target, None),
            health: Health::new(),
            stats: Arc::default(),
            decisions: RefCell::default(),
            refunds: RefCell::default(),
            asked: Cell::new(0),
            left: RefCell::default(),
            prefixes: RefCell::default(),
            work: Notify::new(),
            woken: Cell::new(false),
            busy: Cell::new(0),
            serving: Cell::new(0),
            quiet: Notify::new(),
        });
        let mut tasks = vec![tokio::task::spawn_local(health::watch(shared.clone()))];
        for _ in 0..pool::CONNECTIONS {
            tasks.push(tokio::task::spawn_local(gather::lane(shared.clone())));
        }
        Self {
            shared,
            _tasks: Rc::new(Tasks(tasks)),
        }
    }

    /// Decides all limits of one request. Never takes longer than the settings' `timeout`, give or take a scheduling
    /// delay; takes no time at all while Redis is away.
    ///
    /// Dropping this before it resolves forgets the answer: what has not been sent by then is not charged. What has been
    /// may be; of that, slots, places in queues and what a limit gives back to those who leave are given back.
    ///
    /// # Errors
    /// When Redis did not decide; then nothing is known about what was charged, except that [`StoreError::Down`],
    /// [`StoreError::Overloaded`] and [`StoreError::Answer`] charged nothing.
    pub async fn decide(&self, checks: &[Check<'_>]) -> Result<Decided, StoreError> {
        let half = self.ask(None, checks, false).await?;
        Ok(Decided::of_half(checks, half))
    }

    /// The same before it is given a meaning. Of a request that is `refused` elsewhere nothing is charged.
    pub(super) async fn measure(
        &self,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Half, StoreError> {
        self.ask(None, checks, refused).await
    }

    /// Like [`RedisStore::decide`], by a clock of the caller's. For tests: states then outlive their time by an hour.
    ///
    /// # Errors
    /// As [`RedisStore::decide`].
    pub async fn decide_at(
        &self,
        now: Timestamp,
        checks: &[Check<'_>],
    ) -> Result<Decided, StoreError> {
        let half = self.ask(Some(now), checks, false).await?;
        Ok(Decided::of_half(checks, half))
    }

    /// Gives charges back, soon; nobody waits for it, and what cannot be given back stays charged.
    pub fn refund<'a>(&self, refunds: impl IntoIterator<Item = Refund<'a>>) {
        self.shared.give_back(None, refunds);
    }

    /// Like [`RedisStore::refund`], by a clock of the caller's.
    pub fn refund_at<'a>(&self, now: Timestamp, refunds: impl IntoIterator<Item = Refund<'a>>) {
        self.shared.give_back(Some(now), refunds);
    }

    /// Gives back what charges were too much, soon; nobody waits for it.
    pub fn correct<'a>(&self, charges: impl IntoIterator<Item = Refund<'a>>) {
        self.lessen(None, charges);
    }

    /// Like [`RedisStore::correct`], by a clock of the caller's.
    pub fn correct_at<'a>(&self, now: Timestamp, charges: impl IntoIterator<Item = Refund<'a>>) {
        self.lessen(Some(now), charges);
    }

    /// Charges what was too little, soon; nobody waits for it, nor is told whether it fitted.
    pub fn charge(&self, check: &Check<'_>) {
        self.take(None, check);
    }

    /// Like [`RedisStore::charge`], by a clock of the caller's.
    pub fn charge_at(&self, now: Timestamp, check: &Check<'_>) {
        self.take(Some(now), check);
    }

    fn take(&self, clock: Option<Timestamp>, check: &Check<'_>) {
        if self.enqueue(clock, &[*check], (false, true)).is_err() {
            self.shared.stats.refunds_lost.add(1);
        }
    }

    fn lessen<'a>(&self, clock: Option<Timestamp>, charges: impl IntoIterator<Item = Refund<'a>>) {
        for Refund { limit, key, ticket } in charges {
            if let Some(block) = question::settle_block(limit, ticket) {
                let shared = &self.shared;
                shared.give(clock, shared.about(limit, key, &block), None);
            }
        }
    }

    /// Renews what concurrency limits have lent, soon; nobody waits for it.
    pub fn renew<'a>(&self, slots: impl IntoIterator<Item = Refund<'a>>) {
        self.prolong(None, slots);
    }

    /// Like [`RedisStore::renew`], by a clock of the caller's.
    pub fn renew_at<'a>(&self, now: Timestamp, slots: impl IntoIterator<Item = Refund<'a>>) {
        self.prolong(Some(now), slots);
    }

    /// Forgets one counter. Was there anything? Ids that have been charged stay remembered.
    ///
    /// # Errors
    /// When Redis did not say that it is gone.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        let (answer, told) = oneshot::channel();
        let block = question::forget_block();
        let shared = &self.shared;
        shared.give(None, shared.about(limit, key, &block), Some(answer));
        match told.await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(1 | 2)) => Ok(true),
            Ok(Ok(_)) => Err(StoreError::Refused("it may not be removed".into())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Down),
        }
    }

    /// Waits until everything that was asked is answered and every refund is sent, for the settings' `timeout` at most:
    /// the last thing a draining worker does.
    pub async fn settle(&self) {
        let settled = async {
            loop {
                let quiet = self.shared.quiet.notified();
                if self.shared.is_quiet() {
                    return;
                }
                quiet.await;
            }
        };
        let _ = tokio::time::timeout(self.shared.timeout, settled).await;
    }

    /// Is Redis asked at present?
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.shared.health.is_up()
    }

    /// What has been done so far. Other threads may keep and read it.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        self.shared.stats.clone()
    }

    async fn ask(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Half, StoreError> {
        if checks.is_empty() {
            let (at, measured) = (clock.unwrap_or_else(clock::wall), Default::default());
            return Ok(Half::whole(at, measured));
        }
        let (number, receiver) = self.enqueue(clock, checks, (refused, false))?;
        let mut waiting = Waiting {
            store: self,
            checks,
            clock,
            number,
            receiver,
            done: refused,
        };
        let told = (&mut waiting.receiver).await;
        waiting.done = true;
        match told {
            Ok(Ok((at, mut measured))) => {
                measured.truncate(checks.len());
                Ok(Half::whole(at, measured))
            }
            Ok(Err(Wrong::Store(error))) => Err(error),
            Ok(Err(Wrong::Limit { index, reason })) => Err(match checks.get(index) {
                Some(check) if reason.starts_with("CLOCK") => StoreError::Clock {
                    limit: check.limit.name.clone(),
                },
                _ if reply::server_wide(&reason) => StoreError::Refused(reason),
                Some(check) => StoreError::Answer {
                    limit: check.limit.name.clone(),
                    reason,
                },
                None => StoreError::Protocol("an error of a limit not asked about"),
            }),
            // The lane ended with the worker.
            Err(_) => Err(StoreError::Down),
        }
    }

    fn enqueue(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        (refused, kept): (bool, bool),
    ) -> Result<(u64, oneshot::Receiver<reply::Told>), StoreError> {
        let shared = &*self.shared;
        if shared.health.is_down() {
            shared.stats.down.add(1);
            return Err(StoreError::Down);
        }
        if checks.len() + usize::from(refused) > usize::from(u8::MAX) {
            return Err(StoreError::TooMany(checks.len()));
        }
        let mut waiting = shared.decisions.borrow_mut();
        if waiting.len() >= MOST_WAITING {
            shared.stats.overloaded.add(1);
            return Err(StoreError::Overloaded);
        }
        let mut question = Question::default();
        let groups = beside::groups(checks);
        for (check, group) in checks.iter().zip(groups) {
            question.beside(group);
            question.check(&shared.prefix_of(check.limit), check, clock);
        }
        if let Some(first) = checks.first().filter(|_| refused) {
            let prefix = shared.prefix_of(first.limit);
            question.push(&prefix, first.key, &wire::refused());
        }
        let (answer, receiver) = oneshot::channel();
        let number = shared.asked.get();
        shared.asked.set(number.wrapping_add(1));
        waiting.push_back(Asked {
            number,
            question,
            clock,
            arrived: Instant::now(),
            kept,
            answer,
        });
        shared.wake();
        Ok((number, receiver))
    }

    fn prolong<'a>(&self, clock: Option<Timestamp>, slots: impl IntoIterator<Item = Refund<'a>>) {
        for slot in slots {
            if let Some(block) = question::renew_block(slot.limit, slot.ticket) {
                let shared = &self.shared;
                shared.give(clock, shared.about(slot.limit, slot.key, &block), None);
            }
        }
    }
}

impl Shared {
    fn give_back<'a>(
        &self,
        clock: Option<Timestamp>,
        refunds: impl IntoIterator<Item = Refund<'a>>,
    ) {
        for Refund { limit, key, ticket } in refunds {
            if let Some(block) = question::refund_block(limit, ticket) {
                let mut question = Question::default();
                question.refund(&self.prefix_of(limit), key, &block, ticket);
                self.give(clock, question, None);
            }
        }
    }

    /// What is to be done to one counter.
    fn about(&self, limit: &Limit, key: &[u8], block: &[u8]) -> Question {
        let mut question = Question::default();
        question.push(&self.prefix_of(limit), key, block);
        question
    }

    /// Hands over what is gathered with refunds.
    fn give(
        &self,
        clock: Option<Timestamp>,
        question: Question,
        answer: Option<oneshot::Sender<Result<u8, StoreError>>>,
    ) {
        let mut waiting = self.refunds.borrow_mut();
        if self.health.is_down() || waiting.len() >= MOST_WAITING {
            return self.stats.refunds_lost.add(1);
        }
        waiting.push_back(Returned {
            question,
            clock,
            answer,
        });
        self.wake();
    }

    /// Where the limit's counters live, built the first time it is asked for. A name costs its length for good; there
    /// are as many as the file has ever had.
    fn prefix_of(&self, limit: &Limit) -> Rc<[u8]> {
        self.prefixes
            .borrow_mut()
            .entry(limit.id)
            .or_insert_with(|| layout::key_prefix(&self.prefix, limit).into())
            .clone()
    }

    fn is_quiet(&self) -> bool {
        self.busy.get() == 0
            && self.decisions.borrow().is_empty()
            && self.refunds.borrow().is_empty()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("target", &self.shared.target)
            .field("health", &self.shared.health)
            .finish_non_exhaustive()
    }
}
