//! A limit's decision about one request: its rule, a partial grant if the limit allows one, and the history that a
//! settlement needs.

pub(super) mod blocking;

use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Span};
use super::token_bucket::TokenBucket;
use super::verdict::{GrantedUnits, Measurement, Wait};
use super::{Change, Limit, Rule, State, WindowState, wire};
use crate::clock::Timestamp;
use std::borrow::Cow;
use std::num::NonZeroU32;

impl Limit {
    /// Would `cost`, or a part of it if the limit allows that, be admitted at `now`? Like [`Rule::check`].
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        self.check_as_one_of(state, now, cost, NonZeroU32::MIN)
    }

    /// Like [`Self::check`], for one of `gateways` that count separately, which charges [`Limit::share`]. The grant is
    /// the request's own part of the charge.
    #[inline]
    #[must_use]
    pub fn check_as_one_of(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
        gateways: NonZeroU32,
    ) -> (Measurement, Option<Change>) {
        // Most limits need no addition: the rule's answer is then returned without a copy.
        if self.partial || self.history || gateways > NonZeroU32::MIN {
            return self.check_beyond(state, now, cost, gateways);
        }
        self.rule.check(state, now, cost)
    }

    /// The rule by which one of several gateways decides about a request of `cost`, and computes the remainder.
    fn rule_of_share(&self, cost: Cost, gateways: NonZeroU32) -> Cow<'_, Rule> {
        match self.rule.as_one_of(cost, gateways) {
            Some(rule) => Cow::Owned(rule),
            None => Cow::Borrowed(&self.rule),
        }
    }

    fn check_beyond(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
        gateways: NonZeroU32,
    ) -> (Measurement, Option<Change>) {
        let (measured, change) = self.check_rule(state, now, cost, gateways);
        if self.history {
            return self.note_history(state, now, measured, change);
        }
        (measured, change)
    }

    fn check_rule(
        &self,
        state: Option<&State>,
        now: Timestamp,
        cost: Cost,
        gateways: NonZeroU32,
    ) -> (Measurement, Option<Change>) {
        if !self.partial || cost <= Cost::ONE {
            let rule = self.rule_of_share(cost, gateways);
            return rule.check(state, now, self.share(cost, gateways));
        }
        // The whole cost is checked first. A cost beyond the content of the limit is granted in part.
        let rule = self.rule_of_share(Cost::ONE, gateways);
        let all = cost.units().saturating_mul(u64::from(gateways.get()));
        let (measured, change) = rule.check(state, now, Cost::new(all));
        if measured.wait == Wait::Micros(0) {
            return (measured, change);
        }
        let left = match rule.bucket() {
            // The part that can be waited for does not depend on a request's own units.
            Some(bucket) => bucket.fitting(measured.span),
            None => rule.verdict(measured, now, Cost::new(all), false).remaining,
        };
        // Every granted unit is charged once for each gateway. A remainder smaller than that is not granted.
        let unit = self.share(Cost::ONE, gateways).units().max(1);
        let left = left / unit;
        // If nothing is left, the wait is the one for a single unit.
        let less = Cost::new(left.max(1)).min(cost);
        let (mut measured, change) = rule.check(state, now, self.share(less, gateways));
        let is_admitted = measured.wait == Wait::Micros(0);
        measured.granted = GrantedUnits::of(less).filter(|_| is_admitted);
        (measured, change)
    }

    /// The scripts' parameters for a request of `cost` at about `now`.
    #[must_use]
    pub fn block_of(&self, cost: Cost, now: Timestamp) -> wire::Block {
        let mut block = wire::block_around(&self.rule, cost, now);
        if self.partial {
            block = wire::partial(&self.rule, cost, &block);
        }
        if self.history {
            return wire::with_history(&block);
        }
        block
    }
}

impl Rule {
    /// The state of a counter whose `span` was measured at `at`, if a measurement determines the whole state.
    #[must_use]
    pub fn state_of(&self, at: Timestamp, span: Span) -> Option<State> {
        let window = |start| {
            let count = span.part;
            Some(State::Window(WindowState { start, count }))
        };
        match self {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket { bucket, .. }) => {
                Some(State::Bucket(bucket.state_at(at, span)))
            }
            Self::FixedWindow(rule) => {
                window(at.plus(span.whole).micros().checked_sub(rule.window)?)
            }
            Self::ClockWindow(rule) => window(rule.window_of(at, span.whole).0),
            Self::SlidingWindow(_) | Self::SlidingLog(_) | Self::Concurrency(_) => None,
        }
    }
}
