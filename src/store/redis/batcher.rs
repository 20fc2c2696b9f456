//! Decisions gather while the connections are busy and go together.
//!
//! A worker has two lanes, each with at most one call under way. A lone request goes at once; a lane that comes free
//! takes everything that waits, up to [`MOST_DECISIONS`], in one call. While the server is far others join them
//! (`pace`), for as long as something waits; all share the worker's connections, so that calls follow each other without
//! waiting for answers. The lanes run in tasks of their own: a request that is dropped abandons its answer, never a
//! connection in mid-reply.
//!
//! Nobody waits longer than the store's `timeout`, waiting for a lane included, though no request has a timer: a call's
//! deadline is that of its oldest decision, and whoever waits behind it came later.
//!
//! A call that is late or lost fails those in it. The server is away only when it is silent: when it answers nobody, on
//! whatever connection, for a `timeout` from when it was asked. What waited too long here says nothing of the server.

use super::call_window::{CallStart, NEAR};
use super::cluster::Route;
use super::node::NodeCore;
use super::pending_refunds::{CounterUpdate, Surcharge};
use super::pool::Connection;
use super::question::{self, Question};
use super::reply::{self, ReplyError, ScriptReply};
use crate::clock::Timestamp;
use crate::store::error::StoreError;
use crate::telemetry::metrics::{CallOutcome, Operation};
use bb8_redis::redis::cmd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Decisions or refunds in one call. Redis does nothing else meanwhile: 64 take it a quarter of a millisecond.
pub(super) const MOST_DECISIONS: usize = 64;
/// Counters in one call, unless a single request has more.
const MOST_LIMITS: usize = 256;
/// Decisions that wait; one more is turned away at once. Refunds likewise.
pub(super) const MOST_WAITING: usize = 4096;

/// A request that waits for its decision.
#[derive(Debug)]
pub(super) struct QueuedDecision {
    pub(super) number: u64,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) arrived: Instant,
    /// It is decided although nobody waits for it.
    pub(super) kept: Option<Surcharge>,
    pub(super) route: Route,
    pub(super) answer: oneshot::Sender<ScriptReply>,
}

/// A look at what has arrived.
const LOOK: Duration = Duration::from_millis(1);

/// What comes by then. A worker that was late itself looks at what has come meanwhile before it says that nothing has.
pub(super) async fn in_time<T>(deadline: Instant, answer: impl Future<Output = T>) -> Option<T> {
    let mut answer = pin!(answer);
    match timeout_at(deadline, answer.as_mut()).await {
        Ok(answer) => Some(answer),
        Err(_) => timeout(LOOK, answer).await.ok(),
    }
}

/// Serves whatever waits, until the worker ends.
pub(super) async fn lane(shared: Rc<NodeCore>) {
    loop {
        shared.work.notified().await;
        shared.woken.set(false);
        shared.work_off().await;
    }
}

/// Serves what waits, and ends.
pub(super) async fn one_more(shared: Rc<NodeCore>) {
    shared.joined.set(false);
    shared.work_off().await;
}

impl NodeCore {
    async fn work_off(&self) {
        self.busy.set(self.busy.get() + 1);
        self.serve().await;
        self.busy.set(self.busy.get() - 1);
        self.quiet.notify_waiters();
    }

    /// Takes a connection and keeps it for as long as there is work.
    async fn serve(&self) {
        let era = self.health.era();
        let Some(oldest) = self.oldest() else {
            return;
        };
        let mut connection = match self.connection(oldest).await {
            Ok(connection) => connection,
            // The other lane has one, so Redis is there; that lane takes what waits.
            Err(_) if self.serving.get() > 0 => return,
            Err(error) => return self.fall(era, &error),
        };
        self.serving.set(self.serving.get() + 1);
        if let Err((era, error)) = self.serve_with(&mut connection).await {
            connection.condemn();
            match error {
                StoreError::Lost(_) => self.lost(&error),
                error => self.fall(era, &error),
            }
        }
        self.serving.set(self.serving.get() - 1);
    }

    /// A connection for what waits since `oldest`. While the server answers those that are being made it is there, however long
    /// that takes: whoever has waited for all of their time meanwhile is turned away.
    async fn connection(&self, oldest: Instant) -> Result<Connection, StoreError> {
        let begun = Instant::now();
        // Asked just now, it is given its time from then; what has waited longer has not waited for a connection.
        let asked = begun
            .checked_sub(LOOK)
            .map_or(begun, |lately| oldest.max(lately));
        let mut taken = pin!(self.connections.take());
        loop {
            let heard = self.connections.signals.heard();
            let silent = heard.map_or(asked, |heard| heard.max(asked)) + self.timeout;
            if Instant::now() >= silent {
                let late = || {
                    let reason = format!("no connection within {:?}", self.timeout);
                    StoreError::Unreachable(reason.into())
                };
                return Err(self.connections.why_not().unwrap_or_else(late));
            }
            let until = self.expire().map_or(silent, |next| next.min(silent));
            if let Ok(taken) = timeout_at(until, taken.as_mut()).await {
                return taken;
            }
        }
    }

    /// One connection is of no use any more, and took what was under way on it. Whether the server is there is found out by
    /// whoever takes the next; it may be another server by now, which counts anew.
    fn lost(&self, why: &StoreError) {
        tracing::debug!("one connection less: {why}");
        self.connections.distrust(why);
        self.stats.counters_changed();
        self.wake();
    }

    /// Call after call until nothing waits, or one fails; then also the era in which that one began.
    async fn serve_with(&self, connection: &mut Connection) -> Result<(), (u64, StoreError)> {
        loop {
            let era = self.health.era();
            if self.busy.get() > self.pace.calls() {
                // The others take what waits.
                return Ok(());
            }
            if connection.is_dead() {
                // Another has to be taken; what was under way on this one is answered.
                self.wake();
                return Ok(());
            }
            let decisions = self.next_decisions();
            let asks = !decisions.is_empty();
            if self.pace.calls() > NEAR && !self.decisions.borrow().is_empty() {
                self.wake();
            }
            let mut done = Ok(());
            let mut sent = self.pace.send(self.busy.get());
            if asks {
                done = self.decide_all(connection, decisions).await;
            }
            // Where no decision was answered the next lane takes what is owed.
            let owed = if done.is_ok() {
                self.next_owed()
            } else {
                Vec::new()
            };
            if !asks && owed.is_empty() {
                return Ok(());
            }
            if !owed.is_empty() {
                sent = self.pace.send(self.busy.get());
                done = self.refund_all(connection, owed).await;
            }
            match done {
                Ok(()) => self.pace.answer(sent),
                Err(error) => {
                    self.stats.failures.add(1);
                    let alive = match error {
                        StoreError::Timeout { .. } => {
                            self.stats.timeouts.add(1);
                            Box::pin(self.is_alive(connection, sent)).await
                        }
                        error => Err(error),
                    };
                    alive.map_err(|error| match error {
                        StoreError::Lost(why) if self.pace.loses(sent) => {
                            (era, StoreError::Unreachable(why))
                        }
                        error => (era, error),
                    })?;
                }
            }
        }
    }

    /// A call that was `sent` on this connection is late. Is the server silent, or the connection?
    ///
    /// Asked anything, a server that lives answers that behind all it was asked before, be it that it may not be asked.
    #[cold]
    async fn is_alive(
        &self,
        connection: &mut Connection,
        sent: CallStart,
    ) -> Result<(), StoreError> {
        self.pace.misses();
        let until = self.pace.patience(sent);
        let ping = cmd("PING");
        let mut asked = pin!(connection.send(&ping));
        let told = loop {
            if Instant::now() >= until {
                break None;
            }
            let next = self.expire().map_or(until, |next| next.min(until));
            tokio::select! {
                biased;
                told = &mut asked => break Some(told),
                () = sleep_until(next) => {}
            }
        };
        match told {
            // Each call is late: nobody is helped by waiting for the next.
            _ if self.pace.is_too_slow() => Err(self.late()),
            Some(Ok(_) | Err(StoreError::Refused(_))) => Ok(()),
            Some(Err(error)) => Err(error),
            None if self.pace.lives_since(sent) => {
                Err(StoreError::Lost("nothing arrives on it any more".into()))
            }
            None => Err(self.late()),
        }
    }

    /// Turns away what has waited for all of its time, and says when the next has.
    fn expire(&self) -> Option<Instant> {
        loop {
            let ends = self.decisions.borrow().front()?.arrived + self.timeout;
            if ends > Instant::now() {
                return Some(ends);
            }
            let next = self.decisions.borrow_mut().pop_front()?;
            self.turn_away(next);
        }
    }

    /// Has waited too long here, which is nobody's fault but ours.
    fn turn_away(&self, asked: QueuedDecision) {
        self.stats.overloaded.add(1);
        self.forsake(asked, &StoreError::Overloaded, false);
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
    fn next_decisions(&self) -> Vec<QueuedDecision> {
        let mut waiting = self.decisions.borrow_mut();
        let mut batch: Vec<QueuedDecision> = Vec::with_capacity(waiting.len().min(MOST_DECISIONS));
        let mut limits = 0;
        let too_old = if waiting.is_empty() {
            None
        } else {
            Instant::now().checked_sub(self.pace.longest_wait())
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
                    waiting.push_back(QueuedDecision { arrived, ..next });
                    continue;
                }
                self.turn_away(next);
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
        batch: Vec<QueuedDecision>,
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
        let answer = in_time(deadline, connection.call(&command)).await;
        let answer = answer.unwrap_or(Err(self.late()));
        self.decided(batch, answer)
    }

    /// Tells those in one call what has become of it. The error is the server's, if it has one.
    pub(super) fn decided(
        &self,
        batch: Vec<QueuedDecision>,
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
                    Ok(_) => CallOutcome::Ok,
                    Err(_) => CallOutcome::Lost,
                };
                let took = asked.arrived.elapsed();
                self.stats.owed(Operation::Settle, outcome, took);
            }
            match &told {
                Ok(_) => self.stats.decisions.add(1),
                Err(ReplyError::Limit { reason, .. }) => {
                    self.stats.errors.add(1);
                    if reply::server_wide(reason) {
                        trouble = Err(StoreError::Refused(reason.clone()));
                    }
                }
                Err(ReplyError::Store(_)) => self.stats.errors.add(1),
            }
            self.tell(asked, told);
        }
        trouble
    }

    /// One call for all of `batch`. Nobody waits for it.
    pub(super) async fn refund_all(
        &self,
        connection: &mut Connection,
        mut batch: Vec<CounterUpdate>,
    ) -> Result<(), StoreError> {
        if let Some(member) = &self.member {
            return self.refund_slots(member, connection, batch).await;
        }
        self.mark(&mut batch);
        let command = self.call_of(&batch);
        let sent = Instant::now();
        let answer = in_time(sent + self.timeout, connection.call(&command)).await;
        let answer = answer.unwrap_or(Err(self.late()));
        self.refunded(batch, (answer, sent.elapsed()))
    }

    pub(super) fn late(&self) -> StoreError {
        StoreError::Timeout {
            after: self.timeout,
        }
    }
}
