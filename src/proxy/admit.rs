//! Plans a request's limits, asks the store once for all of them, and reads the answer.

mod plan;
mod report;
mod request_cost;

pub use plan::Plan;

use super::Worker;
use super::destination::Destination;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::hold::Tickets;
use super::refunds::Refunds;
use super::request::Target;
use super::slots::HeldSlots;
use super::wait_queue::WorkerQueues;
use crate::client::Client;
use crate::key::Caller;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Ruling, VerdictOutcome, Wait};
use crate::limit::{Limit, Scope};
use crate::snapshot::Service;
use crate::store::{Charge, Decider, Store, StoreDecision};
use crate::telemetry::metrics;
use http::request::Parts;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// What the store made of a plan.
#[derive(Debug)]
pub struct Admission {
    /// The decision; nothing when nobody could decide and the file says to let everything pass.
    pub decided: Option<StoreDecision>,
    /// Who decided.
    pub by: Decider,
}

impl Worker {
    /// Asks all limits at once. Returns the places in queues that the request has, if it is to be held.
    pub(super) async fn admit(
        &self,
        target: &Target,
        parts: &Parts,
        exchange: &mut Exchange,
    ) -> Result<Option<Tickets>, ProxyError> {
        let local = Rc::clone(&exchange.local);
        let Some(service) = exchange.service() else {
            return Ok(None);
        };
        if service.limits.is_empty() {
            return Ok(None);
        }
        let mut plan = Plan::with_room(service);
        let refusal = self.plan(&mut plan, (service, target, parts), exchange);
        if plan.is_empty() {
            if plan.keyless().is_empty() {
                exchange.spared(plan)
            } else {
                exchange.lacks_keys(plan)
            }
            return Ok(None);
        }
        let admission = match refusal {
            Some(refusal) => refusal,
            None => ask(&self.store, &plan, service).await?,
        };
        let asked = Instant::now();
        let places = admission.places(&plan, service, &self.lines);
        let slots = admission.slots(&plan, service, &self.store);
        let returns = admission.returns(&plan, service, &self.store, !places.is_empty());
        let (by, delay) = (admission.by, admission.delay(&plan, service));
        exchange.decided(plan, admission);
        exchange.slots = slots;
        exchange.returns = returns;
        let delay = delay?;
        if delay == 0 && places.is_empty() {
            return Ok(None);
        }
        if delay > 0 {
            exchange.delayed(delay);
        }
        let turn = (asked, Duration::from_micros(delay));
        let places = Tickets::new(&self.lines, by, places, turn);
        let caps = local.snapshot.holds;
        // Refused after having been charged: dropping the places gives them back.
        let held = self.holds.enter(Client::of(exchange.client), caps);
        Ok(Some(places.with(held.ok_or(ProxyError::TooManyHeld)?)))
    }

    /// The limits of a request with their keys. Where its token would have to be verified for some of them, and others are
    /// known to refuse it, these alone, and their refusal: forging tokens is made no dearer for the gateway than asking.
    ///
    /// Written in place, because it is large.
    fn plan(
        &self,
        plan: &mut Plan,
        (service, target, parts): (&Service, &Target, &Parts),
        exchange: &Exchange,
    ) -> Option<Admission> {
        let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers);
        let caller = Caller {
            address: exchange.client,
            route: &service.name,
            method: &parts.method,
            fields: &parts.headers,
            location: &Destination {
                authority: target.host(),
                path: parts.uri.path(),
                query: parts.uri.query(),
                pattern: &service.path,
            },
            cookies: &Cookies::of(&parts.headers),
            identity: &token,
            content: exchange.content,
        };
        if !token.is_there() || !service.limits.iter().any(|limit| limit.asks_token()) {
            plan.fill(service, &caller, |_| true);
            return None;
        }
        plan.fill(service, &caller, |limit| !limit.asks_token());
        let refusal = self.store.refusal(&plan.checks(service));
        if let Some((decided, by)) = refusal {
            let decided = Some(decided);
            return Some(Admission { decided, by });
        }
        plan.fill(service, &caller, Limit::asks_token);
        plan.sort();
        None
    }
}

/// One question to the store for all of the plan.
///
/// # Errors
/// When the store is away and the file says to refuse.
pub async fn ask(store: &Store, plan: &Plan, service: &Service) -> Result<Admission, ProxyError> {
    let (decided, by) = store
        .decide(&plan.checks(service))
        .await
        .map_err(|_away| ProxyError::StoreDown)?;
    Ok(Admission { decided, by })
}

impl Admission {
    /// Who decided, in the words of the metrics.
    #[must_use]
    pub fn decider(&self) -> metrics::DecidedBy {
        shown(self.by)
    }

    /// The same of one limit: what this gateway counts by itself is never away, and of a store only a part may be.
    #[must_use]
    pub fn decider_of(&self, limit: &Limit) -> metrics::DecidedBy {
        let other = self.decided.as_ref().and_then(|one| one.other(limit));
        match (limit.scope, other) {
            (Scope::Gateway, _) => metrics::DecidedBy::Store,
            (Scope::Cluster, Some(other)) => shown(other),
            // Others of the request are counted here; this one lets everything pass.
            (Scope::Cluster, None)
                if matches!(self.by, Decider::Local { .. }) && !self.is_known(limit) =>
            {
                metrics::DecidedBy::Open
            }
            (Scope::Cluster, None) => self.decider(),
        }
    }

    /// What was said by `index` of the plan, a limit that does not decide. Nothing where nobody has counted.
    #[must_use]
    pub fn aside(&self, index: usize) -> Option<VerdictOutcome> {
        let mut aside = self.decided.as_ref()?.aside.iter();
        let aside = aside.find(|aside| aside.index == index)?;
        Some(aside.verdict?.outcome)
    }

    /// What `limit`, number `index` of the plan, has said. Where nobody could, what stands in for it; nothing where nobody
    /// was asked, since the remembered refusal of another was enough.
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

    /// Has anybody decided `limit`?
    #[must_use]
    pub fn is_known(&self, limit: &Limit) -> bool {
        let decided = self.decided.as_ref();
        decided.is_some_and(|decided| decided.is_known(limit))
    }

    /// How long to hold the request, in microseconds.
    ///
    /// # Errors
    /// When a limit refuses.
    pub fn delay(&self, plan: &Plan, service: &Service) -> Result<u64, ProxyError> {
        match self.decided.as_ref().map(|decided| decided.decision.ruling) {
            None => Ok(0),
            Some(Ruling::Admit { delay }) => Ok(delay),
            Some(Ruling::Refuse { by, wait }) => {
                let limit = plan.limit(by, service);
                let limit = limit.expect("a decision names one of the plan's limits");
                Err(ProxyError::limited(limit, wait))
            }
        }
    }

    /// The slots that this admission takes of limits on what is in flight.
    #[must_use]
    pub fn slots(&self, plan: &Plan, service: &Service, store: &Store) -> Option<HeldSlots> {
        let decided = self.decided.as_ref()?;
        let mut limits = service.limits.iter();
        if !limits.any(|limit| limit.rule.holds().is_some()) {
            return None;
        }
        let checks = plan.checks(service);
        let charges = checks
            .iter()
            .enumerate()
            .filter_map(|(index, check)| Charge::slots(decided, index, check));
        HeldSlots::hold(store, self.by, charges.collect())
    }

    /// What this admission has paid to limits that may give it back. A place in a queue belongs to who `stands` in it.
    #[must_use]
    pub(super) fn returns(
        &self,
        plan: &Plan,
        service: &Service,
        store: &Store,
        stands: bool,
    ) -> Option<Rc<Refunds>> {
        let decided = self.decided.as_ref()?;
        let mut limits = service.limits.iter();
        if !limits.any(|limit| limit.may_correct()) {
            return None;
        }
        let Ruling::Admit { .. } = decided.decision.ruling else {
            return None;
        };
        let checks = plan.checks(service);
        let given = checks.iter().enumerate().filter(|(_, check)| {
            check.limit.may_correct() && !(stands && check.limit.holds_back())
        });
        let charges = given.filter_map(|(index, check)| Charge::of(decided, index, check));
        Some(Refunds::keep(store, self.by, charges.collect()))
    }

    /// The places this admission takes in queues; none when nothing has to wait, and nobody stands in line before it.
    #[must_use]
    pub fn places(&self, plan: &Plan, service: &Service, lines: &WorkerQueues) -> Vec<Charge> {
        let Some(decided) = &self.decided else {
            return Vec::new();
        };
        match decided.decision.ruling {
            Ruling::Admit { delay: 1.. } => Self::queued(decided, plan, service),
            Ruling::Admit { delay: 0 } if lines.exist() => {
                let queued = Self::queued(decided, plan, service);
                if lines.is_any(&queued, self.by) {
                    queued
                } else {
                    Vec::new()
                }
            }
            Ruling::Admit { .. } | Ruling::Refuse { .. } => Vec::new(),
        }
    }

    fn queued(decided: &StoreDecision, plan: &Plan, service: &Service) -> Vec<Charge> {
        let checks = plan.checks(service);
        let queued = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| check.limit.holds_back());
        queued
            .filter_map(|(index, check)| Charge::of(decided, index, check))
            .collect()
    }

    /// What the limit that may grant less has granted, if there is such a limit and it was asked for anything.
    #[must_use]
    pub fn granted(&self, plan: &Plan, service: &Service) -> Option<u32> {
        let partial = |limit: &Limit| limit.partial && limit.mode.decides();
        let mut asked = plan.costs().enumerate();
        let asked = asked.find(|(_, (limit, _))| partial(&service.limits[*limit]));
        let (index, (_, cost)) = asked?;
        let granted = self.granted_by(index).unwrap_or(cost);
        (granted != Cost::ZERO).then_some(granted.units())
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
