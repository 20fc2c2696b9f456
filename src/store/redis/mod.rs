//! Counters in Redis, where all gateways share them: one script call decides all limits of a request.
//!
//! The store belongs to one worker and is used by no other: no lock, no wakeup of another thread. Redis' own clock
//! decides.
//!
//! In: checks. Out: answers of the scripts. Each folder may use only those above it. They are private: `pub(crate)` in
//! them reaches no further than this file.
//!
//! ```text
//! wire         what is asked of Redis, as bytes
//! link         the connections to one Redis: login, pool, answers, whether it is there
//! queue        decisions and updates that wait, until they are answered
//! node         one Redis: its queue, its connections, its health
//! cluster      counters over the masters of a cluster: slots, the map, redirections
//! batcher      decisions that gather and go together
//! changes      what operators have changed
//! watch        brings a node up, guards it, brings it up again; probes and the heartbeat
//! start        one worker's router, and the tasks that outlive every request
//! shared_keys  keys beside the counters, for certificates
//! cleanup      counters of a replay are removed
//! ```

mod batcher;
mod changes;
mod cleanup;
mod cluster;
mod link;
mod node;
mod queue;
mod shared_keys;
mod start;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use link::outage::missing_right;
pub use queue::stats::{Stats, StatsCounter};
pub use shared_keys::SharedKeys;
pub use watch::eviction::warn_of_eviction;
pub use watch::heartbeat::Presence;
pub use watch::probe::{ProbeOutcome, RedisReport, probe};
pub(in crate::store) use wire::question::random_slot;
pub use wire::slot::slot_of;

use super::answers::Answers;
use super::check::{Check, Intent};
use super::decider::Decider;
use super::decision::StoreDecision;
use super::error::StoreError;
use super::reservation::{Amendment, PendingRefund, RefundOutcome, Reservation};
use super::settings::{RedisTarget, StoreSettings};
use crate::clock::{self, Timestamp};
use crate::limit::Limit;
use crate::telemetry::metrics::StoreReach;
use cluster::router::Router;
use node::Tasks;
use queue::abandonment::AbandonedTicketHandler;
use queue::context::StoreContext;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wire::counter_update::{CounterUpdate, UpdateKind};
use wire::question::DecisionRequest;
use wire::slot::CallRoute;

/// Decisions or updates in one call. Redis does nothing else meanwhile: 64 of them take a quarter of a millisecond.
const MOST_IN_CALL: usize = 64;

/// The interval at which [`RedisStore::met`] checks whether Redis has answered for the first time.
const MEETS: Duration = Duration::from_millis(2);

/// The longest deadline of a decision. A longer one would be no deadline.
const LONGEST: Duration = Duration::from_secs(60);

/// The time for which an ending worker waits for an unavailable Redis, to send the pending updates.
const GRACE: Duration = Duration::from_secs(2);

/// One worker's handle to Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    router: Rc<Router>,
    context: Rc<StoreContext>,
    /// Replaces the server's clock.
    clock: Option<Timestamp>,
    _tasks: Rc<Tasks>,
}

impl RedisStore {
    /// Starts to connect and waits for nothing. Must be called in a worker's own runtime, where tasks need not be
    /// `Send`.
    #[must_use]
    pub fn new(target: &RedisTarget, settings: &StoreSettings) -> Self {
        let context = Rc::new(StoreContext::new(target, settings));
        let (router, tasks) = start::start(&context);
        Self {
            router,
            context,
            clock: None,
            _tasks: tasks,
        }
    }

    /// This store with a clock of the caller, which stays at `now`: for tests and replays. States then outlive their
    /// time by an hour, and no call is repeated.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self {
            clock: Some(now),
            ..self.clone()
        }
    }

    /// Decides all limits of one request. Takes no longer than the settings' `timeout`, apart from scheduling delays,
    /// and no time at all while Redis is unavailable.
    ///
    /// Dropping this future before it resolves discards the answer. A call that has not been sent by then charges
    /// nothing. A call that has been sent may charge: its slots, its places in queues and the charges that a limit
    /// refunds to leaving requests are given back.
    ///
    /// # Errors
    /// If Redis did not decide. It is then unknown which charges were made, except that [`StoreError::Down`],
    /// [`StoreError::Overloaded`] and [`StoreError::Answer`] charged nothing.
    pub async fn decide(&self, checks: &[Check<'_>]) -> Result<StoreDecision, StoreError> {
        let answers = self.measure(checks, Intent::Charge).await;
        let decided = answers.and_then(|mut answers| match answers.outage.take() {
            None => Ok(StoreDecision::by(checks, &mut answers)),
            // A decision needs the answers of all limits.
            Some(why) => {
                self.cancel(&answers.reservations(checks));
                Err(*why)
            }
        });
        if self.clock.is_some() && self.router.lone().is_none() {
            // Charges of a slot, if another slot refused, are given back before the next request is checked.
            self.settle().await;
        }
        decided
    }

    /// Measures all limits of one request.
    pub(super) async fn measure(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
    ) -> Result<Box<Answers>, StoreError> {
        let clock = self.clock;
        if checks.is_empty() {
            let at = clock.unwrap_or_else(clock::wall);
            return Ok(Box::new(Answers::measured(&[], Decider::Redis, at, [])));
        }
        let request = DecisionRequest {
            checks,
            clock,
            intent,
        };
        match self.router.lone() {
            Some(lone) => lone.node.ask(request, CallRoute::default()).await,
            // Boxed, since a request of a lone Redis needs no room for it.
            None => Box::pin(self.ask(request)).await,
        }
    }

    /// Measures all limits of one request by the instant `until`, which is earlier than a call's deadline.
    pub(super) async fn measure_until(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        until: Instant,
    ) -> Result<Box<Answers>, StoreError> {
        let after = self.context.timeout;
        let measured = timeout_at(until, self.measure(checks, intent)).await;
        measured.unwrap_or(Err(StoreError::Timeout { after }))
    }

    /// The longest time of a call.
    pub(super) fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Amends a charge, soon. No request waits for the amendment, and a charge that cannot be amended stays. A caller
    /// can wait for the outcome of a refund.
    pub fn amend(&self, reservation: &Reservation, amendment: Amendment) -> RefundOutcome {
        let (answer, outcome) = match amendment {
            Amendment::Refund | Amendment::Cancellation => {
                let (answer, receiver) = oneshot::channel();
                let outcome = RefundOutcome::Pending(PendingRefund(receiver));
                (Some(answer), outcome)
            }
            Amendment::Settlement(_) | Amendment::Renewal | Amendment::Registration => {
                (None, RefundOutcome::Lost)
            }
        };
        self.router
            .amend(self.clock, reservation, amendment, answer);
        outcome
    }

    /// Waits until a server needs the slots of requests in flight once more.
    pub(super) async fn registers(&self) {
        self.context.registration.notified().await;
    }

    /// Are shares of slots enforced anywhere, since a part of Redis has just returned?
    #[inline]
    pub(super) fn keeps_shares(&self) -> bool {
        self.context.shares.are_kept()
    }

    /// Is the share of this counter's slots enforced? If so, its node has just become available again.
    pub(super) fn keeps_share_of(&self, limit: &Limit, key: &[u8]) -> bool {
        match self.router.lone() {
            Some(lone) => lone.node.keeps_shares(),
            None => self.router.keeps_shares(slot_of(limit, key)),
        }
    }

    /// Periodic work: answered updates that no other server can lack any more are dropped, and the time of the shares
    /// ends.
    pub(super) fn tidy(&self) {
        self.context.shares.sweep();
        for handle in self.router.all() {
            handle.node.updates.forget_answered();
        }
    }

    /// Cancels charges of a request that is not forwarded.
    pub(super) fn cancel(&self, charged: &[Reservation]) {
        for reservation in charged {
            self.amend(reservation, Amendment::Cancellation);
        }
    }

    /// Deletes one counter, and ends the block of its key. Returns whether there was either. Ids that the counter has charged stay remembered.
    ///
    /// # Errors
    /// If Redis did not confirm the deletion.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        self.known().await?;
        let (answer, receiver) = oneshot::channel();
        let question = self.context.forget(limit, key);
        let update = CounterUpdate {
            clock: self.clock,
            answer: Some(answer),
            ..CounterUpdate::of(UpdateKind::Reset, limit, question)
        };
        self.router.update(limit, key, update);
        match receiver.await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(1 | 2)) => Ok(true),
            Ok(Ok(_)) => Err(StoreError::Refused(
                "the counter's key may not be deleted".into(),
            )),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Down),
        }
    }

    /// Passes to `handler` the places in queues of requests that leave before their decision. The first handler stays.
    pub(super) fn on_abandoned_ticket(&self, handler: AbandonedTicketHandler) {
        let _ = self.context.abandonments.tickets.set(handler);
    }

    /// Passes on a place in a queue, if there is a handler.
    pub(super) fn hand_over(&self, reservation: &Reservation) -> bool {
        self.context.abandonments.hand_over(self.clock, reservation)
    }

    /// Waits until every decision is answered and every update is sent: the last step of a draining worker. Waits for
    /// at most the settings' `timeout`, or two seconds if Redis is unavailable meanwhile.
    pub async fn settle(&self) {
        let mut settled = std::pin::pin!(self.settled());
        let in_time = timeout(self.context.timeout, &mut settled).await;
        if in_time.is_err() && !self.is_paid() {
            let _ = timeout(GRACE, settled).await;
        }
    }

    /// Waits until a server that outlives a replaced master has the last updates: for a moment, and at most for three
    /// seconds if none has.
    pub(super) async fn outlive_master(&self) {
        if let Some(lone) = self.router.lone() {
            // A new master may be slow to take the updates that it lacks.
            let _ = timeout(GRACE * 2, watch::replication::outlive_master(&lone.node)).await;
        }
    }

    /// Does nothing wait for the return of Redis?
    fn is_paid(&self) -> bool {
        let mut all = self.router.all().into_iter();
        all.all(|handle| handle.node.updates.is_empty())
    }

    /// Is Redis currently available? For a cluster: every master.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.router.is_up()
    }

    /// Waits until Redis is available: until it has accepted a login, the scripts and a trial decision. For a cluster:
    /// every master.
    pub async fn met(&self) {
        while !self.is_up() {
            sleep(MEETS).await;
        }
    }

    /// Is the node that serves this counter currently available?
    pub(super) fn serves(&self, limit: &Limit, key: &[u8]) -> bool {
        match self.router.lone() {
            Some(lone) => lone.is_up(),
            None => self.router.serves(slot_of(limit, key)),
        }
    }

    /// Can the node that counts the gateways currently return their number? It can even if it refuses a command of the
    /// limits' scripts.
    pub(super) fn serves_everyone(&self) -> bool {
        let slot = cluster::slot_of_everyone();
        self.router.serves(slot) || self.router.lacks_rights(slot)
    }

    /// Notes that a counter can be neither read nor written: either its key holds another value, or a command is
    /// refused. Its node is tried; if nothing is refused, `line` is logged about the key.
    pub(super) fn suspect(&self, limit: &Limit, key: &[u8], line: impl FnOnce() -> String) {
        self.router.suspect(limit, key, line);
    }

    /// The currently available part of Redis.
    #[must_use]
    pub fn reached(&self) -> StoreReach {
        self.router.reach()
    }

    /// May a counter of this limit be full of charges that are given back at once, since another slot refuses their
    /// request?
    pub(super) fn may_pass(&self, limit: &Limit) -> bool {
        let is_separate = limit.with.is_none() || limit.is_asked_with_history();
        self.router.lone().is_none() && is_separate
    }

    /// Counters of this store's work so far. Other threads may keep and read them.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.context.stats)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("target", &self.context.target)
            .field("is_up", &self.is_up())
            .finish_non_exhaustive()
    }
}
