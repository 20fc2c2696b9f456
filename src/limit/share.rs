//! The share of one of several gateways that count separately. All of them together admit as much as one gateway would.
//!
//! Each gateway multiplies the cost by the number of gateways. If a bucket is smaller than the cost of one request
//! then, its size is increased, and its rate is kept. All gateways together admit no more than a burst and then the
//! rate. The burst is the limit's own, or the cost of one request in every gateway if that is greater. Windows, logs
//! and slots have no rate besides their size, so that a cost above their size is cut to their size. A limit smaller
//! than the number of gateways therefore admits one request in each.

use super::bucket::Bucket;
use super::concurrency::Concurrency;
use super::rate::Cost;
use super::verdict::{Measurement, Verdict};
use super::{ChargeKind, Limit, Rule};
use crate::clock::Timestamp;
use std::num::NonZeroU32;
use std::sync::Arc;

impl Limit {
    /// The charge for a request of `cost` if each of `gateways` counts separately.
    #[must_use]
    pub fn share(&self, cost: Cost, gateways: NonZeroU32) -> Cost {
        let all = cost.units().saturating_mul(u64::from(gateways.get()));
        let most = self.rule.most();
        match self.rule {
            // The whole limit never admits this cost, so no gateway may admit it either.
            _ if cost.units() > most => cost,
            Rule::TokenBucket(_) | Rule::LeakyBucket(_) => Cost::new(all),
            _ => Cost::new(all.min(most)),
        }
    }

    /// The measurement of one of several gateways at `at`, in the units of the file. The remainder is the number of
    /// requests of one unit that this gateway would admit.
    #[must_use]
    pub fn verdict_as_one_of(
        &self,
        measured: Measurement,
        at: Timestamp,
        cost: Cost,
        charged: bool,
        gateways: NonZeroU32,
    ) -> Verdict {
        let cost = self.share(cost, gateways);
        let mut part = self.rule.as_one_of(Cost::ONE, gateways);
        if let Some(bucket) = part.as_mut().and_then(Rule::bucket_mut) {
            bucket.admit_behind_latest(gateways);
        }
        let rule = part.as_ref().unwrap_or(&self.rule);
        let verdict = rule.verdict(measured, at, cost, charged);
        Verdict {
            remaining: verdict.remaining / u64::from(gateways.get()),
            ..verdict
        }
    }

    /// The overdraft if one of several gateways counts separately: charges and debts are multiplied by their number.
    #[must_use]
    pub fn overdraft_as_one_of(self: &Arc<Self>, gateways: NonZeroU32) -> Arc<Self> {
        let mut rule = self.rule.clone();
        match rule.bucket_mut() {
            Some(bucket) if gateways > NonZeroU32::MIN => {
                bucket.hold_up_to(several(bucket, gateways));
                *bucket = bucket.without_bound();
                self.variant(ChargeKind::Overdraft, rule)
            }
            _ => Arc::clone(self),
        }
    }

    /// The limit on requests in flight without its bound, for slots of requests that are in flight in any case.
    #[must_use]
    pub fn of_any_number(&self) -> Option<&Arc<Self>> {
        let variant = || {
            let rule = Rule::Concurrency(Concurrency {
                max: NonZeroU32::MAX,
                ..*self.rule.concurrency()?
            });
            Some(self.variant(ChargeKind::Request, rule))
        };
        self.variants.of_any_number.get_or_init(variant).as_ref()
    }
}

impl Rule {
    /// The rule for a request of `cost` that is charged a multiple; `None` if the numbers stay.
    pub(super) fn as_one_of(&self, cost: Cost, gateways: NonZeroU32) -> Option<Self> {
        if gateways == NonZeroU32::MIN {
            return None;
        }
        let mut part = self.clone();
        let bucket = part.bucket_mut()?;
        if cost.units() <= self.most() {
            let all = cost.units().saturating_mul(u64::from(gateways.get()));
            bucket.capacity = bucket.capacity.max(bucket.interval.times(all));
        }
        bucket.hold_up_to(several(bucket, gateways));
        Some(part)
    }
}

impl Bucket {
    /// Makes the remainder count requests that take several units each: the last of them begins at the latest level.
    fn admit_behind_latest(&mut self, gateways: NonZeroU32) {
        let others = self.interval.times(u64::from(gateways.get()) - 1);
        self.latest = self.latest.map(|latest| self.interval.add(latest, others));
    }
}

/// The most units of all gateways together: a request of any cost may have been charged.
fn several(bucket: &Bucket, gateways: NonZeroU32) -> u64 {
    let units = bucket.interval.units_in(bucket.debt_ceiling);
    units.saturating_mul(u64::from(gateways.get()))
}
