//! A request of which some limits were decided, and others could not be: the master where they live is away. What was
//! decided holds; for the rest, and for it alone, `on_down` answers.

use super::Fallback;
use crate::limit::Limit;
use crate::store::answers::Answers;
use crate::store::check::{Check, Checks, Intent, apart};
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;

impl Fallback<'_> {
    /// Answers for the limits whose part of `redis` is away, if one is.
    ///
    /// # Errors
    /// When one of them lets nothing pass.
    pub(in crate::store) fn fill(
        &self,
        checks: &[Check<'_>],
        mut answers: Answers,
        intent: Intent,
        redis: &RedisStore,
    ) -> Result<Answers, StoreError> {
        let Some(why) = answers.outage.take() else {
            return Ok(answers);
        };
        why.warn();
        // The refusal of another limit is known, whatever these would say.
        if !answers.admit(checks) {
            return Ok(answers);
        }
        let all = checks.iter().zip(&answers.each);
        let unknown: Checks<'_> = all
            .filter(|(_, answer)| !answer.is_known())
            .map(|(check, _)| *check)
            .collect();
        let local = self.decide(&unknown, intent, *why);
        let is_admitted = local.as_ref().is_ok_and(|local| local.admit(&unknown));
        if intent == Intent::Charge && !is_admitted {
            // As they were asked.
            let charged = apart(checks, Limit::with_history_if_asked);
            redis.cancel(&answers.reservations(&charged));
        }
        answers.replace(&local?);
        Ok(answers)
    }
}
