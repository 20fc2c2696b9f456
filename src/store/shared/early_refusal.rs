//! A refusal that is known before any call to a store: a forged token need not be verified to refuse its request.

use super::{SharedStore, mixed_scope};
use crate::limit::verdict::Ruling;
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::decision::StoreDecision;

impl SharedStore {
    /// The refusal of a request with these limits, if it is known without a call: from counters of this process, or
    /// from cached refusals. No charge is made.
    pub(in crate::store) fn early_refusal(&self, checks: &[Check<'_>]) -> Option<StoreDecision> {
        let (local, shared): (Checks<'_>, Checks<'_>) =
            checks.iter().copied().partition(|check| check.is_local());
        let remembered = self.remembered(&shared);
        if local.is_empty() && remembered.is_none() {
            return None;
        }
        let local = self.local.measure(&local, Intent::Peek, Decider::Memory);
        let answers = mixed_scope::join(checks, &local, remembered.as_deref());
        let decided = StoreDecision::of(checks, answers);
        matches!(decided.decision.ruling, Ruling::Refuse { .. }).then_some(decided)
    }
}
