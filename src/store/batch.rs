//! What a store is asked and what it answers: the limits of one request, checked together, charged all or none.

use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Decision, INLINE_LIMITS, Measured, Ruling, Wait};
use crate::limit::{Limit, Ticket};
use smallvec::SmallVec;
use std::sync::Arc;

/// One limit of a request. The limits of one request differ from each other.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The limit.
    pub limit: &'a Arc<Limit>,
    /// Whom it counts.
    pub key: &'a [u8],
    /// How much the request takes.
    pub cost: Cost,
}

impl<'a> Check<'a> {
    /// At the limit's own cost.
    #[must_use]
    pub fn new(limit: &'a Arc<Limit>, key: &'a [u8]) -> Self {
        Self {
            limit,
            key,
            cost: limit.cost,
        }
    }
}

/// One charge to take back.
#[derive(Debug, Clone, Copy)]
pub struct Refund<'a> {
    /// The limit that was charged.
    pub limit: &'a Arc<Limit>,
    /// For whom.
    pub key: &'a [u8],
    /// What [`Decided::ticket`] gave.
    pub ticket: Ticket,
}

/// What a store measured for each limit of a request.
pub type Measurements = SmallVec<[Measured; INLINE_LIMITS]>;

/// A request's decision, and what its tickets are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// What happens to the request.
    pub decision: Decision,
    /// One for each limit, in order.
    pub measured: Measurements,
}

impl Decided {
    /// Gives the measurements of `checks` their meaning: charged only when every limit admits.
    #[must_use]
    pub fn of(checks: &[Check<'_>], at: Timestamp, measured: Measurements) -> Self {
        let charged = measured.iter().all(|m| m.wait == Wait::Micros(0));
        let verdicts = checks
            .iter()
            .zip(&measured)
            .map(|(check, measured)| {
                let rule = &check.limit.rule;
                let cost = measured.granted.unwrap_or(check.cost);
                rule.verdict(*measured, at, cost, charged)
            })
            .collect();
        Self {
            decision: Decision::of(at, verdicts),
            measured,
        }
    }

    /// The ticket with which the charge of `check`, number `index` of the request, can be taken back. A request that
    /// was refused, or took nothing, has none.
    #[must_use]
    pub fn ticket(&self, index: usize, check: &Check<'_>) -> Option<Ticket> {
        let admitted = matches!(self.decision.ruling, Ruling::Admit { .. });
        let measured = self
            .measured
            .get(index)
            .filter(|_| admitted && check.cost != Cost::ZERO)?;
        let rule = &check.limit.rule;
        let cost = measured.granted.unwrap_or(check.cost);
        Some(rule.ticket(self.decision.at, *measured, cost))
    }
}

/// A charge that can be taken back later, by whoever holds it.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The limit that was charged.
    pub limit: Arc<Limit>,
    /// For whom.
    pub key: Box<[u8]>,
    /// What [`Decided::ticket`] gave.
    pub ticket: Ticket,
}

impl Charge {
    /// What `check`, number `index` of an admitted request, was charged, if anything.
    #[must_use]
    pub fn of(decided: &Decided, index: usize, check: &Check<'_>) -> Option<Self> {
        Some(Self {
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            ticket: decided.ticket(index, check)?,
        })
    }

    /// The slots that `check`, number `index` of an admitted request, has taken, if it counts what is in flight.
    #[must_use]
    pub fn slots(decided: &Decided, index: usize, check: &Check<'_>) -> Option<Self> {
        check.limit.rule.holds()?;
        Self::of(decided, index, check)
    }
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecidedBy {
    /// The memory store, as the file says.
    Memory,
    /// Redis.
    Redis,
    /// The memory store, because Redis is away.
    Local,
    /// Nobody: Redis is away and the file says to let everything pass.
    Open,
}
