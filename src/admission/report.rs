//! The report of an admission about its limits: the units that they charged, granted and have left.

use super::{Admission, Plan};
use crate::limit::rate::Cost;
use crate::limit::verdict::{GrantedUnits, Repeat, Ruling};
use crate::snapshot::Service;
use crate::store::StoreDecision;

impl Admission {
    /// The units that limit `index` of the plan has charged for a request of `cost`.
    #[must_use]
    pub fn charged_by(&self, index: usize, cost: Cost) -> Cost {
        let measured = || self.decided.as_ref()?.measured(index);
        measured().map_or(cost, |measured| measured.charged(cost))
    }

    /// Has limit `index` of the plan admitted the request free, as a repeat of a request that the limit has charged?
    #[must_use]
    pub fn is_repeat(&self, index: usize) -> bool {
        self.free().nth(index).unwrap_or(false)
    }

    /// Has any limit admitted the request free as a repeat?
    #[must_use]
    pub fn has_repeat(&self) -> bool {
        self.free().any(|free| free)
    }

    fn free(&self) -> impl Iterator<Item = bool> {
        let admitted =
            |decided: &&StoreDecision| matches!(decided.decision.ruling, Ruling::Admit { .. });
        let measured = self.decided.as_deref().into_iter().filter(admitted);
        measured.flat_map(|decided| {
            let those_that_decide = decided.answers.iter().zip(&decided.decision.verdicts);
            let measured = those_that_decide.map(|(answer, _)| answer.measured());
            measured.map(|one| one.is_some_and(|one| one.repeat == Repeat::Free))
        })
    }

    /// The fewest units left of any limit, among the limits that a store has counted.
    #[must_use]
    pub fn remaining(&self, plan: &Plan, service: &Service) -> Option<u64> {
        let verdicts = &self.decided.as_ref()?.decision.verdicts;
        let limits = plan.limits(service);
        limits
            .into_iter()
            .zip(verdicts)
            .filter(|(limit, _)| self.is_known(limit))
            .map(|(_, verdict)| verdict.remaining)
            .min()
    }

    /// The units that limit `index` of the plan has granted, if the store has returned the number.
    #[must_use]
    pub fn granted_by(&self, index: usize) -> Option<Cost> {
        let granted = self.decided.as_ref()?.measured(index)?.granted;
        granted.map(GrantedUnits::cost)
    }
}
