//! The consequence of the answers for a request: the decision, and the tickets of its charges.

use super::answers::{Answers, LimitAnswer, LimitAnswers};
use super::check::{Check, Intent};
use super::decider::Decider;
use super::reservation::Reservation;
use super::shadow::{Charges, ShadowVerdict};
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Decision, Measurement, Ruling};
use crate::limit::{BlockPhase, Limit};
use smallvec::SmallVec;

/// A request's decision, and the answers from which its tickets are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDecision {
    /// The fate of the request.
    pub decision: Decision,
    /// One answer for each limit, in order.
    pub answers: LimitAnswers,
    /// Verdicts of limits that do not decide. The decision contains the verdicts of all other limits.
    pub shadows: Vec<ShadowVerdict>,
    charges: Charges,
    /// Slots of an admitted request that count in another store as well.
    pub slots: Vec<Reservation>,
}

impl StoreDecision {
    /// Decides by the answers of `checks`: the request is charged only when every deciding limit admits.
    #[must_use]
    pub fn of(checks: &[Check<'_>], mut answers: Answers) -> Self {
        Self::by(checks, &mut answers)
    }

    /// Decides by the answers of `checks`, and takes the answers.
    pub(super) fn by(checks: &[Check<'_>], answers: &mut Answers) -> Self {
        let charges = Charges::of(checks, answers, Intent::Charge);
        let mut decided = Self {
            decision: Decision::of(answers.at, SmallVec::new()),
            answers: std::mem::take(&mut answers.each),
            shadows: Vec::new(),
            charges: Charges::of_all(false),
            slots: Vec::new(),
        };
        decided.conclude(checks, answers.at, charges);
        decided
    }

    /// Memory for a decision, in its final place.
    pub(super) fn undecided() -> Box<Self> {
        // `Box::new` would build it elsewhere and move it.
        Box::write(
            Box::new_uninit(),
            Self {
                decision: Decision::of(Timestamp::default(), SmallVec::new()),
                answers: SmallVec::new(),
                shadows: Vec::new(),
                charges: Charges::of_all(false),
                slots: Vec::new(),
            },
        )
    }

    /// Decides by the stored answers of `checks`, given at `at`, when `charges` have been charged.
    #[inline]
    pub(super) fn conclude(&mut self, checks: &[Check<'_>], at: Timestamp, charges: Charges) {
        let verdicts = &mut self.decision.verdicts;
        for (index, (check, answer)) in checks.iter().zip(&self.answers).enumerate() {
            let verdict = answer.verdict(check, charges.has(index));
            if check.limit.mode.decides() {
                verdicts.push(verdict);
                continue;
            }
            let is_readable = answer.measured().is_some_and(|measured| !measured.spoilt);
            self.shadows.push(ShadowVerdict {
                index,
                verdict: is_readable.then_some(verdict),
            });
        }
        self.decision.ruling = Ruling::by(verdicts);
        self.decision.at = at;
        self.charges = charges;
    }

    /// Is the answer of every deciding limit known?
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut deciding = self.answers.iter().zip(&self.decision.verdicts);
        deciding.all(|(answer, _)| answer.is_known())
    }

    /// The answer of `limit`, if the request was checked against it.
    #[must_use]
    pub fn answer(&self, limit: &Limit) -> Option<&LimitAnswer> {
        self.answers.iter().find(|answer| answer.limit == limit.id)
    }

    /// Is the answer of `limit` known?
    #[must_use]
    pub fn is_known(&self, limit: &Limit) -> bool {
        self.answer(limit).is_some_and(LimitAnswer::is_known)
    }

    /// The decider of `limit`.
    #[must_use]
    pub fn decider(&self, limit: &Limit) -> Option<Decider> {
        self.answer(limit).map(|answer| answer.by)
    }

    /// The measurement of check number `index` of the request, if its counter was measured.
    #[must_use]
    pub fn measured(&self, index: usize) -> Option<&Measurement> {
        self.answers.get(index)?.measured()
    }

    /// What is left of the block of the key of check number `index`, in microseconds; `None` if it is not blocked.
    #[must_use]
    pub fn left_of_block(&self, index: usize) -> Option<u64> {
        let measured = self.measured(index)?;
        (measured.block != BlockPhase::No).then_some(measured.span.whole)
    }

    /// The charge of `check`, number `index` of the request. A request that was refused, or has no cost, was charged
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
