//! Plans a request's limits, asks the store once for all of them, and reads the answer.

use super::error::ProxyError;
use crate::key::{Caller, Found};
use crate::limit::Limit;
use crate::limit::verdict::{INLINE_LIMITS, Outcome, Ruling};
use crate::snapshot::Service;
use crate::store::{Charge, Check, Decided, DecidedBy, Store};
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits that apply to one request, each with its key.
#[derive(Debug, Default)]
pub struct Plan {
    keys: Vec<u8>,
    limits: SmallVec<[Planned; INLINE_LIMITS]>,
}

#[derive(Debug, Clone, Copy)]
struct Planned {
    /// Position among the service's limits.
    limit: usize,
    start: usize,
    end: usize,
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
    /// When a limit demands a field that the request lacks.
    pub fn of(service: &Service, caller: &Caller<'_>) -> Result<Self, ProxyError> {
        let mut plan = Self {
            keys: Vec::with_capacity(64 * service.limits.len()),
            limits: SmallVec::new(),
        };
        plan.refill(service, caller, |_, _| false)?;
        Ok(plan)
    }

    /// Likewise in place, for replays: `known` says whether it has written the key of a limit, as it was counted then.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn refill(
        &mut self,
        service: &Service,
        caller: &Caller<'_>,
        known: impl Fn(&Limit, &mut Vec<u8>) -> bool,
    ) -> Result<(), ProxyError> {
        self.keys.clear();
        self.limits.clear();
        for (index, limit) in service.limits.iter().enumerate() {
            let start = self.keys.len();
            let found = if known(limit, &mut self.keys) {
                Found::Key
            } else {
                limit.by.write(caller, &mut self.keys)
            };
            match found {
                Found::Key => self.limits.push(Planned {
                    limit: index,
                    start,
                    end: self.keys.len(),
                }),
                Found::Skip => {}
                Found::Refuse(field) => {
                    return Err(ProxyError::MissingKey {
                        limit: Arc::clone(&limit.name),
                        field: field.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Does no limit apply?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Do all limits of the service apply?
    #[must_use]
    pub fn is_whole(&self, service: &Service) -> bool {
        self.limits.len() == service.limits.len()
    }

    /// What to ask of the store.
    #[must_use]
    pub fn checks<'a>(&'a self, service: &'a Service) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| {
                let limit = &service.limits[planned.limit];
                Check::new(limit, &self.keys[planned.start..planned.end])
            })
            .collect()
    }

    /// The limits that apply, in order.
    #[must_use]
    pub fn limits<'a>(&self, service: &'a Service) -> SmallVec<[&'a Arc<Limit>; INLINE_LIMITS]> {
        self.limits
            .iter()
            .map(|planned| &service.limits[planned.limit])
            .collect()
    }

    /// Each limit's position in the service.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.limits.iter().map(|planned| planned.limit)
    }

    /// Each limit's position in the service, with its key as text.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &str)> {
        self.limits.iter().map(|planned| {
            // Keys are written as ASCII.
            let key =
                std::str::from_utf8(&self.keys[planned.start..planned.end]).unwrap_or_default();
            (planned.limit, key)
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
    /// How long to hold the request, in microseconds.
    ///
    /// # Errors
    /// When a limit refuses.
    pub fn delay(&self, plan: &Plan, service: &Service) -> Result<u64, ProxyError> {
        match self.decided.as_ref().map(|decided| decided.decision.ruling) {
            None => Ok(0),
            Some(Ruling::Admit { delay }) => Ok(delay),
            Some(Ruling::Refuse { by, wait }) => {
                let limit = plan
                    .positions()
                    .nth(by)
                    .map(|limit| Arc::clone(&service.limits[limit].name))
                    .unwrap_or_default();
                Err(ProxyError::Limited { limit, wait })
            }
        }
    }

    /// The places this admission takes in queues; none when nothing has to wait.
    #[must_use]
    pub fn places(&self, plan: &Plan, service: &Service) -> Vec<Charge> {
        let Some(decided) = &self.decided else {
            return Vec::new();
        };
        if !matches!(decided.decision.ruling, Ruling::Admit { delay: 1.. }) {
            return Vec::new();
        }
        let checks = plan.checks(service);
        let queued = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| check.limit.rule.queues());
        queued
            .filter_map(|(index, check)| {
                let ticket = decided.ticket(index, check)?;
                Some(Charge {
                    limit: Arc::clone(check.limit),
                    key: Box::from(check.key),
                    ticket,
                })
            })
            .collect()
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
