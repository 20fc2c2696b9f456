//! The instant of a line: decimal digits, RFC 3339, or Apache's and HAProxy's bracketed times. Never a float.
//!
//! RFC 3339 and the calendar are jiff's. The digits of a bracketed time are read here: 24 ns a line, where jiff's
//! `strtime` takes 100.

use crate::clock::Timestamp;
use jiff::civil::{Date, Time};
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Offset;

/// Instants from here on leave no room for the spans limits reach over (`limit::rate::MAX_SPAN`); in the year 2112.
const END: u64 = 1 << 52;

/// Seconds since the epoch with up to six decimals, or RFC 3339; else as [`other`] reads it.
pub(super) fn read(text: &[u8]) -> Option<Timestamp> {
    match text.get(4) {
        Some(b'-') => rfc3339(text),
        _ => decimal(text, 6).and_then(within).or_else(|| other(text)),
    }
}

/// What logs of others have: milli-, micro- and nanoseconds, told by how many there are, and Apache's time. No number
/// is an instant in two units: between them lie years in which nobody kept logs of HTTP.
#[cold]
fn other(text: &[u8]) -> Option<Timestamp> {
    if text.get(2) == Some(&b'/') {
        return bracketed(text);
    }
    let dot = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let is_number =
        |text: &[u8]| !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let number: u64 = str::from_utf8(whole).ok()?.parse().ok()?;
    within(match whole.len() {
        12..=13 => {
            let three = (0..3).map(|at| fraction.get(at).map_or(0, |byte| u64::from(byte - b'0')));
            number * 1_000 + three.fold(0, |sum, digit| sum * 10 + digit)
        }
        15..=16 => number,
        18..=19 => number / 1_000,
        _ => return None,
    })
}

/// A number without sign and exponent, times ten to the power of `places`; what is finer is dropped.
pub(super) fn decimal(text: &[u8], places: u32) -> Option<u64> {
    let mut value: u64 = 0;
    let mut left = places as usize;
    let mut rest = text;
    while let Some((eight, behind)) = rest.split_first_chunk()
        && let Some(eight) = eight_digits(*eight)
    {
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        rest = behind;
    }
    let mut behind = None;
    while let Some((byte, more)) = rest.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            behind = (*byte == b'.').then_some(more);
            behind?;
            break;
        }
        rest = more;
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    let digits = text.len() - rest.len();
    // More digits than any instant has, and no overflow to look out for at each.
    if digits == 0 || digits > 19 - left || text.ends_with(b".") {
        return None;
    }
    // Most instants are told to the microsecond.
    let behind = behind.unwrap_or_default();
    if let Ok(six) = <&[u8; 6]>::try_from(behind)
        && left == 6
    {
        let [a, b, c, d, e, f] = *six;
        let six = eight_digits([b'0', b'0', a, b, c, d, e, f])?;
        return Some(value * 1_000_000 + six);
    }
    for byte in behind {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        if left > 0 {
            left -= 1;
            value = value * 10 + u64::from(digit);
        }
    }
    Some(value * [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000].get(left)?)
}

/// The number that eight digits are, if they are digits.
#[inline]
fn eight_digits(eight: [u8; 8]) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = u64::from_le_bytes(eight) ^ (ONES * 0x30);
    let others = (digits.wrapping_add(ONES * 0x76) | digits) & (ONES * 0x80);
    if others != 0 {
        return None;
    }
    // Pairs, fours, all of them: the first digit is the lowest byte.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

fn within(micros: u64) -> Option<Timestamp> {
    (micros < END).then(|| Timestamp::from_micros(micros))
}

/// `2026-11-20T17:48:50.123456Z`, or with an offset.
fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    of_epoch(PARSER.parse_timestamp(text).ok()?)
}

/// `20/Nov/2026:17:48:50 +0000`.
pub(super) fn apache(text: &str) -> Option<Timestamp> {
    bracketed(text.as_bytes())
}

/// `20/Nov/2026:17:48:50.123`, as HAProxy writes it: with milliseconds, and without a zone, for which it is taken as UTC.
pub(super) fn haproxy(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let (date, behind) = bytes.split_at_checked(20)?;
    let millis = match behind {
        [b'.', _, _, _] => number(behind, 1, 3)?,
        [] => 0,
        _ => return bracketed(bytes),
    };
    let at = bracketed(&[date, b" +0000"].concat())?;
    Some(at.plus(u64::try_from(millis).ok()? * 1_000))
}

fn bracketed(bytes: &[u8]) -> Option<Timestamp> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let month = MONTHS
        .iter()
        .position(|name| bytes.get(3..6) == Some(name))?;
    let [b'/', b'/', b':', b' '] = [2, 6, 11, 20].map(|at| bytes.get(at).copied().unwrap_or(0))
    else {
        return None;
    };
    let day = i8::try_from(number(bytes, 0, 2)?).ok()?;
    let date = Date::new(number(bytes, 7, 4)?, i8::try_from(month + 1).ok()?, day);
    let at = date.ok()?.to_datetime(time(bytes, 12)?);
    of_epoch(offset(&bytes[21..])?.to_timestamp(at).ok()?)
}

/// The number that `digits` bytes from `at` on are.
fn number(bytes: &[u8], at: usize, digits: usize) -> Option<i16> {
    let text = bytes.get(at..at + digits)?;
    text.iter().try_fold(0, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + i16::from(byte - b'0'))
    })
}

/// `17:48:50`. A leap second is the last second of its minute once more.
fn time(bytes: &[u8], at: usize) -> Option<Time> {
    if bytes.get(at + 2) != Some(&b':') || bytes.get(at + 5) != Some(&b':') {
        return None;
    }
    let parts = [
        number(bytes, at, 2)?,
        number(bytes, at + 3, 2)?,
        number(bytes, at + 6, 2)?,
    ];
    let [hour, minute, second] = parts.map(|part| i8::try_from(part).unwrap_or(i8::MAX));
    let second = if second == 60 { 59 } else { second };
    Time::new(hour, minute, second, 0).ok()
}

/// `+0130`.
fn offset(text: &[u8]) -> Option<Offset> {
    let [sign @ (b'+' | b'-'), _, _, _, _] = text else {
        return None;
    };
    let [hours, minutes] = [number(text, 1, 2)?, number(text, 3, 2)?].map(i32::from);
    let seconds = hours * 3_600 + minutes * 60;
    let is_offset = hours < 24 && minutes < 60;
    Offset::from_seconds(if *sign == b'-' { -seconds } else { seconds })
        .ok()
        .filter(|_| is_offset)
}

fn of_epoch(at: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(at.as_microsecond()).ok().and_then(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<u64> {
        read(text.as_bytes()).map(Timestamp::micros)
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
