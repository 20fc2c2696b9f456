//! What its limits made of a request: for its answer, the metrics and the log.

use super::Exchange;
use crate::limit::verdict::{Outcome, Ruling};
use crate::proxy::reply::Violated;
use crate::snapshot::Service;
use crate::telemetry::access_log::{Charge, Reason};
use crate::telemetry::metrics::Decision;
use std::sync::Arc;
use std::time::Duration;

impl Exchange {
    /// The limits that refuse it, and the one that is named.
    pub(super) fn violated(&self) -> Violated<'_> {
        let (Some(service), Some(decided)) = (
            self.service(),
            self.admission
                .as_ref()
                .and_then(|admission| admission.decided.as_ref()),
        ) else {
            return Violated::default();
        };
        let Ruling::Refuse { by, .. } = decided.decision.ruling else {
            return Violated::default();
        };
        let limits = self.plan.limits(service);
        let refusing = limits
            .iter()
            .zip(&decided.decision.verdicts)
            .filter(|(_, verdict)| matches!(verdict.outcome, Outcome::Refuse(_)));
        let mut violated = Violated {
            named: limits.get(by).copied(),
            all: refusing.map(|(limit, _)| &**limit.public_name()).collect(),
        };
        // Several rates of one limit.
        violated.all.dedup();
        violated
    }

    /// The limit that delays it: its position among the service's limits, and its name.
    pub(super) fn delaying(&self) -> Option<(usize, &Arc<str>)> {
        let index = self.admission.as_ref()?.delayed_by()?;
        let position = self.plan.positions().nth(index)?;
        Some((position, &self.service()?.limits.get(position)?.name))
    }

    /// Counts what each limit said.
    pub(super) fn count_decisions(&self) {
        let (Some(route), Some(admission)) = (self.route, &self.admission) else {
            return;
        };
        let handles = &self.local.route(route, &self.worker.metrics).limits;
        let limits = &self.local.service(route).limits;
        let asked = self.plan.positions().enumerate();
        let mut asked = asked
            .map(|(index, position)| {
                let outcome = admission.outcome(index, &limits[position]);
                (position, outcome, admission.is_repeat(index))
            })
            .peekable();
        while let Some((position, mut outcome, mut repeat)) = asked.next() {
            // Several rates of one limit are one question.
            while let Some((_, other, free)) =
                asked.next_if(|(next, ..)| self.is_same(position, *next))
            {
                outcome = outcome.max(other);
                repeat &= free;
            }
            let by = admission.decider_of(&limits[position]);
            let decision = match outcome {
                _ if repeat => Decision::Repeat,
                Outcome::Admit { delay: 0 } => Decision::Allow,
                Outcome::Admit { delay } => {
                    handles[position].delayed(Duration::from_micros(delay));
                    Decision::Delay
                }
                Outcome::Refuse(_) => Decision::Refuse,
            };
            handles[position].decided(decision, by);
        }
    }

    /// Are these two positions among the service's limits rates of one limit?
    fn is_same(&self, one: usize, other: usize) -> bool {
        self.service().is_some_and(|service| {
            let [one, other] = [&service.limits[one], &service.limits[other]];
            one.window.is_some() && Arc::ptr_eq(&one.name, &other.name)
        })
    }

    /// Which of its limit's rates refused or held it, where the limit has several.
    pub(super) fn window(&self) -> Option<&str> {
        let limit = match self.reason {
            Reason::LimitRefused => self.violated().named?,
            Reason::LimitDelayed => {
                let index = self.admission.as_ref()?.delayed_by()?;
                self.plan.limit(index, self.service()?)?
            }
            _ => return None,
        };
        limit.window.as_deref()
    }

    /// What each limit counted it under and took.
    pub(super) fn charges<'a>(&'a self, service: &'a Service) -> Vec<Charge<'a>> {
        let charged = |index, cost| {
            let admission = self.admission.as_ref();
            admission.map_or(cost, |admission| admission.charged_by(index, cost))
        };
        let keys = self.plan.keys().enumerate();
        let mut charges: Vec<_> = keys
            .map(|(index, (at, key, cost))| Charge {
                limit: &service.limits[at].name,
                key: key.as_bytes(),
                cost: u64::from(charged(index, cost).units()),
            })
            .collect();
        // Several rates of one limit count under one key.
        charges.dedup_by_key(|charge| charge.limit);
        charges
    }

    /// Limits that a group of the client's has changed: their names, and the group's.
    pub(super) fn groups<'a>(&'a self, service: &'a Service) -> Vec<(&'a str, &'a str)> {
        let groups = self.plan.groups(service);
        let mut groups: Vec<_> = groups
            .map(|(at, group)| (&*service.limits[at].name, &**group))
            .collect();
        groups.dedup();
        groups
    }

    /// What the limit that may grant less has granted, if the request has such a limit and asked for anything.
    #[must_use]
    pub fn granted(&self) -> Option<u32> {
        self.admission
            .as_ref()?
            .granted(&self.plan, self.service()?)
    }

    /// Left of the limit that is tightest; for the log.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.admission
            .as_ref()?
            .remaining(&self.plan, self.service()?)
    }
}
