//! The checks of a request by a store: its limits are checked together, and all or none are charged. Limits that do not
//! decide come after the deciding ones.

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

/// The purpose of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// The request is to be admitted, and charged.
    Charge,
    /// The state of the limits is to be shown, and no charge is made: another limit refuses the request, or its token is not
    /// verified yet.
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
    /// The cost of the request.
    pub cost: Cost,
    /// The id under which the request may have been charged before, if the limit uses ids and the request has one.
    pub id: Option<RepeatId>,
}

impl<'a> Check<'a> {
    /// A check at the limit's own cost.
    #[must_use]
    pub fn new(limit: &'a Arc<Limit>, key: &'a [u8]) -> Self {
        Self {
            limit,
            key,
            cost: limit.cost,
            id: None,
        }
    }

    /// The limit's rule for repeats and the request's id, if the request may be a repeat. A request without a cost is
    /// never a repeat.
    #[must_use]
    pub fn repeats(&self) -> Option<(&'a Dedupe, RepeatId)> {
        let id = self.id.filter(|_| self.cost != Cost::ZERO)?;
        Some((self.limit.dedupe.as_ref()?, id))
    }
}

impl Check<'_> {
    /// Does this gateway alone count the limit?
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.limit.scope == Scope::Gateway
    }

    /// The wait from the decision at `at` to the request's turn in a queue. Zero if the limit has no queue.
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

    /// The ticket of a charge made at `at`, or of a free repeat. The charge was made by one of `gateways` that count
    /// separately.
    pub(super) fn ticket(
        &self,
        at: Timestamp,
        measured: Measurement,
        gateways: NonZeroU32,
    ) -> Option<Ticket> {
        let repeats = self.repeats().filter(|_| measured.repeat != Repeat::No);
        let record = repeats.map(|(dedupe, id)| RecordMark::new(id, at.plus(dedupe.ttl)));
        let cost = self.limit.share(measured.charged(self.cost), gateways);
        let ticket = self.limit.ticket(at, measured, cost);
        let mark = match measured.repeat {
            // The request itself was charged nothing: the charge belongs to the request that it repeats.
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

/// `checks` with the limits that `other` returns, or with their own if it returns none.
pub(super) fn replace_limits<'a>(
    checks: &[Check<'a>],
    other: impl Fn(&Limit) -> Option<&Arc<Limit>>,
) -> Checks<'a> {
    let replaced = checks.iter().map(|check| Check {
        limit: other(check.limit).unwrap_or(check.limit),
        ..*check
    });
    replaced.collect()
}
