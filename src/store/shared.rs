//! Limits that all gateways share: counted in Redis, with as few calls as possible.
//!
//! The steps are in `decide`; its parts, in their order:
//!
//! ```text
//! early_refusal          a refusal that is known before a token is verified
//! mixed_scope            limits that this gateway counts alone are charged first
//! multi_limit            leases, where a request has several limits
//! lease_call             leases of one limit
//! slots                  slots that count in this process beside Redis
//! fallback               each limit does as its `on_down` states
//! fallback/poisoned_key  a counter's key has another value: the other limits are asked again
//! charges                charges after the decision: amended or cancelled
//! ```

mod charges;
mod early_refusal;
mod fallback;
mod lease_call;
mod mixed_scope;
mod multi_limit;
mod slots;

use super::answers::Answers;
use super::check::{Check, Intent};
use super::decider::Decider;
use super::decision::StoreDecision;
use super::error::StoreError;
use super::fleet::Fleet;
use super::lease;
use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::refusal_cache::{CallTimes, Flight};
use super::worker_cache::WorkerCache;
use crate::clock;
use crate::limit::{BlockPhase, Limit, OnDown};
use crate::telemetry::metrics::{CallOutcome, Operation, StoreMetrics};
use lease_call::LeaseOutcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Counters that gateways share, and the fallback of one gateway without Redis. Cheap to clone; stays on the worker's
/// thread.
#[derive(Debug, Clone)]
pub struct SharedStore {
    /// The shared counters.
    pub redis: RedisStore,
    /// This process's own counters: for limits that each gateway counts alone, and for the fallback.
    pub local: Arc<MemoryStore>,
    /// The fallback of limits without their own.
    pub on_down: OnDown,
    /// The gateways that count together.
    pub fleet: Arc<Fleet>,
    /// Counts calls and fallbacks.
    pub metrics: StoreMetrics,
    /// This worker's knowledge, which saves calls.
    pub cache: WorkerCache,
}

impl SharedStore {
    /// Decides all limits of one request.
    ///
    /// # Errors
    /// If Redis is unavailable, and a limit of the request refuses requests then.
    pub(super) async fn decide(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        if self.redis.keeps_shares() || checks.iter().any(Check::is_local) {
            // The future is boxed, because it is rare and large, and otherwise every request would reserve room for it.
            return Box::pin(self.decide_separately(checks)).await;
        }
        let answers = self.answer(checks, Intent::Charge).await?;
        Ok(decided(checks, answers))
    }

    /// Decides if not everything is counted in Redis alone.
    async fn decide_separately(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        if self.redis.keeps_shares() {
            return self.decide_within_share(checks).await;
        }
        self.decide_mixed(checks).await
    }

    /// Answers for limits that all gateways share: from a lease, else like [`Self::ask`]. A request that only peeks
    /// takes no permit.
    async fn answer(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
    ) -> Result<Box<Answers>, StoreError> {
        let is_leased = intent == Intent::Charge && checks.iter().any(lease::may_take);
        let until = match checks {
            [check] if is_leased => match self.lease(check).await {
                LeaseOutcome::Decided(answers) => return Ok(answers),
                LeaseOutcome::Alone(until) => until,
            },
            // The future is boxed, like the one for decisions of mixed scope.
            _ if is_leased => return Box::pin(self.ask_with_leases(checks)).await,
            _ => None,
        };
        self.ask(checks, intent, until).await
    }

    /// Answers for limits without a permit: from a cached refusal, else from Redis, which one request calls for all
    /// that arrive meanwhile. A request that has waited before has its answer by `until`.
    async fn ask(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        mut until: Option<Instant>,
    ) -> Result<Box<Answers>, StoreError> {
        if let Some(refusal) = self.remembered(checks) {
            return Ok(refusal);
        }
        let flight = match intent {
            Intent::Charge => self.flight(checks),
            Intent::Peek => Flight::Solo,
        };
        if let Flight::Follower(follower) = &flight {
            until.get_or_insert_with(|| clock::now() + self.redis.timeout());
            follower.wait().await;
            if let Some(refusal) = self.remembered(checks) {
                return Ok(refusal);
            }
        }
        let mut answers = self.call(checks, intent, until).await?;
        if answers.by == Decider::Redis {
            if let (Flight::Leader(leader), [check]) = (&flight, checks) {
                let may_pass = self.redis.may_pass(check.limit);
                leader.admitted(check, &answers, self.cache.clock.now(), may_pass);
            }
            self.cache.leases.lengthen(checks, &mut answers);
        }
        Ok(answers)
    }

    /// Calls Redis. The fallback answers for limits that Redis cannot answer for.
    async fn call(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        until: Option<Instant>,
    ) -> Result<Box<Answers>, StoreError> {
        let sent = self.cache.clock.now();
        let mut answer = match until {
            None => self.redis.measure(checks, intent).await,
            // The future is boxed, since few requests have waited before.
            Some(until) => Box::pin(self.redis.measure_until(checks, intent, until)).await,
        };
        if let Err(why) = &answer
            && why.is_of_one_limit()
            && checks.len() > 1
        {
            let took = Duration::from_micros(self.cache.clock.now().since(sent));
            let ends =
                until.unwrap_or_else(|| clock::now() + self.redis.timeout().saturating_sub(took));
            // The future is boxed: hardly any request needs room for it.
            let asked = self.ask_without(checks, intent, ends, why.clone());
            answer = Box::pin(asked).await;
        }
        let call = CallTimes {
            sent,
            answered: self.cache.clock.now(),
        };
        self.count_call(&answer, call);
        match answer {
            Ok(answers) => {
                self.look_at_unreadable(checks, &answers);
                self.remember(checks, &answers, call);
                self.note_blocks(checks, &answers);
                self.fill(checks, answers, intent)
            }
            Err(error) => {
                error.warn();
                self.fall_back(checks, intent, error)
            }
        }
    }

    /// The cached refusal of a request. A counter on an unavailable master has none: `on_down` answers for it, and its
    /// state may have changed when the master returns.
    fn remembered(&self, checks: &[Check<'_>]) -> Option<Box<Answers>> {
        let is_served = |check: &Check<'_>| self.redis.serves(check.limit, check.key);
        let mut answers =
            self.cache
                .refusals
                .recall(checks, || self.cache.clock.now(), is_served)?;
        self.cache.leases.lengthen(checks, &mut answers);
        Some(Box::new(answers))
    }

    fn remember(&self, checks: &[Check<'_>], answers: &Answers, call: CallTimes) {
        let may_pass = |limit: &Limit| self.redis.may_pass(limit);
        self.cache
            .refusals
            .remember(checks, answers, call, may_pass);
    }

    /// Notes blocks in this process's memory, for limits that it decides while Redis is unavailable.
    fn note_blocks(&self, checks: &[Check<'_>], answers: &Answers) {
        for (check, answer) in checks.iter().zip(&answers.each) {
            let measured = answer.measured().filter(|one| one.block != BlockPhase::No);
            if let Some(measured) = measured
                && self.on_down(check.limit) == OnDown::Local
            {
                let left = measured.span.whole;
                self.local.note_block(check.limit, check.key, left);
            }
        }
    }

    /// The role of a request without a cached refusal: it makes a call at once, or waits for another's answer.
    fn flight(&self, checks: &[Check<'_>]) -> Flight {
        match checks {
            [check] if self.redis.serves(check.limit, check.key) => {
                let (now, patience) = (|| self.cache.clock.now(), self.cache.patience());
                self.cache.refusals.flight(check, now, patience)
            }
            _ => Flight::Solo,
        }
    }

    /// Reports counters that cannot be read and decide nothing, since no refusal would show the fault.
    fn look_at_unreadable(&self, checks: &[Check<'_>], answers: &Answers) {
        let mut all = checks.iter().zip(&answers.each);
        let unreadable =
            all.find(|(_, answer)| answer.measured().is_some_and(|measured| measured.spoilt));
        if let Some((check, _)) = unreadable {
            let (mode, name) = (check.limit.mode.as_str(), &check.limit.name);
            self.redis.suspect(check.limit, check.key, || {
                format!("{mode} of limit {name} is not counted: its key in Redis holds another value or cannot be written; delete that key")
            });
        }
    }

    fn count_call(&self, answer: &Result<Box<Answers>, StoreError>, call: CallTimes) {
        let why = match answer {
            Ok(answers) => answers.outage.as_deref(),
            Err(error) => Some(error),
        };
        let outcome = match why {
            None => CallOutcome::Ok,
            Some(StoreError::Down) => CallOutcome::Down,
            Some(StoreError::Timeout { .. }) => CallOutcome::Timeout,
            Some(_) => CallOutcome::Error,
        };
        let took = Duration::from_micros(call.answered.since(call.sent));
        self.metrics.called(Operation::Decide, outcome, took);
    }

    /// Deletes one counter, in every store. Returns whether it existed.
    ///
    /// # Errors
    /// If Redis is unavailable.
    pub(super) async fn reset(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<bool, StoreError> {
        let here = self.local.reset(limit, key);
        let there = self.redis.reset(limit, key).await;
        self.cache.reset(limit, key);
        Ok(there? || here)
    }

    /// Waits until refunds have been sent and the other gateways know that this one leaves. Each of the two takes the
    /// store's timeout at most; a master that is being replaced takes a few seconds.
    pub(super) async fn settle(&self) {
        self.end_leases();
        self.redis.settle().await;
        self.redis.outlive_master().await;
        self.fleet.leave(&self.redis).await;
    }

    /// Reports to the metrics whether Redis is available, and drops outdated knowledge.
    pub(super) fn report(&self) {
        self.metrics.set_reach(self.redis.reached());
        self.metrics.set_gateways(self.fleet.gateways().get());
        self.cache.refusals.sweep(self.cache.clock.now());
        self.cache.leases.sweep();
        self.redis.tidy();
    }
}

/// The decision by the answers of `checks`; `None` if no store has counted.
fn decided(checks: &[Check<'_>], mut answers: Box<Answers>) -> (Option<StoreDecision>, Decider) {
    let by = answers.by;
    let is_counted = by != Decider::Open;
    (
        is_counted.then(|| StoreDecision::by(checks, &mut answers)),
        by,
    )
}
