//! `tollgate check`: is the file valid, and what does it mean? No part is started, and no server is contacted without
//! `--connect`; only the store's records of ordered certificates are read.
//!
//! Its parts:
//!
//! ```text
//! identities            identities and the listeners that offer them
//! orders                certificates that are ordered, and from which authority
//! connectivity          `--connect`: the store and the servers are each probed once
//! cluster_slots         calls for each route of a cluster, and slots that are hot
//! notes                 what the limits mean together
//! notes/counting        how limits count
//! notes/costs           what answers cost, and give back
//! notes/shares          bounds that all clients share, and the part that one client has
//! notes/forged_tokens   routes for which a forged token is verified
//! notes/translators     networks that contain a translator's of NAT64
//! notes/written_values  credentials that are counted as they come, names in front of members, and braces in answers
//! ```

mod cluster_slots;
pub(super) mod connectivity;
mod identities;
mod notes;
mod orders;

#[cfg(test)]
mod tests;

use crate::config::diff::diff;
use crate::config::render::Colour;
use crate::config::suggest::counted;
use crate::config::{self, Compiled, EnvironmentFiles, Report, describe, leases};
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

/// The task of a check on a valid file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckTask {
    /// Shows the meaning of its limits.
    Meaning,
    /// Shows the file as understood.
    Print,
    /// Shows the changes that a reload from this file would make.
    Diff(PathBuf),
    /// Shows whether its stores and servers can be reached.
    Connect,
}

/// The output of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CheckOutput {
    /// The text for standard output.
    out: String,
    /// The text for standard error.
    err: String,
    /// The exit code: 0 good, 1 bad.
    code: u8,
}

/// The subject of the check: a file, with the variables that it may name.
#[derive(Debug, Clone, Copy)]
pub struct CheckedFile<'f> {
    /// The file.
    pub path: &'f Path,
    /// Its variables.
    pub environment: &'f EnvironmentFiles,
}

/// Checks `file` and writes the result; returns the exit code.
pub fn check_file(
    file: CheckedFile<'_>,
    task: &CheckTask,
    format: Format,
    deny_warnings: bool,
) -> u8 {
    let colour = Colour::of_stderr();
    let style = Style { format, colour };
    let checked = output(file, task, style, deny_warnings, connectivity::probe);
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(checked.err.as_bytes());
    super::show(&match format {
        Format::Json | Format::Sarif => printable_json(&checked.out),
        Format::Human | Format::Github => printable(&checked.out),
    });
    checked.code
}

/// The style of the output.
#[derive(Debug, Clone, Copy)]
struct Style {
    format: Format,
    colour: Colour,
}

/// The results of the probes of `--connect`, or the reason why there are none.
type Probes = Result<Vec<Probe>, String>;

/// Checks `file`, with `probe` for the stores and servers that it names, and returns the result.
///
/// As JSON every mistake is a line of standard output, and a last line summarises: programs read one stream.
fn output(
    file: CheckedFile<'_>,
    task: &CheckTask,
    style: Style,
    deny_warnings: bool,
    probe: impl Fn(&Compiled) -> Probes,
) -> CheckOutput {
    let mut printed = None;
    let mut loaded = match task {
        CheckTask::Print => config::print(file.path, file.environment).map(|(text, compiled)| {
            printed = Some(text);
            compiled
        }),
        _ => config::load_in(file.path, file.environment),
    };
    let probes = match (task, &mut loaded) {
        (CheckTask::Connect, Ok(compiled)) => Some(probes(compiled, probe)),
        _ => None,
    };
    let (report, compiled) =
        match loaded.map(|compiled| (orders::refused(task, &compiled), compiled)) {
            Ok((None, compiled)) => (compiled.whole_report(), Some(compiled)),
            Ok((Some(report), _)) | Err(report) => (report, None),
        };
    let mut output = CheckOutput {
        code: u8::from(compiled.is_none() || (deny_warnings && report.warnings() > 0)),
        ..CheckOutput::default()
    };
    let is_json = style.format == Format::Json;
    let report_is_all = output.report(&report, style);
    let Some(compiled) = compiled else {
        if is_json {
            output.line(&summary(None, &report));
        }
        return output;
    };
    if report_is_all {
        output.append(
            file.environment,
            task,
            probes.as_ref(),
            &compiled,
            style.colour,
        );
        return output;
    }
    match task {
        CheckTask::Meaning | CheckTask::Connect if is_json => {
            output.line(&summary(Some(&compiled), &report));
        }
        CheckTask::Meaning | CheckTask::Connect => output.out.push_str(&meaning(&compiled)),
        CheckTask::Print => output.out.push_str(&printed.unwrap_or_default()),
        CheckTask::Diff(old) => output.difference(old, file.environment, &compiled, style),
    }
    if let Some(probes) = &probes {
        connectivity::show(probes, style.format, &mut output);
    }
    output
}

fn probes(compiled: &mut Compiled, probe: impl Fn(&Compiled) -> Probes) -> Probes {
    let probes = probe(compiled);
    let open = probes.iter().flatten().filter(|probe| probe.open);
    compiled.warn_of_open_stores(open.map(|probe| probe.place.as_str()));
    let evicting = probes.iter().flatten();
    let evicting = evicting.filter_map(|probe| Some((&*probe.place, probe.evicts.as_deref()?)));
    compiled.warn_of_evicting_stores(evicting);
    probes
}

impl CheckOutput {
    /// Adds the report. Returns whether standard output is complete.
    fn report(&mut self, report: &Report, style: Style) -> bool {
        let is_empty = report.diagnostics.is_empty();
        match style.format {
            Format::Json => self.out.push_str(&report.json_lines()),
            Format::Sarif => self.out.push_str(&report.sarif()),
            Format::Github if !is_empty => self.out.push_str(&report.github()),
            Format::Human if !is_empty => self.err.push_str(&report.human(style.colour)),
            Format::Github | Format::Human => {}
        }
        style.format == Format::Sarif || style.format == Format::Github && !is_empty
    }

    /// Does the rest of a task whose standard output is the report alone, and appends the result for people.
    fn append(
        &mut self,
        environment: &EnvironmentFiles,
        task: &CheckTask,
        probes: Option<&Probes>,
        compiled: &Compiled,
        colour: Colour,
    ) {
        let mut more = Self {
            code: self.code,
            ..Self::default()
        };
        let format = Format::Human;
        if let CheckTask::Diff(old) = task {
            more.difference(old, environment, compiled, Style { format, colour });
        }
        if let Some(probes) = probes {
            connectivity::show(probes, format, &mut more);
        }
        self.err.push_str(&printable(&more.out));
        self.err.push_str(&more.err);
        self.code = more.code;
    }

    fn line(&mut self, object: &Value) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.out, "{object}");
    }

    /// Adds the changes that a reload from `old` would make, in the words of a reload.
    fn difference(
        &mut self,
        old: &Path,
        environment: &EnvironmentFiles,
        new: &Compiled,
        style: Style,
    ) {
        let old = match config::load_in(old, environment) {
            Ok(old) => old,
            Err(report) => {
                self.code = 1;
                self.report(&report, style);
                return;
            }
        };
        let changes = diff(&old.outline, &new.outline, &old.boot);
        if style.format == Format::Json {
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
                counted(many, "change")
            ),
        };
        for change in &changes {
            let _ = writeln!(self.out, "  {change}");
        }
    }
}

/// The meaning of the file, in numbers.
fn meaning(compiled: &Compiled) -> String {
    let outline = &compiled.outline;
    let all = outline.limits.iter();
    let limits = all.filter(|limit| limit.mode != Mode::Candidate);
    let mut limits: Vec<&str> = limits.map(|limit| &*limit.name).collect();
    // The rates of one limit are adjacent.
    limits.dedup();
    let mut text = format!(
        "{} is good: {}, {}, {}\n",
        compiled.source.name(),
        counted(outline.routes.len(), "route"),
        counted(outline.upstreams.len(), "upstream"),
        counted(limits.len(), "limit"),
    );
    let routed = routed_limits(compiled);
    let width = outline.limits.iter().map(|limit| limit.name.len()).max();
    let width = width.unwrap_or(0);
    for limit in &outline.limits {
        let means = compiled.hide(&describe::limit(limit, compiled.asks_redis()));
        let tiers = describe::tiers(limit);
        let tiers = tiers.iter().map(|tier| compiled.hide(tier));
        let lines = [means].into_iter().chain(leased(compiled, &routed, limit));
        let numbers = describe::customer_numbers(limit);
        for (at, line) in lines.chain(tiers).chain(numbers).enumerate() {
            let name = if at == 0 { &*limit.name } else { "" };
            // Writing into a string cannot fail.
            let _ = writeln!(text, "  {name:width$}  {line}");
        }
    }
    for group in &outline.groups {
        let members = match group.named() {
            Some(named) if named.is_open() => "customers by their verified values".to_owned(),
            Some(named) => counted(named.len(), "customer"),
            None => counted(group.len(), "member"),
        };
        let by = compiled.hide(&group.by.to_string());
        let _ = writeln!(text, "  group {}: {members} by {by}", group.name);
    }
    for one in &outline.upstreams {
        let means = describe::upstream::upstream(one);
        if !describe::upstream::is_plain(one) {
            let _ = writeln!(
                text,
                "  upstream {}: {}",
                one.upstream.name,
                compiled.hide(&means)
            );
        }
    }
    for line in identities::lines(compiled) {
        let _ = writeln!(text, "  {}", compiled.hide(&line));
    }
    if let Some(spread) = SlotSpread::of(compiled) {
        text.push_str(&spread.text());
    }
    for note in notes::list_notes(compiled) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The limits of routes.
type RoutedLimits = HashSet<LimitId>;

fn routed_limits(compiled: &Compiled) -> RoutedLimits {
    let services = compiled.snapshot.services.iter();
    let limits = services.flat_map(|service| &service.limits);
    limits.map(|limit| limit.id).collect()
}

/// The terms of the limit's leases: `leased while it is busy: a worker takes up to 50 permits ...`. `None` for a limit
/// that no route names.
fn leased(compiled: &Compiled, routed: &RoutedLimits, limit: &Limit) -> Option<String> {
    let terms = leases::terms(limit).filter(|_| compiled.asks_redis())?;
    routed
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
        let routed = routed_limits(compiled);
        let limits = compiled.outline.limits.iter().map(|limit| {
            let tiers = limit.tiers.iter().map(
                |tier| json!({ "group": &*tier.group.name, "means": compiled.hide(&describe::tier(&tier.limit)) }),
            );
            json!({
                "name": &*limit.name,
                "mode": limit.mode.as_str(),
                "means": compiled.hide(&describe::limit(limit, compiled.asks_redis())),
                "leased": leased(compiled, &routed, limit),
                "tiers": tiers.collect::<Vec<_>>(),
                "own": describe::customer_numbers(limit),
            })
        });
        let groups = compiled.outline.groups.iter().map(|group| {
            let by = compiled.hide(&group.by.to_string());
            json!({ "name": &*group.name, "by": by, "members": group.len() })
        });
        summary["groups"] = groups.collect();
        summary["identities"] = identities::identities_json(compiled);
        summary["listeners"] = identities::listeners_json(compiled);
        summary["routes"] = compiled.outline.routes.len().into();
        summary["upstreams"] = compiled.outline.upstreams.len().into();
        let servers = compiled.outline.upstreams.iter().map(|one| {
            let means = compiled.hide(&describe::upstream::upstream(one));
            json!({ "name": &*one.upstream.name, "means": means })
        });
        summary["servers"] = servers.collect();
        summary["limits"] = limits.collect();
        summary["note"] = notes::store(compiled).into();
        summary["cluster"] = SlotSpread::of(compiled).map(|spread| spread.json()).into();
        summary["scope_note"] = notes::scope(compiled).into();
        summary["notes"] = notes::of_limits(compiled).into();
        summary["shares"] = notes::shares::as_json(compiled);
    }
    summary
}
