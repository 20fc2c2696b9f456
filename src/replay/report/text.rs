//! The report for people: the trace, the two files side by side, and their course.

use super::plot::{self, Marks};
use super::{LineSample, Report, grouped, percent, stamp, time};
use crate::clock;
use crate::replay::LogFormat;
use crate::replay::tally::{ByLimit, Tally};
use std::fmt::Write as _;
use std::iter;
use std::time::Duration;

/// The whole report. `sets` are the options that changed the file, and `took` is the duration of the replay.
#[must_use]
pub fn report_text(report: &Report, sets: &[String], took: Duration, marks: Marks) -> String {
    let mut out = String::new();
    head(&mut out, report, took);
    if report.requests == 0 {
        return out;
    }
    out.push('\n');
    table(&mut out, report, sets);
    for (side, _) in report.tallies.iter().enumerate() {
        out.push('\n');
        let title = match (side, report.tallies.len()) {
            (0, 1) => "over time".to_owned(),
            (0, _) => "over time, the file as it is".to_owned(),
            _ => "over time, with --set".to_owned(),
        };
        let sides = report.tallies.len();
        plot::plot(&mut out, &report.timeline, side, sides, &title, marks);
    }
    out
}

fn head(out: &mut String, report: &Report, took: Duration) {
    let micros = clock::micros(took);
    let about = if report.client_totals.about {
        "about "
    } else {
        ""
    };
    // Writing into a string cannot fail.
    let _ = write!(
        out,
        "{} from {about}{}",
        count(report.requests, "request"),
        count(report.client_totals.all, "client")
    );
    if let Some((first, last)) = report.span {
        let _ = write!(out, " over {}", time(last.since(first)));
        let _ = write!(
            out,
            ", {} to {}",
            stamp(first.micros()),
            stamp(last.micros())
        );
    }
    let _ = writeln!(out, ", replayed in {}", time(micros));
    formats(out, report);
    for (odd, what) in [
        (
            &report.nameless,
            "name no client and no path, and were skipped",
        ),
        (&report.clientless, "name no client: they count as one"),
        (&report.pathless, "name no path: they count as for /"),
    ] {
        if odd.count > 0 {
            let (count, all) = (grouped(odd.count), self::count(report.written, "line"));
            let first = odd.first.first().map_or(0, |line| line.number);
            let _ = writeln!(out, "{count} of {all} {what}; the first is line {first}");
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {}", note.text);
    }
    odd(out, &report.unreadable, "could not be read");
    let late = "have an earlier time than a line before, and counted at the latest time so far";
    odd(out, &report.late, late);
}

/// `read as combined log (12 lines), Caddy's JSON (3 lines)`, unless all lines are of the gateway's own log.
fn formats(out: &mut String, report: &Report) {
    if report.formats().all(|(format, _)| format == LogFormat::Own) {
        return;
    }
    let formats = report.formats();
    let formats =
        formats.map(|(format, lines)| format!("{} ({})", format.title(), count(lines, "line")));
    let formats: Vec<String> = formats.collect();
    let _ = writeln!(out, "read as {}", formats.join(", "));
}

/// `2 lines could not be read: 4 (no ts), 9 (not JSON)`
fn odd(out: &mut String, odd: &LineSample, what: &str) {
    if odd.count == 0 {
        return;
    }
    let first = odd.first.iter().map(|line| match line.fault {
        None => line.number.to_string(),
        Some(fault) => format!("{} ({fault})", line.number),
    });
    let first: Vec<String> = first.collect();
    let _ = write!(
        out,
        "{} {what}: {}",
        count(odd.count, "line"),
        first.join(", ")
    );
    let _ = match odd.count - odd.first.len() as u64 {
        0 => writeln!(out),
        more => writeln!(out, " and {} more", grouped(more)),
    };
}

/// A table with a column for each file.
struct ComparisonTable<'a> {
    report: &'a Report,
    /// The title of each row, with a cell for each file.
    rows: Vec<(String, Vec<String>)>,
}

impl ComparisonTable<'_> {
    /// Adds a row; `cell` makes the cell of a file from its number.
    fn row(&mut self, what: impl Into<String>, cell: impl Fn(usize, &Tally) -> String) {
        let tallies = self.report.tallies.iter().enumerate();
        let cells = tallies.map(|(side, tally)| cell(side, tally));
        self.rows.push((what.into(), cells.collect()));
    }

    /// Adds a row of shares of all requests.
    fn shares(&mut self, what: &str, part: fn(&Tally) -> u64) {
        let all = self.report.requests;
        self.row(what, |_, tally| {
            let part = part(tally);
            format!("{} ({})", grouped(part), percent(part, all))
        });
    }

    /// Adds a row for each limit of any of the files.
    fn limits(
        &mut self,
        what: &str,
        limits: fn(&Tally) -> &[ByLimit],
        cell: impl Fn(u64, u64) -> String,
    ) {
        let mut names: Vec<&str> = Vec::new();
        for by in self.report.tallies.iter().flat_map(limits) {
            if !names.contains(&&*by.limit) {
                names.push(&by.limit);
            }
        }
        for name in names {
            self.row(format!("  {what} {name}"), |_, tally| {
                let by = limits(tally).iter().find(|by| *by.limit == *name);
                by.map_or_else(|| cell(0, 0), |by| cell(by.refused, by.delayed))
            });
        }
    }

    fn write(&self, out: &mut String) {
        let width = |texts: &mut dyn Iterator<Item = &String>| {
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let first = width(&mut self.rows.iter().map(|(what, _)| what));
        let second = width(&mut self.rows.iter().filter_map(|(_, cells)| cells.first()));
        for (what, cells) in &self.rows {
            let mut line = format!("{what:first$}");
            for cell in cells {
                let _ = write!(line, "  {cell:second$}");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

fn table(out: &mut String, report: &Report, sets: &[String]) {
    let rows = Vec::new();
    let mut table = ComparisonTable { report, rows };
    let any = |count: fn(&Tally) -> u64| report.tallies.iter().any(|tally| count(tally) > 0);
    if report.tallies.len() > 1 {
        table.row("", |side, _| match side {
            0 => "as it is".to_owned(),
            _ => format!("with {}", sets.join(" ")),
        });
    }
    table.shares("refused", |tally| tally.refused);
    table.shares("delayed", |tally| tally.delayed);
    if any(|tally| tally.no_route) {
        table.shares("no route", |tally| tally.no_route);
    }
    limits(&mut table);
    if any(|tally| tally.too_many_held) {
        table.row("  too many held", |_, tally| {
            format!("{} refused", grouped(tally.too_many_held))
        });
    }
    let clients = &report.client_totals;
    table.row("clients refused", |side, _| {
        let refused = grouped(clients.refused[side]);
        match (side, clients.first_time) {
            (0, _) | (_, 0) => refused,
            (_, first) => format!("{refused}, {} of them for the first time", grouped(first)),
        }
    });
    table.row("worst minute", |_, tally| {
        tally.worst().map_or("none".to_owned(), |minute| {
            let (start, refused) = (stamp(minute.start), grouped(minute.refused));
            format!("{start}  {refused} refused")
        })
    });
    table.row("waits p50, p99, max", |_, tally| {
        tally.wait_quantiles().map_or("none".to_owned(), |held| {
            [held.p50, held.p99, held.max].map(time).join(", ")
        })
    });
    let names = ["hardest hit"].into_iter().chain(iter::repeat(""));
    for (client, what) in report.hardest.iter().zip(names) {
        table.row(format!("{what:<12}{}", client.client), |side, _| {
            let share = percent(client.refused[side], client.requests);
            format!("{share} of {} refused", grouped(client.requests))
        });
    }
    table.write(out);
}

/// Adds the rows of each limit, including limits that do not decide.
fn limits(table: &mut ComparisonTable<'_>) {
    let all = table.report.requests;
    table.limits(
        "by",
        |tally| &tally.limits,
        |refused, delayed| match (grouped(refused), grouped(delayed)) {
            (refused, _) if delayed == 0 => format!("{refused} refused"),
            (_, delayed) if refused == 0 => format!("{delayed} delayed"),
            (refused, delayed) => format!("{refused} refused, {delayed} delayed"),
        },
    );
    table.limits(
        "shadow",
        |tally| &tally.shadows,
        |refused, delayed| {
            let share = percent(refused, all);
            let refused = format!("{} ({share}) would be refused", grouped(refused));
            match delayed {
                0 => refused,
                delayed => format!("{refused}, {} delayed", grouped(delayed)),
            }
        },
    );
}

fn count(number: u64, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{} {word}s", grouped(number)),
    }
}
