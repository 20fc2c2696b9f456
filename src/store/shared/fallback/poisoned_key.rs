//! A request of which one limit cannot be counted, for what lies at its key: the request is asked again without that limit,
//! for nothing was charged. The others are decided where they live, and `on_down` answers for the one alone.

use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::shared::SharedStore;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

impl SharedStore {
    /// Decides of `checks`, asked in vain for `why`, which `took` so long, those that can be decided: each limit that cannot falls out
    /// of the question once. All of it takes no longer than the settings' `timeout`.
    ///
    /// # Errors
    /// Where no limit can be decided, one that cannot lets nothing pass, or something may have been charged.
    pub(in crate::store) async fn ask_without(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        took: Duration,
        why: StoreError,
    ) -> Result<Answers, StoreError> {
        let after = self.redis.timeout();
        let asked = self.ask_rest(checks, intent, why);
        let answers = timeout(after.saturating_sub(took), asked).await;
        answers.unwrap_or(Err(StoreError::Timeout { after }))
    }

    async fn ask_rest(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        why: StoreError,
    ) -> Result<Answers, StoreError> {
        let mut out: SmallVec<[Arc<str>; INLINE_LIMITS]> = SmallVec::new();
        let mut last = why.clone();
        loop {
            match uncounted(&last) {
                // All rates of a limit fall out together.
                Some(name) if !out.contains(name) => out.push(Arc::clone(name)),
                _ => return Err(last),
            }
            let is_out = |check: &Check<'_>| out.contains(&check.limit.name);
            // A request that is not to pass anyhow is charged nothing.
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
                Ok(answers) => return Ok(among(checks, answers, why)),
                Err(error) => last = error,
            }
        }
    }
}

/// The limit that could not be read while nothing was written yet. What is refused for another reason may have been
/// refused at a write, with another limit's before it.
fn uncounted(error: &StoreError) -> Option<&Arc<str>> {
    match error {
        StoreError::Answer { limit, reason } if reason.contains("WRONGTYPE") => Some(limit),
        StoreError::Clock { limit } => Some(limit),
        _ => None,
    }
}

/// The `answers` of some of `checks`, among all of them: why nothing is known of the others.
fn among(checks: &[Check<'_>], answers: Answers, why: StoreError) -> Answers {
    let mut all = Answers::unknown(checks, Decider::Open, UnknownCause::Away);
    all.replace(&answers);
    Answers {
        at: answers.at,
        by: answers.by,
        outage: Some(Box::new(why)),
        ..all
    }
}
