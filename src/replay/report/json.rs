//! The report for programs: one JSON object, with whole numbers, and times in microseconds.

use super::{LineSample, Report, share};
use crate::clock;
use crate::replay::tally::Tally;
use crate::replay::timeline::OutcomeKind;
use serde_json::{Value, json};
use std::time::Duration;

/// The whole report. `sets` are the options `--set` as they were given; empty without a second file.
#[must_use]
pub fn json(report: &Report, sets: &[String], took: Duration) -> Value {
    let hardest = report.hardest.iter().map(|client| {
        json!({
            "client": client.client,
            "requests": client.requests,
            "refused": client.refused[0],
            "refused_changed": (report.tallies.len() > 1).then(|| client.refused[1]),
        })
    });
    let formats = report.formats();
    let formats = formats.map(|(format, lines)| (format.name().to_owned(), json!(lines)));
    json!({
        "lines": report.lines,
        "requests": report.requests,
        "read_as": formats.collect::<serde_json::Map<_, _>>(),
        "without_client_and_path": sample(&report.nameless),
        "without_client": sample(&report.clientless),
        "without_path": sample(&report.pathless),
        "notes": report.notes,
        "unreadable": sample(&report.unreadable),
        "late": sample(&report.late),
        "first_us": report.span.map(|(first, _)| first.micros()),
        "last_us": report.span.map(|(_, last)| last.micros()),
        "took_us": clock::micros(took),
        "clients": report.client_totals.all,
        "clients_about": report.client_totals.about,
        "file": report.tallies.first().map(|tally| side(report, 0, tally)),
        "set": sets,
        "changed": report.tallies.get(1).map(|tally| side(report, 1, tally)),
        "hardest_hit": hardest.collect::<Vec<_>>(),
    })
}

fn sample(lines: &LineSample) -> Value {
    let first = lines.first.iter().map(|line| match line.fault {
        None => json!({ "line": line.number }),
        Some(fault) => json!({ "line": line.number, "reason": fault.to_string() }),
    });
    json!({ "count": lines.count, "first": first.collect::<Vec<_>>() })
}

/// The numbers of one file.
fn side(report: &Report, index: usize, tally: &Tally) -> Value {
    let client_totals = &report.client_totals;
    json!({
        "refused": tally.refused,
        "refused_share": fraction(tally.refused, report.requests),
        "delayed": tally.delayed,
        "delayed_share": fraction(tally.delayed, report.requests),
        "no_route": tally.no_route,
        "too_many_held": tally.too_many_held,
        "clients_refused": client_totals.refused[index],
        "clients_refused_for_the_first_time": (index > 0).then_some(client_totals.first_time),
        "worst_minute": tally.worst(),
        "waits_us": tally.wait_quantiles(),
        "limits": tally.limits.iter().map(|by| (by.limit.to_string(), json!({
            "refused": by.refused,
            "delayed": by.delayed,
        }))).collect::<serde_json::Map<_, _>>(),
        "shadow": tally.shadows.iter().map(|by| (by.limit.to_string(), json!({
            "would_refuse": by.refused,
            "would_refuse_share": fraction(by.refused, report.requests),
            "would_delay": by.delayed,
        }))).collect::<serde_json::Map<_, _>>(),
        "course": timeline(report, index),
    })
}

/// A share between 0 and 1 with four decimals.
#[allow(clippy::cast_precision_loss, reason = "at most ten thousand")]
fn fraction(part: u64, whole: u64) -> f64 {
    share(part, whole) as f64 / 10_000.0
}

fn timeline(report: &Report, side: usize) -> Value {
    let (intervals, length) = report.timeline.of(side, usize::MAX);
    let mut timeline = json!({ "start_us": report.timeline.start(), "stretch_us": length });
    for kind in OutcomeKind::ALL {
        timeline[kind.name()] = intervals.iter().map(|interval| interval.of(kind)).collect();
    }
    timeline
}
