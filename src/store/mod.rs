//! Where counters live: in this process, or in Redis, with one meaning.

mod away;
pub mod batch;
mod beforehand;
mod beside;
mod decided_by;
pub mod error;
mod fleet;
mod gaps;
mod given;
mod half;
mod halves;
mod known;
mod leases;
pub mod memory;
mod near;
mod news;
pub mod place;
pub mod redis;
pub mod settings;
mod settle;
mod sparing;

pub use crate::limit::OnDown;
pub use batch::{Charge, Check, Decided, Refund, Unknown};
pub use beside::Aside;
pub use decided_by::DecidedBy;
pub use error::StoreError;
pub use fleet::Fleet;
pub use given::{Given, GivenSoon};
pub use half::{Half, Measurements};
pub use leases::{LEASED_FROM, LEASED_WITHIN};
pub use memory::MemoryStore;
pub use near::Near;
pub use news::News;
pub use place::{Address, Place};
pub use settings::{RedisTarget, Secret, Settings, Source};
pub use settle::{Correction, more};

use crate::limit::rate::Cost;
use crate::limit::{Limit, Scope};
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{Operation, Outcome, StoreMetrics};
use away::StandIn;
use redis::RedisStore;
use sparing::Spared;
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
        near: Near,
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
    ) -> Result<(Option<Decided>, DecidedBy), StoreError> {
        match self {
            Self::Memory(memory) => Ok((Some(memory.decide(checks)), DecidedBy::Memory)),
            Self::Redis { local, .. } if halves::are_mixed(checks) => {
                halves::decide(self, local, checks).await
            }
            Self::Redis { .. } => Ok(match sparing::decide(self, checks, false).await? {
                Spared::Known(recalled) => (Some(recalled.decided(checks)), DecidedBy::Remembered),
                Spared::Told(half, by) => (half.map(|half| Decided::of_half(checks, half)), by),
            }),
        }
    }

    /// Decides limits that all gateways share, or does what is to be done while they cannot be asked. Of a request that
    /// is `refused` already nothing is charged.
    async fn decide_shared(
        &self,
        checks: &[Check<'_>],
        refused: bool,
    ) -> Result<(Option<Half>, DecidedBy), StoreError> {
        let (shared, local, on_down, gateways, metrics, near) = match self {
            Self::Memory(memory) => {
                let half = memory.measure(checks, None, refused);
                return Ok((Some(half), DecidedBy::Memory));
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
        let stand_in = StandIn {
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
            let why = (why.clone(), |check: &Check<'_>| stand_in.shuts(check));
            answer = Box::pin(shared.measure_without(checks, (refused, asked), why)).await;
        }
        let told = Instant::now();
        metrics.called(Operation::Decide, outcome(&answer), told - asked);
        match answer {
            Ok(half) => {
                warn_of_spoilt(checks, &half);
                near.known
                    .remember(checks, &half, (asked, told), |limit| shared.may_pass(limit));
                let whole = stand_in.fill(checks, half, (refused, shared))?;
                Ok((Some(whole), DecidedBy::Redis))
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
    pub async fn peek(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<Decided, StoreError> {
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
    pub fn renew(&self, charge: &Charge, by: DecidedBy) {
        // In this process a slot is taken until it is given back.
        if charge.limit.scope == Scope::Gateway {
            return;
        }
        if let (Self::Redis { shared, .. }, DecidedBy::Redis) = (self, charge.by.unwrap_or(by)) {
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
    pub fn refund(&self, charge: Charge, by: DecidedBy) {
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
fn warn_of_spoilt(checks: &[Check<'_>], half: &Half) {
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

fn outcome(answer: &Result<Half, StoreError>) -> Outcome {
    let error = match answer {
        Ok(Half { gap: None, .. }) => return Outcome::Ok,
        Ok(Half { gap: Some(gap), .. }) => &gap.why,
        Err(error) => error,
    };
    match error {
        StoreError::Down => Outcome::Down,
        StoreError::Timeout { .. } => Outcome::Timeout,
        _ => Outcome::Error,
    }
}
