//! The report for a person: what was replayed, the two files beside each other, and their course.

use super::plot::{self, Marks};
use super::{LineSample, Report, grouped, percent, stamp, time};
use crate::replay::LogFormat;
use crate::replay::tally::{ByLimit, Tally};
use std::fmt::{Display, Write as _};
use std::time::Duration;

/// The whole report. `sets` is what changed the file, `took` how long the replay lasted.
#[must_use]
pub fn text(report: &Report, sets: &[String], took: Duration, marks: Marks) -> String {
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
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
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
            "name no client and no path, and were passed over",
        ),
        (&report.clientless, "name no client: they count as one"),
        (&report.pathless, "name no path: they count as for /"),
    ] {
        if odd.count > 0 {
            let (count, all) = (grouped(odd.count), self::count(report.written, "line"));
            let first = odd.first.first().map_or(0, |(number, ())| *number);
            let _ = writeln!(out, "{count} of {all} {what}; the first is line {first}");
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    odd(out, &report.unreadable, "could not be read", |fault| {
        fault.to_string()
    });
    let late = "came earlier than one before and counted at the latest time seen";
    odd(out, &report.late, late, |()| String::new());
}

/// `read as apache_format log 12, Caddy's JSON 3`, unless all is ours.
fn formats(out: &mut String, report: &Report) {
    if report
        .formats
        .iter()
        .all(|(format, _)| *format == LogFormat::Own)
    {
        return;
    }
    let told = report.formats.iter();
    let told =
        told.map(|(format, lines)| format!("{} ({})", format.title(), count(*lines, "line")));
    let told: Vec<String> = told.collect();
    let _ = writeln!(out, "read as {}", told.join(", "));
}

/// `2 lines could not be read: 4 (no ts), 9 (not JSON)`
fn odd<T>(out: &mut String, odd: &LineSample<T>, what: &str, why: impl Fn(&T) -> String) {
    if odd.count == 0 {
        return;
    }
    let _ = write!(out, "{} {what}: ", count(odd.count, "line"));
    for (index, (number, reason)) in odd.first.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = match why(reason).as_str() {
            "" => write!(out, "{comma}{number}"),
            why => write!(out, "{comma}{number} ({why})"),
        };
    }
    let more = odd.count - odd.first.len() as u64;
    let _ = match more {
        0 => writeln!(out),
        more => writeln!(out, " and {} more", grouped(more)),
    };
}

/// Rows of the comparison: what, and a cell for each file.
struct Rows {
    rows: Vec<(String, Vec<String>)>,
}

impl Rows {
    fn add<C: Display>(&mut self, what: &str, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().map(|cell| cell.to_string());
        self.rows.push((what.to_owned(), cells.collect()));
    }
}

fn table(out: &mut String, report: &Report, sets: &[String]) {
    let mut rows = Rows { rows: Vec::new() };
    let tallies = &report.tallies;
    if tallies.len() > 1 {
        rows.add(
            "",
            ["as it is".to_owned(), format!("with {}", sets.join(" "))],
        );
    }
    let part = |part: u64| format!("{} ({})", grouped(part), percent(part, report.requests));
    rows.add("refused", tallies.iter().map(|tally| part(tally.refused)));
    rows.add("delayed", tallies.iter().map(|tally| part(tally.delayed)));
    if tallies.iter().any(|tally| tally.no_route > 0) {
        rows.add("no route", tallies.iter().map(|tally| part(tally.no_route)));
    }
    by_limit(&mut rows, tallies);
    shadows(&mut rows, report);
    if tallies.iter().any(|tally| tally.too_many_held > 0) {
        let held = |tally: &Tally| format!("{} refused", grouped(tally.too_many_held));
        rows.add("  too many held", tallies.iter().map(held));
    }
    clients_refused(&mut rows, report);
    rows.add(
        "worst minute",
        tallies.iter().map(|tally| match tally.worst() {
            None => "none".to_owned(),
            Some(minute) => format!(
                "{}  {} refused",
                stamp(minute.start),
                grouped(minute.refused)
            ),
        }),
    );
    rows.add(
        "waits p50, p99, max",
        tallies.iter().map(|tally| match tally.wait_quantiles() {
            None => "none".to_owned(),
            Some(held) => [held.p50, held.p99, held.max].map(time).join(", "),
        }),
    );
    hardest_hit(&mut rows, report);
    write(out, &rows);
}

fn clients_refused(rows: &mut Rows, report: &Report) {
    let client_totals = &report.client_totals;
    let refused = client_totals
        .refused
        .iter()
        .zip(&report.tallies)
        .enumerate();
    rows.add(
        "clients refused",
        refused.map(
            |(side, (refused, _))| match (side, client_totals.first_time) {
                (0, _) | (_, 0) => grouped(*refused),
                (_, first) => format!(
                    "{}, {} of them for the first time",
                    grouped(*refused),
                    grouped(first)
                ),
            },
        ),
    );
}

fn hardest_hit(rows: &mut Rows, report: &Report) {
    for (index, client) in report.hardest.iter().enumerate() {
        let what = if index == 0 { "hardest hit" } else { "" };
        let cells = client.refused.iter().zip(&report.tallies);
        rows.add(
            &format!("{what:<12}{}", client.client),
            cells.map(|(refused, _)| {
                let share = percent(*refused, client.requests);
                format!("{share} of {} refused", grouped(client.requests))
            }),
        );
    }
}

fn by_limit(rows: &mut Rows, tallies: &[Tally]) {
    let limits = |tally: &Tally| tally.limits.clone();
    for_each_limit(rows, tallies, "by", limits, |refused, delayed| {
        match (refused, delayed) {
            (refused, 0) => format!("{} refused", grouped(refused)),
            (0, delayed) => format!("{} delayed", grouped(delayed)),
            (refused, delayed) => {
                format!("{} refused, {} delayed", grouped(refused), grouped(delayed))
            }
        }
    });
}

/// What limits would have done that do not decide.
fn shadows(rows: &mut Rows, report: &Report) {
    let limits = |tally: &Tally| tally.shadows.clone();
    for_each_limit(
        rows,
        &report.tallies,
        "shadow",
        limits,
        |refused, delayed| {
            let share = percent(refused, report.requests);
            let refused = format!("{} ({share}) would be refused", grouped(refused));
            match delayed {
                0 => refused,
                delayed => format!("{refused}, {} delayed", grouped(delayed)),
            }
        },
    );
}

/// A row for each limit of any of the files; `cell` is of the requests that it refused and delayed.
fn for_each_limit(
    rows: &mut Rows,
    tallies: &[Tally],
    what: &str,
    limits: fn(&Tally) -> Vec<ByLimit>,
    cell: impl Fn(u64, u64) -> String,
) {
    let tallies: Vec<_> = tallies.iter().map(limits).collect();
    let mut names: Vec<_> = Vec::new();
    for by in tallies.iter().flatten() {
        if !names.contains(&&by.limit) {
            names.push(&by.limit);
        }
    }
    for name in names {
        let cells = tallies.iter().map(|limits| {
            let by = limits.iter().find(|by| by.limit == *name);
            by.map_or_else(|| cell(0, 0), |by| cell(by.refused, by.delayed))
        });
        rows.add(&format!("  {what} {name}"), cells);
    }
}

fn write(out: &mut String, rows: &Rows) {
    let width = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let first = width(&mut rows.rows.iter().map(|(what, _)| what));
    let second = width(&mut rows.rows.iter().filter_map(|(_, cells)| cells.first()));
    for (what, cells) in &rows.rows {
        let mut line = format!("{what:first$}");
        for cell in cells {
            let _ = write!(line, "  {cell:second$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn count(number: u64, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{} {word}s", grouped(number)),
    }
}
