//! `tollgate check`: is the file right, and what does it mean? Nothing is started, and nobody is asked but on request.

mod cluster_slots;
mod connectivity;
mod notes;

#[cfg(test)]
mod tests;

use crate::config::diff::diff;
use crate::config::render::Colour;
use crate::config::{self, Compiled, Report, describe, leases};
use crate::limit::{Limit, LimitId, Mode};
use crate::telemetry::{printable, printable_json};
use clap::ValueEnum;
use cluster_slots::SlotSpread;
use connectivity::Probe;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// How to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs: an object a line.
    Json,
    /// For GitHub, which shows mistakes beside their lines: workflow commands.
    Github,
    /// For code scanning: SARIF 2.1.0.
    Sarif,
}

/// What is to be said of a file that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckTask {
    /// What its limits mean.
    Meaning,
    /// The file as it is understood.
    Print,
    /// What a reload from this file would change.
    Diff(PathBuf),
    /// Whether what it names can be reached.
    Connect,
}

/// What the check says, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutput {
    /// The answer, for standard output.
    pub out: String,
    /// Mistakes, for standard error.
    pub err: String,
    /// The exit code: 0 good, 1 bad.
    pub code: u8,
}

/// Checks `file` and tells; returns the exit code.
pub fn check(file: &Path, what: &CheckTask, format: Format, deny_warnings: bool) -> u8 {
    let answer = answer(file, what, format, deny_warnings, Colour::of_stderr());
    // Either may be closed, and nobody reads then.
    let _ = std::io::stderr().write_all(answer.err.as_bytes());
    let out = match format {
        Format::Json | Format::Sarif => printable_json(&answer.out),
        Format::Human | Format::Github => printable(&answer.out),
    };
    let _ = std::io::stdout().write_all(out.as_bytes());
    answer.code
}

/// The same without telling anybody.
///
/// As JSON every mistake is a line of standard output, and a last line sums up: programs read one stream.
#[must_use]
pub fn answer(
    file: &Path,
    what: &CheckTask,
    format: Format,
    deny_warnings: bool,
    colour: Colour,
) -> CheckOutput {
    answer_of(
        file,
        (what, format, deny_warnings),
        colour,
        connectivity::ask,
    )
}

/// The same, `ask`ing those that the file names in this way.
fn answer_of(
    file: &Path,
    (what, format, deny_warnings): (&CheckTask, Format, bool),
    colour: Colour,
    ask: impl Fn(&Compiled) -> Probes,
) -> CheckOutput {
    let mut printed = None;
    let mut loaded = match what {
        CheckTask::Print => config::print(file).map(|(text, compiled)| {
            printed = Some(text);
            compiled
        }),
        _ => config::load(file),
    };
    let asked = match (what, &mut loaded) {
        (CheckTask::Connect, Ok(compiled)) => Some(asked(compiled, ask)),
        _ => None,
    };
    let (report, compiled) = match loaded {
        Ok(compiled) => (compiled.whole_report(), Some(compiled)),
        Err(report) => (report, None),
    };
    let mut answer = CheckOutput {
        out: String::new(),
        err: String::new(),
        code: u8::from(compiled.is_none() || (deny_warnings && report.warnings() > 0)),
    };
    if !answer.reported(&report, format, colour) {
        if let Some(compiled) = compiled {
            answer.aside((what, asked.as_ref()), &compiled, colour);
        }
        return answer;
    }
    let Some(compiled) = compiled else {
        if format == Format::Json {
            answer.line(&summary(None, &report));
        }
        return answer;
    };
    match what {
        CheckTask::Meaning | CheckTask::Connect if format == Format::Json => {
            answer.line(&summary(Some(&compiled), &report));
        }
        CheckTask::Meaning | CheckTask::Connect => answer.out.push_str(&meaning(&compiled)),
        CheckTask::Print => answer.out.push_str(&printed.unwrap_or_default()),
        CheckTask::Diff(old) => answer.difference(old, &compiled, format, colour),
    }
    if let Some(asked) = &asked {
        connectivity::tell(asked, format, &mut answer);
    }
    answer
}

/// What came of asking them, of which some is a warning.
type Probes = Result<Vec<Probe>, String>;

fn asked(compiled: &mut Compiled, ask: impl Fn(&Compiled) -> Probes) -> Probes {
    let asked = ask(compiled);
    let open = asked.iter().flatten().filter(|one| one.open);
    compiled.warn_of_open_stores(open.map(|one| one.place.as_str()));
    asked
}

impl CheckOutput {
    /// Adds what is wrong with the file; is there anything to be said behind it?
    fn reported(&mut self, report: &Report, format: Format, colour: Colour) -> bool {
        match format {
            Format::Json => self.out.push_str(&report.json_lines()),
            Format::Sarif => {
                self.out.push_str(&report.sarif());
                return false;
            }
            Format::Github if !report.diagnostics.is_empty() => {
                self.out.push_str(&report.github());
                return false;
            }
            Format::Human if !report.diagnostics.is_empty() => {
                self.err.push_str(&report.human(colour));
            }
            Format::Github | Format::Human => {}
        }
        true
    }

    /// Does what was asked for beside a document that is all of standard output, and tells people of it.
    fn aside(
        &mut self,
        (what, asked): (&CheckTask, Option<&Probes>),
        compiled: &Compiled,
        colour: Colour,
    ) {
        let mut beside = Self {
            out: String::new(),
            err: String::new(),
            code: self.code,
        };
        match what {
            CheckTask::Diff(old) => beside.difference(old, compiled, Format::Human, colour),
            CheckTask::Meaning | CheckTask::Print | CheckTask::Connect => {}
        }
        if let Some(asked) = asked {
            connectivity::tell(asked, Format::Human, &mut beside);
        }
        self.err.push_str(&printable(&beside.out));
        self.err.push_str(&beside.err);
        self.code = beside.code;
    }

    fn line(&mut self, object: &Value) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.out, "{object}");
    }

    /// Adds what a reload from `old` would change, in the words of a reload.
    fn difference(&mut self, old: &Path, new: &Compiled, format: Format, colour: Colour) {
        let old = match config::load(old) {
            Ok(old) => old,
            Err(report) => {
                self.code = 1;
                self.reported(&report, format, colour);
                return;
            }
        };
        let changes = diff(&old.outline, &new.outline, &old.boot);
        if format == Format::Json {
            for change in &changes {
                self.line(&json!({
                    "subject": change.subject,
                    "change": change.what,
                    "restart": change.restart,
                }));
            }
            return self.line(&json!({ "summary": true, "changes": changes.len() }));
        }
        let (from, to) = (old.source.name(), new.source.name());
        self.out = match changes.len() {
            0 => format!("a reload from {from} to {to} would change nothing\n"),
            many => format!(
                "a reload from {from} to {to} would make {}\n",
                count(many, "change")
            ),
        };
        for change in &changes {
            let _ = writeln!(self.out, "  {change}");
        }
    }
}

/// What the file means, in numbers.
fn meaning(compiled: &Compiled) -> String {
    let outline = &compiled.outline;
    let all = outline.limits.iter();
    let limits = all.filter(|limit| limit.mode != Mode::Candidate);
    let mut limits: Vec<&str> = limits.map(|limit| &*limit.name).collect();
    // Rates of one limit stand side by side.
    limits.dedup();
    let mut text = format!(
        "{} is good: {}, {}, {}\n",
        compiled.source.name(),
        count(outline.routes.len(), "route"),
        count(outline.upstreams.len(), "upstream"),
        count(limits.len(), "limit"),
    );
    let asked = asked_for(compiled);
    let width = outline.limits.iter().map(|limit| limit.name.len()).max();
    for limit in &outline.limits {
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "  {:width$}  {}",
            limit.name,
            compiled.hide(&describe::limit(limit, compiled.asks_redis())),
            width = width.unwrap_or(0)
        );
        if let Some(leased) = leased(compiled, &asked, limit) {
            let _ = writeln!(
                text,
                "  {:width$}  {leased}",
                "",
                width = width.unwrap_or(0)
            );
        }
        for tier in describe::tiers(limit) {
            let tier = compiled.hide(&tier);
            let _ = writeln!(text, "  {:width$}  {tier}", "", width = width.unwrap_or(0));
        }
    }
    for group in &outline.groups {
        let members = count(group.len(), "member");
        let by = compiled.hide(&group.by.to_string());
        let _ = writeln!(text, "  group {}: {members} by {by}", group.name);
    }
    if let Some(spread) = SlotSpread::of(compiled) {
        text.push_str(&spread.text());
    }
    for note in notes::all(compiled) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The limits that requests are held to.
type RoutedLimits = HashSet<LimitId>;

fn asked_for(compiled: &Compiled) -> RoutedLimits {
    let services = compiled.snapshot.services.iter();
    let limits = services.flat_map(|service| &service.limits);
    limits.map(|limit| limit.id).collect()
}

/// Whether permits are taken ahead, and on which terms: `leased while it is busy: a worker takes up to 50 permits ...`. Nothing
/// of a limit that no route asks for.
fn leased(compiled: &Compiled, asked: &RoutedLimits, limit: &Limit) -> Option<String> {
    let terms = leases::terms(limit).filter(|_| compiled.asks_redis())?;
    asked
        .contains(&limit.id)
        .then(|| format!("leased while it is busy: {terms}"))
}

fn summary(compiled: Option<&Compiled>, report: &Report) -> Value {
    let mut summary = json!({
        "summary": true,
        "good": compiled.is_some(),
        "errors": report.errors(),
        "warnings": report.warnings(),
        "ignored": report.ignored(),
    });
    if let Some(compiled) = compiled {
        let asked = asked_for(compiled);
        let limits = compiled.outline.limits.iter().map(|limit| {
            let tiers = limit.tiers.iter().map(
                |tier| json!({ "group": &*tier.group.name, "means": compiled.hide(&describe::tier(&tier.limit)) }),
            );
            json!({
                "name": &*limit.name,
                "mode": limit.mode.as_str(),
                "means": compiled.hide(&describe::limit(limit, compiled.asks_redis())),
                "leased": leased(compiled, &asked, limit),
                "tiers": tiers.collect::<Vec<_>>(),
            })
        });
        let groups = compiled.outline.groups.iter().map(|group| {
            let by = compiled.hide(&group.by.to_string());
            json!({ "name": &*group.name, "by": by, "members": group.len() })
        });
        summary["groups"] = groups.collect();
        summary["routes"] = compiled.outline.routes.len().into();
        summary["upstreams"] = compiled.outline.upstreams.len().into();
        summary["limits"] = limits.collect();
        summary["note"] = notes::store(compiled).into();
        summary["cluster"] = SlotSpread::of(compiled).map(|spread| spread.json()).into();
        summary["scope_note"] = notes::scope(compiled).into();
        summary["notes"] = notes::of_keys(compiled).into();
    }
    summary
}

fn count(number: usize, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    }
}
