//! Asks Redis as little as can be: not where a refusal is remembered, nor for limits of which a permit is in hand; and of
//! those whose refusal has just ended one asks for all.

mod multi_limit;

use super::Store;
use super::answers::Answers;
use super::check::Check;
use super::decider::Decider;
use super::error::StoreError;
use super::lease::{self, LeaseAnswer};
use super::refusal_cache::{CachedRefusal, Flight};
use std::time::Instant;

/// What is said of limits that all gateways share.
pub(super) enum SharedAnswer {
    /// Refusals that were remembered say enough.
    RefusalCache(CachedRefusal),
    /// What was measured of them, whoever did: nothing where all may pass while nobody counts.
    Told(Option<Answers>, Decider),
}

/// Decides `checks`. Of a request that is `refused` already nothing is charged.
///
/// # Errors
/// When the store is away, and a limit that is to be asked lets nothing pass then.
pub(super) async fn decide(
    store: &Store,
    checks: &[Check<'_>],
    refused: bool,
) -> Result<SharedAnswer, StoreError> {
    let Store::Redis {
        shared,
        metrics,
        near,
        ..
    } = store
    else {
        return ask(store, checks, refused).await;
    };
    match checks {
        _ if refused || !checks.iter().any(lease::may_take) => ask(store, checks, refused).await,
        [check] => match lease::take(near, (shared, metrics), check).await {
            LeaseAnswer::Nothing => ask(store, checks, refused).await,
            LeaseAnswer::RefusalCache(recalled) => Ok(SharedAnswer::RefusalCache(recalled)),
            LeaseAnswer::Told(half, by) => Ok(SharedAnswer::Told(Some(half), by)),
        },
        _ => multi_limit::decide(store, (near, shared, metrics), checks).await,
    }
}

/// Decides `checks`, of which nothing is in hand.
async fn ask(
    store: &Store,
    checks: &[Check<'_>],
    refused: bool,
) -> Result<SharedAnswer, StoreError> {
    if let Some(recalled) = store.recall(checks) {
        return Ok(SharedAnswer::RefusalCache(recalled));
    }
    let turn = match refused {
        true => Flight::Solo,
        false => store.turn(checks),
    };
    if let Flight::Follower(others) = &turn {
        others.wait().await;
        if let Some(recalled) = store.recall(checks) {
            return Ok(SharedAnswer::RefusalCache(recalled));
        }
    }
    let (mut half, by) = store.decide_shared(checks, refused).await?;
    if let (Flight::Leader(asking), [check], Decider::Redis) = (&turn, checks, by)
        && let (Some(half), Store::Redis { shared, .. }) = (&half, store)
    {
        asking.admitted(check, half, (Instant::now(), shared.may_pass(check.limit)));
    }
    if let (Some(half), Store::Redis { near, .. }, Decider::Redis) = (&mut half, store, by) {
        near.leases.lengthen(checks, half);
    }
    Ok(SharedAnswer::Told(half, by))
}

impl Store {
    /// What is known of a request that will be refused. Of a counter that is away `on_down` has the word, and when it is
    /// back it may be another.
    pub(super) fn recall(&self, checks: &[Check<'_>]) -> Option<CachedRefusal> {
        match self {
            Self::Redis { shared, near, .. } => near.recall(shared, checks),
            Self::Memory(_) => None,
        }
    }

    /// Whether a request of which nothing is known asks at once.
    fn turn(&self, checks: &[Check<'_>]) -> Flight {
        match (self, checks) {
            (Self::Redis { shared, near, .. }, [check])
                if shared.serves(check.limit, check.key) =>
            {
                near.known.turn(checks, (Instant::now, near.patience()))
            }
            _ => Flight::Solo,
        }
    }
}
