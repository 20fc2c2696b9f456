//! Plans a request's limits, asks the store once for all of them, and reads the answer.

mod said;
mod told;

use super::error::ProxyError;
use super::line::Lines;
use super::returns::Returns;
use super::slots::Slots;
use crate::key::{Caller, Found, Part, RepeatId, Standing};
use crate::limit::rate::Cost;
use crate::limit::verdict::{INLINE_LIMITS, Outcome, Ruling, Wait};
use crate::limit::{Limit, Preflights, Scope};
use crate::snapshot::Service;
use crate::store::{Charge, Check, Decided, DecidedBy, Store};
use crate::telemetry::metrics;
use said::{cost, repeat_id};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// The limits that apply to one request, each with its key.
#[derive(Debug, Default)]
pub struct Plan {
    keys: Vec<u8>,
    limits: SmallVec<[Planned; INLINE_LIMITS]>,
    /// Positions of limits that do not decide, and would refuse the request for want of their key, or of a known one.
    keyless: Vec<usize>,
    /// Limits that do not hold since the request is in one of their groups, by position, with that group's name.
    spared: Vec<(usize, Arc<str>)>,
}

#[derive(Debug, Clone, Copy)]
struct Planned {
    /// Position among the service's limits.
    limit: usize,
    /// Position among the limit's tiers of the one that holds.
    tier: Option<usize>,
    start: usize,
    end: usize,
    cost: Cost,
    id: Option<RepeatId>,
}

impl Planned {
    /// The limit, with the numbers that hold for the request.
    fn limit<'a>(&self, service: &'a Service) -> &'a Arc<Limit> {
        let limit = &service.limits[self.limit];
        match self.tier {
            None => limit,
            Some(tier) => &limit.tiers[tier].limit,
        }
    }
}

/// What the store made of a plan.
#[derive(Debug)]
pub struct Admission {
    /// The decision; nothing when nobody could decide and the file says to let everything pass.
    pub decided: Option<Decided>,
    /// Who decided.
    pub by: DecidedBy,
}

impl Plan {
    /// Writes the keys of all limits that apply.
    ///
    /// # Errors
    /// When a limit demands a field that the request lacks, or a value that somebody knows.
    pub fn of(service: &Service, caller: &Caller<'_>) -> Result<Self, ProxyError> {
        let mut plan = Self {
            keys: Vec::with_capacity(64 * service.limits.len()),
            ..Self::default()
        };
        plan.refill(service, caller, |_| None, |_, _| false)?;
        Ok(plan)
    }

    /// Likewise in place, for replays: `given` is what the request took from a limit that lets it say so, `known` says
    /// whether it has written the key of a limit, as it was counted then.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn refill(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        given: impl Fn(&Limit) -> Option<Cost>,
        known: impl Fn(&Limit, &mut Vec<u8>) -> bool,
    ) -> Result<(), ProxyError> {
        self.keys.clear();
        self.limits.clear();
        self.spared.clear();
        let is_preflight = caller.is_preflight();
        self.keyless.clear();
        let mut standing = Standing::default();
        for (index, limit) in service.limits.iter().enumerate() {
            if is_preflight && limit.answers.preflights == Preflights::Free {
                continue;
            }
            if let Some(not) = &limit.exempt {
                if not.covers(caller) {
                    continue;
                }
                match not.group(&mut standing, caller, &mut self.keys) {
                    Ok(None) => {}
                    Ok(Some(group)) => {
                        self.spared.push((index, Arc::clone(&group.name)));
                        continue;
                    }
                    Err(part) => {
                        self.ambiguous(index, limit, part)?;
                        continue;
                    }
                }
            }
            let start = self.keys.len();
            let found = if known(limit, &mut self.keys) {
                limit.by.recognise(caller, &mut self.keys, start)
            } else {
                limit.by.write(caller, &mut self.keys)
            };
            match found {
                Found::Key => {
                    let tier = match limit.tiers.is_empty() {
                        true => Ok(None),
                        false => limit.tier_of(&mut standing, caller, &mut self.keys, start),
                    };
                    let tier = match tier {
                        Ok(tier) => tier,
                        Err(part) => {
                            self.keys.truncate(start);
                            self.ambiguous(index, limit, part)?;
                            continue;
                        }
                    };
                    let limit = tier.map_or(limit, |tier| &limit.tiers[tier].limit);
                    let cost = match (&limit.price, &limit.dedupe) {
                        (None, None) => limit.cost,
                        _ => given(limit).unwrap_or_else(|| cost(limit, caller)),
                    };
                    self.limits.push(Planned {
                        limit: index,
                        tier,
                        start,
                        end: self.keys.len(),
                        cost,
                        id: repeat_id(limit, cost, caller),
                    });
                }
                Found::Skip => {}
                Found::Refuse(_) | Found::Unknown(_) if !limit.mode.decides() => {
                    self.keyless.push(index);
                }
                Found::Ambiguous(part) => self.ambiguous(index, limit, part)?,
                Found::Refuse(part) => return Err(ProxyError::keyless(limit, part)),
                Found::Unknown(part) => return Err(ProxyError::unknown(limit, part)),
            }
        }
        Ok(())
    }

    /// `part` came several times and differs, by which limit number `index` counts or its groups go.
    fn ambiguous(&mut self, index: usize, limit: &Limit, part: &Part) -> Result<(), ProxyError> {
        if limit.mode.decides() {
            return Err(ProxyError::AmbiguousKey {
                limit: Arc::clone(&limit.name),
                part: part.clone(),
            });
        }
        self.keyless.push(index);
        Ok(())
    }

    /// Does no limit apply?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Do all limits of the service apply that decide, with their own numbers?
    #[must_use]
    pub fn is_whole(&self, service: &Service) -> bool {
        let decides = |position: usize| service.limits[position].mode.decides();
        let all = self.limits.len() == service.limits.len()
            || self.positions().filter(|at| decides(*at)).count()
                == (0..service.limits.len()).filter(|at| decides(*at)).count();
        all && self.limits.iter().all(|planned| planned.tier.is_none())
    }

    /// Positions in the service of limits that do not decide, and would refuse the request for its key.
    #[must_use]
    pub fn keyless(&self) -> &[usize] {
        &self.keyless
    }

    /// What to ask of the store.
    #[must_use]
    pub fn checks<'a>(&'a self, service: &'a Service) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| Check {
                limit: planned.limit(service),
                key: &self.keys[planned.start..planned.end],
                cost: planned.cost,
                id: planned.id,
            })
            .collect()
    }

    /// The limits that apply, in order: those that decide, then the others.
    #[must_use]
    pub fn limits<'a>(&self, service: &'a Service) -> SmallVec<[&'a Arc<Limit>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| planned.limit(service))
            .collect()
    }

    /// Limit number `index` of the plan, with the numbers that hold for the request.
    #[must_use]
    pub fn limit<'a>(&self, index: usize, service: &'a Service) -> Option<&'a Arc<Limit>> {
        Some(self.limits.get(index)?.limit(service))
    }

    /// Limits that a group of the request's has changed: their positions in the service, and the group whose numbers
    /// hold, or whose members the limit does not hold for.
    pub fn groups<'a>(
        &'a self,
        service: &'a Service,
    ) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let tiers = self.limits.iter().filter_map(|planned| {
            let group = planned.limit(service).group.as_ref()?;
            Some((planned.limit, group))
        });
        tiers.chain(self.spared.iter().map(|(limit, group)| (*limit, group)))
    }

    /// Each limit's position in the service.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.limits.iter().map(|planned| planned.limit)
    }

    /// Each limit's position in the service, with its key as text and its cost.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &str, Cost)> {
        self.limits.iter().map(|planned| {
            // Keys are written as ASCII.
            let key =
                std::str::from_utf8(&self.keys[planned.start..planned.end]).unwrap_or_default();
            (planned.limit, key, planned.cost)
        })
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
                if matches!(self.by, DecidedBy::Local { .. }) && !self.is_known(limit) =>
            {
                metrics::DecidedBy::Open
            }
            (Scope::Cluster, None) => self.decider(),
        }
    }

    /// What was said by `index` of the plan, a limit that does not decide. Nothing where nobody has counted.
    #[must_use]
    pub fn aside(&self, index: usize) -> Option<Outcome> {
        let mut aside = self.decided.as_ref()?.aside.iter();
        let aside = aside.find(|aside| aside.index == index)?;
        Some(aside.verdict?.outcome)
    }

    /// What `limit`, number `index` of the plan, has said. Where nobody could, what stands in for it; nothing where nobody
    /// was asked, since the remembered refusal of another was enough.
    #[must_use]
    pub fn outcome(&self, index: usize, limit: &Limit) -> Option<Outcome> {
        let known = self.decided.as_ref().filter(|_| self.is_known(limit));
        let verdict = known.and_then(|decided| decided.decision.verdicts.get(index));
        match (verdict, self.by) {
            (Some(verdict), _) => Some(verdict.outcome),
            (None, DecidedBy::Remembered) => None,
            (None, DecidedBy::Closed) => Some(Outcome::Refuse(Wait::Micros(0))),
            (None, _) => Some(Outcome::Admit { delay: 0 }),
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
    pub fn slots(&self, plan: &Plan, service: &Service, store: &Store) -> Option<Slots> {
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
        Slots::hold(store, self.by, charges.collect())
    }

    /// What this admission has paid to limits that may give it back. A place in a queue belongs to who `stands` in it.
    #[must_use]
    pub(super) fn returns(
        &self,
        plan: &Plan,
        service: &Service,
        store: &Store,
        stands: bool,
    ) -> Option<Rc<Returns>> {
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
        Some(Returns::keep(store, self.by, charges.collect()))
    }

    /// The places this admission takes in queues; none when nothing has to wait, and nobody stands in line before it.
    #[must_use]
    pub fn places(&self, plan: &Plan, service: &Service, lines: &Lines) -> Vec<Charge> {
        let Some(decided) = &self.decided else {
            return Vec::new();
        };
        match decided.decision.ruling {
            Ruling::Admit { delay: 1.. } => Self::queued(decided, plan, service),
            Ruling::Admit { delay: 0 } if lines.exist() => {
                let queued = Self::queued(decided, plan, service);
                match lines.is_any(&queued, self.by) {
                    true => queued,
                    false => Vec::new(),
                }
            }
            Ruling::Admit { .. } | Ruling::Refuse { .. } => Vec::new(),
        }
    }

    fn queued(decided: &Decided, plan: &Plan, service: &Service) -> Vec<Charge> {
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
        let mut limits = plan.limits.iter();
        let partial = |limit: &Limit| limit.partial && limit.mode.decides();
        let index = limits.position(|planned| partial(&service.limits[planned.limit]))?;
        let granted = self.granted_by(index).unwrap_or(plan.limits[index].cost);
        (granted != Cost::ZERO).then_some(granted.units())
    }

    /// Position in the plan of the limit that delays the longest.
    #[must_use]
    pub fn delayed_by(&self) -> Option<usize> {
        let decision = &self.decided.as_ref()?.decision;
        let delay = |outcome| match outcome {
            Outcome::Admit { delay } => delay,
            Outcome::Refuse(_) => 0,
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

fn shown(by: DecidedBy) -> metrics::DecidedBy {
    match by {
        DecidedBy::Memory | DecidedBy::Redis => metrics::DecidedBy::Store,
        DecidedBy::Remembered => metrics::DecidedBy::Remembered,
        DecidedBy::Lease => metrics::DecidedBy::Lease,
        DecidedBy::Local { .. } => metrics::DecidedBy::Local,
        DecidedBy::Open => metrics::DecidedBy::Open,
        DecidedBy::Closed => metrics::DecidedBy::Closed,
    }
}
