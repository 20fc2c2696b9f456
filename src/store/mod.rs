//! Where counters live: in this process, or in Redis, with one meaning.

mod answers;
pub mod check;
mod decider;
mod early_refusal;
pub mod endpoint;
pub mod error;
mod fallback;
mod fleet;
mod invalidation;
mod lease;
pub mod memory;
mod mixed_scope;
pub mod redis;
mod refund;
mod refusal_cache;
pub mod settings;
mod settlement;
mod shadow;
mod shared;
mod worker_cache;

pub use crate::limit::OnDown;
pub use answers::{Answers, Measurements};
pub use check::{Charge, Check, Refund, StoreDecision, Unknown};
pub use decider::Decider;
pub use endpoint::{Address, RedisEndpoint};
pub use error::StoreError;
pub use fleet::Fleet;
pub use invalidation::Invalidation;
pub use lease::{LEASED_FROM, LEASED_WITHIN};
pub use memory::MemoryStore;
pub use refund::{PendingRefund, RefundOutcome};
pub use settings::{Backend, RedisTarget, Secret, StoreSettings};
pub use settlement::{Correction, more};
pub use shadow::ShadowVerdict;
pub use worker_cache::WorkerCache;

use crate::limit::rate::Cost;
use crate::limit::{Limit, Scope};
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{CallOutcome, Operation, StoreMetrics};
use fallback::Fallback;
use redis::{FailedAttempt, RedisStore};
use shared::SharedAnswer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells of a counter that cannot be read, or a clock that is off: it stays so until somebody does something.
static SPOILT: Throttle = Throttle::every(Duration::from_secs(10));

/// A worker's way to the counters. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub enum Store {
    /// All in this process.
    Memory(Arc<MemoryStore>),
    /// Shared with other gateways, and what to do without them.
    Redis {
        /// The shared counters.
        shared: RedisStore,
        /// This process's own, for when Redis is away.
        local: Arc<MemoryStore>,
        /// What limits do then that do not say it themselves.
        on_down: OnDown,
        /// The gateways that count together.
        fleet: Arc<Fleet>,
        /// Counts both.
        metrics: StoreMetrics,
        /// What needs no asking.
        near: WorkerCache,
    },
}

impl Store {
    /// Decides all limits of one request at once. No decision means: let it pass, nobody could say.
    ///
    /// # Errors
    /// When the store is away and `on_down` is `closed`.
    pub async fn decide(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        match self {
            Self::Memory(memory) => Ok((Some(memory.decide(checks)), Decider::Memory)),
            Self::Redis { local, .. } if mixed_scope::are_mixed(checks) => {
                mixed_scope::decide(self, local, checks).await
            }
            Self::Redis { .. } => Ok(match shared::decide(self, checks, false).await? {
                SharedAnswer::RefusalCache(recalled) => {
                    (Some(recalled.decided(checks)), Decider::Remembered)
                }
                SharedAnswer::Told(half, by) => {
                    (half.map(|half| StoreDecision::of_half(checks, half)), by)
                }
            }),
        }
    }

    /// Decides limits that all gateways share, or does what is to be done while they cannot be asked. Of a request that
    /// is `refused` already nothing is charged.
    async fn decide_shared(
        &self,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<(Option<Answers>, Decider), StoreError> {
        let (shared, local, on_down, gateways, metrics, near) = match self {
            Self::Memory(memory) => {
                let half = memory.measure(checks, None, refused);
                return Ok((Some(half), Decider::Memory));
            }
            Self::Redis {
                shared,
                local,
                on_down,
                fleet,
                metrics,
                near,
            } => (shared, local, *on_down, fleet.gateways(), metrics, near),
        };
        let stand_in = Fallback {
            memory: local,
            on_down,
            gateways,
            metrics,
        };
        let asked = Instant::now();
        let mut answer = shared.measure(checks, refused).await;
        if let Err(why @ (StoreError::Answer { .. } | StoreError::Clock { .. })) = &answer
            && checks.len() > 1
        {
            // On the heap: hardly any request has to have room for it.
            let attempt = FailedAttempt {
                refused,
                asked,
                why: why.clone(),
            };
            let is_shut = |check: &Check<'_>| stand_in.shuts(check);
            answer = Box::pin(shared.measure_without(checks, attempt, is_shut)).await;
        }
        let told = Instant::now();
        metrics.called(Operation::Decide, outcome(&answer), told - asked);
        match answer {
            Ok(half) => {
                warn_of_spoilt(checks, &half);
                near.known
                    .remember(checks, &half, (asked, told), |limit| shared.may_pass(limit));
                let whole = stand_in.fill(checks, half, (refused, shared))?;
                Ok((Some(whole), Decider::Redis))
            }
            Err(error) => {
                tell_remedy(&error);
                stand_in.decide(checks, refused, error)
            }
        }
    }

    /// How one counter stands, without taking anything from it.
    ///
    /// # Errors
    /// When the store is away.
    pub async fn peek(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<StoreDecision, StoreError> {
        let cost = Cost::ZERO;
        let checks = [Check {
            limit,
            key,
            cost,
            id: None,
        }];
        let mut decided = match self {
            Self::Memory(memory) => memory.decide(&checks),
            Self::Redis { local, .. } if limit.scope == Scope::Gateway => local.decide(&checks),
            Self::Redis { shared, .. } => shared.decide(&checks).await?,
        };
        // Asked alone, what does not decide is told as if it did.
        let aside = decided.aside.pop();
        if let Some(verdict) = aside.and_then(|aside| aside.verdict) {
            decided.decision.verdicts.push(verdict);
        } else if aside.is_some() {
            return Err(StoreError::Answer {
                limit: limit.name.clone(),
                reason: "it cannot be read".into(),
            });
        }
        Ok(decided)
    }

    /// Forgets one counter, wherever it is held. Was there anything? Ids that it has charged stay remembered: their
    /// repeats have been paid for.
    ///
    /// # Errors
    /// When the store is away.
    pub async fn reset(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.reset(limit, key)),
            Self::Redis { local, .. } if limit.scope == Scope::Gateway => {
                Ok(local.reset(limit, key))
            }
            Self::Redis {
                shared,
                local,
                near,
                ..
            } => {
                let here = local.reset(limit, key);
                let there = shared.reset(limit, key).await;
                near.reset(limit, key);
                Ok(there? || here)
            }
        }
    }

    /// Renews the slots that a charge holds; to be called every third of their life. Nobody waits for it.
    pub fn renew(&self, charge: &Charge, by: Decider) {
        // In this process a slot is taken until it is given back.
        if charge.limit.scope == Scope::Gateway {
            return;
        }
        if let (Self::Redis { shared, .. }, Decider::Redis) = (self, charge.by.unwrap_or(by)) {
            shared.renew([Refund::from(charge)]);
        }
    }

    /// Waits until refunds have been sent, and the other gateways told that this one goes, each for the store's timeout
    /// at most.
    pub async fn settle(&self) {
        if let Self::Redis {
            shared,
            fleet,
            metrics,
            near,
            ..
        } = self
        {
            near.leases.end(shared, metrics, near);
            shared.settle().await;
            fleet.leave(shared).await;
        }
    }

    /// Tells the metrics whether Redis is there, and forgets what has ended. To be called now and then, since a quiet
    /// worker asks nothing.
    pub fn report(&self) {
        if let Self::Redis {
            shared,
            fleet,
            metrics,
            near,
            ..
        } = self
        {
            metrics.set_reach(shared.reached());
            metrics.set_gateways(fleet.gateways().get());
            near.known.sweep();
            near.leases.sweep();
        }
    }

    /// Gives a charge back to whoever took it, as far as nobody counts on it. Nobody waits for it.
    pub fn refund(&self, charge: Charge, by: Decider) {
        drop(self.give_back(&charge, by));
    }
}

/// Tells what somebody can do, where somebody can.
fn tell_remedy(error: &StoreError) {
    let remedy = match error {
        StoreError::Answer { .. } => "delete that key in Redis",
        StoreError::Clock { .. } => "set the clocks",
        _ => return,
    };
    if let Some(more) = SPOILT.pass() {
        tracing::warn!("{error}; {remedy}{more}");
    }
}

/// Tells of counters that cannot be read and decide nothing: nobody else would notice.
fn warn_of_spoilt(checks: &[Check<'_>], half: &Answers) {
    let spoilt = half.measured.iter().position(|one| one.spoilt);
    if let Some(check) = spoilt.and_then(|index| checks.get(index))
        && let Some(more) = SPOILT.pass()
    {
        let (mode, name) = (check.limit.mode.as_str(), &check.limit.name);
        tracing::warn!(
            "{mode} of limit {name} is not counted: its key in Redis is not its own or cannot be written; delete that key{more}"
        );
    }
}

fn outcome(answer: &Result<Answers, StoreError>) -> CallOutcome {
    let error = match answer {
        Ok(Answers { gap: None, .. }) => return CallOutcome::Ok,
        Ok(Answers { gap: Some(gap), .. }) => &gap.why,
        Err(error) => error,
    };
    match error {
        StoreError::Down => CallOutcome::Down,
        StoreError::Timeout { .. } => CallOutcome::Timeout,
        _ => CallOutcome::Error,
    }
}
