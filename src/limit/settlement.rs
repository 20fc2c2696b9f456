//! Costs that are known only afterwards: a request is charged an estimate, and what was too much or too little is settled.
//!
//! What was too much comes back ([`Rule::refund`]). What was too little is charged without being asked, so that a counter may hold
//! more than its limit: a debt, for which all later requests wait. Windows and logs hold any count; a bucket holds
//! a debt up to its debt ceiling. The further charge is made by a limit of the same counters that has room for all of it.

use super::dedupe::Dedupe;
use super::fixed_window::FixedWindow;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Interval, Span};
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
    pub(super) fn with_room_for_debt(self, policy: &Policy) -> Self {
        let Some(meter) = &policy.meter else {
            return self;
        };
        let debt = debt(self.most(), policy.cost, meter.max);
        let most_units = policy.rate.most_units();
        let debt_ceiling = |most: u64, one: Interval| {
            let units = most.saturating_add(debt).min(most_units).max(most);
            one.times(units)
        };
        match self {
            Self::TokenBucket(rule) => Self::TokenBucket(TokenBucket {
                debt_ceiling: debt_ceiling(u64::from(rule.burst.get()), rule.interval),
                ..rule
            }),
            Self::LeakyBucket(rule) if rule.queue == 0 => Self::LeakyBucket(LeakyBucket {
                debt_ceiling: debt_ceiling(u64::from(rule.burst.get()), rule.interval),
                ..rule
            }),
            other => other,
        }
    }

    /// The rule that lets everything into the same counters, up to the debt ceiling.
    fn without_bound(&self) -> Option<Self> {
        let bucket = |of: LeakyBucket, debt_ceiling: Span| {
            Some(Self::LeakyBucket(LeakyBucket {
                capacity: debt_ceiling,
                latest: debt_ceiling,
                debt_ceiling,
                ..of
            }))
        };
        match self {
            Self::TokenBucket(rule) => {
                let free = Span::default();
                let of = LeakyBucket {
                    interval: rule.interval,
                    burst: rule.burst,
                    queue: 0,
                    max_wait: 0,
                    capacity: rule.capacity,
                    free,
                    latest: free,
                    debt_ceiling: rule.debt_ceiling,
                };
                bucket(of, rule.debt_ceiling)
            }
            Self::LeakyBucket(rule) if rule.queue == 0 => bucket(*rule, rule.debt_ceiling),
            Self::FixedWindow(rule) => Some(Self::FixedWindow(FixedWindow {
                limit: u32::MAX,
                ..*rule
            })),
            Self::ClockWindow(rule) => Some(Self::ClockWindow(ClockWindow {
                limit: u32::MAX,
                anchor: rule.anchor.clone(),
            })),
            Self::SlidingWindow(rule) => {
                // What is leaving is held beside what counts: both must be counted exactly.
                let most = SlidingWindow::most(rule.part) / 4;
                let most = u32::try_from(most).unwrap_or(u32::MAX);
                Some(Self::SlidingWindow(SlidingWindow {
                    limit: rule.limit.max(most),
                    ..*rule
                }))
            }
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => None,
        }
    }
}
