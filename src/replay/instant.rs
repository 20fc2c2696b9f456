//! When a line says it happened: decimal digits, RFC 3339, or Apache's and HAProxy's bracketed times. Never a float.

use crate::clock::Timestamp;

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
fn rfc3339(bytes: &[u8]) -> Option<Timestamp> {
    let mark = |at: usize, marks: &[u8]| bytes.get(at).is_some_and(|byte| marks.contains(byte));
    if !(mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":")) {
        return None;
    }
    let date = days(
        number(bytes, 0, 4)?,
        number(bytes, 5, 2)?,
        number(bytes, 8, 2)?,
    )?;
    let seconds = time(bytes, 11)?;
    let mut rest = &bytes[19..];
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix(b".").or(rest.strip_prefix(b",")) {
        let digits = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 {
            return None;
        }
        let six = (0..6).map(|at| {
            fraction[..digits]
                .get(at)
                .map_or(0, |byte| i64::from(byte - b'0'))
        });
        micros = six.fold(0, |sum, digit| sum * 10 + digit);
        rest = &fraction[digits..];
    }
    let east = match rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            offset(*sign, number(rest, 1, 2)?, number(rest, 4, 2)?)?
        }
        [sign @ (b'+' | b'-'), _, _, _, _] => {
            offset(*sign, number(rest, 1, 2)?, number(rest, 3, 2)?)?
        }
        [sign @ (b'+' | b'-'), _, _] => offset(*sign, number(rest, 1, 2)?, 0)?,
        _ => return None,
    };
    instant(date, seconds - east, micros)
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
    let [b'/', b'/', b':'] = [*bytes.get(2)?, *bytes.get(6)?, *bytes.get(11)?] else {
        return None;
    };
    let date = days(
        number(bytes, 7, 4)?,
        i64::try_from(month).ok()? + 1,
        number(bytes, 0, 2)?,
    )?;
    let seconds = time(bytes, 12)?;
    let [b' ', sign @ (b'+' | b'-'), _, _, _, _] = bytes.get(20..)? else {
        return None;
    };
    let east = offset(*sign, number(bytes, 22, 2)?, number(bytes, 24, 2)?)?;
    instant(date, seconds - east, 0)
}

fn number(bytes: &[u8], at: usize, digits: usize) -> Option<i64> {
    let text = bytes.get(at..at + digits)?;
    text.iter().try_fold(0, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + i64::from(byte - b'0'))
    })
}

/// `17:48:50` as seconds of the day. A leap second is the last one of its minute once more.
fn time(bytes: &[u8], at: usize) -> Option<i64> {
    let [hour, minute, second] = [
        number(bytes, at, 2)?,
        number(bytes, at + 3, 2)?,
        number(bytes, at + 6, 2)?,
    ];
    let is_time = hour < 24 && minute < 60 && second <= 60;
    let colons = bytes.get(at + 2) == Some(&b':') && bytes.get(at + 5) == Some(&b':');
    (is_time && colons).then_some(hour * 3_600 + minute * 60 + second.min(59))
}

fn offset(sign: u8, hours: i64, minutes: i64) -> Option<i64> {
    let seconds = hours * 3_600 + minutes * 60;
    (hours < 24 && minutes < 60).then_some(if sign == b'-' { -seconds } else { seconds })
}

/// Days since the epoch of a date of the Gregorian calendar, counted in years that begin in March: then the day that
/// some years have more stands at their end.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 1970-01-01 is day 719,468 of this count.
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

fn instant(days: i64, seconds: i64, micros: i64) -> Option<Timestamp> {
    let micros = (days * 86_400 + seconds) * 1_000_000 + micros;
    u64::try_from(micros).ok().and_then(within)
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
            "2026-01-01T00:00:00+25:00",
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
