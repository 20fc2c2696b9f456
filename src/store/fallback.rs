//! What stands in for Redis while it is away: each limit does as its `on_down` says.
//!
//! What is counted here is counted as one of many: a request costs as many times as much as there were gateways, so that
//! all of them together admit what one would have; a bucket that does not hold that much holds it, at its own rate. What
//! such a cost leaves of a limit is divided again before anybody is told.

mod partial;

use super::answers::{Answers, Measurements};
use super::check::Check;
use super::decider::Decider;
use super::error::StoreError;
use super::memory::MemoryStore;
use crate::limit::OnDown;
use crate::limit::verdict::{INLINE_LIMITS, Measurement};
use crate::telemetry::metrics::{self, StoreMetrics};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// Who stands in.
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
    /// Decides `checks`, which nobody else could for `error`. Of a request that is `refused` already nothing is charged.
    ///
    /// # Errors
    /// When a limit that decides lets nothing pass.
    pub(super) fn decide(
        &self,
        checks: &[Check<'_>],
        refused: bool,
        error: StoreError,
    ) -> Result<(Option<Answers>, Decider), StoreError> {
        if checks.iter().any(|check| self.shuts(check)) {
            self.metrics.fallback(metrics::DecidedBy::Closed);
            return Err(error);
        }
        let counted: SmallVec<[Check<'_>; INLINE_LIMITS]> = checks
            .iter()
            .filter(|check| self.does(check) == OnDown::Local)
            .copied()
            .collect();
        if counted.is_empty() {
            self.metrics.fallback(metrics::DecidedBy::Open);
            return Ok((None, Decider::Open));
        }
        self.metrics.fallback(metrics::DecidedBy::Local);
        let half = self
            .memory
            .measure_as_one_of(&counted, (None, refused), self.gateways);
        let by = Decider::Local {
            gateways: self.gateways,
        };
        Ok((Some(self.spread(checks, half)), by))
    }

    /// Does `check` let nothing pass? Who decides nothing keeps nobody out.
    pub(super) fn shuts(&self, check: &Check<'_>) -> bool {
        check.limit.mode.decides() && self.does(check) == OnDown::Closed
    }

    pub(super) fn does(&self, check: &Check<'_>) -> OnDown {
        check.limit.on_down.unwrap_or(self.on_down)
    }

    /// Puts what was counted here beside what nobody counted.
    fn spread(&self, checks: &[Check<'_>], half: Answers) -> Answers {
        let mut counted = half.measured.into_iter();
        let measured: Measurements = checks
            .iter()
            .map(|check| match self.does(check) {
                OnDown::Local => counted.next().unwrap_or(Measurement::UNKNOWN),
                _ => check.nobody(),
            })
            .collect();
        let any_open = checks.iter().any(|check| self.does(check) != OnDown::Local);
        Answers {
            measured,
            gateways: self.gateways,
            open: any_open.then_some(self.on_down),
            ..Answers::whole(half.at, Measurements::new())
        }
    }
}
