//! Admission: the choice of the limits that apply to a request, one call to the store for all of them, and the reading
//! of the answer.
//!
//! The room knows no HTTP answers: a refusal is a [`RefusalCause`]. `proxy` uses the room to admit requests, `replay`
//! to admit logged ones, and `explain` to report the admission that a request would get.
//!
//! In: a request, its route and its client. Out: admitted, delayed or refused, with the charges that may be refunded.
//!
//! ```text
//! plan                   which limits are asked, each with its key, and what the request lacks that one demands
//! destination            host, path parameters and query, as limits may count them
//! request_cost           what the request costs each limit, and the id by which it repeats another
//! refusal_cause          why limits turn a request away; its status is in `proxy/error`
//! report                 what each limit charged, granted and has left
//! held_requests          how many requests wait, in all and of each client
//! open_charges           charges that the request's end may change, and which of them come back then
//! ```

pub mod destination;
mod held_requests;
mod open_charges;
mod plan;
mod refusal_cause;
mod report;
mod request_cost;

pub use held_requests::HeldRequests;
pub use open_charges::{OpenCharges, RequestEnd};
pub use plan::{LoggedValues, Plan};
pub use refusal_cause::RefusalCause;

use crate::limit::rate::Cost;
use crate::limit::verdict::{Ruling, VerdictOutcome, Wait};
use crate::limit::{BlockPhase, Limit};
use crate::snapshot::Service;
use crate::store::{Decider, LimitAnswer, Store, StoreDecision};
use crate::telemetry::metrics;
use std::sync::Arc;

/// The store's answer to a plan.
#[derive(Debug)]
pub struct Admission {
    /// The decision; `None` if no store could decide and the file lets everything pass then.
    pub decided: Option<Box<StoreDecision>>,
    /// The store that decided, or its cached refusal.
    pub by: Decider,
}

/// Sends all checks of the plan to the store in one call.
///
/// # Errors
/// If the store is unavailable and the file refuses requests then.
pub async fn ask(store: &Store, plan: &Plan, service: &Service) -> Result<Admission, RefusalCause> {
    let (decided, by) = store
        .decide(&plan.checks(service))
        .await
        .map_err(|_away| RefusalCause::StoreDown)?;
    Ok(Admission { decided, by })
}

impl Admission {
    /// The decider, in the metrics' terms.
    #[must_use]
    pub fn decider(&self) -> metrics::DecidedBy {
        shown(self.by)
    }

    /// The decider of one limit, in the metrics' terms. A counter of this gateway alone is always available, and one
    /// part of a store may fail without the rest.
    #[must_use]
    pub fn decider_of(&self, limit: &Limit) -> metrics::DecidedBy {
        let decided = self.decided.as_ref();
        let by = decided.and_then(|decided| decided.decider(limit));
        by.map_or_else(|| self.decider(), shown)
    }

    /// The outcome of limit `index` of the plan, a shadow limit. `None` if no store has counted.
    #[must_use]
    pub fn shadow_outcome(&self, index: usize) -> Option<VerdictOutcome> {
        let mut shadow = self.decided.as_ref()?.shadows.iter();
        let shadow = shadow.find(|shadow| shadow.index == index)?;
        Some(shadow.verdict?.outcome)
    }

    /// The outcome of `limit`, number `index` of the plan. If no store could decide, this is the outcome of the limit's
    /// fallback. `None` if no store was called, since the cached refusal of another limit was enough.
    #[must_use]
    pub fn outcome(&self, index: usize, limit: &Limit) -> Option<VerdictOutcome> {
        let known = self.decided.as_ref().filter(|_| self.is_known(limit));
        let verdict = known.and_then(|decided| decided.decision.verdicts.get(index));
        match (verdict, self.by) {
            (Some(verdict), _) => Some(verdict.outcome),
            (None, Decider::Remembered) => None,
            (None, Decider::Closed) => Some(VerdictOutcome::Refuse(Wait::Micros(0))),
            (None, _) => Some(VerdictOutcome::Admit { delay: 0 }),
        }
    }

    /// The block of the key of `limit`, if the limit refused by one.
    #[must_use]
    pub fn block_of(&self, limit: &Limit) -> BlockPhase {
        let answer = self
            .decided
            .as_ref()
            .and_then(|decided| decided.answer(limit));
        let measured = answer.and_then(LimitAnswer::measured);
        measured.map_or(BlockPhase::No, |measured| measured.block)
    }

    /// Has a store decided `limit`?
    #[must_use]
    pub fn is_known(&self, limit: &Limit) -> bool {
        let decided = self.decided.as_ref();
        decided.is_some_and(|decided| decided.is_known(limit))
    }

    /// The time for which the request is held, in microseconds.
    ///
    /// # Errors
    /// If a limit refuses.
    pub fn delay(&self, plan: &Plan, service: &Service) -> Result<u64, RefusalCause> {
        match self.decided.as_ref().map(|decided| decided.decision.ruling) {
            None => Ok(0),
            Some(Ruling::Admit { delay }) => Ok(delay),
            Some(Ruling::Refuse { by, wait }) => {
                let limit = plan.limit(by, service);
                let limit = limit.expect("a decision names one of the plan's limits");
                Err(RefusalCause::Limited {
                    limit: Arc::clone(limit),
                    wait,
                    is_blocked: self.block_of(limit) != BlockPhase::No,
                })
            }
        }
    }

    /// The charges of an admitted request that its end may change. Places in queues are included if the request must
    /// wait, or if `queues_exist`.
    #[must_use]
    pub fn open_charges(&self, plan: &Plan, service: &Service, queues_exist: bool) -> OpenCharges {
        let mut open = OpenCharges::default();
        let Some(decided) = &self.decided else {
            return open;
        };
        let Ruling::Admit { delay } = decided.decision.ruling else {
            return open;
        };
        let is_queued = |limit: &Limit| (delay > 0 || queues_exist) && limit.holds_back();
        let is_open = |limit: &Limit| {
            limit.rule.concurrency().is_some() || limit.may_correct() || is_queued(limit)
        };
        if !plan.each_limit(service).any(is_open) {
            return open;
        }
        for (index, check) in plan.checks(service).iter().enumerate() {
            let limit = check.limit;
            let kind = if limit.rule.concurrency().is_some() {
                &mut open.slots
            } else if is_queued(limit) {
                &mut open.places
            } else if limit.may_correct() {
                &mut open.refundable
            } else {
                continue;
            };
            kind.extend(decided.reservation(index, check));
        }
        open.slots.extend_from_slice(&decided.slots);
        open
    }

    /// The units that the limit with partial grants has granted, if there is such a limit.
    #[must_use]
    pub fn granted(&self, plan: &Plan, service: &Service) -> Option<Cost> {
        let partial = |limit: &Limit| limit.partial && limit.mode.decides();
        let mut asked = plan.costs().enumerate();
        let asked = asked.find(|(_, (limit, _))| partial(&service.limits[*limit]));
        let (index, (_, cost)) = asked?;
        Some(self.granted_by(index).unwrap_or(cost))
    }

    /// Position in the plan of the limit that delays the longest.
    #[must_use]
    pub fn delayed_by(&self) -> Option<usize> {
        let decision = &self.decided.as_ref()?.decision;
        let delay = |outcome| match outcome {
            VerdictOutcome::Admit { delay } => delay,
            VerdictOutcome::Refuse(_) => 0,
        };
        let longest = decision
            .verdicts
            .iter()
            .map(|verdict| delay(verdict.outcome))
            .max()
            .filter(|delay| *delay > 0)?;
        decision
            .verdicts
            .iter()
            .position(|verdict| delay(verdict.outcome) == longest)
    }
}

fn shown(by: Decider) -> metrics::DecidedBy {
    match by {
        Decider::Memory | Decider::Redis => metrics::DecidedBy::Store,
        Decider::Remembered => metrics::DecidedBy::Remembered,
        Decider::Lease => metrics::DecidedBy::Lease,
        Decider::Local { .. } => metrics::DecidedBy::Local,
        Decider::Open => metrics::DecidedBy::Open,
        Decider::Closed => metrics::DecidedBy::Closed,
    }
}
