//! A request of which some limits were decided, and others could not be: the master where they live is away. What was
//! decided holds; for the rest, and for it alone, `on_down` answers.

use super::Fallback;
use crate::store::answers::Answers;
use crate::store::check::{Check, Checks};
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;

impl Fallback<'_> {
    /// Answers for the limits whose part of `redis` is away, if one is. A request that is `refused` already is charged
    /// nothing.
    ///
    /// # Errors
    /// When one of them lets nothing pass.
    pub(in crate::store) fn fill(
        &self,
        checks: &[Check<'_>],
        mut answers: Answers,
        refused: bool,
        redis: &RedisStore,
    ) -> Result<Answers, StoreError> {
        let Some(outage) = answers.outage.take() else {
            return Ok(answers);
        };
        outage.why.warn();
        // The refusal of another limit is known, whatever these would say.
        if !answers.admit(checks) {
            return Ok(answers);
        }
        let all = checks.iter().zip(&answers.each);
        let unknown: Checks<'_> = all
            .filter(|(_, answer)| !answer.is_known())
            .map(|(check, _)| *check)
            .collect();
        let local = match self.decide(&unknown, refused, outage.why) {
            Ok(local) => local,
            Err(why) => {
                redis.cancel(&outage.charged);
                return Err(why);
            }
        };
        if !local.admit(&unknown) {
            redis.cancel(&outage.charged);
        }
        answers.replace(&local);
        Ok(answers)
    }
}
