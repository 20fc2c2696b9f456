//! The numbers that a bucket's state was last written with. A change of numbers keeps the units that were used, so a
//! state names the rate at which it drains and the most that it could hold. Twin: `lua/changed.lua`.

#[cfg(test)]
mod tests;

use crate::limit::rate::{Interval, MOST_OF_FOUR_BYTES, MOST_UNITS, Span, narrow};
use std::num::{NonZeroU32, NonZeroU64};

/// N per P in lowest terms, and the most units that the bucket could hold. Rates of one interval are the same rate.
///
/// Every state has them, so that they are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// P in microseconds. If the size has more than 32 bits: the mark `LARGE`, the upper bits of the size, and P.
    packed: NonZeroU64,
    count: NonZeroU32,
    /// The lower bits of the size.
    size: u32,
}

/// The mark of a size of more than 32 bits.
const LARGE: u64 = 1 << 63;
/// The bits of P beside such a size.
const PERIOD_BITS: u32 = 42;
/// P of a bucket that holds 2^32 units or more is below this, in lowest terms: 50 days in microseconds.
pub const LONGEST_OF_LARGE: u64 = 1 << PERIOD_BITS;

/// Units of a bucket: whole ones, and a rest over P of the numbers that they were computed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::limit) struct UsedUnits {
    pub(in crate::limit) whole: u64,
    pub(in crate::limit) rest: u64,
}

impl Numbers {
    /// The numbers of a bucket that holds `size` units. More than 2^32 - 1 units count as so many where P is not below
    /// [`LONGEST_OF_LARGE`].
    #[must_use]
    pub fn new(interval: Interval, size: u64) -> Self {
        Self::packed(interval.period(), interval.den, size)
    }

    fn packed(period: u64, count: NonZeroU32, size: u64) -> Self {
        let most = if period < LONGEST_OF_LARGE {
            MOST_UNITS
        } else {
            MOST_OF_FOUR_BYTES
        };
        let size = size.clamp(1, most);
        let above = size >> 32;
        let mark = if above > 0 {
            LARGE | above << PERIOD_BITS
        } else {
            0
        };
        Self {
            packed: NonZeroU64::new(period | mark).unwrap_or(NonZeroU64::MIN),
            count,
            size: narrow(size & MOST_OF_FOUR_BYTES),
        }
    }

    /// The numbers with these parts: P in microseconds, N, and the most units. `None` where P is not below 2^53, or the
    /// units are too many.
    #[must_use]
    pub fn of_parts(period: u64, count: u32, size: u64) -> Option<Self> {
        let period = NonZeroU64::new(period).filter(|period| period.get() < 1 << 53)?;
        let numbers = Self::packed(period.get(), NonZeroU32::new(count)?, size);
        (numbers.size() == size).then_some(numbers)
    }

    /// P in microseconds, N, and the most units.
    #[must_use]
    pub fn parts(self) -> (u64, u32, u64) {
        (self.period().get(), self.count.get(), self.size())
    }

    /// Has the size more than 32 bits?
    #[must_use]
    pub(in crate::limit) fn is_large(self) -> bool {
        self.packed.get() & LARGE > 0
    }

    fn period(self) -> NonZeroU64 {
        let packed = self.packed.get();
        if packed & LARGE == 0 {
            return self.packed;
        }
        NonZeroU64::new(packed % LONGEST_OF_LARGE).unwrap_or(NonZeroU64::MIN)
    }

    fn size(self) -> u64 {
        let packed = self.packed.get();
        let size = u64::from(self.size);
        if packed & LARGE == 0 {
            return size;
        }
        (packed & !LARGE) >> PERIOD_BITS << 32 | size
    }

    /// The time of one unit.
    pub(in crate::limit) fn interval(self) -> Interval {
        Interval::of(self.period().get(), self.count)
    }

    /// The same rate with room for `size` units. A size of 2^32 - 1 units at most stays one: an older version has no
    /// other.
    pub(in crate::limit) fn with_room_for(self, size: u64) -> Self {
        let most = if self.size() > MOST_OF_FOUR_BYTES {
            MOST_UNITS
        } else {
            MOST_OF_FOUR_BYTES
        };
        Self::packed(self.period().get(), self.count, size.min(most))
    }

    /// The same rate with the greater size of the two.
    pub(in crate::limit) fn or_larger(self, other: Self) -> Self {
        let size = self.size().max(other.size());
        Self::packed(self.period().get(), self.count, size)
    }

    /// Does a bucket drain at the rate of `interval` under these numbers?
    pub(in crate::limit) fn is_of(self, interval: Interval) -> bool {
        self.count == interval.den && self.period().get() == interval.period()
    }

    /// Is the rate of these numbers higher than that of `other`?
    pub(in crate::limit) fn is_faster_than(self, other: Self) -> bool {
        let product =
            |one: Self, count: NonZeroU32| u128::from(one.period().get()) * u128::from(count.get());
        product(self, other.count) < product(other, self.count)
    }

    /// The time in which a full bucket drains.
    pub(in crate::limit) fn full(self) -> Span {
        self.interval().times(self.size())
    }

    /// The units that a full bucket holds.
    pub(in crate::limit) fn most(self) -> UsedUnits {
        UsedUnits {
            whole: self.size(),
            rest: 0,
        }
    }

    /// The units that drain in `level`, exactly.
    pub(in crate::limit) fn used(self, level: Span) -> UsedUnits {
        let period = u128::from(self.period().get());
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
        let parts = parts.div_ceil(u128::from(before.period().get()));
        let rest = interval.span_of(parts);
        interval.add(interval.times(used.whole), rest)
    }
}
