//! Decisions gather while the connections are busy and go together.
//!
//! A worker has two lanes, each with at most one call under way. A lone request goes at once; a lane that comes free
//! takes everything that waits, up to [`MOST_DECISIONS`], in one call. The lanes run in tasks of their own: a request
//! that is dropped abandons its answer, never a connection in mid-reply.
//!
//! Nobody waits longer than the store's `timeout`, waiting for a lane included, though no request has a timer: a call's
//! deadline is that of its oldest decision, and whoever waits behind it came later.

use super::cluster::Route;
use super::node::Shared;
use super::owed::{Debt, Returned};
use super::pool::Connection;
use super::question::{self, Question};
use super::reply::{self, Told, Wrong};
use crate::clock::Timestamp;
use crate::store::error::StoreError;
use crate::telemetry::metrics::{Operation, Outcome};
use std::rc::Rc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Decisions or refunds in one call. Redis does nothing else meanwhile: 64 take it a quarter of a millisecond.
pub(super) const MOST_DECISIONS: usize = 64;
/// Counters in one call, unless a single request has more.
const MOST_LIMITS: usize = 256;
/// Decisions that wait; one more is turned away at once. Refunds likewise.
pub(super) const MOST_WAITING: usize = 4096;

/// A request that waits for its decision.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) arrived: Instant,
    /// It is decided although nobody waits for it.
    pub(super) kept: Option<Debt>,
    pub(super) route: Route,
    pub(super) answer: oneshot::Sender<Told>,
}

/// Serves whatever waits, until the worker ends.
pub(super) async fn lane(shared: Rc<Shared>) {
    loop {
        shared.work.notified().await;
        shared.woken.set(false);
        shared.busy.set(shared.busy.get() + 1);
        shared.serve().await;
        shared.busy.set(shared.busy.get() - 1);
        shared.quiet.notify_waiters();
    }
}

impl Shared {
    /// Wakes a lane, if one sleeps and none is awake already.
    pub(super) fn wake(&self) {
        if !self.woken.replace(true) {
            self.work.notify_one();
        }
    }

    /// Takes a connection and keeps it for as long as there is work.
    async fn serve(&self) {
        let era = self.health.era();
        let Some(oldest) = self.oldest() else {
            return;
        };
        let taken = timeout_at(oldest + self.timeout, self.connections.take()).await;
        let taken = taken.unwrap_or_else(|_| {
            let late = || {
                let reason = format!("no connection within {:?}", self.timeout);
                StoreError::Unreachable(reason.into())
            };
            Err(self.connections.why_not().unwrap_or_else(late))
        });
        let mut connection = match taken {
            Ok(connection) => connection,
            // The other lane has one, so Redis is there; that lane takes what waits.
            Err(_) if self.serving.get() > 0 => return,
            Err(error) => return self.fall(era, &error),
        };
        self.serving.set(self.serving.get() + 1);
        if let Err((era, error)) = self.serve_with(&mut connection).await {
            connection.condemn();
            self.fall(era, &error);
        }
        self.serving.set(self.serving.get() - 1);
    }

    /// Call after call until nothing waits, or one fails; then also the era in which that one began.
    async fn serve_with(&self, connection: &mut Connection) -> Result<(), (u64, StoreError)> {
        loop {
            let era = self.health.era();
            if connection.is_dead() {
                // Another has to be taken; what was under way on this one is answered.
                self.wake();
                return Ok(());
            }
            let (decisions, refunds) = (self.next_decisions(), self.next_owed());
            if decisions.is_empty() && refunds.is_empty() {
                return Ok(());
            }
            let mut done = Ok(());
            if !decisions.is_empty() {
                done = self.decide_all(connection, decisions).await;
            }
            if !refunds.is_empty() && done.is_ok() {
                done = self.refund_all(connection, refunds).await;
            } else {
                // Not sent.
                refunds.into_iter().rev().for_each(|one| self.put_back(one));
            }
            if let Err(error) = done {
                self.stats.failures.add(1);
                if matches!(error, StoreError::Timeout { .. }) {
                    self.stats.timeouts.add(1);
                }
                return Err((era, error));
            }
        }
    }

    /// Since when the next piece of work waits.
    fn oldest(&self) -> Option<Instant> {
        match self.decisions.borrow().front() {
            Some(asked) => Some(asked.arrived),
            None => (!self.owed.is_empty() && !self.health.is_down()).then(Instant::now),
        }
    }

    /// What goes into the next call: of one clock, and only what somebody still waits for. A decision that has waited
    /// so long that hardly any of its time is left is turned away: its call would end too early for all others in it,
    /// and would look like a store that does not answer.
    fn next_decisions(&self) -> Vec<Asked> {
        let mut waiting = self.decisions.borrow_mut();
        let mut batch: Vec<Asked> = Vec::with_capacity(waiting.len().min(MOST_DECISIONS));
        let mut limits = 0;
        let too_old = match waiting.is_empty() {
            true => None,
            false => Instant::now().checked_sub(self.timeout / 4 * 3),
        };
        while let Some(next) = waiting.front() {
            let fits = batch.len() < MOST_DECISIONS
                && (batch.is_empty() || limits + next.question.limits() <= MOST_LIMITS)
                && batch.first().is_none_or(|first| first.clock == next.clock);
            if !fits {
                break;
            }
            let Some(next) = waiting.pop_front() else {
                break;
            };
            if next.answer.is_closed() && next.kept.is_none() {
                self.leavers.forget(next.number);
                continue;
            }
            if too_old.is_some_and(|limit| next.arrived < limit) {
                if next.kept.is_some() {
                    // It does not mind, but goes behind those who do.
                    let arrived = Instant::now();
                    waiting.push_back(Asked { arrived, ..next });
                    continue;
                }
                self.stats.overloaded.add(1);
                self.tell(next, Err(Wrong::Store(StoreError::Overloaded)));
                continue;
            }
            limits += next.question.limits();
            batch.push(next);
        }
        batch
    }

    /// One call for all of `batch`; each is told its own answer, or all of them what went wrong.
    async fn decide_all(
        &self,
        connection: &mut Connection,
        batch: Vec<Asked>,
    ) -> Result<(), StoreError> {
        if let Some(member) = &self.member {
            return self.decide_slots(member, connection, batch).await;
        }
        let Some(first) = batch.first() else {
            return Ok(());
        };
        let deadline = first.arrived + self.timeout;
        let command = question::decide(first.clock, batch.iter().map(|asked| &asked.question));
        self.stats.sent(batch.len());
        let answer = timeout_at(deadline, connection.call(&command)).await;
        let answer = answer.unwrap_or(Err(self.late()));
        self.decided(batch, answer)
    }

    /// Tells those in one call what has become of it. The error is the server's, if it has one.
    pub(super) fn decided(
        &self,
        batch: Vec<Asked>,
        answer: Result<Vec<u8>, StoreError>,
    ) -> Result<(), StoreError> {
        let told = answer.and_then(|bytes| {
            reply::read(&bytes, batch.iter().map(|asked| asked.question.limits()))
        });
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                for asked in batch {
                    self.owe_slots(&asked.question, asked.route, &error);
                    self.forsake(asked, &error, true);
                }
                return Err(error);
            }
        };
        let mut trouble = Ok(());
        for (asked, told) in batch.into_iter().zip(told) {
            if asked.kept.is_some() {
                let outcome = match &told {
                    Ok(_) => Outcome::Ok,
                    Err(_) => Outcome::Lost,
                };
                let took = asked.arrived.elapsed();
                self.stats.owed(Operation::Settle, outcome, took);
            }
            match &told {
                Ok(_) => self.stats.decisions.add(1),
                Err(Wrong::Limit { reason, .. }) => {
                    self.stats.errors.add(1);
                    if reply::server_wide(reason) {
                        trouble = Err(StoreError::Refused(reason.clone()));
                    }
                }
                Err(Wrong::Store(_)) => self.stats.errors.add(1),
            }
            self.tell(asked, told);
        }
        trouble
    }

    /// One call for all of `batch`. Nobody waits for it.
    pub(super) async fn refund_all(
        &self,
        connection: &mut Connection,
        mut batch: Vec<Returned>,
    ) -> Result<(), StoreError> {
        if let Some(member) = &self.member {
            return self.refund_slots(member, connection, batch).await;
        }
        self.mark(&mut batch);
        let command = self.call_of(&batch);
        let sent = Instant::now();
        let answer = timeout_at(sent + self.timeout, connection.call(&command))
            .await
            .unwrap_or(Err(self.late()));
        self.refunded(batch, (answer, sent.elapsed()))
    }

    pub(super) fn late(&self) -> StoreError {
        StoreError::Timeout {
            after: self.timeout,
        }
    }
}
