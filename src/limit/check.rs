//! What a limit says to one request: its rule, less where less may be granted, and what a settlement must know beside it.

use super::rate::Cost;
use super::verdict::{Measured, Wait};
use super::{Change, Limit, State, wire};
use crate::clock::Timestamp;

impl Limit {
    /// The same, granting what is left.
    #[must_use]
    pub fn granting_less(self) -> Self {
        let block = wire::partial(&self.rule, self.cost, &self.block);
        Self {
            partial: true,
            block,
            ..self
        }
    }

    /// Would `cost`, or where that is allowed some of it, be admitted at `now`? As [`Rule::check`].
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
        // Most are neither: what the rule says is then handed on as it is, and not copied.
        if self.partial || self.trails {
            return self.check_beyond(state, now, cost);
        }
        self.rule.check(state, now, cost)
    }

    fn check_beyond(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
        let answer = self.check_untrailed(state, now, cost);
        if self.trails {
            return self.trailed(state, now, answer);
        }
        answer
    }

    fn check_untrailed(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
        let (measured, change) = self.rule.check(state, now, cost);
        if !self.partial || measured.wait == Wait::Micros(0) || cost <= Cost::ONE {
            return (measured, change);
        }
        let left = self.rule.verdict(measured, now, cost, false).remaining;
        // With nothing left the wait is the one for a single unit.
        let less = u32::try_from(left).map_or(cost, |left| Cost::new(left.max(1)).min(cost));
        let (mut measured, change) = self.rule.check(state, now, less);
        measured.granted = (measured.wait == Wait::Micros(0)).then_some(less);
        (measured, change)
    }

    /// The scripts' parameters for a request of `cost` at about `now`.
    #[must_use]
    pub fn block_of(&self, cost: Cost, now: Timestamp) -> wire::Block {
        let mut block = wire::block_around(&self.rule, cost, now);
        if self.partial {
            block = wire::partial(&self.rule, cost, &block);
        }
        match self.trails {
            true => wire::trailed(cost, &block),
            false => block,
        }
    }
}
