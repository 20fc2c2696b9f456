//! The stand-in for Redis while it is away: each limit does as its `on_down` says.
//!
//! This gateway counts as one of many. It multiplies each request's cost by the number of gateways, so that all of them
//! together admit as much as one would have. A bucket that is too small for such a cost is enlarged to hold it, at its
//! own rate. The remainder that clients see is divided again by the number of gateways.

mod poisoned_key;

use super::SharedStore;
use crate::limit::{Limit, OnDown};
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent, replace_limits};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::telemetry::metrics;

impl SharedStore {
    /// Decides `checks`, which Redis could not decide because of `error`.
    ///
    /// # Errors
    /// The error, when a deciding limit lets nothing pass.
    pub(super) fn fall_back(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        error: StoreError,
    ) -> Result<Box<Answers>, StoreError> {
        if checks.iter().any(|check| self.shuts(check)) {
            self.metrics.fallback(metrics::DecidedBy::Closed);
            return Err(error);
        }
        let counted = checks.iter().copied();
        let counted: Checks<'_> = counted
            .filter(|check| self.on_down(check.limit) == OnDown::Local)
            .collect();
        let unknown = Answers::unknown(checks, Decider::Open, UnknownCause::Away);
        let mut answers = Box::new(unknown);
        if counted.is_empty() {
            self.metrics.fallback(metrics::DecidedBy::Open);
            return Ok(answers);
        }
        self.metrics.fallback(metrics::DecidedBy::Local);
        let gateways = self.fleet.gateways();
        let by = Decider::Local { gateways };
        let local = self.local.measure(&counted, intent, by);
        (answers.at, answers.by) = (local.at, local.by);
        answers.replace(&local);
        Ok(answers)
    }

    /// Decides the checks of `checks` whose part of Redis is away, if a part is. `on_down` answers for these alone; the
    /// other answers hold.
    ///
    /// # Errors
    /// The error, when one of them lets nothing pass.
    pub(super) fn fill(
        &self,
        checks: &[Check<'_>],
        mut answers: Box<Answers>,
        intent: Intent,
    ) -> Result<Box<Answers>, StoreError> {
        let Some(why) = answers.outage.take() else {
            return Ok(answers);
        };
        why.warn();
        // Another limit is known to refuse, whatever the unknown limits would answer.
        if !answers.admit(checks) {
            return Ok(answers);
        }
        let all = checks.iter().zip(&answers.each);
        let unknown: Checks<'_> = all
            .filter(|(_, answer)| !answer.is_known())
            .map(|(check, _)| *check)
            .collect();
        let local = self.fall_back(&unknown, intent, *why);
        let is_admitted = local.as_ref().is_ok_and(|local| local.admit(&unknown));
        if intent == Intent::Charge && !is_admitted {
            // The charges are cancelled on the same variants of the limits as were asked.
            let charged = replace_limits(checks, Limit::with_history_if_asked);
            self.redis.cancel(&answers.reservations(&charged));
        }
        answers.replace(&local?);
        Ok(answers)
    }

    /// Does `on_down` of the check's limit let nothing pass? A limit that does not decide keeps no request out.
    fn shuts(&self, check: &Check<'_>) -> bool {
        check.limit.mode.decides() && self.on_down(check.limit) == OnDown::Closed
    }

    pub(super) fn on_down(&self, limit: &Limit) -> OnDown {
        limit.on_down.unwrap_or(self.on_down)
    }
}
