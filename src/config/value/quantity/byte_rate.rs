//! Rates of bytes: `256B/s`, `4KiB/s`.

use super::time::leading_digits;
use crate::config::value::{Code, ValueError};

/// The units and their sizes in bytes.
const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];
/// The largest rate.
const MOST: u64 = 1 << 30;

/// Reads `NUNIT/s`, or a plain 0.
pub(in crate::config) fn byte_rate(text: &str) -> Result<u64, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadRate, text, "is not a rate of bytes", label)
        .help("write a whole number and its unit in a second, as `\"256B/s\"` or `\"4KiB/s\"`; 0 is off")
    };
    let (number, unit) = leading_digits(text.trim());
    if number.is_empty() {
        return Err(wrong("a number is missing here"));
    }
    let unit = unit.trim();
    if unit.is_empty() && number.bytes().all(|byte| byte == b'0') {
        return Ok(0);
    }
    if unit.starts_with(['.', ',']) {
        return Err(wrong("whole numbers only"));
    }
    let Some((spelling, time)) = unit.split_once('/') else {
        let label = match unit {
            "" => "a number without its unit",
            _ => "the time is missing",
        };
        let unit = known(unit).map_or("B", |(name, _)| name);
        return Err(wrong(label).offer([format!("{number}{unit}/s")]));
    };
    let (spelling, time) = (spelling.trim(), time.trim());
    let Some((name, size)) = known(spelling) else {
        let label = match spelling.to_lowercase().as_str() {
            "b" | "bit" | "bits" | "kbit" | "kb" | "mbit" | "mb" => {
                "the rate counts bytes, not bits"
            }
            _ => "the unit must be one of B, kB, KiB, MB, MiB, GB or GiB",
        };
        return Err(wrong(label));
    };
    if !matches!(time, "s" | "sec" | "second") {
        return Err(wrong("bytes are counted in a second").offer([format!("{number}{name}/s")]));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(size))
        .filter(|rate| *rate <= MOST)
        .ok_or_else(|| wrong("at most 1GiB/s"))
}

/// Does a spelling stand for a number of bytes?
pub(in crate::config::value) fn is_unit(spelling: &str) -> bool {
    known(spelling).is_some()
}

/// The unit that a spelling stands for. Upper and lower case distinguish bits from bytes, so only the usual spellings
/// are accepted.
fn known(spelling: &str) -> Option<(&'static str, u64)> {
    let usual = match spelling {
        "byte" | "bytes" => "B",
        "KB" => "kB",
        "kiB" => "KiB",
        other => other,
    };
    UNITS.into_iter().find(|(name, _)| *name == usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::with_valid_offers;

    #[test]
    fn a_rate_is_read_as_people_write_it() {
        for (text, rate) in [
            ("256B/s", 256),
            (" 4 KiB / s ", 4096),
            ("1kB/s", 1000),
            ("1KB/s", 1000),
            ("2MiB/s", 2 << 20),
            ("1GiB/s", 1 << 30),
            ("10bytes/second", 10),
            ("0", 0),
            ("0B/s", 0),
        ] {
            assert_eq!(byte_rate(text), Ok(rate), "{text}");
        }
    }

    #[test]
    fn what_is_none_says_what_to_write() {
        for (text, help) in [
            ("256", "write `\"256B/s\"`"),
            ("256B", "write `\"256B/s\"`"),
            ("4KiB", "write `\"4KiB/s\"`"),
            ("4KiB/min", "write `\"4KiB/s\"`"),
            ("", "write a whole number and its unit"),
            ("-1B/s", "write a whole number and its unit"),
            ("1.5KiB/s", "write a whole number and its unit"),
            ("8kb/s", "write a whole number and its unit"),
            ("8kbit/s", "write a whole number and its unit"),
            ("5GiB/s", "write a whole number and its unit"),
            (
                "99999999999999999999B/s",
                "write a whole number and its unit",
            ),
        ] {
            let shown = with_valid_offers(text, byte_rate)
                .unwrap_err()
                .shown_help()
                .unwrap();
            assert!(shown.starts_with(help), "{text}: {shown}");
        }
    }
}
