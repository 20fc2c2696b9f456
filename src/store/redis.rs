//! Counters in Redis, where all gateways share them: one script call decides all limits of a request.
//!
//! Belongs to one worker and is used by no other: no lock, no thread is woken. Redis' own clock decides.

mod abandonment;
mod batcher;
mod call_queue;
mod call_window;
mod cleanup;
mod cluster;
mod connection;
mod context;
mod counter_update;
mod health;
mod heartbeat;
mod lanes;
mod layout;
mod library;
mod login;
mod node;
mod outage;
mod pending_refunds;
mod pool;
mod probe;
mod question;
mod redirect;
mod reply;
mod router;
mod script;
mod sentinel;
mod signals;
mod slot;
mod slot_calls;
mod slot_map;
mod stats;
#[cfg(test)]
mod tests;
mod transport;
mod trial;
mod watch;

pub use heartbeat::Presence;
pub use probe::{ProbeOutcome, RedisReport, probe};
pub use router::slot_of;
pub use stats::{Counter, Stats};

use super::answers::Answers;
use super::check::Check;
use super::decider::Decider;
use super::decision::StoreDecision;
use super::error::StoreError;
use super::reservation::{Refund, Reservation};
use super::settings::{RedisTarget, StoreSettings};
use crate::clock::{self, Timestamp};
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::telemetry::metrics::{CallOutcome, Operation, StoreReach};
use abandonment::AbandonedTicketHandler;
use cluster::Cluster;
use context::StoreContext;
use counter_update::{CounterUpdate, UpdateKind, UpdateSender};
use node::NodeHandle;
use question::DecisionRequest;
use slot::CallRoute;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Decisions or updates in one call. Redis does nothing else meanwhile: 64 take it a quarter of a millisecond.
const MOST_IN_CALL: usize = 64;

/// How often [`RedisStore::met`] looks whether Redis has answered for the first time.
const MEETS: Duration = Duration::from_millis(2);

/// More would be no deadline.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a worker that ends waits for a Redis that is away to take the updates that wait for it.
const GRACE: Duration = Duration::from_secs(2);

/// One worker's way to Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    cluster: Cluster,
    context: Rc<StoreContext>,
    /// Replaces the server's clock.
    clock: Option<Timestamp>,
}

impl RedisStore {
    /// Starts to connect and waits for nothing. Inside a worker's own runtime, where tasks need not be `Send`.
    #[must_use]
    pub fn new(target: &RedisTarget, settings: &StoreSettings) -> Self {
        let context = Rc::new(StoreContext::new(target, settings));
        Self {
            cluster: Cluster::new(Rc::clone(&context)),
            context,
            clock: None,
        }
    }

    /// This store by a clock of the caller's, which stands still at `now`. For tests and replays: states then outlive their
    /// time by an hour, and nothing is repeated.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self {
            clock: Some(now),
            ..self.clone()
        }
    }

    /// Decides all limits of one request. Never takes longer than the settings' `timeout`, give or take a scheduling
    /// delay; takes no time at all while Redis is away.
    ///
    /// Dropping this before it resolves forgets the answer: what has not been sent by then is not charged. What has been
    /// may be; of that, slots, places in queues and what a limit refunds to requests that leave are given back.
    ///
    /// # Errors
    /// When Redis did not decide; then nothing is known about what was charged, except that [`StoreError::Down`],
    /// [`StoreError::Overloaded`] and [`StoreError::Answer`] charged nothing.
    pub async fn decide(&self, checks: &[Check<'_>]) -> Result<StoreDecision, StoreError> {
        let answers = self.measure(checks, false).await;
        let decided = answers.and_then(|mut answers| match answers.outage.take() {
            None => Ok(StoreDecision::of(checks, answers)),
            // A decision of all limits has no use for some of them.
            Some(outage) => {
                self.cancel(&outage.charged);
                Err(outage.why)
            }
        });
        if self.clock.is_some() && self.cluster.lone.is_none() {
            // What one slot took and another refused is back before the next request asks.
            self.settle().await;
        }
        decided
    }

    /// Measures all limits of one request. Of a request that is `refused` elsewhere nothing is charged.
    pub(super) async fn measure(
        &self,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Answers, StoreError> {
        let clock = self.clock;
        if checks.is_empty() {
            let at = clock.unwrap_or_else(clock::wall);
            return Ok(Answers::measured(&[], Decider::Redis, at, []));
        }
        let request = DecisionRequest {
            checks,
            clock,
            refused,
        };
        match &self.cluster.lone {
            Some(lone) => lone.node.ask(request, CallRoute::default()).await,
            // On the heap: a request of a lone Redis need not have room for this.
            None => Box::pin(self.cluster.ask(request)).await,
        }
    }

    /// Gives charges back, soon. No request waits for it, and a charge that cannot be given back stays.
    pub fn refund<'a>(&self, refunds: impl IntoIterator<Item = Refund<'a>>) {
        for refund in refunds {
            if let Some((home, route)) = self.home(refund.limit, refund.key) {
                home.node.refund(refund, self.clock, route, None);
            }
        }
    }

    /// Gives one charge back, soon. Returns what receives the script's byte; nothing where no node serves the counter.
    pub(super) fn refund_one(
        &self,
        refund: Refund<'_>,
    ) -> Option<oneshot::Receiver<Result<u8, StoreError>>> {
        let (answer, receiver) = oneshot::channel();
        let (home, route) = self.home(refund.limit, refund.key)?;
        home.node.refund(refund, self.clock, route, Some(answer));
        Some(receiver)
    }

    /// How long a question may take.
    pub(super) fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Takes back what was charged for a request that does not go on, soon. No request waits for it.
    pub(super) fn cancel(&self, charged: &[Reservation]) {
        self.context.abandonments.cancel(self.clock, charged);
    }

    /// Gives back what charges were too much, soon. No request waits for it.
    pub fn correct<'a>(&self, charges: impl IntoIterator<Item = Refund<'a>>) {
        for Refund { limit, key, ticket } in charges {
            if let Some(block) = question::settle_block(limit, ticket) {
                self.update(UpdateKind::Settlement, limit, key, &block, None);
            }
        }
    }

    /// Charges what was too little, soon. No request waits for it, or hears whether it fitted.
    pub fn charge(&self, check: &Check<'_>) {
        if let Some((home, route)) = self.home(check.limit, check.key) {
            // By a clock of the caller's nothing is repeated.
            let id = self.clock.is_none().then(RepeatId::random);
            let question = self.context.decision(DecisionRequest {
                checks: &[Check { id, ..*check }],
                clock: self.clock,
                refused: false,
            });
            home.node.queue.charge(question, self.clock, route);
        }
    }

    /// Renews what concurrency limits have lent, soon. No request waits for it.
    pub fn renew<'a>(&self, slots: impl IntoIterator<Item = Refund<'a>>) {
        for Refund { limit, key, ticket } in slots {
            if let Some(block) = question::renew_block(limit, ticket) {
                self.update(UpdateKind::Renewal, limit, key, &block, None);
            }
        }
    }

    /// Forgets one counter. Was there anything? Ids that have been charged stay remembered.
    ///
    /// # Errors
    /// When Redis did not answer that the counter is gone.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        self.cluster.known().await?;
        let (answer, receiver) = oneshot::channel();
        let block = question::forget_block();
        self.update(UpdateKind::Reset, limit, key, &block, Some(answer));
        match receiver.await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(1 | 2)) => Ok(true),
            Ok(Ok(_)) => Err(StoreError::Refused("it may not be removed".into())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Down),
        }
    }

    /// Queues an update of one counter. `answer` receives the script's byte.
    fn update(
        &self,
        kind: UpdateKind,
        limit: &Limit,
        key: &[u8],
        block: &[u8],
        answer: Option<UpdateSender>,
    ) {
        if let Some((home, route)) = self.home(limit, key) {
            let question = self.context.update(limit, key, block);
            let update = CounterUpdate::of(kind, limit, question);
            home.node.updates.push(CounterUpdate {
                clock: self.clock,
                route,
                answer,
                ..update
            });
        }
    }

    /// The node that serves a counter, and the route there. Where there is none an update is lost.
    fn home(&self, limit: &Limit, key: &[u8]) -> Option<(NodeHandle, CallRoute)> {
        if let Some(lone) = &self.cluster.lone {
            return Some((lone.clone(), CallRoute::default()));
        }
        let home = self.cluster.router.home(limit, key);
        if home.is_none() {
            self.context
                .stats
                .updated(Operation::Refund, CallOutcome::Lost, Duration::ZERO);
        }
        home
    }

    /// Has `handler` take over the places in queues of requests that leave before they are decided, with how long it is until
    /// their turn. The first handler stays.
    pub(super) fn on_abandoned_ticket(&self, handler: AbandonedTicketHandler) {
        let _ = self.context.abandonments.tickets.set(handler);
    }

    /// The handler that takes these places over.
    pub(super) fn abandoned_ticket_handler(&self) -> Option<&AbandonedTicketHandler> {
        self.context.abandonments.tickets.get()
    }

    /// Waits until every decision is answered and every update is sent, for the settings' `timeout` at most, or two seconds
    /// where Redis is away meanwhile: the last thing a draining worker does.
    pub async fn settle(&self) {
        let mut settled = std::pin::pin!(self.cluster.settled());
        let in_time = timeout(self.context.timeout, &mut settled).await;
        if in_time.is_err() && !self.is_paid() {
            let _ = timeout(GRACE, settled).await;
        }
    }

    /// Does nothing wait for Redis to be back?
    fn is_paid(&self) -> bool {
        let mut all = self.cluster.router.all().into_iter();
        all.all(|handle| handle.node.is_paid())
    }

    /// Is Redis asked at present? Of a cluster: every master.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.cluster.router.is_up()
    }

    /// Waits until Redis is asked: until it has taken a login, the scripts and a decision of our own. Of a cluster: every
    /// master.
    pub async fn met(&self) {
        while !self.is_up() {
            sleep(MEETS).await;
        }
    }

    /// Is the node asked at present that serves a counter?
    pub(super) fn serves(&self, limit: &Limit, key: &[u8]) -> bool {
        match &self.cluster.lone {
            Some(lone) => lone.node.health.is_up(),
            None => self.cluster.router.serves(slot_of(limit, key)),
        }
    }

    /// Is the node asked at present that knows which gateways live?
    pub(super) fn serves_everyone(&self) -> bool {
        let slot = cluster::slot_of_everyone();
        self.cluster.router.serves(slot)
    }

    /// How much of Redis is asked at present?
    #[must_use]
    pub fn reached(&self) -> StoreReach {
        self.cluster.router.reach()
    }

    /// May what this limit refuses be full of what another request of several slots is given back at once?
    pub(super) fn may_pass(&self, limit: &Limit) -> bool {
        let is_apart = limit.with.is_none() || limit.is_asked_with_history();
        self.cluster.lone.is_none() && is_apart
    }

    /// What has been done so far. Other threads may keep and read it.
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
