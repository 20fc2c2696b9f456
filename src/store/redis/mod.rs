//! Counters in Redis, where all gateways share them: one script call decides all limits of a request.
//!
//! The store belongs to one worker and is used by no other: no lock, no thread is woken. Redis' own clock decides.
//!
//! In: checks. Out: answers of the scripts. Folders stand on those above them. They are private: `pub(crate)` in them
//! reaches no further than this file.
//!
//! ```text
//! wire         what is asked of Redis, as bytes
//! link         the connections to one Redis: login, pool, answers, whether it is there
//! queue        decisions and updates that wait, until they are answered
//! node         one Redis: its queue, its connections, its health
//! cluster      counters over the masters of a cluster: slots, the map, redirections
//! batcher      decisions that gather and go together
//! watch        brings a node up, guards it, brings it up again; probes and the heartbeat
//! start        one worker's router, and the tasks that outlive every request
//! shared_keys  keys beside the counters, for certificates
//! cleanup      counters of a replay are removed
//! ```

mod batcher;
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
use wire::question::{DecisionRequest, forget_block};
use wire::slot::CallRoute;

/// Decisions or updates in one call. Redis does nothing else meanwhile: 64 of them take a quarter of a millisecond.
const MOST_IN_CALL: usize = 64;

/// Time between two looks of [`RedisStore::met`] whether Redis has answered for the first time.
const MEETS: Duration = Duration::from_millis(2);

/// Longest deadline of a decision. A longer one would be no deadline.
const LONGEST: Duration = Duration::from_secs(60);

/// Time for which a worker that ends waits for a Redis that is away, to send the pending updates.
const GRACE: Duration = Duration::from_secs(2);

/// One worker's way to Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    router: Rc<Router>,
    context: Rc<StoreContext>,
    /// Replaces the server's clock.
    clock: Option<Timestamp>,
    _tasks: Rc<Tasks>,
}

impl RedisStore {
    /// Starts to connect and waits for nothing. To be called in a worker's own runtime, where tasks need not be `Send`.
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

    /// This store by a clock of the caller's, which stands still at `now`: for tests and replays. States then outlive
    /// their time by an hour, and no call is repeated.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self {
            clock: Some(now),
            ..self.clone()
        }
    }

    /// Decides all limits of one request. Takes no longer than the settings' `timeout`, give or take a scheduling
    /// delay, and no time at all while Redis is away.
    ///
    /// A drop of this future before it resolves forgets the answer. A question that has not been sent by then charges
    /// nothing. A question that has been sent may charge: its slots, its places in queues and the charges that a limit
    /// refunds to leaving requests are given back.
    ///
    /// # Errors
    /// The error of a Redis that did not decide. It is then unknown what was charged, except that [`StoreError::Down`],
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
            // Charges of a slot, where another slot refused, are back before the next request asks.
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
            // The future is on the heap: a request of a lone Redis need not have room for it.
            None => Box::pin(self.ask(request)).await,
        }
    }

    /// Measures all limits of one request by the instant `until`, which is sooner than a question may take.
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

    /// The longest time of a question.
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

    /// Are shares of slots kept to anywhere, since a part of Redis has just come back?
    #[inline]
    pub(super) fn keeps_shares(&self) -> bool {
        self.context.shares.are_kept()
    }

    /// Is the share of this counter's slots kept to? Its node is asked again since a moment ago.
    pub(super) fn keeps_share_of(&self, limit: &Limit, key: &[u8]) -> bool {
        match self.router.lone() {
            Some(lone) => lone.node.keeps_shares(),
            None => self.router.keeps_shares(slot_of(limit, key)),
        }
    }

    /// Does what is due now and then: answered updates that no other server can lack any more are forgotten, and the
    /// time of the shares ends.
    pub(super) fn tidy(&self) {
        self.context.shares.sweep();
        for handle in self.router.all() {
            handle.node.updates.forget_answered();
        }
    }

    /// Cancels charges of a request that does not go on.
    pub(super) fn cancel(&self, charged: &[Reservation]) {
        for reservation in charged {
            self.amend(reservation, Amendment::Cancellation);
        }
    }

    /// Forgets one counter. Was there anything? Ids that the counter has charged stay remembered.
    ///
    /// # Errors
    /// The error of a Redis that did not answer that the counter is gone.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        self.known().await?;
        let (answer, receiver) = oneshot::channel();
        let question = self.context.update(limit, key, &forget_block());
        let update = CounterUpdate {
            clock: self.clock,
            answer: Some(answer),
            ..CounterUpdate::of(UpdateKind::Reset, limit, question)
        };
        self.router.update(limit, key, update);
        match receiver.await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(1 | 2)) => Ok(true),
            Ok(Ok(_)) => Err(StoreError::Refused("it may not be removed".into())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Down),
        }
    }

    /// Hands to `handler` the places in queues of requests that leave before they are decided. The first handler stays.
    pub(super) fn on_abandoned_ticket(&self, handler: AbandonedTicketHandler) {
        let _ = self.context.abandonments.tickets.set(handler);
    }

    /// Hands over a place in a queue, if there is a handler for places.
    pub(super) fn hand_over(&self, reservation: &Reservation) -> bool {
        self.context.abandonments.hand_over(self.clock, reservation)
    }

    /// Waits until every decision is answered and every update is sent: the last act of a draining worker. Waits for
    /// the settings' `timeout` at most, or two seconds where Redis is away meanwhile.
    pub async fn settle(&self) {
        let mut settled = std::pin::pin!(self.settled());
        let in_time = timeout(self.context.timeout, &mut settled).await;
        if in_time.is_err() && !self.is_paid() {
            let _ = timeout(GRACE, settled).await;
        }
    }

    /// Waits until a server has the last updates that outlives a master that is being replaced: for a moment, and where none
    /// has for three seconds at most.
    pub(super) async fn outlive_master(&self) {
        if let Some(lone) = self.router.lone() {
            // A new master may be slow to take what it lacks.
            let _ = timeout(GRACE * 2, watch::replication::outlive_master(&lone.node)).await;
        }
    }

    /// Is there nothing that waits for Redis to be back?
    fn is_paid(&self) -> bool {
        let mut all = self.router.all().into_iter();
        all.all(|handle| handle.node.updates.is_empty())
    }

    /// Is Redis asked at present? Of a cluster: every master.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.router.is_up()
    }

    /// Waits until Redis is asked: until it has taken a login, the scripts and a trial decision. Of a cluster: every
    /// master.
    pub async fn met(&self) {
        while !self.is_up() {
            sleep(MEETS).await;
        }
    }

    /// Is the node that serves this counter asked at present?
    pub(super) fn serves(&self, limit: &Limit, key: &[u8]) -> bool {
        match self.router.lone() {
            Some(lone) => lone.is_up(),
            None => self.router.serves(slot_of(limit, key)),
        }
    }

    /// Can the node that counts the gateways be asked for their number at present? It can where it only refuses a
    /// command of the limits' scripts.
    pub(super) fn serves_everyone(&self) -> bool {
        let slot = cluster::slot_of_everyone();
        self.router.serves(slot) || self.router.lacks_rights(slot)
    }

    /// Notes that a counter can be neither read nor written: either its key holds another value, or a command is
    /// refused. Its node is tried; where nothing is refused, `line` in the log tells of the key.
    pub(super) fn suspect(&self, limit: &Limit, key: &[u8], line: impl FnOnce() -> String) {
        self.router.suspect(limit, key, line);
    }

    /// The part of Redis that is asked at present.
    #[must_use]
    pub fn reached(&self) -> StoreReach {
        self.router.reach()
    }

    /// May a counter of this limit be full of charges that go back at once, since another slot refuses their request?
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
