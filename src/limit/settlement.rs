//! Costs that are known only afterwards: a request is charged an estimate, and the difference is settled.
//!
//! A surplus is given back ([`Rule::refund`]). A shortfall is charged without a check, so that a counter may hold more
//! than its limit: a debt, for which all later requests wait. Windows and logs hold any count; a bucket holds a debt up
//! to its debt ceiling. The further charge is made by a limit with the same counters that has room for all of it.

use super::dedupe::Dedupe;
use super::fixed_window::FixedWindow;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Rate, most_counted};
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use super::{ChargeKind, ClockWindow, Limit, Policy, Rule};
use crate::key::{IdField, Sameness};
use http::HeaderName;
use std::sync::Arc;

/// Time for which a charge beyond an estimate is remembered, in microseconds.
const REMEMBERED: u64 = 150_000_000;

impl Limit {
    /// A variant of the limit that also charges the same counters beyond the quota: it admits every cost that stays
    /// below the debt ceiling.
    #[must_use]
    pub fn overdraft(&self) -> Option<&Arc<Self>> {
        self.meter.as_ref()?;
        let made = self.variants.overdraft.get_or_init(|| {
            let rule = self.rule.without_bound()?;
            Some(self.variant(ChargeKind::Overdraft, rule))
        });
        made.as_ref()
    }
}

/// The rule by which a repeated charge of an overdraft is recognised: by the id of the charge. A charge without an
/// answer is repeated.
pub(super) fn once() -> Dedupe {
    Dedupe {
        field: IdField(HeaderName::from_static("tollgate-charge")),
        ttl: REMEMBERED,
        repeats: u32::MAX,
        of: Sameness::Path,
    }
}

/// The most units of a debt: the costs of a full bucket's requests beyond their charges, if all of them are in flight
/// at once.
fn debt(whole: u64, estimate: Cost, max: u64) -> u64 {
    let estimate = estimate.units().max(1);
    let more = max.saturating_sub(estimate);
    (whole / estimate).max(1).saturating_mul(more)
}

impl Rule {
    /// The rule with room for the debt that responses may cause, or for as much as can be computed exactly.
    pub(super) fn with_room_for_debt(mut self, policy: &Policy, rate: Rate) -> Self {
        let Some(meter) = &policy.meter else {
            return self;
        };
        let (most, most_units) = (self.most(), rate.most_units());
        let debt = debt(most, policy.cost, meter.max);
        let queues = self.queues();
        if let Some(bucket) = self.bucket_mut().filter(|_| !queues) {
            let units = most.saturating_add(debt).min(most_units).max(most);
            bucket.hold_up_to(units);
        }
        self
    }

    /// The rule that admits every charge into the same counters, up to the debt ceiling.
    fn without_bound(&self) -> Option<Self> {
        let mut rule = self.clone();
        match &mut rule {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket {
                bucket, queue: 0, ..
            }) => *bucket = bucket.without_bound(),
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::ClockWindow(ClockWindow { limit, .. }) => *limit = most_counted(*limit),
            Self::SlidingWindow(SlidingWindow { limit, part, .. }) => {
                // Units of the oldest part are added to the counted ones: both must be counted exactly.
                let most = SlidingWindow::most(*part) / 4;
                *limit = most.min(most_counted(*limit)).max(*limit);
            }
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => return None,
        }
        Some(rule)
    }
}
