//! What a store is asked: the limits of one request, checked together, charged all or none. Limits that do not decide
//! stand behind those that do.

use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::limit::verdict::{INLINE_LIMITS, Measurement, Repeat, VerdictOutcome};
use crate::limit::{Limit, Mark, RecordMark, Scope, Ticket};
use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// What a request asks its limits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To be admitted, and charged.
    Charge,
    /// Where they stand: the request is refused elsewhere, and nothing is charged.
    Peek,
}

/// Some of a request's checks.
pub(super) type Checks<'a> = SmallVec<[Check<'a>; INLINE_LIMITS]>;

/// One limit of a request. The limits of one request differ from each other.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The limit.
    pub limit: &'a Arc<Limit>,
    /// The key that is counted.
    pub key: &'a [u8],
    /// How much the request takes.
    pub cost: Cost,
    /// Under which id it may have been charged before, where the limit asks for one and the request has one.
    pub id: Option<RepeatId>,
}

impl<'a> Check<'a> {
    /// At the limit's own cost.
    #[must_use]
    pub fn new(limit: &'a Arc<Limit>, key: &'a [u8]) -> Self {
        Self {
            limit,
            key,
            cost: limit.cost,
            id: None,
        }
    }

    /// Whether the request may be a repeat, and of what. One that takes nothing is none.
    #[must_use]
    pub fn repeats(&self) -> Option<(&'a Dedupe, RepeatId)> {
        let id = self.id.filter(|_| self.cost != Cost::ZERO)?;
        Some((self.limit.dedupe.as_ref()?, id))
    }
}

impl Check<'_> {
    /// Is it counted by this gateway alone?
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.limit.scope == Scope::Gateway
    }

    /// How long after its decision at `at` the turn is that its charge in this queue has paid for.
    pub(super) fn turn(&self, at: Timestamp, measured: Measurement) -> Duration {
        if !self.limit.rule.queues() {
            return Duration::ZERO;
        }
        let verdict = self.limit.rule.verdict(measured, at, self.cost, true);
        match verdict.outcome {
            VerdictOutcome::Admit { delay } => Duration::from_micros(delay),
            VerdictOutcome::Refuse(_) => Duration::ZERO,
        }
    }

    /// The ticket of what was charged at `at`, or went free, by one of so many gateways that each count for themselves.
    pub(super) fn ticket(
        &self,
        at: Timestamp,
        measured: Measurement,
        gateways: NonZeroU32,
    ) -> Option<Ticket> {
        let repeats = self.repeats().filter(|_| measured.repeat != Repeat::No);
        let record = repeats.map(|(dedupe, id)| RecordMark {
            id,
            ends: at.plus(dedupe.ttl).micros(),
        });
        let cost = self.limit.share(measured.charged(self.cost), gateways);
        let ticket = self.limit.ticket(at, measured, cost);
        let mark = match measured.repeat {
            // Nothing was charged, but for the one that it repeats.
            Repeat::Free => Mark::Repeat,
            Repeat::No | Repeat::First => ticket.mark,
        };
        (self.cost != Cost::ZERO).then_some(Ticket {
            mark,
            record,
            ..ticket
        })
    }
}

/// `checks` with what `other` gives in the place of their limits.
pub(super) fn apart<'a>(
    checks: &[Check<'a>],
    other: impl Fn(&Limit) -> Option<&Arc<Limit>>,
) -> Checks<'a> {
    let apart = checks.iter().map(|check| Check {
        limit: other(check.limit).unwrap_or(check.limit),
        ..*check
    });
    apart.collect()
}
