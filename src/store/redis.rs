//! Counters in Redis, where all gateways share them: one script call decides all limits of a request.
//!
//! Belongs to one worker and is used by no other: no lock, no thread is woken. Redis' own clock decides.

mod abandonment;
mod batcher;
mod call_window;
mod cleanup;
mod cluster;
mod health;
mod heartbeat;
mod layout;
mod library;
mod login;
mod node;
mod pending_refunds;
mod poisoned_key;
mod pool;
mod probe;
mod question;
mod reply;
mod script;
mod sentinel;
mod signals;
mod stats;
#[cfg(test)]
mod tests;
mod transport;

pub use cluster::slot_of;
pub use heartbeat::Presence;
pub use probe::{ProbeOutcome, RedisReport, probe};
pub use stats::{Counter, Stats};

use super::answers::{Answers, TentativeCharge};
use super::check::{Check, Refund, StoreDecision};
use super::endpoint::RedisEndpoint;
use super::error::StoreError;
use super::settings::{RedisTarget, StoreSettings};
use crate::clock::{self, Timestamp};
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::telemetry::metrics::{CallOutcome, Operation, StoreReach};
use abandonment::{AbandonedTicketHandler, Abandonments};
use cluster::{Cluster, Route};
use node::{Node, NodeCore};
use pending_refunds::{Surcharge, UpdateKind};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// How often it is looked whether Redis has answered for the first time.
const MEETS: Duration = Duration::from_millis(2);

/// More would be no deadline.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a worker that ends waits for a Redis that is away to take what it is owed.
const GRACE: Duration = Duration::from_secs(2);

/// One worker's way to Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    way: Topology,
}

#[derive(Clone)]
enum Topology {
    /// To one Redis.
    One(Node),
    /// To the masters of a cluster.
    Many(Cluster),
}

impl RedisStore {
    /// Starts to connect and waits for nothing. Inside a worker's own runtime, where tasks need not be `Send`.
    #[must_use]
    pub fn new(target: &RedisTarget, settings: &StoreSettings) -> Self {
        let stats = Arc::<Stats>::default();
        let way = match &target.place {
            RedisEndpoint::Cluster { seeds } => {
                Topology::Many(Cluster::new(target, settings, seeds, stats))
            }
            _ => {
                let beside = (stats, Rc::<Abandonments>::default());
                Topology::One(Node::new(target, settings, None, beside))
            }
        };
        Self { way }
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
    pub async fn decide(&self, checks: &[Check<'_>]) -> Result<StoreDecision, StoreError> {
        self.decide_by(None, checks).await
    }

    /// The same before it is given a meaning. Of a request that is `refused` elsewhere nothing is charged.
    pub(super) async fn measure(
        &self,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Answers, StoreError> {
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
    ) -> Result<StoreDecision, StoreError> {
        let decided = self.decide_by(Some(now), checks).await;
        if let Topology::Many(_) = &self.way {
            // What one slot took and another refused is back before the next is asked.
            self.settle().await;
        }
        decided
    }

    async fn decide_by(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
    ) -> Result<StoreDecision, StoreError> {
        let mut half = self.ask(clock, checks, false).await?;
        match half.gap.take() {
            None => Ok(StoreDecision::of_half(checks, half)),
            // Who asks for a decision of all has no use for some of it.
            Some(gap) => {
                self.take_back(clock, &gap.charged);
                Err(gap.why)
            }
        }
    }

    /// Gives charges back, soon; nobody waits for it, and what cannot be given back stays charged.
    pub fn refund<'a>(&self, refunds: impl IntoIterator<Item = Refund<'a>>) {
        self.return_all(None, refunds);
    }

    /// Like [`RedisStore::refund`], by a clock of the caller's.
    pub fn refund_at<'a>(&self, now: Timestamp, refunds: impl IntoIterator<Item = Refund<'a>>) {
        self.return_all(Some(now), refunds);
    }

    /// Takes back what was charged for a request that does not go on, soon; nobody waits for it.
    pub(super) fn undo(&self, charged: &[TentativeCharge]) {
        self.take_back(None, charged);
    }

    fn take_back(&self, clock: Option<Timestamp>, charged: &[TentativeCharge]) {
        if let Topology::Many(cluster) = &self.way {
            return cluster.undo(clock, charged);
        }
        // One Redis decides all or nothing; but of a request some limits may be answered for elsewhere.
        let refunds = charged
            .iter()
            .map(|TentativeCharge { charge, at, .. }| Refund {
                limit: &charge.limit,
                key: &charge.key,
                ticket: charge.limit.abandoned(charge.ticket, *at),
            });
        self.return_all(clock, refunds);
    }

    /// Has `heir` take over the places in queues of requests that leave before they are decided, with the instant of
    /// the decision. The first one stays.
    pub(super) fn bequeath(&self, heir: AbandonedTicketHandler) {
        let _ = self.leavers().heir.set(heir);
    }

    /// Who does so.
    pub(super) fn heir(&self) -> Option<&AbandonedTicketHandler> {
        self.leavers().heir.get()
    }

    fn leavers(&self) -> &Abandonments {
        match &self.way {
            Topology::One(node) => &node.shared.leavers,
            Topology::Many(cluster) => cluster.leavers(),
        }
    }

    /// Gives one charge back, soon. Returns how to be told the script's byte; nothing where nobody serves the counter.
    pub(super) fn give_back(
        &self,
        refund: Refund<'_>,
    ) -> Option<oneshot::Receiver<Result<u8, StoreError>>> {
        let (answer, told) = oneshot::channel();
        let (shared, route) = self.home(refund.limit, refund.key)?;
        shared.give_back(None, (route, Some(answer)), refund);
        Some(told)
    }

    fn return_all<'a>(
        &self,
        clock: Option<Timestamp>,
        refunds: impl IntoIterator<Item = Refund<'a>>,
    ) {
        for refund in refunds {
            if let Some((shared, route)) = self.home(refund.limit, refund.key) {
                shared.give_back(clock, (route, None), refund);
            }
        }
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
        if let Some((shared, route)) = self.home(check.limit, check.key) {
            // By a clock of the caller's nothing is repeated.
            let id = clock.is_none().then(RepeatId::random);
            let question = shared.question(clock, &[Check { id, ..*check }]);
            shared.owe_debt(clock, (question, route), Surcharge::new());
        }
    }

    fn lessen<'a>(&self, clock: Option<Timestamp>, charges: impl IntoIterator<Item = Refund<'a>>) {
        for Refund { limit, key, ticket } in charges {
            if let Some(block) = question::settle_block(limit, ticket) {
                self.tell(clock, (limit, key), (UpdateKind::Settlement, &block));
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

    fn prolong<'a>(&self, clock: Option<Timestamp>, slots: impl IntoIterator<Item = Refund<'a>>) {
        for Refund { limit, key, ticket } in slots {
            if let Some(block) = question::renew_block(limit, ticket) {
                self.tell(clock, (limit, key), (UpdateKind::Renewal, &block));
            }
        }
    }

    /// Has something done to a counter, and nobody waits for it.
    fn tell(
        &self,
        clock: Option<Timestamp>,
        (limit, key): (&Limit, &[u8]),
        (duty, block): (UpdateKind, &[u8]),
    ) {
        if let Some((shared, route)) = self.home(limit, key) {
            let question = shared.about(limit, key, block);
            shared.give((duty, limit), (clock, question, route), None);
        }
    }

    /// Who serves a counter, and by which way. Nobody may: then what was to be given is lost.
    fn home(&self, limit: &Limit, key: &[u8]) -> Option<(Rc<NodeCore>, Route)> {
        match &self.way {
            Topology::One(node) => Some((node.shared.clone(), Route::default())),
            Topology::Many(cluster) => {
                let home = cluster.home(limit, key);
                if home.is_none() {
                    let lost = (Operation::Refund, CallOutcome::Lost);
                    self.counts().owed(lost.0, lost.1, Duration::ZERO);
                }
                home
            }
        }
    }

    /// Who serves what is counted for everyone.
    async fn first(&self) -> Result<Rc<NodeCore>, StoreError> {
        match &self.way {
            Topology::One(node) => Ok(node.shared.clone()),
            Topology::Many(cluster) => cluster.everyone().await,
        }
    }

    /// Forgets one counter. Was there anything? Ids that have been charged stay remembered.
    ///
    /// # Errors
    /// When Redis did not say that it is gone.
    pub async fn reset(&self, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        if let Topology::Many(cluster) = &self.way {
            cluster.known().await?;
        }
        let (answer, told) = oneshot::channel();
        let block = question::forget_block();
        let (shared, route) = self.home(limit, key).ok_or(StoreError::Down)?;
        let question = shared.about(limit, key, &block);
        shared.give(
            (UpdateKind::Reset, limit),
            (None, question, route),
            Some(answer),
        );
        match told.await {
            Ok(Ok(0)) => Ok(false),
            Ok(Ok(1 | 2)) => Ok(true),
            Ok(Ok(_)) => Err(StoreError::Refused("it may not be removed".into())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Down),
        }
    }

    /// Waits until everything that was asked is answered and everything that is owed is sent, for the settings' `timeout`
    /// at most, or [`GRACE`] where Redis is away meanwhile: the last thing a draining worker does.
    pub async fn settle(&self) {
        let settled = async {
            match &self.way {
                Topology::One(node) => node.shared.settled().await,
                Topology::Many(cluster) => cluster.settled().await,
            }
        };
        let mut settled = std::pin::pin!(settled);
        let in_time = tokio::time::timeout(self.timeout(), &mut settled).await;
        if in_time.is_err() && self.owes() {
            let _ = tokio::time::timeout(GRACE, settled).await;
        }
    }

    /// Is anything owed that waits for Redis to be back?
    fn owes(&self) -> bool {
        match &self.way {
            Topology::One(node) => !node.shared.owed.is_paid(),
            Topology::Many(cluster) => cluster.owes(),
        }
    }

    /// Is Redis asked at present? Of a cluster: every master.
    #[must_use]
    pub fn is_up(&self) -> bool {
        match &self.way {
            Topology::One(node) => node.shared.health.is_up(),
            Topology::Many(cluster) => cluster.is_up(),
        }
    }

    /// Waits until Redis is asked: until it has taken a login, the scripts and a decision of our own. Of a cluster: every
    /// master.
    pub async fn met(&self) {
        while !self.is_up() {
            sleep(MEETS).await;
        }
    }

    /// Is the one asked at present who serves a counter?
    pub(super) fn serves(&self, limit: &Limit, key: &[u8]) -> bool {
        match &self.way {
            Topology::One(node) => node.shared.health.is_up(),
            Topology::Many(cluster) => cluster.serves(slot_of(limit, key)),
        }
    }

    /// Is the one asked at present who is told which gateways live?
    pub(super) fn serves_everyone(&self) -> bool {
        match &self.way {
            Topology::One(node) => node.shared.health.is_up(),
            Topology::Many(cluster) => cluster.serves_everyone(),
        }
    }

    /// How much of Redis is asked at present?
    #[must_use]
    pub fn reached(&self) -> StoreReach {
        match &self.way {
            Topology::One(node) => node.shared.reach(),
            Topology::Many(cluster) => cluster.reach(),
        }
    }

    /// May what this limit refuses be full of what another request of several slots is given back at once?
    pub(super) fn may_pass(&self, limit: &Limit) -> bool {
        let is_apart = limit.with.is_none() || limit.is_asked_with_history();
        matches!(self.way, Topology::Many(_)) && is_apart
    }

    /// What has been done so far. Other threads may keep and read it.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(self.counts())
    }

    fn counts(&self) -> &Arc<Stats> {
        match &self.way {
            Topology::One(node) => &node.shared.stats,
            Topology::Many(cluster) => cluster.stats(),
        }
    }

    fn timeout(&self) -> Duration {
        match &self.way {
            Topology::One(node) => node.shared.timeout,
            Topology::Many(cluster) => cluster.timeout(),
        }
    }

    async fn ask(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<Answers, StoreError> {
        if checks.is_empty() {
            let at = clock.unwrap_or_else(clock::wall);
            return Ok(Answers::whole(at, Default::default()));
        }
        match &self.way {
            Topology::One(node) => node.ask(clock, checks, (refused, Route::default())).await,
            // On the heap: a request of a single Redis need not have room for this.
            Topology::Many(cluster) => Box::pin(cluster.ask(clock, checks, refused)).await,
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Topology::One(node) => f.debug_tuple("RedisStore").field(node).finish(),
            Topology::Many(cluster) => f.debug_tuple("RedisStore").field(cluster).finish(),
        }
    }
}
