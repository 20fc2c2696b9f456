//! Windows of the calendar: a number of days, weeks or months in a time zone, changes of daylight saving included.
//!
//! Scripts know no calendar. The gateway hands them the boundaries around its own time, and they find the store's time
//! between the boundaries.

use super::kind::Unit;
use crate::clock::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span};
use std::sync::Arc;

/// A day of 24 hours, in microseconds.
const DAY: u64 = 86_400_000_000;

/// The days of a week.
const WEEK: i64 = 7;

/// The days from the Monday before the epoch to the epoch, which was a Thursday.
const SINCE_MONDAY: i64 = 3;

/// Windows of this number of days, weeks or months.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// Days, weeks or months.
    pub unit: Unit,
    /// The number of days, weeks or months in a window.
    pub many: u32,
    /// The time zone whose clocks and calendar count.
    pub zone: TimeZone,
    /// The zone's name as written.
    pub zone_name: Arc<str>,
    /// The start of a window after midnight of its day, of Monday or of the first, on those clocks; in microseconds.
    pub offset: u64,
}

/// The boundaries of windows around an instant: the starts of the window two back, one back, the present one, the next
/// and the one after, and the end of the last.
pub type Boundaries = [u64; 6];

impl Calendar {
    /// The boundaries around `now`, in microseconds since the epoch. The present window is the one from the third to
    /// the fourth.
    #[must_use]
    pub fn around(&self, now: Timestamp) -> Boundaries {
        self.find(now)
            .unwrap_or([0, 0, 0, u64::MAX >> 11, u64::MAX >> 11, u64::MAX >> 11])
    }

    /// The length of the longest window, in microseconds, assuming days of 24 hours.
    #[must_use]
    pub fn longest(&self) -> u64 {
        let days = match self.unit {
            Unit::Day => u64::from(self.many),
            Unit::Week => WEEK.unsigned_abs() * u64::from(self.many),
            Unit::Month => most_days(self.many),
        };
        days.saturating_mul(DAY)
    }

    fn find(&self, now: Timestamp) -> Option<Boundaries> {
        let micros = i64::try_from(now.micros()).ok()?;
        let instant = jiff::Timestamp::from_microsecond(micros).ok()?;
        let civil = self.zone.to_datetime(instant);
        let shifted = civil.checked_sub(self.shift()).ok()?;
        let window = self.number(shifted.date());
        // A boundary on the clock and the same boundary on the calendar may lie a few hours apart. If a zone has
        // skipped a whole day, two boundaries coincide. So the code computes more than needed.
        let mut starts: Vec<i64> = Vec::with_capacity(9);
        for number in window - 3..=window + 5 {
            starts.push(self.start(number)?);
        }
        starts.dedup();
        let next = starts.iter().position(|start| *start > micros)?;
        let at = |index: Option<usize>| {
            let start = index.and_then(|index| starts.get(index))?;
            Some(u64::try_from(*start).unwrap_or(0))
        };
        Some([
            at(next.checked_sub(3))?,
            at(next.checked_sub(2))?,
            at(next.checked_sub(1))?,
            at(Some(next))?,
            at(Some(next + 1))?,
            at(Some(next + 2))?,
        ])
    }

    /// The number of the window with this day.
    fn number(&self, date: Date) -> i64 {
        let units = match self.unit {
            Unit::Day => days(date),
            Unit::Week => (days(date) + SINCE_MONDAY).div_euclid(WEEK),
            Unit::Month => i64::from(date.year()) * 12 + i64::from(date.month()) - 1,
        };
        units.div_euclid(i64::from(self.many.max(1)))
    }

    /// The start of a window, in microseconds since the epoch. A time that the clocks skip is moved by the skipped time
    /// (half past two becomes half past three). If the clocks show a time twice, the first counts.
    fn start(&self, number: i64) -> Option<i64> {
        let units = number.checked_mul(i64::from(self.many.max(1)))?;
        let days_later = |days: i64| {
            let epoch = Date::constant(1970, 1, 1);
            epoch.checked_add(Span::new().try_days(days).ok()?).ok()
        };
        let date = match self.unit {
            Unit::Day => days_later(units)?,
            Unit::Week => days_later(units.checked_mul(WEEK)? - SINCE_MONDAY)?,
            Unit::Month => {
                let year = i16::try_from(units.div_euclid(12)).ok()?;
                let month = i8::try_from(units.rem_euclid(12)).ok()? + 1;
                Date::new(year, month, 1).ok()?
            }
        };
        let civil: DateTime = date.to_datetime(jiff::civil::Time::midnight());
        let civil = civil.checked_add(self.shift()).ok()?;
        let instant = self.zone.to_ambiguous_timestamp(civil).compatible().ok()?;
        Some(instant.as_microsecond())
    }

    fn shift(&self) -> SignedDuration {
        SignedDuration::from_micros(i64::try_from(self.offset).unwrap_or(0))
    }
}

/// The days of the longest stretch of this number of months: 31 for one month, 366 for twelve.
fn most_days(months: u32) -> u64 {
    const YEAR: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    const FOUR_YEARS: usize = 48;
    let days = |month: usize| {
        let is_leap_day = month % FOUR_YEARS == 1;
        YEAR[month % YEAR.len()] + u64::from(is_leap_day)
    };
    let months = usize::try_from(months).unwrap_or(0);
    let (whole, rest) = (months / FOUR_YEARS, months % FOUR_YEARS);
    let stretch = |first: usize| (first..first + rest).map(days).sum::<u64>();
    let longest = (0..FOUR_YEARS).map(stretch).max().unwrap_or(0);
    let all: u64 = (0..FOUR_YEARS).map(days).sum();
    (whole as u64).saturating_mul(all).saturating_add(longest)
}

/// The number of days since 1970-01-01.
fn days(date: Date) -> i64 {
    let midnight = date.to_datetime(jiff::civil::Time::midnight());
    let utc = TimeZone::UTC.to_ambiguous_timestamp(midnight).compatible();
    utc.map_or(0, |instant| instant.as_second().div_euclid(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(unit: Unit, many: u32) -> Calendar {
        Calendar {
            unit,
            many,
            zone: TimeZone::UTC,
            zone_name: "UTC".into(),
            offset: 0,
        }
    }

    #[test]
    fn no_window_is_longer_than_the_longest() {
        for (unit, many, days) in [
            (Unit::Day, 1, 1),
            (Unit::Day, 7, 7),
            (Unit::Week, 1, 7),
            (Unit::Week, 2, 14),
            (Unit::Month, 1, 31),
            (Unit::Month, 2, 62),
            (Unit::Month, 3, 92),
            (Unit::Month, 6, 184),
            (Unit::Month, 12, 366),
            (Unit::Month, 24, 731),
            (Unit::Month, 48, 1461),
            (Unit::Month, 60, 1827),
        ] {
            let calendar = calendar(unit, many);
            assert_eq!(calendar.longest(), days * DAY, "{many} {unit:?}");
            let every_ten_days = (0..3650).map(|step| Timestamp::from_micros(step * 10 * DAY));
            let lengths = every_ten_days.map(|now| {
                let [_, _, start, end, ..] = calendar.around(now);
                end - start
            });
            let longest = lengths.max().unwrap_or(0);
            assert_eq!(longest, days * DAY, "{many} {unit:?}");
        }
    }

    #[test]
    fn a_week_begins_on_monday() {
        let week = calendar(Unit::Week, 1);
        // Thursday, 1970-01-01, is in the week of Monday, 1969-12-29, and the next Monday is the fifth.
        let [.., end, _, _] = week.around(Timestamp::from_micros(1));
        assert_eq!(end, 4 * DAY);
        let [_, _, start, end, ..] = week.around(Timestamp::from_micros(4 * DAY));
        assert_eq!((start, end), (4 * DAY, 11 * DAY));
        let [_, _, start, ..] = week.around(Timestamp::from_micros(11 * DAY - 1));
        assert_eq!(start, 4 * DAY);
    }
}
