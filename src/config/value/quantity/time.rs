//! Rates and durations: `100/min`, `7/3s`, `250ms`, `1m30s`.

use crate::config::report::nearest;
use crate::config::value::{Code, ValueError, quoted};
use crate::limit::Unit;
use crate::limit::rate::{MAX_SPAN, MOST_UNITS, Rate};
use std::num::NonZeroU64;
use std::time::Duration;

/// Microseconds in a second.
pub(in crate::config) const MICROS: u64 = 1_000_000;

/// The units that messages offer for a number without a unit.
const UNITLESS: [&str; 3] = ["s", "min", "h"];

const UNITS: &str = "us, ms, s, min, h, d or w";
/// The units of a rate: a window can be a month of the calendar.
const RATE_UNITS: &str = "us, ms, s, min, h, d, w or month";

/// The number of days that stand for a month if a length is needed.
const MONTH: u64 = 30;

/// A count and its time, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Quota {
    /// The rate N per P. A month counts as thirty days in P.
    pub(in crate::config) rate: Rate,
    /// The time in days, weeks or months, if the file writes it in these units: a calendar can count it.
    pub(in crate::config) calendar: Option<(Unit, u32)>,
}

impl Quota {
    /// Is the time in months, which have no fixed length?
    pub(in crate::config) fn is_monthly(self) -> bool {
        matches!(self.calendar, Some((Unit::Month, _)))
    }
}

/// The units with a fixed length, the longest first, under their names in messages.
const LENGTHS: [(&str, u64); 7] = [
    ("w", 604_800 * MICROS),
    ("d", 86_400 * MICROS),
    ("h", 3_600 * MICROS),
    ("min", 60 * MICROS),
    ("s", MICROS),
    ("ms", 1_000),
    ("us", 1),
];

/// The unit that a spelling stands for. A single capital letter stands for no unit: `M` could be minutes or months.
fn unit(spelling: &str) -> Option<&'static str> {
    let lower = spelling.to_lowercase();
    if spelling.chars().count() == 1 && spelling != lower {
        return None;
    }
    Some(match lower.as_str() {
        "us" | "µs" | "μs" | "usec" | "usecs" | "microsecond" | "microseconds" => "us",
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "min",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "wk" | "wks" | "week" | "weeks" => "w",
        "mo" | "month" | "months" => "month",
        _ => return None,
    })
}

/// Does a spelling stand for a unit of time?
pub(in crate::config::value) fn is_unit(spelling: &str) -> bool {
    unit(spelling).is_some()
}

/// The microseconds of a unit; `None` for a month.
fn unit_length(unit: &str) -> Option<u64> {
    LENGTHS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, length)| *length)
}

/// Reads `N/[M]UNIT`.
pub(in crate::config) fn rate(text: &str) -> Result<Quota, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadRate, text, "is not a rate", label)
            .help("write how many in how long, as `\"100/min\"` or `\"10/s\"`")
    };
    let Some((count, time)) = text.split_once('/') else {
        return Err(without_time(
            text,
            wrong("a count needs the time it is counted over"),
        ));
    };
    let (count, time) = (count.trim(), time.trim());
    let count = rate_count(count, time, wrong)?;
    let (number, unit) = rate_time(count, time, wrong)?;
    let length = unit_length(unit).unwrap_or(MONTH * 86_400 * MICROS);
    let period = number.checked_mul(length);
    let period = period.filter(|period| *period <= MAX_SPAN);
    let Some(period) = period.and_then(NonZeroU64::new) else {
        return Err(ValueError::new(
            Code::OutOfRange,
            format!("the time of {} is too long to count exactly", quoted(text)),
            "beyond what can be computed exactly",
        )
        .help(format!(
            "the longest is `{}d`",
            MAX_SPAN / (86_400 * MICROS)
        )));
    };
    let calendar = match unit {
        "month" => Some(Unit::Month),
        "w" => Some(Unit::Week),
        "d" => Some(Unit::Day),
        _ => None,
    };
    Ok(Quota {
        rate: Rate { count, period },
        calendar: calendar.zip(u32::try_from(number).ok()),
    })
}

/// The count before the `/`.
fn rate_count(
    count: &str,
    time: &str,
    wrong: impl Fn(&str) -> ValueError,
) -> Result<NonZeroU64, ValueError> {
    let too_many = || wrong(&format!("the count is at most {MOST_UNITS}"));
    let number = whole(count).map_err(|problem| match problem {
        CountError::Huge => too_many(),
        CountError::NotDigits => count_hint(count, time, wrong("the count is not a whole number")),
    })?;
    if number > MOST_UNITS {
        return Err(too_many());
    }
    NonZeroU64::new(number).ok_or_else(|| {
        wrong("the count is zero").help("the least rate is 1 in a long time, as `\"1/w\"`")
    })
}

/// The time after the `/`: a number and a unit.
fn rate_time(
    count: NonZeroU64,
    time: &str,
    wrong: impl Fn(&str) -> ValueError,
) -> Result<(u64, &'static str), ValueError> {
    let (number, spelling) = leading_digits(time);
    let spelling = spelling.trim();
    if spelling.is_empty() {
        let label = if number.is_empty() {
            "no time after the `/`"
        } else {
            "the time has no unit"
        };
        return Err(wrong(label).offer(UNITLESS.map(|unit| format!("{count}/{number}{unit}"))));
    }
    if !spelling.starts_with(char::is_alphabetic) {
        let suggestion = parts(time).map(|micros| format!("{count}/{}", show_span(micros)));
        return Err(wrong("the time must be a whole number and its unit").offer(suggestion));
    }
    let small = spelling.to_lowercase();
    if unit(spelling).is_none() && spelling != "M" && unit(&small).is_some() {
        return Err(wrong("units are lower case").offer([format!("{count}/{number}{small}")]));
    }
    let number = match whole(number) {
        _ if number.is_empty() => 1,
        Ok(0) => return Err(wrong("the time is zero")),
        Ok(number) => number,
        Err(_) => u64::MAX,
    };
    if is_year(spelling) {
        let (months, days) = (number.saturating_mul(12), number.saturating_mul(365));
        return Err(wrong("a year has no unit of its own").help(format!(
            "write `\"{count}/{months}month\"` for years of the calendar (`anchor = \"clock\"`), or `\"{count}/{days}d\"`"
        )));
    }
    let unit = unit(spelling).ok_or_else(|| {
        unknown_unit(
            spelling,
            wrong(&format!("the unit must be one of {RATE_UNITS}")),
        )
    })?;
    Ok((number, unit))
}

/// Is the spelling a year, which is no unit?
fn is_year(spelling: &str) -> bool {
    ["y", "yr", "yrs", "year", "years"].contains(&spelling.to_lowercase().as_str())
}

/// Advice for `100` alone, or `100 per minute`.
fn without_time(text: &str, wrong: ValueError) -> ValueError {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !["per", "a", "an", "every", "requests", "req", "r", "in"].contains(word))
        .collect();
    match words.as_slice() {
        [count] if whole(count).is_ok() => {
            wrong.offer(UNITLESS.map(|unit| format!("{count}/{unit}")))
        }
        [count, spelling] if whole(count).is_ok() && unit(spelling).is_some() => {
            wrong.offer(unit(spelling).map(|unit| format!("{count}/{unit}")))
        }
        _ => wrong.offer(shorthand(&lower).map(|(count, unit)| format!("{count}/{unit}"))),
    }
}

/// `10rps`, `100rpm`, `10 req s`.
fn shorthand(text: &str) -> Option<(&str, &'static str)> {
    let (count, unit) = [
        ("rps", "s"),
        ("qps", "s"),
        ("rpm", "min"),
        ("rph", "h"),
        ("rpd", "d"),
    ]
    .into_iter()
    .find_map(|(ending, unit)| Some((text.strip_suffix(ending)?.trim(), unit)))?;
    whole(count).is_ok().then_some((count, unit))
}

/// `10r/s`, `1,000/s`, `1_000/s`, `0.5/s`.
fn count_hint(count: &str, time: &str, wrong: ValueError) -> ValueError {
    let plain: String = count.chars().filter(|c| !"_, ".contains(*c)).collect();
    let plain = plain.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if whole(plain).is_ok() {
        return wrong.offer([format!("{plain}/{time}")]);
    }
    if plain.contains('.') && plain.parse::<f64>().is_ok() {
        return wrong.help(
            "count whole requests over a longer time: `\"1/2s\"` is half a request a second",
        );
    }
    wrong
}

fn unknown_unit(spelling: &str, wrong: ValueError) -> ValueError {
    match spelling {
        _ if is_year(spelling) => wrong.help("write days, as `365d`"),
        "M" => wrong.help("`min` is a minute; a month is written `30d`"),
        "S" | "H" | "D" | "W" => wrong.help("units are lower case"),
        _ => match nearest(
            spelling,
            [
                "us", "ms", "second", "minute", "hour", "day", "week", "month",
            ],
        )
        .and_then(unit)
        {
            Some(unit) if unit != "month" => wrong.help(format!("did you mean `{unit}`?")),
            _ => wrong,
        },
    }
}

/// Reads a sequence of numbers with units, and adds them up.
pub(in crate::config) fn duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadDuration, text, "is not a time", label)
            .help("write a number with its unit, as `\"250ms\"`, `\"2s\"` or `\"1m30s\"`")
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("the text is empty"));
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = leading_digits(rest);
        let after = after.trim_start();
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (spelling, next) = after.split_at(letters);
        if let Some(positive) = rest.strip_prefix('-') {
            return Err(wrong("a time cannot be negative").offer([positive]));
        }
        if number.is_empty() {
            return Err(wrong("a number is missing here"));
        }
        if after.starts_with(['.', ',']) {
            let pointed = rest.replace(',', ".");
            let micros = parts(&pointed).or_else(|| parts(&format!("{pointed}s")));
            return Err(wrong("whole numbers only").offer(micros.map(show_span)));
        }
        if spelling.is_empty() {
            // A time of zero is seldom intended, and seldom accepted.
            let units = ["s", "ms"]
                .into_iter()
                .filter(|_| number.contains(|c| c != '0'));
            return Err(wrong("a number without its unit")
                .offer(units.map(|unit| format!("{number}{unit}"))));
        }
        let length = match unit(spelling) {
            Some("month") => {
                return Err(wrong("months differ in length").help("write days, as `30d`"));
            }
            Some(unit) => unit_length(unit),
            None => None,
        };
        let length = length.ok_or_else(|| {
            unknown_unit(spelling, wrong(&format!("the unit must be one of {UNITS}")))
        })?;
        total = whole(number)
            .ok()
            .and_then(|number| number.checked_mul(length))
            .and_then(|part| part.checked_add(total))
            .filter(|total| *total <= MAX_SPAN)
            .ok_or_else(|| wrong("too long").help("142 years is the longest there is"))?;
        rest = next.trim_start();
    }
    Ok(Duration::from_micros(total))
}

/// The microseconds of `0.5s` or `1.5min`, if the result is a whole number.
fn parts(text: &str) -> Option<u64> {
    let cut = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, spelling) = text.split_at(cut);
    let length = unit(spelling.trim()).and_then(unit_length)?;
    let (whole_part, part) = number.split_once('.')?;
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = whole(part).ok()?.checked_mul(length)?;
    if !part.is_multiple_of(scale) {
        return None;
    }
    let micros = whole(whole_part)
        .ok()?
        .checked_mul(length)?
        .checked_add(part / scale)?;
    (micros > 0).then_some(micros)
}

/// The leading digits of a text, and the rest.
pub(in crate::config::value) fn leading_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

enum CountError {
    NotDigits,
    Huge,
}

fn whole(text: &str) -> Result<u64, CountError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CountError::NotDigits);
    }
    text.parse().map_err(|_| CountError::Huge)
}

/// Microseconds as people write them: `1min30s` for 90 seconds, `1500ms` for one and a half.
#[must_use]
pub fn show_span(micros: u64) -> String {
    let single = LENGTHS
        .iter()
        .find(|(_, length)| micros.is_multiple_of(*length) && micros > 0);
    match single {
        None => "0s".into(),
        Some((name, length)) if micros / length < 10_000 || *name == "w" => {
            format!("{}{name}", micros / length)
        }
        Some(_) => {
            let mut rest = micros;
            let mut out = String::new();
            for (name, length) in LENGTHS {
                if rest >= length {
                    out.push_str(&format!("{}{name}", rest / length));
                    rest %= length;
                }
            }
            out
        }
    }
}

/// `100/min`, `5000/month`.
pub(in crate::config) fn show_quota(quota: Quota) -> String {
    match quota.calendar {
        Some((Unit::Month, 1)) => format!("{}/month", quota.rate.count),
        Some((Unit::Month, many)) => format!("{}/{many}month", quota.rate.count),
        _ => show_rate(quota.rate),
    }
}

/// `100/min`, `7/3s`.
pub(in crate::config) fn show_rate(rate: Rate) -> String {
    let period = rate.period.get();
    let (name, length) = LENGTHS
        .into_iter()
        .find(|(_, length)| period.is_multiple_of(*length))
        .unwrap_or(("us", 1));
    match period / length {
        1 => format!("{}/{name}", rate.count),
        many => format!("{}/{many}{name}", rate.count),
    }
}

#[cfg(test)]
mod tests;
