//! A request's decision as one line of JSON, for `--decisions`: whole numbers, in microseconds.

use super::policy_side::{PolicySide, ReplayOutcome};
use crate::clock::Timestamp;
use crate::limit::verdict::{self, Wait};
use crate::proxy::error;
use crate::snapshot::Service;
use std::io::{self, Write};

/// Writes the line of one request.
pub(super) fn write(
    out: &mut dyn Write,
    number: u64,
    at: Timestamp,
    side: &PolicySide,
    outcome: &ReplayOutcome,
) -> io::Result<()> {
    let service = side.service();
    write!(out, r#"{{"line":{number},"ts_us":{},"route":"#, at.micros())?;
    text(out, service.and_then(Service::route))?;
    let (word, wait, limit, again) = match outcome {
        ReplayOutcome::Admit => ("admit", 0, None, None),
        ReplayOutcome::Delay { wait, limit } => ("delay", *wait, Some(&**limit), None),
        ReplayOutcome::Refuse { wait, limit, .. } => ("refuse", 0, Some(&**limit), *wait),
        ReplayOutcome::TooManyHeld => ("refuse", 0, None, Some(error::LATER)),
        ReplayOutcome::NoRoute => ("no_route", 0, None, None),
    };
    let violated = match outcome {
        ReplayOutcome::Refuse { window, .. } => window.as_deref(),
        _ => None,
    };
    write!(out, r#","decision":"{word}","wait_us":{wait},"limit":"#)?;
    text(out, limit)?;
    listed(out, "window", violated)?;
    out.write_all(br#","retry_after_us":"#)?;
    number_or_null(out, again)?;
    write!(out, r#","granted":{},"verdicts":["#, granted(side, outcome))?;
    let verdicts = side
        .decided()
        .into_iter()
        .flat_map(|decided| &decided.decision.verdicts);
    for (index, (verdict, (limit, key))) in verdicts.zip(side.keys()).enumerate() {
        out.write_all(if index == 0 {
            br#"{"limit":"#
        } else {
            br#",{"limit":"#
        })?;
        text(out, Some(&limit.name))?;
        listed(out, "window", limit.window.as_deref())?;
        listed(out, "group", limit.group.as_deref())?;
        out.write_all(br#","key":"#)?;
        text(out, Some(key))?;
        said(out, verdict.outcome)?;
        write!(
            out,
            r#","remaining":{},"reset_us":{}}}"#,
            verdict.remaining, verdict.reset
        )?;
    }
    out.write_all(b"]")?;
    shadows(out, side)?;
    out.write_all(b"}\n")
}

/// The answers of limits that do not decide; a request without such limits has no such member.
fn shadows(out: &mut dyn Write, side: &PolicySide) -> io::Result<()> {
    let mut some = false;
    for aside in side.shadows() {
        out.write_all(if some {
            br#",{"limit":"#
        } else {
            br#","shadow":[{"limit":"#
        })?;
        some = true;
        text(out, Some(&aside.limit.name))?;
        listed(out, "window", aside.limit.window.as_deref())?;
        listed(out, "group", aside.limit.group.as_deref())?;
        write!(out, r#","mode":"{}","key":"#, aside.limit.mode.as_str())?;
        text(out, aside.key)?;
        said(out, aside.outcome)?;
        out.write_all(br#","remaining":"#)?;
        number_or_null(out, aside.verdict.map(|verdict| verdict.remaining))?;
        out.write_all(br#","reset_us":"#)?;
        number_or_null(out, aside.verdict.map(|verdict| verdict.reset))?;
        out.write_all(b"}")?;
    }
    out.write_all(if some { b"]" } else { b"" })
}

/// Writes the outcome of a limit: admitted, delayed with the wait, or refused with the time until a retry.
fn said(out: &mut dyn Write, outcome: verdict::VerdictOutcome) -> io::Result<()> {
    let (admitted, wait, again) = match outcome {
        verdict::VerdictOutcome::Admit { delay } => (true, delay, None),
        verdict::VerdictOutcome::Refuse(Wait::Micros(again)) => (false, 0, Some(again)),
        verdict::VerdictOutcome::Refuse(Wait::Never) => (false, 0, None),
    };
    write!(
        out,
        r#","admitted":{admitted},"wait_us":{wait},"retry_after_us":"#
    )?;
    number_or_null(out, again)
}

/// The number of units that the request was granted.
fn granted(side: &PolicySide, outcome: &ReplayOutcome) -> u32 {
    match outcome {
        ReplayOutcome::Refuse { .. } | ReplayOutcome::TooManyHeld | ReplayOutcome::NoRoute => 0,
        ReplayOutcome::Admit | ReplayOutcome::Delay { .. } => side.granted(),
    }
}

/// Writes the member `name`: the rate of a list, or the group, that the numbers belong to. A limit without a list or
/// groups has no such member.
fn listed(out: &mut dyn Write, name: &str, value: Option<&str>) -> io::Result<()> {
    match value {
        None => Ok(()),
        Some(_) => {
            write!(out, r#","{name}":"#)?;
            text(out, value)
        }
    }
}

fn text(out: &mut dyn Write, text: Option<&str>) -> io::Result<()> {
    match text {
        None => out.write_all(b"null"),
        Some(text) => Ok(serde_json::to_writer(out, text)?),
    }
}

fn number_or_null(out: &mut dyn Write, number: Option<u64>) -> io::Result<()> {
    match number {
        None => out.write_all(b"null"),
        Some(number) => write!(out, "{number}"),
    }
}
