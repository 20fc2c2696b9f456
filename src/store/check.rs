//! What a store is asked and what it answers: the limits of one request, checked together, charged all or none. Limits
//! that do not decide stand behind those that do.

use super::answers::{Answers, Measurements};
use super::decider::Decider;
use super::shadow::{Charges, ShadowVerdict};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Decision, INLINE_LIMITS, Measurement, Repeat, Ruling, VerdictOutcome};
use crate::limit::{Limit, LimitId, OnDown, RecordMark, Scope, Ticket};
use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// One limit of a request. The limits of one request differ from each other.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The limit.
    pub limit: &'a Arc<Limit>,
    /// Whom it counts.
    pub key: &'a [u8],
    /// How much the request takes.
    pub cost: Cost,
    /// Under which id it may have been charged before, where the limit asks for one and the request has one.
    pub id: Option<RepeatId>,
}

impl<'a> Check<'a> {
    /// At the limit's own cost.
    #[must_use]
    pub fn new(limit: &'a Arc<Limit>, key: &'a [u8]) -> Self {
        Self {
            limit,
            key,
            cost: limit.cost,
            id: None,
        }
    }

    /// Whether the request may be a repeat, and of what. One that takes nothing is none.
    #[must_use]
    pub fn repeats(&self) -> Option<(&'a Dedupe, RepeatId)> {
        let id = self.id.filter(|_| self.cost != Cost::ZERO)?;
        Some((self.limit.dedupe.as_ref()?, id))
    }
}

impl Check<'_> {
    /// What stands for a measurement that nobody made.
    pub(super) fn nobody(&self) -> Measurement {
        match self.limit.mode.decides() {
            true => Measurement::UNKNOWN,
            false => Measurement::SPOILT,
        }
    }

    /// How long after its decision at `at` the turn is that its charge in this queue has paid for.
    pub(super) fn turn(&self, at: Timestamp, measured: Measurement) -> Duration {
        let verdict = self.limit.rule.verdict(measured, at, self.cost, true);
        match verdict.outcome {
            VerdictOutcome::Admit { delay } => Duration::from_micros(delay),
            VerdictOutcome::Refuse(_) => Duration::ZERO,
        }
    }

    /// The ticket of what was charged at `at`, if anything was.
    pub(super) fn ticket(&self, at: Timestamp, measured: Measurement) -> Option<Ticket> {
        self.ticket_as_one_of(at, measured, NonZeroU32::MIN)
    }

    /// The same of one of so many gateways that count each for itself.
    fn ticket_as_one_of(
        &self,
        at: Timestamp,
        measured: Measurement,
        gateways: NonZeroU32,
    ) -> Option<Ticket> {
        let record = match (measured.repeat, self.repeats()) {
            // Nothing was charged, but for the one that it repeats.
            (Repeat::Free, _) => return None,
            (Repeat::First, Some((dedupe, id))) => Some(RecordMark {
                id,
                ends: at.plus(dedupe.ttl).micros(),
            }),
            _ => None,
        };
        let cost = self.limit.share(measured.charged(self.cost), gateways);
        let ticket = self.limit.ticket(at, measured, cost);
        (self.cost != Cost::ZERO).then_some(Ticket { record, ..ticket })
    }
}

/// The same `checks`, with what `other` is in the place of their limits.
pub(super) fn apart<'a>(
    checks: &[Check<'a>],
    other: impl Fn(&Limit) -> Option<&Arc<Limit>>,
) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
    let apart = checks.iter().map(|check| Check {
        limit: other(check.limit).unwrap_or(check.limit),
        ..*check
    });
    apart.collect()
}

/// One charge to take back.
#[derive(Debug, Clone, Copy)]
pub struct Refund<'a> {
    /// The limit that was charged.
    pub limit: &'a Arc<Limit>,
    /// For whom.
    pub key: &'a [u8],
    /// What [`StoreDecision::ticket`] gave.
    pub ticket: Ticket,
}

/// Of which limits of a request nobody could say anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// Of none.
    #[default]
    Nothing,
    /// Of those that all gateways share.
    Shared,
    /// Of those among them that let everything pass while the store is away; with it what limits do that do not say.
    Open(OnDown),
}

/// A request's decision, and what its tickets are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDecision {
    /// What happens to the request.
    pub decision: Decision,
    /// One for each limit, in order.
    pub measured: Measurements,
    /// What was said by limits that do not decide: the decision's verdicts are of the others.
    pub aside: Vec<ShadowVerdict>,
    /// When this gateway's own limits were decided, by its own clock, if others were decided elsewhere.
    pub own: Option<Timestamp>,
    /// Of which limits nobody could say anything.
    pub unknown: Unknown,
    /// How many times a request's cost was charged by limits that all gateways share, as each counts for itself now.
    pub gateways: NonZeroU32,
    /// Limits of which a refusal was remembered.
    remembered: SmallVec<[LimitId; INLINE_LIMITS]>,
    /// When each was decided, if not all by one clock; else nothing.
    pub instants: Vec<Timestamp>,
    /// Limits that others have answered than the rest: permits in hand, or what stands in for an absent part of the store.
    pub others: Vec<(LimitId, Decider)>,
}

impl StoreDecision {
    /// Gives the measurements of `checks` their meaning: charged only when every limit admits.
    #[must_use]
    pub fn of(checks: &[Check<'_>], at: Timestamp, measured: Measurements) -> Self {
        Self::of_half(checks, Answers::whole(at, measured))
    }

    /// The same of limits that all gateways share, whoever measured them.
    #[must_use]
    pub fn of_half(checks: &[Check<'_>], half: Answers) -> Self {
        let charges = Charges::of(checks, &half.measured, false);
        let (mut verdicts, mut aside) = (SmallVec::new(), Vec::new());
        for (index, (check, measured)) in checks.iter().zip(&half.measured).enumerate() {
            let charged = charges.has(index);
            let verdict = half.verdict(index, check, measured, charged);
            if check.limit.mode.decides() {
                verdicts.push(verdict);
                continue;
            }
            aside.push(ShadowVerdict {
                index,
                verdict: (!measured.spoilt).then_some(verdict),
                charged,
            });
        }
        Self {
            decision: Decision::of(half.at, verdicts),
            aside,
            own: None,
            unknown: half.open.map_or(Unknown::Nothing, Unknown::Open),
            gateways: half.gateways,
            others: half
                .others
                .iter()
                .filter_map(|(index, by)| Some((checks.get(*index)?.limit.id, *by)))
                .collect(),
            instants: half.instants,
            measured: half.measured,
            remembered: SmallVec::new(),
        }
    }

    /// The same where nothing is known but what is remembered of these.
    pub(super) fn of_known(
        self,
        whole: bool,
        remembered: SmallVec<[LimitId; INLINE_LIMITS]>,
    ) -> Self {
        Self {
            unknown: if whole {
                Unknown::Nothing
            } else {
                Unknown::Shared
            },
            remembered,
            ..self
        }
    }

    /// The same of what was measured in two places: first of this gateway's own limits, then of the others, of which
    /// nothing may be known.
    #[must_use]
    pub fn of_halves(
        checks: &[Check<'_>],
        (own_at, own): (Timestamp, &Measurements),
        shared: Option<Answers>,
    ) -> Self {
        let is_known = shared.is_some();
        let shared = shared.unwrap_or_else(|| {
            let others = checks.iter().filter(|check| !check.is_own());
            Answers::whole(own_at, others.map(Check::nobody).collect())
        });
        let mut whole = shared.among(checks, |index| !checks[index].is_own());
        let mine = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| check.is_own());
        for ((index, _), measured) in mine.zip(own) {
            whole.measured[index] = *measured;
            if let Some(at) = whole.instants.get_mut(index) {
                *at = own_at;
            }
        }
        let decided = Self::of_half(checks, whole);
        Self {
            own: Some(own_at),
            unknown: match is_known {
                true => decided.unknown,
                false => Unknown::Shared,
            },
            ..decided
        }
    }

    /// Has somebody decided each of its limits?
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let nobody = |by: &Decider| matches!(by, Decider::Open | Decider::Closed);
        self.unknown == Unknown::Nothing && !self.others.iter().any(|(_, by)| nobody(by))
    }

    /// Has anybody decided `check`?
    #[must_use]
    pub fn is_known(&self, limit: &Limit) -> bool {
        if let Some(by) = self.other(limit) {
            return !matches!(by, Decider::Open | Decider::Closed);
        }
        limit.scope == Scope::Gateway
            || match self.unknown {
                Unknown::Nothing => true,
                Unknown::Shared => self.remembered.contains(&limit.id),
                Unknown::Open(otherwise) => limit.on_down.unwrap_or(otherwise) == OnDown::Local,
            }
    }

    /// Who has answered for `limit`, if not whoever answered for the rest.
    #[must_use]
    pub fn other(&self, limit: &Limit) -> Option<Decider> {
        let mut others = self.others.iter();
        others.find(|(id, _)| *id == limit.id).map(|(_, by)| *by)
    }

    /// Has an admitted request been charged by `check`, number `index` of it?
    fn has_charged(&self, index: usize, check: &Check<'_>) -> bool {
        let mut aside = self.aside.iter();
        check.limit.mode.decides() || aside.any(|aside| aside.index == index && aside.charged)
    }

    /// The ticket with which the charge of `check`, number `index` of the request, can be taken back. A request that
    /// was refused, or took nothing, has none.
    #[must_use]
    pub fn ticket(&self, index: usize, check: &Check<'_>) -> Option<Ticket> {
        let admitted = matches!(self.decision.ruling, Ruling::Admit { .. });
        let is_charged = admitted && self.is_known(check.limit) && self.has_charged(index, check);
        let measured = self.measured.get(index).filter(|_| is_charged)?;
        let at = match self.own {
            Some(own) if check.is_own() => own,
            _ => self
                .instants
                .get(index)
                .copied()
                .unwrap_or(self.decision.at),
        };
        match check.is_own() {
            true => check.ticket(at, *measured),
            false => {
                let other = self.other(check.limit);
                let gateways = other.map_or(self.gateways, Decider::gateways);
                check.ticket_as_one_of(at, *measured, gateways)
            }
        }
    }
}

/// A charge that can be taken back later, by whoever holds it.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The limit that was charged.
    pub limit: Arc<Limit>,
    /// For whom.
    pub key: Box<[u8]>,
    /// What [`StoreDecision::ticket`] gave.
    pub ticket: Ticket,
    /// Who was paid, if not whoever decided about the rest of the request.
    pub by: Option<Decider>,
}

impl<'a> From<&'a Charge> for Refund<'a> {
    fn from(charge: &'a Charge) -> Self {
        Self {
            limit: &charge.limit,
            key: &charge.key,
            ticket: charge.ticket,
        }
    }
}

impl Charge {
    /// What `check`, number `index` of an admitted request, was charged, if anything.
    #[must_use]
    pub fn of(decided: &StoreDecision, index: usize, check: &Check<'_>) -> Option<Self> {
        Some(Self {
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            ticket: decided.ticket(index, check)?,
            by: decided.other(check.limit),
        })
    }

    /// The slots that `check`, number `index` of an admitted request, has taken, if it counts what is in flight.
    #[must_use]
    pub fn slots(decided: &StoreDecision, index: usize, check: &Check<'_>) -> Option<Self> {
        check.limit.rule.holds()?;
        Self::of(decided, index, check)
    }
}
