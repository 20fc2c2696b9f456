//! What this gateway knows of a request's limits before it asks anybody: that they refuse.

use super::check::{Check, StoreDecision};
use super::{Decider, Store};
use crate::limit::verdict::{INLINE_LIMITS, Ruling};
use smallvec::SmallVec;

type Checks<'a> = SmallVec<[Check<'a>; INLINE_LIMITS]>;

impl Store {
    /// The refusal of a request with these limits, where it is known without a question to anybody: by what is counted in
    /// this process, or remembered of Redis. Nothing is charged.
    #[must_use]
    pub fn refusal(&self, checks: &[Check<'_>]) -> Option<(StoreDecision, Decider)> {
        if checks.is_empty() {
            return None;
        }
        let (decided, by) = match self {
            Self::Memory(memory) => {
                let half = memory.measure(checks, None, true);
                (StoreDecision::of_half(checks, half), Decider::Memory)
            }
            Self::Redis { local, .. } => {
                let (own, shared): (Checks<'_>, Checks<'_>) =
                    checks.iter().copied().partition(|check| check.is_own());
                let own = (!own.is_empty()).then(|| local.measure(&own, None, true));
                let decided = match (own, self.recall(&shared)) {
                    (None, None) => return None,
                    (None, Some(recalled)) => recalled.decided(checks),
                    (Some(own), Some(recalled)) => recalled.decided_beside(checks, &own),
                    (Some(own), None) => {
                        StoreDecision::of_halves(checks, (own.at, &own.measured), None)
                    }
                };
                (decided, Decider::Remembered)
            }
        };
        let refuses = matches!(decided.decision.ruling, Ruling::Refuse { .. });
        refuses.then_some((decided, by))
    }
}
