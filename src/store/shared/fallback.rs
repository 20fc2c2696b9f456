//! What stands in for Redis while it is away: each limit does as its `on_down` says.
//!
//! What is counted here is counted as one of many: a request costs as many times as much as there were gateways, so that
//! all of them together admit what one would have. A bucket that does not hold that much holds it, at its own rate. What
//! such a cost leaves of a limit is divided again before a client sees it.

mod poisoned_key;

use super::SharedStore;
use crate::limit::{Limit, OnDown};
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent, apart};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::telemetry::metrics;

impl SharedStore {
    /// Decides `checks`, which Redis could not for `error`.
    ///
    /// # Errors
    /// When a limit that decides lets nothing pass.
    pub(super) fn fall_back(
        &self,
        checks: &[Check<'_>],
        intent: Intent,
        error: StoreError,
    ) -> Result<Answers, StoreError> {
        if checks.iter().any(|check| self.shuts(check)) {
            self.metrics.fallback(metrics::DecidedBy::Closed);
            return Err(error);
        }
        let counted = checks.iter().copied();
        let counted: Checks<'_> = counted
            .filter(|check| self.on_down(check) == OnDown::Local)
            .collect();
        let mut answers = Answers::unknown(checks, Decider::Open, UnknownCause::Away);
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

    /// Decides those of `checks` whose part of Redis is away, if one is: `on_down` answers for these alone, and what was decided
    /// holds.
    ///
    /// # Errors
    /// When one of them lets nothing pass.
    pub(super) fn fill(
        &self,
        checks: &[Check<'_>],
        mut answers: Answers,
        intent: Intent,
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
        let local = self.fall_back(&unknown, intent, *why);
        let is_admitted = local.as_ref().is_ok_and(|local| local.admit(&unknown));
        if intent == Intent::Charge && !is_admitted {
            // As they were asked.
            let charged = apart(checks, Limit::with_history_if_asked);
            self.redis.cancel(&answers.reservations(&charged));
        }
        answers.replace(&local?);
        Ok(answers)
    }

    /// Does `check` let nothing pass? A limit that does not decide keeps no request out.
    fn shuts(&self, check: &Check<'_>) -> bool {
        check.limit.mode.decides() && self.on_down(check) == OnDown::Closed
    }

    fn on_down(&self, check: &Check<'_>) -> OnDown {
        check.limit.on_down.unwrap_or(self.on_down)
    }
}
