//! One decision over two counts: limits that each gateway counts by itself, and those that all gateways share.
//!
//! This process's half is checked and charged first, under its locks; it goes back when the shared half refuses, or
//! when nobody waits for the answer any more. When this half refuses, the shared one is asked all the same, with nothing
//! charged: the answer names the longest wait of all, and says where every limit stands. A refusal of the shared half that is
//! remembered needs no asking.

use super::Store;
use super::answers::{Answers, Measurements};
use super::check::{Check, StoreDecision, apart};
use super::decider::Decider;
use super::error::StoreError;
use super::memory::MemoryStore;
use super::refusal_cache::CachedRefusal;
use super::shadow::Charges;
use super::shared::{self, SharedAnswer};
use crate::clock::Timestamp;
use crate::limit::verdict::{INLINE_LIMITS, Ruling};
use crate::limit::{Limit, Scope};
use smallvec::SmallVec;

type Checks<'a> = SmallVec<[Check<'a>; INLINE_LIMITS]>;

/// Has any of them to be counted by this gateway alone?
pub(super) fn are_mixed(checks: &[Check<'_>]) -> bool {
    checks.iter().any(Check::is_own)
}

/// Decides `checks`, of which some are this gateway's own.
pub(super) async fn decide(
    store: &Store,
    memory: &MemoryStore,
    checks: &[Check<'_>],
) -> Result<(Option<StoreDecision>, Decider), StoreError> {
    let (own, shared): (Checks<'_>, Checks<'_>) =
        checks.iter().copied().partition(|check| check.is_own());
    if shared.is_empty() {
        return Ok((Some(alone(memory, checks)), Decider::Memory));
    }
    if let Some(recalled) = store.recall(&shared) {
        return Ok(remembered(memory, (checks, &own), recalled));
    }
    let mut held = LocalReservation::take((store, memory), own.clone());
    let refused = !held.charges.admitted;
    let (half, by) = match shared::decide(store, &shared, refused).await {
        Ok(SharedAnswer::Told(half, by)) => (half, by),
        // It was not known when this half was charged, which goes back.
        Ok(SharedAnswer::RefusalCache(recalled)) => {
            drop(held);
            return Ok(remembered(memory, (checks, &own), recalled));
        }
        // What refuses here is known, whatever the others would say.
        Err(_) if refused => (None, Decider::Closed),
        Err(error) => return Err(error),
    };
    let decided = StoreDecision::of_halves(checks, (held.at, &held.measured), half);
    held.stays = matches!(decided.decision.ruling, Ruling::Admit { .. });
    Ok((Some(decided), by))
}

/// The decision of this gateway's own limits, beside which no other stands.
fn alone(memory: &MemoryStore, checks: &[Check<'_>]) -> StoreDecision {
    let mut limits = checks.iter().map(|check| check.limit);
    if !limits.any(|limit| limit.is_asked_with_history()) {
        return memory.decide(checks);
    }
    // Who asks in another way forgets what the state says beside.
    let apart = apart(checks, Limit::with_history_if_asked);
    StoreDecision::of_half(checks, memory.measure(&apart, None, false))
}

/// The decision that what is remembered of the others makes, beside this gateway's `own`, of which nothing is charged.
fn remembered(
    memory: &MemoryStore,
    (checks, own): (&[Check<'_>], &[Check<'_>]),
    recalled: CachedRefusal,
) -> (Option<StoreDecision>, Decider) {
    let own = memory.measure(own, None, true);
    let decided = recalled.decided_beside(checks, &own);
    (Some(decided), Decider::Remembered)
}

/// What this process's half was charged: given back when dropped.
struct LocalReservation<'a> {
    store: &'a Store,
    memory: &'a MemoryStore,
    checks: Checks<'a>,
    at: Timestamp,
    measured: Measurements,
    charges: Charges,
    /// Nothing is to be given back.
    stays: bool,
}

impl<'a> LocalReservation<'a> {
    fn take((store, memory): (&'a Store, &'a MemoryStore), checks: Checks<'a>) -> Self {
        // Others may come between the charge and its return.
        let checks = apart(&checks, Limit::with_history);
        let Answers { at, measured, .. } = memory.measure(&checks, None, false);
        let charges = Charges::of(&checks, &measured, false);
        Self {
            store,
            memory,
            checks,
            at,
            measured,
            charges,
            stays: false,
        }
    }
}

impl Drop for LocalReservation<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let asked = self.checks.iter().zip(&self.measured).enumerate();
        for (_, (check, measured)) in asked.filter(|(index, _)| self.charges.has(*index)) {
            let undone = self.memory.undo(check, self.at, *measured);
            if !undone && check.limit.rule.queues() {
                // Somebody has come behind it meanwhile.
                self.store.leave_behind(check, self.at, *measured);
            }
        }
    }
}

impl Check<'_> {
    /// Is it counted by this gateway alone?
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.limit.scope == Scope::Gateway
    }
}
