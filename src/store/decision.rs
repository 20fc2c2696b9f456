//! What follows from the answers of a request's limits: the decision, and the tickets of what it charged.

use super::answers::{Answers, LimitAnswer, LimitAnswers};
use super::check::{Check, Intent};
use super::decider::Decider;
use super::reservation::Reservation;
use super::shadow::{Charges, ShadowVerdict};
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Decision, Measurement};
use smallvec::SmallVec;

/// A request's decision, and what its tickets are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDecision {
    /// What happens to the request.
    pub decision: Decision,
    /// One for each limit, in order.
    pub answers: LimitAnswers,
    /// Verdicts of limits that do not decide: the decision's verdicts are of the others.
    pub shadows: Vec<ShadowVerdict>,
    charges: Charges,
}

impl StoreDecision {
    /// Gives the answers of `checks` their meaning: charged only when every limit admits.
    #[must_use]
    pub fn of(checks: &[Check<'_>], answers: Answers) -> Self {
        let charges = Charges::of(checks, &answers, Intent::Charge);
        let (mut verdicts, mut shadows) = (SmallVec::new(), Vec::new());
        for (index, (check, answer)) in checks.iter().zip(&answers.each).enumerate() {
            let verdict = answer.verdict(check, charges.has(index));
            if check.limit.mode.decides() {
                verdicts.push(verdict);
                continue;
            }
            let is_readable = answer.measured().is_some_and(|measured| !measured.spoilt);
            shadows.push(ShadowVerdict {
                index,
                verdict: is_readable.then_some(verdict),
            });
        }
        Self {
            decision: Decision::of(answers.at, verdicts),
            answers: answers.each,
            shadows,
            charges,
        }
    }

    /// Is the answer known of every limit that decides?
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut deciding = self.answers.iter().zip(&self.decision.verdicts);
        deciding.all(|(answer, _)| answer.is_known())
    }

    /// The answer of `limit`, if the request was asked about it.
    #[must_use]
    pub fn answer(&self, limit: &Limit) -> Option<&LimitAnswer> {
        self.answers.iter().find(|answer| answer.limit == limit.id)
    }

    /// Is it known what `limit` says?
    #[must_use]
    pub fn is_known(&self, limit: &Limit) -> bool {
        self.answer(limit).is_some_and(LimitAnswer::is_known)
    }

    /// The decider of `limit`.
    #[must_use]
    pub fn decider(&self, limit: &Limit) -> Option<Decider> {
        self.answer(limit).map(|answer| answer.by)
    }

    /// What was measured for check number `index` of the request, if its counter was.
    #[must_use]
    pub fn measured(&self, index: usize) -> Option<&Measurement> {
        self.answers.get(index)?.measured()
    }

    /// What `check`, number `index` of the request, was charged. A request that was refused, or took nothing, was charged
    /// nothing.
    #[must_use]
    pub fn reservation(&self, index: usize, check: &Check<'_>) -> Option<Reservation> {
        if !self.charges.has(index) {
            return None;
        }
        let reservation = self.answers.get(index)?.reservation(check)?;
        (reservation.ticket.cost != Cost::ZERO).then_some(reservation)
    }
}
