//! The numbers that a bucket's state was last written with. A change of numbers keeps the units that were used, so a
//! state names the rate at which it drains and the most that it could hold. Twin: `lua/changed.lua`.

#[cfg(test)]
mod tests;

use crate::limit::rate::{Interval, Span};
use std::num::{NonZeroU32, NonZeroU64};

/// N per P in lowest terms, and the most units that the bucket could hold. Rates of one interval are the same rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Numbers {
    period: NonZeroU64,
    count: NonZeroU32,
    size: NonZeroU32,
}

/// Units of a bucket: whole ones, and a rest over P of the numbers that they were computed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::limit) struct UsedUnits {
    pub(in crate::limit) whole: u64,
    pub(in crate::limit) rest: u64,
}

impl Numbers {
    /// The numbers of a bucket that holds `size` units. More than 2^32 - 1 units count as so many: only a debt can be
    /// greater.
    #[must_use]
    pub fn new(interval: Interval, size: u64) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Self {
            period: NonZeroU64::new(interval.period()).unwrap_or(NonZeroU64::MIN),
            count: interval.den,
            size: NonZeroU32::new(size).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// The numbers with these parts: P in microseconds, N, and the most units. `None` where P is not below 2^53.
    #[must_use]
    pub fn of_parts(period: u64, count: u32, size: u32) -> Option<Self> {
        Some(Self {
            period: NonZeroU64::new(period).filter(|period| period.get() < 1 << 53)?,
            count: NonZeroU32::new(count)?,
            size: NonZeroU32::new(size)?,
        })
    }

    /// P in microseconds, N, and the most units.
    #[must_use]
    pub fn parts(self) -> (u64, u32, u32) {
        (self.period.get(), self.count.get(), self.size.get())
    }

    /// The time of one unit.
    pub(in crate::limit) fn interval(self) -> Interval {
        let count = u64::from(self.count.get());
        Interval::of(self.period.get(), count, self.count)
    }

    /// The same rate with the greater size of the two.
    pub(in crate::limit) fn or_larger(self, other: Self) -> Self {
        Self {
            size: self.size.max(other.size),
            ..self
        }
    }

    /// Does a bucket drain at the rate of `interval` under these numbers?
    pub(in crate::limit) fn is_of(self, interval: Interval) -> bool {
        self.count == interval.den && self.period.get() == interval.period()
    }

    /// Is the rate of these numbers higher than that of `other`?
    pub(in crate::limit) fn is_faster_than(self, other: Self) -> bool {
        let product =
            |one: Self, count: NonZeroU32| u128::from(one.period.get()) * u128::from(count.get());
        product(self, other.count) < product(other, self.count)
    }

    /// The time in which a full bucket drains.
    pub(in crate::limit) fn full(self) -> Span {
        self.interval().times(u64::from(self.size.get()))
    }

    /// The units that a full bucket holds.
    pub(in crate::limit) fn most(self) -> UsedUnits {
        UsedUnits {
            whole: u64::from(self.size.get()),
            rest: 0,
        }
    }

    /// The units that drain in `level`, exactly.
    pub(in crate::limit) fn used(self, level: Span) -> UsedUnits {
        let period = u128::from(self.period.get());
        let parts = self.interval().parts_of(level);
        let narrow = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        UsedUnits {
            whole: narrow(parts / period),
            rest: narrow(parts % period),
        }
    }

    /// The time in which `used`, computed under `before`, drains at the rate of `interval`: rounded up by less than
    /// one part of a microsecond, so that whole units stay whole.
    pub(in crate::limit) fn level_of(used: UsedUnits, before: Self, interval: Interval) -> Span {
        let parts = u128::from(used.rest) * u128::from(interval.period());
        let parts = parts.div_ceil(u128::from(before.period.get()));
        let rest = interval.span_of(parts);
        interval.add(interval.times(used.whole), rest)
    }
}
