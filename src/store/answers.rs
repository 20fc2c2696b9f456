//! What was measured of a request's limits by one store, or with one question: a decision is made of one half, or of two.

use super::check::{Charge, Check};
use super::decider::Decider;
use super::error::StoreError;
use crate::clock::Timestamp;
use crate::limit::OnDown;
use crate::limit::verdict::{INLINE_LIMITS, Measurement, Verdict};
use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::time::Duration;

/// What a store measured for each limit of a request.
pub type Measurements = SmallVec<[Measurement; INLINE_LIMITS]>;

/// What was measured for some of a request's limits, and when by the clock of who measured it.
#[derive(Debug, Clone)]
pub struct Answers {
    /// The instant.
    pub at: Timestamp,
    /// One for each limit, in order.
    pub measured: Measurements,
    /// How many gateways count for themselves, if they do: each request was measured at so many times its cost.
    pub gateways: NonZeroU32,
    /// Limits that let everything pass were not measured: what those do that do not say it themselves.
    pub open: Option<OnDown>,
    /// The instants of each, where they were measured by several clocks; else nothing.
    pub instants: Vec<Timestamp>,
    /// Those that others have answered than was asked, by position.
    pub others: Vec<(usize, Decider)>,
    /// Those of which nothing was measured, since a permit was in hand or it is known that there is none, by position: what
    /// they say.
    pub said: SmallVec<[(usize, Verdict); 1]>,
    /// What could not be measured, where some could.
    pub gap: Option<Box<PartialOutage>>,
}

/// What nobody could measure of a request, while others of its limits were.
#[derive(Debug, Clone)]
pub struct PartialOutage {
    /// The limits' positions.
    pub unknown: Vec<usize>,
    /// What the others were charged, if they all agree.
    pub charged: Vec<TentativeCharge>,
    /// One of the others refuses, and nothing stays charged.
    pub refused: bool,
    /// Why.
    pub why: StoreError,
}

/// A charge that was made before it was known whether the request goes on.
#[derive(Debug, Clone)]
pub struct TentativeCharge {
    /// The charge.
    pub charge: Charge,
    /// When it was made, by the clock of who made it.
    pub at: Timestamp,
    /// How long after that its turn is, in a queue.
    pub turn: Duration,
}

impl Answers {
    /// Measured in the one place where all are counted.
    #[must_use]
    pub fn whole(at: Timestamp, measured: Measurements) -> Self {
        Self {
            at,
            measured,
            gateways: NonZeroU32::MIN,
            open: None,
            instants: Vec::new(),
            others: Vec::new(),
            said: SmallVec::new(),
            gap: None,
        }
    }

    /// When the limit at `index` was measured.
    #[must_use]
    pub fn instant(&self, index: usize) -> Timestamp {
        self.instants.get(index).copied().unwrap_or(self.at)
    }

    /// The same for all of `checks`, of which it has those that are `mine`: of the others nothing was measured.
    pub(super) fn among(self, checks: &[Check<'_>], mine: impl Fn(usize) -> bool) -> Self {
        let mut whole = Self {
            gateways: self.gateways,
            open: self.open,
            ..Self::whole(self.at, Measurements::new())
        };
        let mut own = 0..;
        for (position, check) in checks.iter().enumerate() {
            let index = if mine(position) { own.next() } else { None };
            let measured = index.and_then(|index| self.measured.get(index).copied());
            whole.measured.push(measured.unwrap_or(check.nobody()));
            if !self.instants.is_empty() {
                whole
                    .instants
                    .push(index.map_or(self.at, |index| self.instant(index)));
            }
            let Some(index) = index else { continue };
            let by = self.others.iter().find(|(other, _)| *other == index);
            whole.others.extend(by.map(|(_, by)| (position, *by)));
            let said = self.said.iter().find(|(said, _)| *said == index);
            whole
                .said
                .extend(said.map(|(_, verdict)| (position, *verdict)));
        }
        whole
    }

    /// What `check`, number `index` of the request, says as it was `measured`.
    pub(super) fn verdict(
        &self,
        index: usize,
        check: &Check<'_>,
        measured: &Measurement,
        charged: bool,
    ) -> Verdict {
        if let Some((_, verdict)) = self.said.iter().find(|(said, _)| *said == index) {
            return *verdict;
        }
        let (at, gateways) = (self.instant(index), self.gateways_of(index));
        let cost = measured.charged(check.cost);
        if check.is_own() || gateways == NonZeroU32::MIN {
            return check.limit.rule.verdict(*measured, at, cost, charged);
        }
        let limit = check.limit;
        limit.verdict_as_one_of(*measured, at, cost, charged, gateways)
    }

    /// As one of how many gateways.
    fn gateways_of(&self, index: usize) -> NonZeroU32 {
        let mut others = self.others.iter();
        let other = others.find(|(other, _)| *other == index);
        other.map_or(self.gateways, |(_, by)| by.gateways())
    }
}
