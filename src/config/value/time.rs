//! Rates and durations: `100/min`, `7/3s`, `250ms`, `1m30s`.

use super::{Code, ValueError, mended, quoted};
use crate::limit::Unit;
use crate::limit::rate::{MAX_SPAN, Rate};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Microseconds in a second.
pub(in crate::config) const MICROS: u64 = 1_000_000;

/// What somebody may have meant who wrote none.
const UNITLESS: [&str; 3] = ["s", "min", "h"];

const UNITS: &str = "us, ms, s, min, h, d or w";
/// Of rates: a window may be a month of the calendar.
const RATE_UNITS: &str = "us, ms, s, min, h, d, w or month";

/// Days that stand for a month where a length is needed.
const MONTH: u64 = 30;

/// How much in how long, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Quota {
    /// N per P. Of months P is as long as so many times thirty days.
    pub(in crate::config) rate: Rate,
    /// Written in units that a calendar may count: so many days or months.
    pub(in crate::config) calendar: Option<(Unit, u32)>,
}

impl Quota {
    /// Is it over months, which have no length of their own?
    pub(in crate::config) fn is_monthly(self) -> bool {
        matches!(self.calendar, Some((Unit::Month, _)))
    }
}

/// The units that have a fixed length, the longest first, under the name that messages give them.
const LENGTHS: [(&str, u64); 7] = [
    ("w", 604_800 * MICROS),
    ("d", 86_400 * MICROS),
    ("h", 3_600 * MICROS),
    ("min", 60 * MICROS),
    ("s", MICROS),
    ("ms", 1_000),
    ("us", 1),
];

/// The unit that a spelling stands for. A lone capital is nobody's usual spelling: `M` may be minutes or months.
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

fn micros(unit: &str) -> Option<u64> {
    LENGTHS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, length)| *length)
}

/// Reads `N/[M]UNIT`.
pub(in crate::config) fn rate(text: &str) -> Result<Quota, ValueError> {
    mended(text, read_rate)
}

fn read_rate(text: &str) -> Result<Quota, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadRate,
            format!("{} is not a rate", quoted(text)),
            label,
        )
        .help("write how many in how long, as `\"100/min\"` or `\"10/s\"`")
    };
    let Some((count, time)) = text.split_once('/') else {
        return Err(without_time(
            text,
            wrong("a count needs the time it is counted over"),
        ));
    };
    let (count, time) = (count.trim(), time.trim());
    let count = whole(count).map_err(|problem| match problem {
        CountError::Huge => wrong("the count is at most 4294967295"),
        CountError::NotDigits => count_hint(count, time, wrong("the count is not a whole number")),
    })?;
    let count = u32::try_from(count).map_err(|_| wrong("the count is at most 4294967295"))?;
    let count = NonZeroU32::new(count).ok_or_else(|| {
        wrong("a rate of nothing").help("the least rate is 1 in a long time, as `\"1/w\"`")
    })?;
    let digits = time.len() - time.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, spelling) = time.split_at(digits);
    let spelling = spelling.trim();
    if spelling.is_empty() {
        let label = if digits == 0 {
            "no time after the `/`"
        } else {
            "the time has no unit"
        };
        return Err(wrong(label).offer(UNITLESS.map(|unit| format!("{count}/{number}{unit}"))));
    }
    if !spelling.starts_with(char::is_alphabetic) {
        let halves = parts(time).map(|micros| format!("{count}/{}", show_span(micros)));
        return Err(wrong("the time must be a whole number and its unit").offer(halves));
    }
    if unit(spelling).is_none() && spelling != "M" && unit(&spelling.to_lowercase()).is_some() {
        let small = spelling.to_lowercase();
        return Err(wrong("units are lower case").offer([format!("{count}/{number}{small}")]));
    }
    let number = match whole(number) {
        _ if digits == 0 => 1,
        Ok(0) => return Err(wrong("a time of nothing")),
        Ok(number) => number,
        Err(_) => u64::MAX,
    };
    let (length, calendar) = match unit(spelling) {
        Some("month") => (Some(MONTH * 86_400 * MICROS), Some(Unit::Month)),
        Some("d") => (micros("d"), Some(Unit::Day)),
        Some(unit) => (micros(unit), None),
        None => (None, None),
    };
    let length = length.ok_or_else(|| {
        unknown_unit(
            spelling,
            wrong(&format!("the unit must be one of {RATE_UNITS}")),
        )
    })?;
    let period = number
        .checked_mul(length)
        .filter(|period| *period <= MAX_SPAN);
    match period.and_then(NonZeroU64::new) {
        Some(period) => Ok(Quota {
            rate: Rate { count, period },
            calendar: calendar.zip(u32::try_from(number).ok()),
        }),
        None => Err(ValueError::new(
            Code::OutOfRange,
            format!("the time of {} is too long to count exactly", quoted(text)),
            "beyond what can be computed exactly",
        )
        .help(format!(
            "the longest is `{}d`",
            MAX_SPAN / (86_400 * MICROS)
        ))),
    }
}

/// `100` alone, or `100 per minute`.
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
        "M" => wrong.help("`min` is a minute; a month is written `30d`"),
        "S" | "H" | "D" | "W" => wrong.help("units are lower case"),
        _ => match super::super::suggest::nearest(
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

/// Reads numbers with units, one after the other, that add up.
pub(in crate::config) fn duration(text: &str) -> Result<Duration, ValueError> {
    mended(text, read_duration)
}

fn read_duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadDuration,
            format!("{} is not a time", quoted(text)),
            label,
        )
        .help("write a number with its unit, as `\"250ms\"`, `\"2s\"` or `\"1m30s\"`")
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("nothing is written"));
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        let (spelling, next) = after.split_at(letters);
        if let Some(positive) = rest.strip_prefix('-') {
            return Err(wrong("a time cannot be negative").offer([positive]));
        }
        if digits == 0 {
            return Err(wrong("a number should stand here"));
        }
        if after.starts_with(['.', ',']) {
            let pointed = rest.replace(',', ".");
            let micros = parts(&pointed).or_else(|| parts(&format!("{pointed}s")));
            return Err(wrong("whole numbers only").offer(micros.map(show_span)));
        }
        if spelling.is_empty() {
            // Nothing at all is seldom meant, and seldom taken.
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
            Some(unit) => micros(unit),
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

/// The microseconds of `0.5s` or `1.5min`, where that is a whole number of them.
fn parts(text: &str) -> Option<u64> {
    let cut = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, spelling) = text.split_at(cut);
    let length = unit(spelling.trim()).and_then(micros)?;
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
pub(in crate::config) fn show_span(micros: u64) -> String {
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
