//! The result of a replay, and the formatting of its numbers for people.

mod json;
mod plot;
mod svg;
mod text;

pub use json::json;
pub use plot::Marks;
pub use svg::svg;
pub use text::report_text;

use super::clients::{ClientTotals, HardestClient};
use super::tally::Tally;
use super::timeline::Timeline;
use super::{Fault, LogFormat};
use crate::clock::Timestamp;
use std::fmt;

/// The most odd lines that a report lists one by one.
const SAMPLE: usize = 20;

/// A replay in numbers.
#[derive(Debug, Default)]
pub struct Report {
    /// Lines of the trace.
    pub lines: u64,
    /// Lines that are not empty.
    pub written: u64,
    /// The number of requests' lines in each form.
    pub formats: [u64; LogFormat::COUNT],
    /// Lines without a client and without a path, which are not requests.
    pub nameless: LineSample,
    /// Requests without a client; they all count as requests of one client.
    pub clientless: LineSample,
    /// Requests without a path; they all count as requests for `/`.
    pub pathless: LineSample,
    /// Notes to read before the numbers are trusted.
    pub notes: Vec<Note>,
    /// Requests that were replayed.
    pub requests: u64,
    /// Lines that could not be read.
    pub unreadable: LineSample,
    /// Lines that counted at a later time than their own.
    pub late: LineSample,
    /// The instants of the first request and the last; none without requests.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The numbers of clients.
    pub client_totals: ClientTotals,
    /// The clients that were refused most.
    pub hardest: Vec<HardestClient>,
    /// The file's numbers, and the changed file's.
    pub tallies: Vec<Tally>,
    /// The course over time.
    pub timeline: Timeline,
}

/// A note about a trace, to read before its numbers are trusted.
#[derive(Debug, serde::Serialize)]
pub struct Note {
    /// The note's name, for programs.
    pub code: &'static str,
    /// The note as a sentence, for people.
    pub text: String,
}

/// Odd lines of one kind: their number, and the first of them.
#[derive(Debug, Default)]
pub struct LineSample {
    /// The number of the lines.
    pub count: u64,
    /// The first of the lines.
    pub first: Vec<OddLine>,
}

/// An odd line.
#[derive(Debug)]
pub struct OddLine {
    /// The line's number.
    pub number: u64,
    /// The cause for which the line cannot be read, if it cannot.
    pub fault: Option<Fault>,
}

/// `4`, or `4: no ts`.
impl fmt::Display for OddLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        self.fault.map_or(Ok(()), |fault| write!(f, ": {fault}"))
    }
}

impl LineSample {
    /// Adds line `number`.
    pub(super) fn add(&mut self, number: u64, fault: Option<Fault>) {
        self.count += 1;
        if self.first.len() < SAMPLE {
            self.first.push(OddLine { number, fault });
        }
    }
}

impl Report {
    /// The forms that lines have, with the number of lines in each.
    fn formats(&self) -> impl Iterator<Item = (LogFormat, u64)> {
        LogFormat::all()
            .zip(self.formats)
            .filter(|(_, lines)| *lines > 0)
    }
}

/// `2026-11-20 17:48:50Z`, for people.
fn stamp(micros: u64) -> String {
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    at.to_string().replacen('T', " ", 1)
}

/// A duration in its one or two largest units: `1 h 12 min`, `2.5 s`, `340 us`.
fn time(micros: u64) -> String {
    let units = [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
    ];
    for pair in units.windows(2) {
        let [(large, size), (small, part)] = pair else {
            continue;
        };
        if micros >= *size {
            let rest = micros % size / part;
            return match rest {
                0 => format!("{} {large}", micros / size),
                _ => format!("{} {large} {rest} {small}", micros / size),
            };
        }
    }
    match micros {
        1_000_000.. => decimal(micros, 1_000_000, "s"),
        1_000.. => decimal(micros, 1_000, "ms"),
        _ => format!("{micros} us"),
    }
}

/// A value in the unit `name`, with enough decimals for three digits, and no zeros at the end.
fn decimal(value: u64, unit: u64, name: &str) -> String {
    let (whole, rest) = (value / unit, value % unit * 1_000 / unit);
    let digits = match whole {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let fraction = format!("{rest:03}");
    match fraction[..digits].trim_end_matches('0') {
        "" => format!("{whole} {name}"),
        some => format!("{whole}.{some} {name}"),
    }
}

/// `683,204`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in hundredths of a percent, rounded. A part that is neither zero nor everything is never shown as 0 % or as
/// 100 %.
fn share(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let (part, whole) = (u128::from(part), u128::from(whole));
    let rounded = (part * 20_000 + whole) / (whole * 2);
    let least = u128::from(part > 0);
    let most = if part < whole { 9_999 } else { 10_000 };
    u64::try_from(rounded.clamp(least, most)).unwrap_or(10_000)
}

/// `6.02 %`
fn percent(part: u64, whole: u64) -> String {
    let share = share(part, whole);
    format!("{}.{:02} %", share / 100, share % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(1, 1_000_000), "0.01 %");
        assert_eq!(percent(999_999, 1_000_000), "99.99 %");
        assert_eq!(
            (percent(0, 0), percent(7, 7)),
            ("0.00 %".into(), "100.00 %".into())
        );
        let times = [
            340,
            1_500,
            12_340,
            2_500_000,
            61_000_000,
            4_320_000_000,
            86_400_000_000,
        ];
        let times_shown = [
            "340 us",
            "1.5 ms",
            "12.3 ms",
            "2.5 s",
            "1 min 1 s",
            "1 h 12 min",
            "1 d",
        ];
        assert_eq!(times.map(time), times_shown);
        assert_eq!(stamp(1_795_196_930_999_999), "2026-11-20 17:48:50Z");
    }
}
