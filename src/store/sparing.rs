//! Asks Redis as little as can be: not where a refusal is remembered, nor for limits of which a permit is in hand; and of
//! those whose refusal has just ended one asks for all.

use super::Store;
use super::batch::Check;
use super::decided_by::DecidedBy;
use super::error::StoreError;
use super::half::Half;
use super::known::{Recalled, Turn};
use super::leases::{self, Hand};
use crate::limit::OnDown;
use crate::limit::verdict::INLINE_LIMITS;
use smallvec::SmallVec;
use std::time::Instant;

/// What is said of limits that all gateways share.
pub(super) enum Spared {
    /// Refusals that were remembered say enough.
    Known(Recalled),
    /// What was measured of them, whoever did: nothing where all may pass while nobody counts.
    Told(Option<Half>, DecidedBy),
}

/// What is in hand of a request's limits.
pub(super) enum Taken<'a> {
    /// Nothing.
    Nothing,
    /// A permit for each of some.
    Permits(Hand<'a>),
    /// Refusals that were remembered say enough.
    Known(Recalled),
    /// One of them is known to have none.
    Refused(Half),
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
    let taken = match refused {
        true => Taken::Nothing,
        false => store.take(checks).await,
    };
    let hand = match taken {
        Taken::Nothing => return ask(store, checks, refused).await,
        Taken::Permits(hand) => hand,
        Taken::Known(recalled) => return Ok(Spared::Known(recalled)),
        Taken::Refused(half) => return Ok(Spared::Told(Some(half), DecidedBy::Remembered)),
    };
    let rest: SmallVec<[Check<'_>; INLINE_LIMITS]> = hand.rest(checks).collect();
    if rest.is_empty() {
        let (half, by) = hand.spend(checks);
        return Ok(Spared::Told(Some(half), by));
    }
    // Who is refused by the rest, or leaves meanwhile, puts the permits back.
    Ok(match ask(store, &rest, refused).await? {
        Spared::Known(recalled) => Spared::Known(recalled.among(checks, |at| !hand.has(at))),
        Spared::Told(half, by) => {
            let whole = hand.beside((checks, &rest), (half, by), store.on_down());
            Spared::Told(whole, by)
        }
    })
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
    let (half, by) = store.decide_shared(checks, refused).await?;
    if let (Turn::First(asking), [check], DecidedBy::Redis) = (&turn, checks, by)
        && let (Some(half), Store::Redis { shared, .. }) = (&half, store)
    {
        asking.admitted(check, half, (Instant::now(), shared.may_pass(check.limit)));
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

    /// What limits do while the store is away that do not say it themselves.
    fn on_down(&self) -> Option<OnDown> {
        match self {
            Self::Redis { on_down, .. } => Some(*on_down),
            Self::Memory(_) => None,
        }
    }

    /// Takes what is in hand of the limits that give leases.
    async fn take<'a>(&'a self, checks: &[Check<'a>]) -> Taken<'a> {
        match self {
            Self::Redis {
                shared,
                metrics,
                near,
                ..
            } if checks.iter().any(leases::may_take) => {
                leases::take(near, (shared, metrics), checks).await
            }
            _ => Taken::Nothing,
        }
    }
}
