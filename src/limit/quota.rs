//! The quota of a limit for its clients, the time in which it returns, and whether another rate is always reached
//! first.

use super::Rule;
use super::clock_window::{Anchor, ClockWindow};
use super::leaky_bucket::LeakyBucket;
use super::rate::Rate;
use super::token_bucket::TokenBucket;

impl Rule {
    /// The units of an unused limit for its clients: a bucket's size; for a queue the units that pass at once, and the
    /// places that can be waited for within `max_wait`; else N.
    ///
    /// One request may take more from a queue ([`Rule::most`]): it waits for the units in front of it, and not for its
    /// own.
    #[must_use]
    pub fn quota(&self) -> u64 {
        let Self::LeakyBucket(rule) = self else {
            return self.most();
        };
        let within = super::rate::Span::micros(rule.max_wait);
        let places = rule.bucket.interval.units_in(within);
        rule.burst.get() + places.min(u64::from(rule.queue))
    }

    /// The time in which the whole quota returns, in microseconds, rounded up. So the quota in this time is `rate`, or
    /// less because of rounding. For windows of a calendar it is the longest window: in no window does more return.
    #[must_use]
    pub(super) fn refill(&self, rate: Rate) -> u64 {
        match self {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket { bucket, .. }) => {
                bucket.interval.times(self.quota()).ceil()
            }
            Self::ClockWindow(ClockWindow {
                anchor: Anchor::Calendar(calendar),
                ..
            }) => calendar.longest(),
            _ => rate.period.get(),
        }
    }

    /// Does the rule, at `rate`, never refuse a request that `other` admits at its own rate?
    #[must_use]
    pub fn is_implied_by(&self, rate: Rate, other: &Self, others_rate: Rate) -> bool {
        let numbers = |rate: Rate| (u128::from(rate.count.get()), u128::from(rate.period.get()));
        let ((n, p), (m, q)) = (numbers(rate), numbers(others_rate));
        // The longest stretch of time whose requests the rule counts, and the most requests that the other one admits
        // in it.
        let stretch = match self {
            Self::Concurrency(_) => return false,
            Self::TokenBucket(_) | Self::LeakyBucket(_) => {
                return m * p <= n * q && other.most() <= self.most();
            }
            Self::SlidingWindow(rule) => p + p / u128::from(rule.parts),
            Self::FixedWindow(_) | Self::ClockWindow(_) | Self::SlidingLog(_) => p,
        };
        let through = match (self, other) {
            (Self::ClockWindow(one), Self::ClockWindow(other)) if is_nested(one, other) => {
                m * p.div_ceil(q)
            }
            (_, Self::FixedWindow(_) | Self::ClockWindow(_)) => m * (stretch.div_ceil(q) + 1),
            (_, Self::SlidingWindow(rule)) if !rule.strict => 2 * m * stretch.div_ceil(q),
            _ => m * stretch.div_ceil(q),
        };
        through <= n
    }
}

/// Does every window of one rule lie inside a window of the other, or consist of several?
fn is_nested(one: &ClockWindow, other: &ClockWindow) -> bool {
    let (
        Anchor::Clock { window, offset },
        Anchor::Clock {
            window: others,
            offset: at,
        },
    ) = (&one.anchor, &other.anchor)
    else {
        return false;
    };
    offset == at && (window.is_multiple_of(*others) || others.is_multiple_of(*window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    fn rate(count: u64, period: u64) -> Rate {
        Rate {
            count: NonZeroU64::new(count).unwrap(),
            period: NonZeroU64::new(period).unwrap(),
        }
    }

    fn some(count: u64) -> NonZeroU64 {
        NonZeroU64::new(count).unwrap()
    }

    #[test]
    fn a_quota_in_its_time_is_the_rate() {
        for (count, period, burst) in [
            (100, 60_000_000, 500),
            (7, 3_000_000, 5),
            (1, 3_600_000_000, 100_000),
            (10_000_000, 1_000_000, 1),
            (3, 1_000_000, 3),
        ] {
            let rate = rate(count, period);
            let rule = Rule::TokenBucket(TokenBucket::new(rate, some(burst)));
            let (quota, refill) = (rule.quota(), rule.refill(rate));
            assert_eq!(quota, burst);
            let (quota, refill) = (u128::from(quota), u128::from(refill));
            let (count, period) = (u128::from(count), u128::from(period));
            assert!(quota * period <= count * refill, "more than the rate");
            assert!(quota * period > count * (refill - 1), "rounded too far");
        }
    }

    #[test]
    fn of_a_queue_only_the_places_count_that_can_be_waited_for() {
        for (count, period, burst, queue, max_wait, quota) in [
            (10, 1_000_000, 1, 100, 2_000_000, 21),
            (10, 1_000_000, 5, 100, 2_000_000, 25),
            (10, 1_000_000, 1, 8, 2_000_000, 9),
            (1, 3_000_000, 1, 1, 100_000, 1),
            (7, 3_000_000, 1, 12, 5_000_000, 12),
            (10, 1_000_000, 4, 0, 0, 4),
        ] {
            let rate = rate(count, period);
            let rule = LeakyBucket::new(rate, some(burst), queue, max_wait);
            assert_eq!(Rule::LeakyBucket(rule).quota(), quota);
        }
    }
}
