//! The instant of a line: decimal digits, RFC 3339, or Apache's and HAProxy's bracketed times. No float is used.
//!
//! jiff parses RFC 3339 and computes the calendar. The digits of a bracketed time are parsed here: 24 ns a line,
//! compared with 100 for jiff's `strtime`.

use super::Fault;
use super::json::Value;
use crate::clock::Timestamp;
use jiff::civil::{Date, Time};
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Offset;

/// The end of the instants that can be replayed, in the year 2112: later ones leave no room for the longest span of a
/// limit (`limit::rate::MAX_SPAN`).
const END: u64 = 1 << 52;

/// The instant in a value: a number, or a text with or without brackets.
#[inline]
pub(super) fn instant_of(value: Value<'_>) -> Result<Timestamp, Fault> {
    let at = match value {
        Value::Number(digits) => read_instant(digits),
        Value::Text(text) => {
            let text = text.read()?;
            let text = text.trim_ascii();
            let inside = text.strip_prefix('[').and_then(|at| at.strip_suffix(']'));
            read_instant(inside.unwrap_or(text))
        }
        _ => None,
    };
    at.ok_or(Fault::BadTime)
}

/// Reads seconds since the epoch with up to six decimals, or RFC 3339; leaves all other texts to [`other`].
pub(super) fn read_instant(text: &str) -> Option<Timestamp> {
    match text.as_bytes().get(4) {
        Some(b'-') => rfc3339(text),
        _ => decimal(text, 6).and_then(within).or_else(|| other(text)),
    }
}

/// Reads instants of other servers' logs: Apache's time, or milli-, micro- and nanoseconds, which the number of digits
/// tells apart. No number is a plausible instant in two units: read in a wrong unit, an instant is in years without
/// HTTP logs.
#[cold]
fn other(text: &str) -> Option<Timestamp> {
    let whole = text.bytes().take_while(|byte| *byte != b'.').count();
    within(match whole {
        12..=13 => decimal(text, 3)?,
        15..=16 => decimal(text, 0)?,
        18..=19 => decimal(text, 0)? / 1_000,
        _ => return apache(text),
    })
}

/// A number without sign and exponent, times ten to the power of `places`; further decimals are dropped.
pub(super) fn decimal(text: &str, places: u32) -> Option<u64> {
    let text = text.as_bytes();
    let dot = text.iter().position(|byte| *byte == b'.');
    let whole = &text[..dot.unwrap_or(text.len())];
    let fraction = dot.map_or(&b"0"[..], |dot| &text[dot + 1..]);
    let places = places as usize;
    // 19 digits are more than any instant has, and few enough that no step below can overflow.
    if whole.is_empty() || fraction.is_empty() || whole.len() + places > 19 {
        return None;
    }
    let (fraction, finer) = fraction.split_at(fraction.len().min(places));
    let value = digits(fraction, digits(whole, 0)?)?;
    if !finer.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value * [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000].get(places - fraction.len())?)
}

/// `sum` with the digits of `text` appended.
fn digits(text: &[u8], sum: u64) -> Option<u64> {
    text.iter().try_fold(sum, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}

fn within(micros: u64) -> Option<Timestamp> {
    (micros < END).then(|| Timestamp::from_micros(micros))
}

/// `2026-11-20T17:48:50.123456Z`, or with an offset.
fn rfc3339(text: &str) -> Option<Timestamp> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    if !text.ends_with(['Z', 'z']) && is_beyond_a_day(text) {
        return None;
    }
    of_epoch(PARSER.parse_timestamp(text).ok()?)
}

/// Is the offset of a time longer than RFC 3339 allows? The parser's own bound is two hours beyond a day.
fn is_beyond_a_day(text: &str) -> bool {
    let time = text.split_once(['T', 't', ' ']).map(|(_, time)| time);
    let offset = time.and_then(|time| time.rsplit_once(['+', '-']));
    offset.is_some_and(|(_, hours)| hours.get(..2).is_some_and(|hours| hours > "23"))
}

/// `20/Nov/2026:17:48:50 +0000`.
pub(super) fn apache(text: &str) -> Option<Timestamp> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let text = text.as_bytes();
    let marks = [
        (2, b'/'),
        (6, b'/'),
        (11, b':'),
        (14, b':'),
        (17, b':'),
        (20, b' '),
    ];
    if text.len() != 26 || marks.iter().any(|(at, mark)| text[*at] != *mark) {
        return None;
    }
    let number = |at: usize, length| i16::try_from(digits(&text[at..at + length], 0)?).ok();
    let pair = |at| i8::try_from(number(at, 2)?).ok();
    let month = MONTHS.iter().position(|name| **name == text[3..6])?;
    let date = Date::new(number(7, 4)?, i8::try_from(month + 1).ok()?, pair(0)?).ok()?;
    // A leap second is the last second of its minute once more.
    let second = pair(18)?;
    let second = if second == 60 { 59 } else { second };
    let time = Time::new(pair(12)?, pair(15)?, second, 0).ok()?;
    let zone = Time::new(pair(22)?, pair(24)?, 0, 0).ok()?;
    let east = (i32::from(zone.hour()) * 60 + i32::from(zone.minute())) * 60;
    let offset = match text[21] {
        b'+' => Offset::from_seconds(east),
        b'-' => Offset::from_seconds(-east),
        _ => return None,
    };
    of_epoch(offset.ok()?.to_timestamp(date.to_datetime(time)).ok()?)
}

/// `20/Nov/2026:17:48:50.123`, as HAProxy writes it: with milliseconds, and without a zone, so that it is read as UTC.
pub(super) fn haproxy(text: &str) -> Option<Timestamp> {
    let (date, behind) = text.split_at_checked(20)?;
    let millis = match behind.strip_prefix('.') {
        Some(millis) if millis.len() == 3 => digits(millis.as_bytes(), 0)?,
        None if behind.is_empty() => 0,
        _ => return apache(text),
    };
    Some(apache(&format!("{date} +0000"))?.plus(millis * 1_000))
}

fn of_epoch(at: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(at.as_microsecond()).ok().and_then(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<u64> {
        read_instant(text).map(Timestamp::micros)
    }

    #[test]
    fn seconds_are_read_as_digits() {
        assert_eq!(micros("12.000001"), Some(12_000_001));
        assert_eq!(micros("1795196930.123456"), Some(1_795_196_930_123_456));
        assert_eq!(micros("0"), Some(0));
        assert_eq!(micros("0.1"), Some(100_000));
        assert_eq!(
            micros("1.1234569"),
            Some(1_123_456),
            "what is finer is dropped"
        );
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1e3",
            "1.2.3",
            "1,5",
            " 1",
            "1.x",
            "12345678x",
            "1234567890:123456",
            "1.12345x",
            "1.12345/",
            "1.:12345",
            "1.\u{b1}1234",
            "12345678\u{b1}234567",
            "99999999999999999999",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
        assert_eq!(micros("4503599627.370495"), Some(END - 1));
        assert_eq!(micros("4503599627.370496"), None, "2112");
    }

    #[test]
    fn an_offset_is_shorter_than_a_day() {
        for text in [
            "2026-11-24T17:48:50Z",
            "2026-11-24T17:48:50+23:59",
            "2026-11-24T17:48:50-12:30",
        ] {
            assert!(rfc3339(text).is_some(), "{text}");
        }
        for text in ["2026-11-24T17:48:50+25:00", "2026-11-24T17:48:50.5-24:00"] {
            assert!(rfc3339(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_calendar_is_jiffs() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let at = random.u64(0..END);
            let stamp = jiff::Timestamp::from_microsecond(i64::try_from(at).unwrap()).unwrap();
            assert_eq!(micros(&stamp.to_string()), Some(at), "{stamp}");
            let offset = jiff::tz::Offset::from_seconds(random.i32(-1_400..1_400) * 60).unwrap();
            let there = stamp.display_with_offset(offset).to_string();
            assert_eq!(micros(&there), Some(at), "{there}");
        }
    }

    #[test]
    fn odd_spellings() {
        assert_eq!(micros("2026-11-20 17:48:50z"), Some(1_795_196_930_000_000));
        assert_eq!(
            micros("2016-12-31T23:59:60Z"),
            micros("2016-12-31T23:59:59Z")
        );
        assert_eq!(micros("2024-02-29T00:00:00Z"), Some(1_709_164_800_000_000));
        for text in [
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+26:00",
            "1969-12-31T23:59:59Z",
            "2026-01-01",
            "2026-",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn the_unit_is_told_by_how_many_there_are() {
        const AT: u64 = 1_795_196_930_123_456;
        for text in [
            "1795196930.123456",
            "1795196930123.456",
            "1795196930123456",
            "1795196930123456789",
            "2026-11-20T17:48:50.123456+0000",
            "2026-11-20T18:48:50,123456+01",
        ] {
            assert_eq!(micros(text), Some(AT), "{text}");
        }
        assert_eq!(micros("1795196930123"), Some(AT / 1_000 * 1_000));
        assert_eq!(
            micros("20/Nov/2026:17:48:50 +0000"),
            Some(AT / 1_000_000 * 1_000_000)
        );
        for text in [
            "9795196930",
            "17951969301",
            "1795196930123.",
            "1795196930123.x",
            "4503599627371",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
        let at = |text| haproxy(text).map(Timestamp::micros);
        assert_eq!(at("20/Nov/2026:17:48:50.123"), Some(AT / 1_000 * 1_000));
        for text in [
            "20/Nov/2026:17:48:50.12",
            "20/Nov/2026:17:48:5",
            "",
            "20/Nov/2026:17:48:50.1é",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn apache_writes_its_own() {
        let at = |text| apache(text).map(Timestamp::micros);
        assert_eq!(
            at("20/Nov/2026:17:48:50 +0000"),
            Some(1_795_196_930_000_000)
        );
        assert_eq!(
            at("20/Nov/2026:19:18:50 +0130"),
            Some(1_795_196_930_000_000)
        );
        assert_eq!(at("20/Nov/2026:17:48:50"), None);
        assert_eq!(at("20/Nox/2026:17:48:50 +0000"), None);
        assert_eq!(at(""), None);
    }
}
