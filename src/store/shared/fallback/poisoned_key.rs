//! A request with a limit that cannot be counted, since its key holds another value. The request was charged nothing,
//! so that it is checked again without that limit. The other limits are decided by their stores, and `on_down` answers
//! for the one.

use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::shared::SharedStore;
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

impl SharedStore {
    /// Decides the checks that can be decided by the instant `ends`, after a call for all `checks` that failed with
    /// `why`. Each limit that cannot be counted is removed from the call once.
    ///
    /// # Errors
    /// If no limit can be decided, an uncountable limit refuses requests then, or a charge may have been made.
    pub(in crate::store) async fn ask_without(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        ends: Instant,
        why: StoreError,
    ) -> Result<Box<Answers>, StoreError> {
        let after = self.redis.timeout();
        let answers = timeout_at(ends, self.ask_rest(checks, intent, why)).await;
        answers.unwrap_or(Err(StoreError::Timeout { after }))
    }

    async fn ask_rest(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        why: StoreError,
    ) -> Result<Box<Answers>, StoreError> {
        let mut out: SmallVec<[Arc<str>; INLINE_LIMITS]> = SmallVec::new();
        let mut last = why.clone();
        loop {
            match uncounted(&last) {
                // All rates of a limit are removed together.
                Some(name) if !out.contains(name) => out.push(Arc::clone(name)),
                _ => return Err(last),
            }
            let is_out = |check: &Check<'_>| out.contains(&check.limit.name);
            // A request that is refused in any case is charged nothing.
            if checks
                .iter()
                .any(|check| is_out(check) && self.shuts(check))
            {
                return Err(last);
            }
            let rest = checks.iter().copied().filter(|check| !is_out(check));
            let rest: Checks<'_> = rest.collect();
            if rest.is_empty() {
                return Err(why);
            }
            match self.redis.measure(&rest, intent).await {
                Ok(answers) => return Ok(Box::new(among(checks, &answers, why))),
                Err(error) => last = error,
            }
        }
    }
}

/// The limit that could not be read before anything was written. Any other error may have occurred at a write, after
/// another limit's charge.
fn uncounted(error: &StoreError) -> Option<&Arc<str>> {
    match error {
        StoreError::Answer { limit, reason } if reason.contains("WRONGTYPE") => Some(limit),
        StoreError::Clock { limit } => Some(limit),
        _ => None,
    }
}

/// The `answers` of some of `checks`, placed among all of them. `why` is the cause for which the others are unknown.
fn among(checks: &[Check<'_>], answers: &Answers, why: StoreError) -> Answers {
    let mut all = Answers::unknown(checks, Decider::Open, UnknownCause::Away);
    all.replace(answers);
    Answers {
        at: answers.at,
        by: answers.by,
        outage: Some(Box::new(why)),
        ..all
    }
}
