//! The store of counters: this process, or Redis, with one meaning.
//!
//! In: the checks of one request. Out: an answer for each limit. The room knows no requests and no routes.
//!
//! ```text
//! settings                     the file's settings of the store
//! endpoint                     an address of Redis, shown without credentials
//! secret                       a text that is presented and never shown
//! changes                      what operators have changed, as entries under a version
//! check                        the question: the limits of one request
//! decider                      the part that answered
//! answers                      an answer for each limit
//! decision                     the consequence: the decision, and tickets of charges
//! shadow                       which limits are charged, where some only count
//! shared                       limits that all gateways share: refusal cache, leases, Redis, else the fallback
//! worker_cache                 what one worker knows without a call
//! invalidation                 changes of counters that end such knowledge
//! refusal_cache                refusals that still count cost no call
//! refusal_cache/single_flight  one request asks when a refusal has ended
//! refusal_cache/sibling_rates  the other rates of a list
//! lease                        permits taken with one call, used by the next requests
//! lease/key_lease              the lease of one key
//! lease/grant                  permits of several limits at once
//! lease/demand                 which keys are busy
//! memory                       counters in this process
//! redis                        counters in Redis, one script call for a request
//! fleet                        the gateways that count together
//! trials                       what limits need of a server is tried once a gateway
//! error                        why a store could not decide
//! reservation                  charges that are not final
//! ```

mod answers;
pub mod changes;
pub mod check;
mod decider;
pub mod decision;
pub mod endpoint;
pub mod error;
mod fleet;
mod invalidation;
mod lease;
pub mod memory;
pub mod redis;
mod refusal_cache;
mod reservation;
mod secret;
pub mod settings;
mod shadow;
mod shared;
mod trials;
mod worker_cache;

pub use crate::limit::OnDown;
pub use answers::{Answers, Evidence, LimitAnswer, LimitAnswers, Measurements, UnknownCause};
pub use check::{Check, Intent};
pub use decider::Decider;
pub use decision::StoreDecision;
pub use endpoint::{Address, RedisEndpoint};
pub use error::StoreError;
pub use fleet::Fleet;
pub use invalidation::Invalidation;
pub use lease::{LEASED_FROM, LEASED_WITHIN};
pub use memory::MemoryStore;
pub use reservation::{Amendment, Correction, PendingRefund, RefundOutcome, Reservation};
pub use secret::Secret;
pub use settings::{Backend, RedisTarget, StoreSettings};
pub use shadow::ShadowVerdict;
pub use shared::SharedStore;
pub use trials::{CounterUses, Trials};
pub use worker_cache::WorkerCache;

use crate::limit::rate::{Cost, MOST_UNITS};
use crate::limit::verdict::{Ruling, Wait};
use crate::limit::{Limit, Scope};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// A worker's handle to the counters. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub enum Store {
    /// All counters in this process.
    Memory(Arc<MemoryStore>),
    /// Counters that gateways share, in Redis.
    Shared(SharedStore),
}

impl Store {
    /// Decides all limits of one request at once. `None` means that no store could answer, and the request is admitted.
    /// The decision stays in its place from now on, since it is large.
    ///
    /// # Errors
    /// If the store is unavailable and `on_down` is `closed`.
    pub async fn decide(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<Box<StoreDecision>>, Decider), StoreError> {
        match self {
            Self::Memory(memory) => Ok((Some(memory.decide(checks)), Decider::Memory)),
            Self::Shared(shared) => {
                let (decided, by) = shared.decide(checks).await?;
                Ok((decided.map(Box::new), by))
            }
        }
    }

    /// The refusal of a request with these limits, if it is known without a call to Redis: from counters of this
    /// process, or from cached refusals. No charge is made.
    #[must_use]
    pub fn refusal(&self, checks: &[Check<'_>]) -> Option<(StoreDecision, Decider)> {
        if checks.is_empty() {
            return None;
        }
        match self {
            Self::Memory(memory) => {
                let answers = memory.measure(checks, Intent::Peek, Decider::Memory);
                let decided = StoreDecision::of(checks, answers);
                let refuses = matches!(decided.decision.ruling, Ruling::Refuse { .. });
                refuses.then_some((decided, Decider::Memory))
            }
            Self::Shared(shared) => {
                let decided = shared.early_refusal(checks)?;
                Some((decided, Decider::Remembered))
            }
        }
    }

    /// The state of one counter. No unit is taken from it.
    ///
    /// # Errors
    /// If the store is unavailable.
    pub async fn peek(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<StoreDecision, StoreError> {
        let checks = [Check {
            limit,
            key,
            cost: Cost::ZERO,
            id: None,
        }];
        let mut decided = match self {
            Self::Memory(memory) => *memory.decide(&checks),
            Self::Shared(shared) if limit.scope == Scope::Gateway => *shared.local.decide(&checks),
            Self::Shared(shared) => shared.redis.decide(&checks).await?,
        };
        // In a check of its own, a limit that does not decide is shown as if it did.
        let shadow = decided.shadows.pop();
        if let Some(verdict) = shadow.and_then(|shadow| shadow.verdict) {
            decided.decision.verdicts.push(verdict);
        } else if shadow.is_some() {
            return Err(StoreError::Answer {
                limit: limit.name.clone(),
                reason: "it cannot be read".into(),
            });
        }
        Ok(decided)
    }

    /// The microseconds until one counter, of a limit that decides, has room for `units`; `None` if it has room now, or
    /// never. No unit is taken. A limit with `block` is not asked, since its answer would begin a block.
    ///
    /// # Errors
    /// If the store is unavailable.
    pub async fn wait_for(
        &self,
        units: u64,
        limit: &Arc<Limit>,
        key: &[u8],
    ) -> Result<Option<u64>, StoreError> {
        if limit.blocking.is_some() || !limit.mode.decides() {
            return Ok(None);
        }
        let checks = [Check {
            cost: Cost::new(units.min(MOST_UNITS)),
            ..Check::new(limit, key)
        }];
        let answers = match self {
            Self::Memory(memory) => memory.measure(&checks, Intent::Peek, Decider::Memory),
            Self::Shared(shared) if limit.scope == Scope::Gateway => {
                let local = &shared.local;
                local.measure(&checks, Intent::Peek, Decider::Memory)
            }
            Self::Shared(shared) => *shared.redis.measure(&checks, Intent::Peek).await?,
        };
        let decided = StoreDecision::of(&checks, answers);
        Ok(match decided.decision.ruling {
            Ruling::Refuse {
                wait: Wait::Micros(wait),
                ..
            } if decided.is_whole() => Some(wait),
            _ => None,
        })
    }

    /// Deletes one counter, in every store. Returns whether it existed. Ids that the counter has charged stay
    /// remembered: their repeats have been paid for.
    ///
    /// # Errors
    /// If the store is unavailable.
    pub async fn reset(&self, limit: &Arc<Limit>, key: &[u8]) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.reset(limit, key)),
            Self::Shared(shared) if limit.scope == Scope::Gateway => {
                Ok(shared.local.reset(limit, key))
            }
            Self::Shared(shared) => shared.reset(limit, key).await,
        }
    }

    /// Amends a charge, in so far as no other charge depends on it, and returns the outcome of a refund. No request
    /// waits for the outcome. Slots must be renewed every third of their life.
    pub fn amend(&self, reservation: &Reservation, amendment: Amendment) -> RefundOutcome {
        match self {
            Self::Memory(memory) => memory.amend(reservation, amendment),
            Self::Shared(shared) => shared.amend(reservation, amendment),
        }
    }

    /// Waits until slots of a request in flight must be renewed, at the latest at `until`. The store may need them
    /// earlier: another server has replaced the one that gave them, or Redis has returned.
    pub async fn wants_slots(&self, until: Instant) -> Amendment {
        let registers = async {
            match self {
                Self::Memory(_) => std::future::pending().await,
                Self::Shared(shared) => shared.redis.registers().await,
            }
        };
        match timeout_at(until, registers).await {
            Ok(()) => Amendment::Registration,
            Err(_) => Amendment::Renewal,
        }
    }

    /// The same slot as counted in this process, if it should be: this process may have to decide in place of Redis,
    /// which has given the slot.
    #[must_use]
    pub fn slot_here(&self, slot: &Reservation) -> Option<Reservation> {
        match self {
            Self::Memory(_) => None,
            Self::Shared(shared) => shared.slot_here(slot),
        }
    }

    /// Is Redis currently used for the counter of this slot?
    #[must_use]
    pub fn asks_redis_about(&self, slot: &Reservation) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Shared(shared) => shared.redis.serves(&slot.limit, &slot.key),
        }
    }

    /// The same slot for Redis, if this process has given it in place of Redis.
    #[must_use]
    pub fn slot_in_redis(slot: &Reservation) -> Option<Reservation> {
        SharedStore::slot_in_redis(slot)
    }

    /// Passes to `heir` the places in queues of requests that leave before their decision. In memory no request can
    /// leave that early.
    pub fn on_abandoned_ticket(&self, take_over: impl Fn(Reservation) + 'static) {
        if let Self::Shared(shared) = self {
            shared.redis.on_abandoned_ticket(Box::new(take_over));
        }
    }

    /// Waits until refunds have been sent and the other gateways know that this one leaves. Each of the two takes the
    /// store's timeout at most.
    pub async fn settle(&self) {
        if let Self::Shared(shared) = self {
            shared.settle().await;
        }
    }

    /// Reports to the metrics whether Redis is available, and drops outdated knowledge. The caller repeats this
    /// periodically, since an idle worker makes no calls.
    pub fn report(&self) {
        if let Self::Shared(shared) = self {
            shared.report();
        }
    }
}
