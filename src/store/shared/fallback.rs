//! The fallback while Redis is unavailable: each limit follows its `on_down`.
//!
//! This gateway counts as one of many. It multiplies each request's cost by the number of gateways, so that all of them
//! together admit as much as one gateway would. A bucket that is too small for such a cost is enlarged for it, at its
//! own rate. The remainder for clients is divided again by the number of gateways.

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
    /// If a deciding limit refuses requests then.
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

    /// Decides those checks of `checks` whose part of Redis is unavailable, if there are any. `on_down` answers for
    /// these alone; the other answers stay valid.
    ///
    /// # Errors
    /// If one of them refuses requests then.
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
        // Another limit is known to refuse, for any answers of the unknown limits.
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
            // The charges are cancelled on the same variants of the limits as were checked.
            let charged = replace_limits(checks, Limit::with_history_if_asked);
            self.redis.cancel(&answers.reservations(&charged));
        }
        answers.replace(&local?);
        Ok(answers)
    }

    /// Does `on_down` of the check's limit refuse requests? A limit that does not decide refuses no request.
    fn shuts(&self, check: &Check<'_>) -> bool {
        check.limit.mode.decides() && self.on_down(check.limit) == OnDown::Closed
    }

    pub(super) fn on_down(&self, limit: &Limit) -> OnDown {
        limit.on_down.unwrap_or(self.on_down)
    }
}
