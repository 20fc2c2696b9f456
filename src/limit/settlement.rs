//! Costs that are known only afterwards: a request is charged an estimate, and what was too much or too little is settled.
//!
//! What was too much comes back ([`Rule::refund`]). What was too little is charged without being asked, so that a counter may hold
//! more than its limit: a debt, for which all later requests wait. Windows and logs hold any count; a bucket holds
//! a debt up to its debt ceiling. The further charge is made by a limit of the same counters that has room for all of it.

use super::dedupe::Dedupe;
use super::fixed_window::FixedWindow;
use super::leaky_bucket::LeakyBucket;
use super::rate::Cost;
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use super::{ChargeKind, ClockWindow, Limit, Policy, Rule};
use crate::key::{IdField, Sameness};
use http::HeaderName;
use std::sync::Arc;

/// How long it is known what was charged beyond an estimate, in microseconds.
const REMEMBERED: u64 = 150_000_000;

impl Limit {
    /// What charges the counters of this limit beyond what it admits: all that fits below the debt ceiling.
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

/// How an overdraft's charge is told that had no answer and is made again: by its id.
pub(super) fn once() -> Dedupe {
    Dedupe {
        field: IdField(HeaderName::from_static("tollgate-charge")),
        ttl: REMEMBERED,
        repeats: u32::MAX,
        of: Sameness::Path,
    }
}

/// How many units a debt may come to: as many as a full bucket's requests can cost more than was charged for them, when
/// all of them are under way at once.
fn debt(whole: u64, estimate: Cost, max: u32) -> u64 {
    let estimate = u64::from(estimate.units()).max(1);
    let more = u64::from(max).saturating_sub(estimate);
    (whole / estimate).max(1).saturating_mul(more)
}

impl Rule {
    /// The rule with room for the debt that responses may cause, or for as much as can be computed with exactly.
    pub(super) fn with_room_for_debt(mut self, policy: &Policy) -> Self {
        let Some(meter) = &policy.meter else {
            return self;
        };
        let (most, most_units) = (self.most(), policy.rate.most_units());
        let debt = debt(most, policy.cost, meter.max);
        let queues = self.queues();
        if let Some(bucket) = self.bucket_mut().filter(|_| !queues) {
            let units = most.saturating_add(debt).min(most_units).max(most);
            bucket.debt_ceiling = bucket.interval.times(units);
        }
        self
    }

    /// The rule that lets everything into the same counters, up to the debt ceiling.
    fn without_bound(&self) -> Option<Self> {
        let mut rule = self.clone();
        match &mut rule {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket {
                bucket, queue: 0, ..
            }) => *bucket = bucket.without_bound(),
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::ClockWindow(ClockWindow { limit, .. }) => *limit = u32::MAX,
            Self::SlidingWindow(SlidingWindow { limit, part, .. }) => {
                // What is leaving is held beside what counts: both must be counted exactly.
                let most = SlidingWindow::most(*part) / 4;
                *limit = u32::try_from(most).unwrap_or(u32::MAX).max(*limit);
            }
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => return None,
        }
        Some(rule)
    }
}
