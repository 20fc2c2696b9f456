//! The store's answer for each limit of a request: its decider, the decider's clock, and the evidence of the answer.

use super::check::Check;
use super::decider::Decider;
use super::error::StoreError;
use super::reservation::Reservation;
use crate::clock::Timestamp;
use crate::limit::verdict::{INLINE_LIMITS, Measurement, Verdict, VerdictOutcome, Wait};
use crate::limit::{BlockPhase, LimitId};
use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A script's measurement for each limit of a call.
pub type Measurements = SmallVec<[Measurement; INLINE_LIMITS]>;

/// One answer for each limit of a request, in the order of its checks.
pub type LimitAnswers = SmallVec<[LimitAnswer; INLINE_LIMITS]>;

/// The answer of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitAnswer {
    /// The limit.
    pub limit: LimitId,
    /// The decider.
    pub by: Decider,
    /// The instant of the answer, on the decider's clock.
    pub at: Timestamp,
    /// The evidence of the answer.
    pub evidence: Evidence,
}

/// The evidence behind an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A measurement of the counter.
    Measured(Measurement),
    /// A permit, or a pause between two calls for permits: the verdict is known, but the counter was not measured.
    Verdict(Verdict),
    /// The counter is unknown, and this is the cause.
    Unknown(UnknownCause),
}

/// Causes for which the answer of a limit is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownCause {
    /// The refusal of another limit was enough: the counter was not checked.
    Unasked,
    /// The store of the counter is unavailable, and `on_down` admits or refuses the request.
    Away,
}

/// The answers of one store, or of several, about one request.
#[derive(Debug, Clone)]
pub struct Answers {
    /// The instant of the decision.
    pub at: Timestamp,
    /// The decider of most of the limits, which the log names.
    pub by: Decider,
    /// One answer for each limit.
    pub each: LimitAnswers,
    /// The error of the part of the store that did not answer, if a part did not. The other parts refund their charges
    /// if the request is not forwarded.
    pub(super) outage: Option<Box<StoreError>>,
}

impl LimitAnswer {
    /// The measurement, if the counter was measured.
    #[must_use]
    pub fn measured(&self) -> Option<&Measurement> {
        match &self.evidence {
            Evidence::Measured(measured) => Some(measured),
            Evidence::Verdict(_) | Evidence::Unknown(_) => None,
        }
    }

    pub(super) fn measured_mut(&mut self) -> Option<&mut Measurement> {
        match &mut self.evidence {
            Evidence::Measured(measured) => Some(measured),
            Evidence::Verdict(_) | Evidence::Unknown(_) => None,
        }
    }

    /// Is the limit's verdict known?
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self.evidence, Evidence::Unknown(_))
    }

    /// Does the limit admit the request? A limit with an unknown answer refuses no request.
    pub(super) fn admits(&self) -> bool {
        match &self.evidence {
            Evidence::Measured(measured) => measured.wait == Wait::Micros(0),
            Evidence::Verdict(verdict) => matches!(verdict.outcome, VerdictOutcome::Admit { .. }),
            Evidence::Unknown(_) => true,
        }
    }

    /// The verdict of the limit of `check`. A request that was not `charged` was refused by another limit.
    pub(super) fn verdict(&self, check: &Check<'_>, charged: bool) -> Verdict {
        let measured = match self.evidence {
            Evidence::Measured(measured) => measured,
            Evidence::Verdict(verdict) => return verdict,
            Evidence::Unknown(_) => Measurement::UNKNOWN,
        };
        if measured.block != BlockPhase::No {
            return measured.blocked_verdict();
        }
        let (limit, cost) = (check.limit, measured.charged(check.cost));
        match self.by.gateways() {
            NonZeroU32::MIN => limit.rule.verdict(measured, self.at, cost, charged),
            many => limit.verdict_as_one_of(measured, self.at, cost, charged, many),
        }
    }

    /// The limit's charge to an admitted request, if the limit charged anything or recognised a repeat.
    pub(super) fn reservation(&self, check: &Check<'_>) -> Option<Reservation> {
        let measured = *self.measured()?;
        Some(Reservation {
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            ticket: check.ticket(self.at, measured, self.by.gateways())?,
            by: self.by,
            at: self.at,
            turn: check.turn(self.at, measured),
        })
    }
}

impl Answers {
    /// The answers of one store that measured all of `checks` at one instant.
    #[must_use]
    pub fn measured(
        checks: &[Check<'_>],
        by: Decider,
        at: Timestamp,
        measured: impl IntoIterator<Item = Measurement>,
    ) -> Self {
        let evidence = measured.into_iter().map(Evidence::Measured);
        Self::of(checks, by, at, evidence)
    }

    /// An empty list of answers, in their place on the heap, since the answers of a call move several times.
    pub(super) fn none(by: Decider, at: Timestamp) -> Box<Self> {
        Box::new(Self {
            at,
            by,
            each: LimitAnswers::new(),
            outage: None,
        })
    }

    /// Adds the measurements of `checks`.
    pub(super) fn add_measured(&mut self, checks: &[Check<'_>], measured: &[Measurement]) {
        for (check, measured) in checks.iter().zip(measured) {
            self.each.push(LimitAnswer {
                limit: check.limit.id,
                by: self.by,
                at: self.at,
                evidence: Evidence::Measured(*measured),
            });
        }
    }

    /// Does every limit admit, including those that do not decide?
    #[must_use]
    pub fn admits_all(&self) -> bool {
        self.each.iter().all(LimitAnswer::admits)
    }

    /// Unknown answers for all of `checks`.
    pub(super) fn unknown(checks: &[Check<'_>], by: Decider, cause: UnknownCause) -> Self {
        let evidence = std::iter::repeat(Evidence::Unknown(cause));
        Self::of(checks, by, Timestamp::default(), evidence)
    }

    fn of(
        checks: &[Check<'_>],
        by: Decider,
        at: Timestamp,
        evidence: impl Iterator<Item = Evidence>,
    ) -> Self {
        let each = checks.iter().zip(evidence);
        let each = each.map(|(check, evidence)| LimitAnswer {
            limit: check.limit.id,
            by,
            at,
            evidence,
        });
        Self {
            at,
            by,
            each: each.collect(),
            outage: None,
        }
    }

    /// Takes over each of `answers`, at the position of its limit.
    pub(super) fn replace(&mut self, answers: &[LimitAnswer]) {
        for answer in answers {
            if let Some(place) = self.iter_mut().find(|one| one.limit == answer.limit) {
                *place = *answer;
            }
        }
    }
}

impl Deref for Answers {
    type Target = [LimitAnswer];

    fn deref(&self) -> &[LimitAnswer] {
        &self.each
    }
}

impl DerefMut for Answers {
    fn deref_mut(&mut self) -> &mut [LimitAnswer] {
        &mut self.each
    }
}
