//! Asks Redis as little as can be: not where a refusal is remembered, nor for limits of which a permit is in hand; and of
//! those whose refusal has just ended one asks for all.

mod several;

use super::Store;
use super::batch::Check;
use super::decided_by::DecidedBy;
use super::error::StoreError;
use super::half::Half;
use super::known::{Recalled, Turn};
use super::leases::{self, Taken};
use std::time::Instant;

/// What is said of limits that all gateways share.
pub(super) enum Spared {
    /// Refusals that were remembered say enough.
    Known(Recalled),
    /// What was measured of them, whoever did: nothing where all may pass while nobody counts.
    Told(Option<Half>, DecidedBy),
}

/// Decides `checks`. Of a request that is `refused` already nothing is charged.
///
/// # Errors
/// When the store is away, and a limit that is to be asked lets nothing pass then.
pub(super) async fn decide(
    store: &Store,
    checks: &[Check<'_>],
    refused: bool,
) -> Result<Spared, StoreError> {
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
        _ if refused || !checks.iter().any(leases::may_take) => ask(store, checks, refused).await,
        [check] => match leases::take(near, (shared, metrics), check).await {
            Taken::Nothing => ask(store, checks, refused).await,
            Taken::Known(recalled) => Ok(Spared::Known(recalled)),
            Taken::Told(half, by) => Ok(Spared::Told(Some(half), by)),
        },
        _ => several::decide(store, (near, shared, metrics), checks).await,
    }
}

/// Decides `checks`, of which nothing is in hand.
async fn ask(store: &Store, checks: &[Check<'_>], refused: bool) -> Result<Spared, StoreError> {
    if let Some(recalled) = store.recall(checks) {
        return Ok(Spared::Known(recalled));
    }
    let turn = match refused {
        true => Turn::Ask,
        false => store.turn(checks),
    };
    if let Turn::Wait(others) = &turn {
        others.wait().await;
        if let Some(recalled) = store.recall(checks) {
            return Ok(Spared::Known(recalled));
        }
    }
    let (mut half, by) = store.decide_shared(checks, refused).await?;
    if let (Turn::First(asking), [check], DecidedBy::Redis) = (&turn, checks, by)
        && let (Some(half), Store::Redis { shared, .. }) = (&half, store)
    {
        asking.admitted(check, half, (Instant::now(), shared.may_pass(check.limit)));
    }
    if let (Some(half), Store::Redis { near, .. }, DecidedBy::Redis) = (&mut half, store, by) {
        near.leases.lengthen(checks, half);
    }
    Ok(Spared::Told(half, by))
}

impl Store {
    /// What is known of a request that will be refused. Of a counter that is away `on_down` has the word, and when it is
    /// back it may be another.
    pub(super) fn recall(&self, checks: &[Check<'_>]) -> Option<Recalled> {
        match self {
            Self::Redis { shared, near, .. } => near.recall(shared, checks),
            Self::Memory(_) => None,
        }
    }

    /// Whether a request of which nothing is known asks at once.
    fn turn(&self, checks: &[Check<'_>]) -> Turn {
        match (self, checks) {
            (Self::Redis { shared, near, .. }, [check])
                if shared.serves(check.limit, check.key) =>
            {
                near.known.turn(checks, (Instant::now, near.patience()))
            }
            _ => Turn::Ask,
        }
    }
}
