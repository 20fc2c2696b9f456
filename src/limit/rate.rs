//! Rates and exact spans of time: N per P without loss of fractions.

use std::num::{NonZeroU32, NonZeroU64};

/// The longest span of any limit, in microseconds: 2^52 (142 years).
///
/// The scripts compute in doubles, where integers are exact below 2^53; an instant of this century plus this span
/// stays below that.
pub const MAX_SPAN: u64 = 1 << 52;

/// The units that a request takes from a limit. 0 checks without charging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// One unit: the cost of a request unless the file sets another.
    pub const ONE: Self = Self(1);
    /// No unit: a peek.
    pub const ZERO: Self = Self(0);

    /// `units` units.
    #[must_use]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// The number of units.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.0
    }
}

/// N per P: a count, and the period in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// N, the quota.
    pub count: NonZeroU32,
    /// P, the window, in microseconds.
    pub period: NonZeroU64,
}

impl Rate {
    /// The time one unit takes, exactly.
    #[must_use]
    pub fn interval(self) -> Interval {
        let (count, period) = (u64::from(self.count.get()), self.period.get());
        let common = gcd(count, period).max(1);
        let den = NonZeroU32::new(narrow(count / common)).unwrap_or(NonZeroU32::MIN);
        Interval::of(period / common, count / common, den)
    }

    /// Is P in lowest terms below 2^53, so that the scripts count it exactly? The states of buckets name it.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.interval().period() < 1 << 53
    }

    /// The largest number of units whose time together stays within [`MAX_SPAN`].
    #[must_use]
    pub fn most_units(self) -> u64 {
        let most =
            u128::from(MAX_SPAN) * u128::from(self.count.get()) / u128::from(self.period.get());
        u64::try_from(most).unwrap_or(u64::MAX)
    }
}

/// A span of time as whole microseconds and a numerator over a denominator known from the [`Interval`].
///
/// Ordered by length, among spans of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// Whole microseconds.
    pub whole: u64,
    /// The rest, in parts of one microsecond; less than the denominator.
    pub part: u32,
}

impl Span {
    /// A span of whole microseconds.
    #[must_use]
    pub const fn micros(whole: u64) -> Self {
        Self { whole, part: 0 }
    }

    /// The least whole number of microseconds that is not shorter than the span.
    #[must_use]
    pub const fn ceil(self) -> u64 {
        self.whole.saturating_add((self.part > 0) as u64)
    }
}

/// The time one unit takes (P/N) as a fraction in lowest terms, so that `times` and sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// One unit's time.
    pub span: Span,
    /// Parts in one microsecond.
    pub den: NonZeroU32,
}

impl Interval {
    /// One of `count` units in `period` microseconds; `den` is `count`.
    pub(super) fn of(period: u64, count: u64, den: NonZeroU32) -> Self {
        let span = Span {
            whole: period / count,
            part: narrow(period % count),
        };
        Self { span, den }
    }

    /// The whole microseconds in which as many units pass as there are parts in one: P of the rate in lowest terms.
    pub(super) fn period(self) -> u64 {
        let den = u64::from(self.den.get());
        let whole = self.span.whole.saturating_mul(den);
        whole.saturating_add(u64::from(self.span.part))
    }

    /// This number of parts of a microsecond, as a span.
    pub(super) fn span_of(self, parts: u128) -> Span {
        let den = u128::from(self.den.get());
        match u64::try_from(parts / den) {
            Ok(whole) => Span {
                whole,
                part: narrow128(parts % den),
            },
            Err(_) => Span {
                whole: u64::MAX,
                part: 0,
            },
        }
    }

    /// The time of `units` units, exact within [`Rate::most_units`] and far beyond. A product beyond the bound of the
    /// type becomes the longest span, which exceeds every capacity, so that such a cost is never admitted.
    #[must_use]
    pub fn times(self, units: u64) -> Span {
        // Nearly every request costs one unit; a division of 128 bits takes as long as the rest of a decision.
        if units == 1 {
            return self.span;
        }
        self.span_of(self.parts_of(self.span).saturating_mul(u128::from(units)))
    }

    /// The number of whole units that fit into `span`.
    #[must_use]
    pub fn units_in(self, span: Span) -> u64 {
        let (all, one) = (self.parts_of(span), self.parts_of(self.span).max(1));
        match (u64::try_from(all), u64::try_from(one)) {
            (Ok(all), Ok(one)) => all / one,
            _ => u64::try_from(all / one).unwrap_or(u64::MAX),
        }
    }

    /// `a + b`, or the longest span if the sum is longer.
    #[must_use]
    pub fn add(self, a: Span, b: Span) -> Span {
        let den = u64::from(self.den.get());
        let part = u64::from(a.part) + u64::from(b.part);
        Span {
            whole: a.whole.saturating_add(b.whole).saturating_add(part / den),
            part: narrow(part % den),
        }
    }

    /// `a - b`, or `None` if `b` is longer than `a`.
    #[must_use]
    pub fn sub(self, a: Span, b: Span) -> Option<Span> {
        if a < b {
            return None;
        }
        Some(if a.part >= b.part {
            Span {
                whole: a.whole - b.whole,
                part: a.part - b.part,
            }
        } else {
            let part = u64::from(a.part) + u64::from(self.den.get()) - u64::from(b.part);
            Span {
                whole: a.whole - b.whole - 1,
                part: narrow(part),
            }
        })
    }

    pub(super) fn parts_of(self, span: Span) -> u128 {
        u128::from(span.whole) * u128::from(self.den.get()) + u128::from(span.part)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Narrows a value that is below a `u32` denominator by construction.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn narrow128(value: u128) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u32, period: u64) -> Rate {
        Rate {
            count: NonZeroU32::new(count).unwrap(),
            period: NonZeroU64::new(period).unwrap(),
        }
    }

    #[test]
    fn an_interval_is_exact_and_in_lowest_terms() {
        let seven_per_three_seconds = rate(7, 3_000_000).interval();
        assert_eq!(seven_per_three_seconds.den.get(), 7);
        assert_eq!(
            seven_per_three_seconds.times(7),
            Span {
                whole: 3_000_000,
                part: 0
            }
        );
        assert_eq!(
            seven_per_three_seconds.times(7_000_000).whole,
            3_000_000_000_000
        );
        let ten_per_second = rate(10, 1_000_000).interval();
        assert_eq!(
            (ten_per_second.span.whole, ten_per_second.span.part),
            (100_000, 0)
        );
        assert_eq!(ten_per_second.den.get(), 1);
        let ten_million = rate(10_000_000, 1_000_000).interval();
        assert_eq!(
            (
                ten_million.span.whole,
                ten_million.span.part,
                ten_million.den.get()
            ),
            (0, 1, 10)
        );
    }

    #[test]
    fn sums_and_differences_carry() {
        let third = rate(3, 1_000_000).interval();
        let two = third.times(2);
        assert_eq!(
            third.add(two, third.span),
            Span {
                whole: 1_000_000,
                part: 0
            }
        );
        assert_eq!(
            third.sub(
                Span {
                    whole: 1_000_000,
                    part: 0
                },
                third.span
            ),
            Some(two)
        );
        assert_eq!(third.sub(third.span, two), None);
        assert_eq!(
            third.units_in(Span {
                whole: 999_999,
                part: 2
            }),
            2
        );
        assert_eq!(
            third.units_in(Span {
                whole: 1_000_000,
                part: 0
            }),
            3
        );
    }

    #[test]
    fn what_no_number_holds_is_longer_than_any_capacity() {
        // Once a month, and a cost of four thousand million: 1.15 * 10^22 microseconds.
        let month = rate(1, 2_678_400_000_000).interval();
        let endless = month.times(u64::from(u32::MAX));
        assert!(endless.whole > MAX_SPAN);
        assert_eq!(month.add(month.span, endless), endless);
        assert_eq!(month.add(endless, endless), endless);
        assert_eq!(endless.ceil(), u64::MAX);
        let odd = rate(u32::MAX, MAX_SPAN).interval();
        assert!(odd.times(u64::MAX).whole > MAX_SPAN);
        let debt_ceiling = Span {
            whole: u64::MAX,
            part: 1,
        };
        assert_eq!(odd.add(debt_ceiling, odd.span).whole, u64::MAX);
        assert_eq!(debt_ceiling.ceil(), u64::MAX);
    }

    #[test]
    fn the_short_ways_lead_to_the_same_numbers() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..20_000 {
            let bits = random.u32(1..32);
            let interval = rate(random.u32(1..1 << bits), random.u64(1..1 << 52)).interval();
            let den = u128::from(interval.den.get());
            let parts = |span: Span| u128::from(span.whole) * den + u128::from(span.part);
            assert_eq!(parts(interval.times(1)), parts(interval.span));
            let long = random.u32(1..64);
            let span = Span {
                whole: random.u64(..1 << long),
                part: random.u32(..interval.den.get()),
            };
            let units = parts(span) / parts(interval.span);
            assert_eq!(
                u128::from(interval.units_in(span)),
                units.min(u128::from(u64::MAX))
            );
        }
    }
}
