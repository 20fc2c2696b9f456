//! The decisions of a request's limits: counted separately for each limit, and listed in the log.

use crate::admission::Admission;
use crate::limit::BlockPhase;
use crate::limit::verdict::VerdictOutcome;
use crate::proxy::exchange::Exchange;
use crate::snapshot::Service;
use crate::store::StoreDecision;
use crate::telemetry::access_log::Reason;
use crate::telemetry::metrics::{self, DecidedBy, DecisionLabel};
use std::sync::Arc;
use tokio::time::Instant;

impl Exchange {
    /// The store's decision about the request's limits, if a store was called.
    pub(super) fn store_decision(&self) -> Option<&StoreDecision> {
        self.decided.admission.as_ref()?.decided.as_deref()
    }

    /// The limit that delays the request: its position among the service's limits, and its name.
    pub(super) fn delaying(&self) -> Option<(usize, &Arc<str>)> {
        let limits = &self.service()?.limits;
        let by = match self.decided.admission.as_ref()?.delayed_by() {
            Some(index) => self.decided.plan.positions().nth(index),
            // The store gave the request no wait, but others are before it whose turn passed while the gateway was
            // paused.
            None if self.decided.delayed > 0 => {
                let mut positions = self.decided.plan.positions();
                positions.find(|at| limits[*at].holds_back())
            }
            None => None,
        };
        let position = by?;
        Some((position, &limits.get(position)?.name))
    }

    /// Counts the request as held since `since`, by the limit that delays it, until the returned value is dropped.
    pub(in crate::proxy) fn counted_as_held(&self, since: Instant) -> Option<metrics::HeldRequest> {
        let (position, _) = self.delaying()?;
        let route = self.local.route(self.decided.route?);
        Some(route.limits[position].hold(since.into_std()))
    }

    /// Counts each limit's decision.
    pub(super) fn count_decisions(&self) {
        let (Some(route), Some(admission)) = (self.decided.route, &self.decided.admission) else {
            return;
        };
        let handles = &self.local.route(route).limits;
        let service = self.local.service(route);
        let limits = &service.limits;
        let count = |LimitOutcome {
                         position,
                         outcome,
                         repeat,
                         block,
                     }| {
            let Some(outcome) = outcome else { return };
            let decision = match outcome {
                _ if repeat => DecisionLabel::Repeat,
                VerdictOutcome::Admit { delay: 0 } => DecisionLabel::Allow,
                VerdictOutcome::Admit { .. } => DecisionLabel::Delay,
                VerdictOutcome::Refuse(_) if block != BlockPhase::No => DecisionLabel::Block,
                VerdictOutcome::Refuse(_) => DecisionLabel::Refuse,
            };
            if block == BlockPhase::Begins {
                handles[position].blocked();
            }
            handles[position].decided(decision, admission.decider_of(&limits[position]));
        };
        let mut last: Option<LimitOutcome> = None;
        for (index, position) in self.decided.plan.positions().enumerate() {
            if !limits[position].mode.decides() {
                break;
            }
            let limit = self.decided.plan.limit(index, service);
            let outcome = limit.and_then(|limit| admission.outcome(index, limit));
            let repeat = admission.is_repeat(index);
            let block = match (limit, outcome) {
                (Some(limit), Some(VerdictOutcome::Refuse(_))) => admission.block_of(limit),
                _ => BlockPhase::No,
            };
            match &mut last {
                // The rates of one limit count as one decision.
                Some(last) if limits[last.position].is_sibling_of(&limits[position]) => {
                    last.outcome = last.outcome.max(outcome);
                    last.repeat &= repeat;
                    last.block = last.block.max(block);
                }
                last => {
                    let next = LimitOutcome {
                        position,
                        outcome,
                        repeat,
                        block,
                    };
                    last.replace(next).map(count);
                }
            }
        }
        last.map(count);
        if limits.last().is_some_and(|limit| !limit.mode.decides()) {
            self.count_shadows(admission);
        }
    }

    /// Counts the shadow limits of a request whose other limits were checked.
    #[inline(never)]
    fn count_shadows(&self, admission: &Admission) {
        let Some(route) = self.decided.route else {
            return;
        };
        let handles = &self.local.route(route).limits;
        let limits = &self.local.service(route).limits;
        for (position, decision) in self.shadow_decisions() {
            handles[position].decided(decision, admission.decider_of(&limits[position]));
        }
    }

    /// Counts the shadow limits of a request for which no other limit was checked.
    pub(super) fn count_keyless(&self) {
        let Some(route) = self.decided.route else {
            return;
        };
        let handles = &self.local.route(route).limits;
        for (position, decision) in self.shadow_decisions() {
            handles[position].decided(decision, DecidedBy::Store);
        }
    }

    /// The decisions of shadow limits, by their positions among the service's limits.
    fn shadow_decisions(&self) -> Vec<(usize, DecisionLabel)> {
        let Some(service) = self.service() else {
            return Vec::new();
        };
        let mut all: Vec<(usize, DecisionLabel)> = Vec::new();
        for (index, position) in self.decided.plan.positions().enumerate() {
            if service.limits[position].mode.decides() {
                continue;
            }
            let admission = self.decided.admission.as_ref();
            let decision = match admission.and_then(|admission| admission.shadow_outcome(index)) {
                None => DecisionLabel::Uncounted,
                Some(VerdictOutcome::Refuse(_)) => DecisionLabel::WouldRefuse,
                Some(VerdictOutcome::Admit { delay: 0 }) => DecisionLabel::WouldAllow,
                Some(VerdictOutcome::Admit { .. }) => DecisionLabel::WouldDelay,
            };
            match all.last_mut() {
                // The rates of one limit count as one decision; the worst represents all.
                Some((last, worst)) if self.is_same(*last, position) => {
                    *worst = decision.max(*worst);
                }
                _ => all.push((position, decision)),
            }
        }
        let keyless = self.decided.plan.keyless().iter();
        all.extend(keyless.map(|position| (*position, DecisionLabel::WouldRefuse)));
        all
    }

    /// The shadow limits that would have refused the request, for the log.
    pub(super) fn would_refuse<'a>(&self, service: &'a Service) -> Vec<&'a str> {
        let last_limit = service.limits.last();
        if last_limit.is_none_or(|limit| limit.mode.decides()) {
            return Vec::new();
        }
        let all = self.shadow_decisions().into_iter();
        let mut names: Vec<&str> = all
            .filter(|(_, decision)| *decision == DecisionLabel::WouldRefuse)
            .map(|(position, _)| &**service.limits[position].shown())
            .collect();
        names.dedup();
        names
    }

    /// Are the limits at these two positions of the service rates of one limit?
    fn is_same(&self, one: usize, other: usize) -> bool {
        self.service().is_some_and(|service| {
            let [one, other] = [&service.limits[one], &service.limits[other]];
            one.is_sibling_of(other)
        })
    }

    /// The rate of its limit that refused or held the request, if the limit has several.
    pub(super) fn window(&self) -> Option<&str> {
        let limit = match self.outcome.reason {
            Reason::LimitRefused | Reason::LimitBlocked => self.violated().named?,
            Reason::LimitDelayed => {
                let index = self.decided.admission.as_ref()?.delayed_by()?;
                self.decided.plan.limit(index, self.service()?)?
            }
            _ => return None,
        };
        limit.window.as_deref()
    }
}

/// One limit's outcome, all of its rates together.
#[derive(Debug, Clone, Copy)]
struct LimitOutcome {
    /// The limit's position among the service's.
    position: usize,
    outcome: Option<VerdictOutcome>,
    /// The request is a free repeat.
    repeat: bool,
    /// The block by which the limit refuses.
    block: BlockPhase,
}
