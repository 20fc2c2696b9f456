//! What is asked of a store, and what it answers: all limits of one request at once.

use crate::limit::rate::Cost;
use crate::limit::verdict::{Decision, INLINE_LIMITS, Measured, Ruling};
use crate::limit::{Limit, Ticket};
use smallvec::SmallVec;
use std::sync::Arc;

/// One limit of a request: what is counted, and under which key.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The limit.
    pub limit: &'a Arc<Limit>,
    /// The key its counter is filed under.
    pub key: &'a [u8],
    /// What the request takes.
    pub cost: Cost,
}

/// A decision, and what the store measured for each limit on the way.
#[derive(Debug, Clone)]
pub struct Decided {
    /// What happens to the request.
    pub decision: Decision,
    /// One for each check, in order.
    pub measured: SmallVec<[Measured; INLINE_LIMITS]>,
}

impl Decided {
    /// Gives the measurements of `checks` their meaning.
    #[must_use]
    pub fn of(
        at: crate::clock::Timestamp,
        checks: &[Check<'_>],
        measured: SmallVec<[Measured; INLINE_LIMITS]>,
    ) -> Self {
        use crate::limit::verdict::Wait;
        let charged = measured
            .iter()
            .all(|measured| measured.wait == Wait::Micros(0));
        let verdicts = checks
            .iter()
            .zip(&measured)
            .map(|(check, measured)| check.limit.rule.verdict(*measured, check.cost, charged))
            .collect();
        Self {
            decision: Decision::of(at, verdicts),
            measured,
        }
    }

    /// The ticket for taking back what check `index` was charged; nothing when the request was refused.
    #[must_use]
    pub fn ticket(&self, index: usize, check: &Check<'_>) -> Option<Ticket> {
        match self.decision.ruling {
            Ruling::Admit { .. } => Some(check.limit.rule.ticket(
                self.decision.at,
                *self.measured.get(index)?,
                check.cost,
            )),
            Ruling::Refuse { .. } => None,
        }
    }
}

/// A charge that can be taken back.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The limit.
    pub limit: Arc<Limit>,
    /// The key it was charged under.
    pub key: Box<[u8]>,
    /// What takes it back.
    pub ticket: Ticket,
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

impl DecidedBy {
    /// For logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Local => "local",
            Self::Open => "open",
        }
    }
}
