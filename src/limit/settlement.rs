//! Costs that are known only afterwards: a request is charged an estimate, and what was too much or too little is settled.
//!
//! What was too much comes back ([`Rule::refund`]). What was too little is charged without being asked, so that a counter may hold
//! more than its limit: a debt, for which all later requests wait. Windows and logs hold any count; a bucket holds
//! a debt up to its debt ceiling. The further charge is made by a limit of the same counters that has room for all of it.

use super::dedupe::Dedupe;
use super::fixed_window::FixedWindow;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Rate, Span};
use super::sliding_window::SlidingWindow;
use super::token_bucket::TokenBucket;
use super::{ClockWindow, Limit, Rule};
use crate::clock::Timestamp;
use crate::key::{IdField, KeyTemplate, Meter, MissingKey, Sameness};
use http::HeaderName;
use std::sync::Arc;

/// How long it is known what was charged beyond an estimate, in microseconds.
const REMEMBERED: u64 = 150_000_000;

impl Limit {
    /// The same with a cost that responses say; its own is charged until then.
    #[must_use]
    pub fn metered(mut self, meter: Meter) -> Self {
        let room = debt(self.rule.most(), self.cost, meter.max);
        self.rule = self.rule.with_debt_ceiling(self.rate, room);
        self.meter = Some(meter);
        self.history = matches!(self.rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_));
        self.block = self.block_of(self.cost, Timestamp::default());
        self
    }

    /// What charges the counters of this limit beyond what it admits: all that fits below the debt ceiling.
    #[must_use]
    pub fn overdraft(&self) -> Option<&Arc<Self>> {
        self.meter.as_ref()?;
        let made = self.overdraft.get_or_init(|| {
            let rule = self.rule.without_bound()?;
            // A charge that had no answer is made again by the same id.
            let once = Dedupe {
                field: IdField(HeaderName::from_static("tollgate-charge")),
                ttl: REMEMBERED,
                repeats: u32::MAX,
                of: Sameness::Path,
            };
            let mut made = Self {
                partial: true,
                dedupe: Some(once),
                ..self.alike(rule)
            };
            made.block = made.block_of(Cost::ONE, Timestamp::default());
            Some(Arc::new(made))
        });
        made.as_ref()
    }

    /// Another rule of the same counters, for the gateway's own use: no client sees it, and no request is counted by it.
    pub(super) fn alike(&self, rule: Rule) -> Self {
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
        };
        Self {
            shown: Arc::clone(&self.shown),
            kind: self.kind,
            scope: self.scope,
            mode: self.mode,
            id: self.id,
            history: self.history,
            on_down: self.on_down,
            group: self.group.clone(),
            with: self.with.clone(),
            answers: self.answers.clone(),
            ..Self::new(Arc::clone(&self.name), by, self.rate, rule, Cost::ONE)
        }
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
    /// The same with room for a debt of so many units, or as many as can be computed with exactly.
    #[must_use]
    fn with_debt_ceiling(self, rate: Rate, debt: u64) -> Self {
        let debt_ceiling = |most: u64, one: super::rate::Interval| {
            let units = most.saturating_add(debt).min(rate.most_units()).max(most);
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
