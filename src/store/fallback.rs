//! What stands in for Redis while it is away: each limit does as its `on_down` says.
//!
//! What is counted here is counted as one of many: a request costs as many times as much as there were gateways, so that
//! all of them together admit what one would have. A bucket that does not hold that much holds it, at its own rate. What
//! such a cost leaves of a limit is divided again before a client sees it.

mod partial;
mod poisoned_key;

use super::answers::{Answers, UnknownCause};
use super::check::{Check, Checks, Intent};
use super::decider::Decider;
use super::error::StoreError;
use super::memory::MemoryStore;
use crate::limit::OnDown;
use crate::telemetry::metrics::{self, StoreMetrics};
use std::num::NonZeroU32;

/// The counters of this process and the rules by which they stand in.
#[derive(Debug)]
pub(super) struct Fallback<'a> {
    /// This process's own counters.
    pub(super) memory: &'a MemoryStore,
    /// What limits do that do not say.
    pub(super) on_down: OnDown,
    /// How many gateways there were.
    pub(super) gateways: NonZeroU32,
    pub(super) metrics: &'a StoreMetrics,
}

impl Fallback<'_> {
    /// Decides `checks`, which Redis could not for `error`.
    ///
    /// # Errors
    /// When a limit that decides lets nothing pass.
    pub(super) fn decide(
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
        let gateways = self.gateways;
        let by = Decider::Local { gateways };
        let local = self.memory.measure(&counted, intent, by);
        (answers.at, answers.by) = (local.at, local.by);
        answers.replace(&local);
        Ok(answers)
    }

    /// Does `check` let nothing pass? A limit that does not decide keeps no request out.
    pub(super) fn shuts(&self, check: &Check<'_>) -> bool {
        check.limit.mode.decides() && self.on_down(check) == OnDown::Closed
    }

    fn on_down(&self, check: &Check<'_>) -> OnDown {
        check.limit.on_down.unwrap_or(self.on_down)
    }
}
