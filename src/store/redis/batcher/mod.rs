//! Decisions are collected while the connections are busy, and are sent together.
//!
//! A worker has two lanes for each node, each with at most one current call. A lone request is sent at once. A free
//! lane takes all waiting decisions, up to [`MOST_IN_CALL`](super::MOST_IN_CALL), in one call. While the server is far
//! away, more lanes join the two (`call_window`), as long as decisions wait. All lanes share the worker's connections,
//! so that calls follow each other without a wait for answers. The lanes run in separate tasks: a dropped request
//! abandons its answer, never a connection in mid-reply.
//!
//! A late or lost call fails its own decisions. The server counts as unavailable only when it is silent: when it
//! answers no call, on any connection, for a `timeout` after the call. A decision that waited too long in this process
//! is no evidence about the server.
//!
//! In: entries of a queue. Out: calls, their answers given to the requests that wait.
//!
//! ```text
//! call_timer  the deadlines of calls
//! slot_calls  one call for each slot
//! ```

pub(super) mod call_timer;
mod slot_calls;

use super::cluster::router::Router;
use super::link::connection::{KeptConnection, RedisConnection};
use super::node::Node;
use super::queue::call_window::{CallStart, NEAR};
use super::queue::pending_refunds::CallResult;
use crate::clock;
use crate::store::error::StoreError;
use bb8_redis::redis::cmd;
use call_timer::{CallTimer, LOOK};
use slot_calls::{QueuedCall, by_slot};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The further attempts, of the same time each, for updates that a server must know before it is used.
const MORE: u32 = 5;

/// The node and the queues that a lane works for.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) node: Rc<Node>,
    /// The router of redirected calls, if the node is a master of a cluster.
    pub(super) router: Option<Weak<Router>>,
}

/// The state of a lane between two batches of work.
#[derive(Default)]
struct KeptByLane {
    /// The last connection, which is as good as any while it lives.
    last: Option<KeptConnection>,
    timer: CallTimer,
}

/// The failure of a call that leaves its connection without use.
struct CallFailure {
    /// The era in which the call began.
    era: u64,
    why: StoreError,
}

impl Lane {
    /// Serves the queues, until the worker ends.
    pub(super) async fn run(self) {
        let mut kept = KeptByLane::default();
        loop {
            self.node.lanes.woken().await;
            self.work_off(&mut kept).await;
        }
    }

    /// Starts one more lane whenever requested, until the worker ends.
    pub(super) async fn recruit(self) {
        loop {
            self.node.lanes.recruited().await;
            let lane = self.clone();
            tokio::task::spawn_local(async move {
                lane.node.lanes.joins();
                lane.work_off(&mut KeptByLane::default()).await;
            });
        }
    }

    /// Does the node answer that other nodes serve the slots of the call?
    pub(super) fn is_redirected(&self, reason: &str) -> bool {
        let router = self.router.as_ref().and_then(Weak::upgrade);
        router.is_some_and(|router| router.is_redirected(&self.node, reason))
    }

    async fn work_off(&self, kept: &mut KeptByLane) {
        self.node.lanes.begin();
        self.serve(kept).await;
        self.node.lanes.end();
    }

    /// Takes a connection and keeps it as long as there is work.
    async fn serve(&self, KeptByLane { last, timer }: &mut KeptByLane) {
        let node = &self.node;
        let era = node.health.era();
        let Some(oldest) = self.oldest() else {
            return;
        };
        let serving = &node.lanes.serving;
        let kept = last.take().and_then(KeptConnection::taken);
        let mut connection = match kept {
            Some(connection) => connection,
            None => match self.connection(oldest).await {
                Ok(connection) => connection,
                // Another lane has a connection, so that Redis is available; that lane takes the waiting work.
                Err(_) if serving.get() > 0 => return,
                Err(error) => return node.go_down(era, &error),
            },
        };
        serving.set(serving.get() + 1);
        if let Err(CallFailure { era, why }) = self.serve_with(&mut connection, timer).await {
            connection.condemn();
            match why {
                StoreError::Lost(_) => self.lose_connection(&why),
                why => node.go_down(era, &why),
            }
        }
        serving.set(serving.get() - 1);
        *last = Some(connection.kept());
    }

    /// The instant since which the oldest entry waits.
    fn oldest(&self) -> Option<Instant> {
        let node = &self.node;
        let has_updates = || !node.updates.is_empty() && !node.health.is_down();
        node.queue
            .oldest()
            .or_else(|| has_updates().then(clock::now))
    }

    /// A connection for the work that has been waiting since `oldest`. While the server answers on connections that are
    /// being made it counts as available, however long they take: a decision that has used up its time meanwhile is
    /// rejected.
    async fn connection(&self, oldest: Instant) -> Result<RedisConnection, StoreError> {
        let node = &self.node;
        let begun = clock::now();
        // A decision from just now has its whole time from then on. An older decision did not wait for a connection.
        let asked = begun
            .checked_sub(LOOK)
            .map_or(begun, |lately| oldest.max(lately));
        let mut taken = pin!(node.connections.take());
        loop {
            let heard = node.connections.signals.heard();
            let silent = heard.map_or(asked, |heard| heard.max(asked)) + node.context.timeout;
            if clock::now() >= silent {
                let late = || {
                    let reason = format!("no connection within {:?}", node.context.timeout);
                    StoreError::Unreachable(reason.into())
                };
                return Err(node.connections.why_not().unwrap_or_else(late));
            }
            let until = node.queue.expire().map_or(silent, |next| next.min(silent));
            if let Ok(taken) = timeout_at(until, taken.as_mut()).await {
                return taken;
            }
        }
    }

    /// Retires a connection, which took its calls with it. The lane that takes the next connection finds out whether
    /// the server is available. A new connection may lead to another server, whose losses are counted anew.
    fn lose_connection(&self, why: &StoreError) {
        let node = &self.node;
        tracing::debug!("a connection was lost: {why}");
        node.connections.distrust(why);
        node.context.stats.counters_changed();
        node.lanes.wake();
    }

    /// Makes call after call until the queue is empty, or one fails.
    async fn serve_with(
        &self,
        connection: &mut RedisConnection,
        timer: &mut CallTimer,
    ) -> Result<(), CallFailure> {
        let Node {
            health,
            lanes,
            queue,
            updates,
            ..
        } = &*self.node;
        loop {
            let era = health.era();
            if lanes.are_too_many() || self.node.connections.signals.is_untold() {
                // The other lanes take the waiting work, or all of them once the master knows the slots.
                return Ok(());
            }
            if connection.is_dead() {
                // Another connection has to be taken; all calls on this one are answered.
                lanes.wake();
                return Ok(());
            }
            let decisions = queue.next();
            let asks = !decisions.is_empty();
            if lanes.window.calls() > NEAR && !queue.is_empty() {
                lanes.wake();
            }
            let mut done = Ok(());
            let mut start = lanes.window.send(lanes.busy());
            // A decision that another node has redirected may be older than the decisions that waited here.
            if let Some(oldest) = decisions.iter().map(|decision| decision.arrived).min() {
                let deadline = oldest + self.node.context.timeout;
                done = self.call(connection, timer, deadline, decisions).await;
            }
            // Where no decision was answered, the next lane takes the updates.
            let is_due = || !health.is_down() && !self.node.connections.signals.is_untold();
            let batch = if done.is_ok() && is_due() {
                updates.next()
            } else {
                Vec::new()
            };
            if !asks && batch.is_empty() {
                return Ok(());
            }
            if !batch.is_empty() {
                start = lanes.window.send(lanes.busy());
                let deadline = clock::now() + self.node.context.timeout;
                done = self.call(connection, timer, deadline, batch).await;
            }
            match done {
                Ok(()) => lanes.window.answer(start),
                Err(why) => Box::pin(self.judge(connection, start, why))
                    .await
                    .map_err(|why| CallFailure { era, why })?,
            }
        }
    }

    /// Is the connection still usable after the failure of a call?
    #[cold]
    async fn judge(
        &self,
        connection: &mut RedisConnection,
        start: CallStart,
        why: StoreError,
    ) -> Result<(), StoreError> {
        let node = &self.node;
        node.context.stats.failures.add(1);
        let alive = match why {
            StoreError::Timeout { .. } => {
                node.context.stats.timeouts.add(1);
                self.is_alive(connection, start).await
            }
            why => Err(why),
        };
        alive.map_err(|why| match why {
            StoreError::Lost(why) if node.lanes.window.loses(start) => StoreError::Unreachable(why),
            why => why,
        })
    }

    /// Is the server silent, or only this connection? A call on it is late.
    ///
    /// A live server answers every command after all earlier ones, even if only by refusing it.
    async fn is_alive(
        &self,
        connection: &mut RedisConnection,
        start: CallStart,
    ) -> Result<(), StoreError> {
        let (node, window) = (&self.node, &self.node.lanes.window);
        window.misses();
        let until = window.patience(start);
        let ping = cmd("PING");
        let mut asked = pin!(connection.send(&ping));
        let answer = loop {
            if clock::now() >= until {
                break None;
            }
            let next = node.queue.expire().map_or(until, |next| next.min(until));
            tokio::select! {
                biased;
                answer = &mut asked => break Some(answer),
                () = sleep_until(next) => {}
            }
        };
        match answer {
            // Each call is late: a wait for the next one helps no request.
            _ if window.is_too_slow() => Err(node.late()),
            Some(Ok(_) | Err(StoreError::Refused(_))) => Ok(()),
            Some(Err(error)) => Err(error),
            None if window.lives_since(start) => {
                Err(StoreError::Lost("nothing arrives on it any more".into()))
            }
            None => Err(node.late()),
        }
    }

    /// Sends one call for all of `batch`, or in a cluster one for each slot, and takes over the replies. An error is
    /// returned if the server is the cause.
    async fn call<C: QueuedCall>(
        &self,
        connection: &mut RedisConnection,
        timer: &mut CallTimer,
        deadline: Instant,
        mut batch: Vec<C>,
    ) -> Result<(), StoreError> {
        let node = &*self.node;
        let sent = clock::now();
        let Some(router) = &self.router else {
            C::prepare(node, &mut batch);
            let command = C::command(node, &batch);
            let answer = timer.in_time(deadline, connection.call(&command)).await;
            let answer = answer.unwrap_or_else(|| Err(node.late()));
            let result = CallResult {
                answer,
                took: clock::now() - sent,
                is_outdated: connection.is_dead(),
            };
            return C::conclude(node, batch, result);
        };
        let mut batches = by_slot(batch);
        for batch in &mut batches {
            C::prepare(node, &mut batch.calls);
        }
        let sending = slot_calls::send(connection, node, &batches);
        let answers = timer.in_time(deadline, sending).await;
        let answers = answers
            .unwrap_or_else(|| Err(node.late()))
            .unwrap_or_else(|error| vec![Err(error); batches.len()]);
        let took = clock::now() - sent;
        let mut done = Ok(());
        for (batch, answer) in batches.into_iter().zip(answers) {
            if let Some(batch) = slot_calls::follow(node, router, batch.calls, &answer) {
                let result = CallResult {
                    answer,
                    took,
                    is_outdated: connection.is_dead(),
                };
                done = done.and(C::conclude(node, batch, result));
            }
        }
        done
    }

    /// Sends the pending updates before any check, after the return of Redis, within the time of a call.
    ///
    /// # Errors
    /// If Redis has not returned after all.
    pub(super) async fn pay(&self) -> Result<(), StoreError> {
        self.pay_within(self.node.context.timeout).await
    }

    /// Sends the pending updates in sequential calls, on one connection. No call begins after `most`, except calls with
    /// slots of requests in flight: a server that is used before it knows these slots admits too many requests. Calls
    /// with slots may take the same time again, a few times.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub(super) async fn pay_within(&self, most: Duration) -> Result<(), StoreError> {
        let node = &self.node;
        if node.updates.is_empty() {
            return Ok(());
        }
        let deadline = clock::now() + most;
        let taken = timeout_at(deadline, node.connections.take()).await;
        let mut connection = taken.map_err(|_| node.late())??;
        let mut timer = CallTimer::default();
        loop {
            let now = clock::now();
            if now >= deadline + most * MORE && node.updates.has_registrations() {
                return Err(node.late());
            }
            if now >= deadline && !node.updates.has_registrations() {
                break;
            }
            let batch = node.updates.next();
            if batch.is_empty() {
                break;
            }
            let ends = clock::now() + most;
            if let Err(why) = self.call(&mut connection, &mut timer, ends, batch).await {
                connection.condemn();
                return Err(why);
            }
        }
        Ok(())
    }
}
