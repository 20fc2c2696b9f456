//! Rates and exact spans of time: N per P without loss of fractions.

use std::num::{NonZeroU32, NonZeroU64};

/// The greatest number of a limit: of a rate, a burst, a cost.
pub const MOST_UNITS: u64 = crate::key::MOST_COST;

/// The greatest number of the states' usual forms: 2^32 - 1. It is also the greatest N, in lowest terms, of a bucket's
/// rate.
pub const MOST_OF_FOUR_BYTES: u64 = u32::MAX as u64;

/// The longest span of any limit, in microseconds: 2^52 (142 years).
///
/// The scripts compute in doubles, where integers are exact below 2^53; an instant of this century plus this span
/// stays below that.
pub const MAX_SPAN: u64 = 1 << 52;

/// The most units that a counter of a limit of so many can hold. Most limits count in four bytes, also in older versions.
#[must_use]
pub const fn most_counted(limit: u64) -> u64 {
    if limit > MOST_OF_FOUR_BYTES {
        MOST_UNITS
    } else {
        MOST_OF_FOUR_BYTES
    }
}

/// The units that a request takes from a limit. 0 checks without charging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// One unit: the cost of a request unless the file sets another.
    pub const ONE: Self = Self(1);
    /// No unit: a peek.
    pub const ZERO: Self = Self(0);

    /// `units` units, [`MOST_UNITS`] at most.
    #[must_use]
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// The number of units.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }
}

/// N per P: a count, and the period in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// N, the quota: [`MOST_UNITS`] at most.
    pub count: NonZeroU64,
    /// P, the window, in microseconds.
    pub period: NonZeroU64,
}

impl Rate {
    /// The time one unit takes, exactly.
    #[must_use]
    pub fn interval(self) -> Interval {
        let (count, period) = (self.count.get(), self.period.get());
        let common = gcd(count, period).max(1);
        let den = NonZeroU32::new(narrow(count / common)).unwrap_or(NonZeroU32::MIN);
        Interval::of(period / common, den)
    }

    /// Is P in lowest terms below 2^53, so that the scripts count it exactly? The states of buckets name it.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.lowest_terms().1 < 1 << 53
    }

    /// Is N in lowest terms below 2^32? It is the denominator of a bucket's level.
    #[must_use]
    pub fn has_small_count(self) -> bool {
        self.lowest_terms().0 <= MOST_OF_FOUR_BYTES
    }

    /// N and P in lowest terms.
    #[must_use]
    pub fn lowest_terms(self) -> (u64, u64) {
        let (count, period) = (self.count.get(), self.period.get());
        let common = gcd(count, period).max(1);
        (count / common, period / common)
    }

    /// The closest N below this one that is small in lowest terms: a multiple of a divisor of P that is great enough.
    /// Very great divisors are not tried.
    #[must_use]
    pub fn closest_small_count(self) -> u64 {
        const TRIED: u64 = 1 << 20;
        let period = self.period.get();
        let count = (self.count.get()).min(period.saturating_mul(MOST_OF_FOUR_BYTES));
        let least = count.div_ceil(MOST_OF_FOUR_BYTES);
        let divisors =
            (least..=period.min(least + TRIED)).filter(|one| period.is_multiple_of(*one));
        let below = divisors.map(|divisor| count - count % divisor);
        below.max().unwrap_or(0).max(MOST_OF_FOUR_BYTES)
    }

    /// The largest number of units whose time together stays within [`MAX_SPAN`].
    #[must_use]
    pub fn most_units(self) -> u64 {
        let most =
            u128::from(MAX_SPAN) * u128::from(self.count.get()) / u128::from(self.period.get());
        u64::try_from(most).unwrap_or(u64::MAX).min(MOST_UNITS)
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
    pub part: u64,
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
    /// One of `den` units in `period` microseconds.
    pub(super) fn of(period: u64, den: NonZeroU32) -> Self {
        let count = NonZeroU64::from(den);
        let span = Span {
            whole: period / count,
            part: period % count,
        };
        Self { span, den }
    }

    /// The whole microseconds in which as many units pass as there are parts in one: P of the rate in lowest terms.
    pub(super) fn period(self) -> u64 {
        let den = u64::from(self.den.get());
        let whole = self.span.whole.saturating_mul(den);
        whole.saturating_add(self.span.part)
    }

    /// This number of parts of a microsecond, as a span.
    pub(super) fn span_of(self, parts: u128) -> Span {
        let den = u128::from(self.den.get());
        match u64::try_from(parts / den) {
            Ok(whole) => Span {
                whole,
                part: u64::try_from(parts % den).unwrap_or(u64::MAX),
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
        let part = a.part + b.part;
        Span {
            whole: a.whole.saturating_add(b.whole).saturating_add(part / den),
            part: part % den,
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
            Span {
                whole: a.whole - b.whole - 1,
                part: a.part + u64::from(self.den.get()) - b.part,
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

/// Narrows a value that is a `u32` denominator, or below one, by construction.
pub(super) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u64, period: u64) -> Rate {
        Rate {
            count: NonZeroU64::new(count).unwrap(),
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
    fn a_rate_has_a_small_count_in_lowest_terms_or_the_closest_below_has() {
        for (count, period, closest) in [
            (4_294_967_295, 1, None),
            (4_294_967_296, 1, Some(4_294_967_295)),
            (4_294_967_296, 1_000_000, None),
            (5_000_000_000, 2_592_000_000_000, None),
            (5_000_000_001, 1_000_000, Some(5_000_000_000)),
            (MOST_UNITS, 1_000_000, Some(4_294_967_295_000_000)),
            (MOST_UNITS, (1 << 52) - 47, Some(4_294_967_295)),
        ] {
            let rate = rate(count, period);
            assert_eq!(
                rate.has_small_count(),
                closest.is_none(),
                "{count}/{period}"
            );
            if let Some(closest) = closest {
                assert_eq!(rate.closest_small_count(), closest, "{count}/{period}");
            }
        }
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
        let odd = rate(u64::from(u32::MAX), MAX_SPAN).interval();
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
            let interval = rate(random.u64(1..1 << bits), random.u64(1..1 << 52)).interval();
            let den = u128::from(interval.den.get());
            let parts = |span: Span| u128::from(span.whole) * den + u128::from(span.part);
            assert_eq!(parts(interval.times(1)), parts(interval.span));
            let long = random.u32(1..64);
            let span = Span {
                whole: random.u64(..1 << long),
                part: u64::from(random.u32(..interval.den.get())),
            };
            let units = parts(span) / parts(interval.span);
            assert_eq!(
                u128::from(interval.units_in(span)),
                units.min(u128::from(u64::MAX))
            );
        }
    }
}
