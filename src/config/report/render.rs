//! A report for people (source line and caret) and for programs (one JSON object a line, SARIF, GitHub commands).

mod github;
mod sarif;

use super::Report;
use super::diagnostic::{Caret, Diagnostic, Severity};
use crate::config::input::{Excerpt, Source, Span};
use crate::telemetry::printable;
use annotate_snippets::{AnnotationKind, Level, Origin, Padding, Renderer, Snippet};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::IsTerminal;

/// The most diagnostics that are shown; further diagnostics are counted.
const MOST_SHOWN: usize = 100;

/// The most diagnostics in a report for programs.
const MOST_LISTED: usize = 1_000;

/// The longest part of the file that is shown; for a longer part only the place is named.
const MOST_BYTES: usize = 256 * 1024;

/// A second place further from the mistake than this many bytes is shown only by its line.
const FARTHEST: usize = 32 * 1024;

/// Whether a report is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Colour, for a terminal.
    On,
    /// No colour, for everything else.
    Off,
}

impl Colour {
    /// The choice for standard error: colour on a terminal, unless `NO_COLOR` is set to any value or the terminal is
    /// dumb.
    #[must_use]
    pub fn of_stderr() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        if std::io::stderr().is_terminal() && !refused {
            Self::On
        } else {
            Self::Off
        }
    }
}

impl Report {
    /// Every mistake with its line and caret, and the count at the end.
    #[must_use]
    pub fn human(&self, colour: Colour) -> String {
        let renderer = match colour {
            Colour::On => Renderer::styled(),
            Colour::Off => Renderer::plain(),
        };
        let mut out = String::new();
        let all = self.diagnostics.iter();
        let (ignored, shown): (Vec<_>, Vec<_>) =
            all.partition(|one| one.severity == Severity::Ignored);
        for diagnostic in shown.iter().take(MOST_SHOWN) {
            out.push_str(&snippet(&renderer, &self.source, diagnostic));
            out.push_str("\n\n");
        }
        // An ignored warning needs no action, so one line is enough.
        for diagnostic in ignored.iter().take(MOST_SHOWN) {
            out.push_str(&line(&self.source, diagnostic));
        }
        let more = shown.len().max(ignored.len());
        if let Some(more) = more.checked_sub(MOST_SHOWN + 1) {
            let _ = writeln!(out, "... and {} more\n", more + 1);
        }
        out.push_str(&printable(&self.summary()));
        out.push('\n');
        out
    }

    /// One JSON object a line for each mistake.
    #[must_use]
    pub fn json_lines(&self) -> String {
        let mut out = String::new();
        for diagnostic in self.diagnostics.iter().take(MOST_LISTED) {
            let _ = writeln!(out, "{}", object(&self.source, diagnostic));
        }
        out
    }
}

/// `ignored[waits-longer] gateway.toml:12: limit ...`
fn line(source: &Source, diagnostic: &Diagnostic) -> String {
    let (severity, code) = (diagnostic.severity.as_str(), diagnostic.code);
    let mut place = file_of(source, diagnostic);
    if let Some(start) = diagnostic.start() {
        let _ = write!(place, ":{}", source.position(start).line);
    }
    let message = printable(&diagnostic.message);
    format!("{severity}[{code}] {}: {message}\n", printable(&place))
}

/// The file that a diagnostic is about.
fn file_of(source: &Source, diagnostic: &Diagnostic) -> String {
    let start = diagnostic.start();
    start.map_or_else(|| source.name().to_owned(), |start| source.place(start))
}

fn snippet(renderer: &Renderer, source: &Source, diagnostic: &Diagnostic) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Ignored => Level::NOTE.with_name(Severity::Ignored.as_str()),
    };
    let mut group = level
        .primary_title(printable(&diagnostic.message).into_owned())
        .id(diagnostic.code.as_str())
        .elements(std::iter::empty::<annotate_snippets::Message<'_>>());
    if let Some(primary) = &diagnostic.primary {
        let close = |label: &&Caret| label.span.start.abs_diff(primary.span.start) <= FARTHEST;
        let here = |label: &&Caret| source.is_one_place(label.span.start, primary.span.start);
        let others = diagnostic.others.iter().filter(here).filter(close);
        let others: Vec<&Caret> = others.collect();
        let start = others.iter().map(|l| l.span.start).min();
        let end = others.iter().map(|l| l.span.end).max();
        let around = start.map_or(primary.span.start, |s| s.min(primary.span.start))
            ..end.map_or(primary.span.end, |e| e.max(primary.span.end));
        let (line, window) = source.lines_around(&around);
        if window.len() > MOST_BYTES {
            return bare(renderer, source, diagnostic, primary);
        }
        let excerpt = source.excerpt(&window);
        let mark = |kind: AnnotationKind, label: &Caret| {
            let annotation = kind.span(within(source, &label.span, &window, &excerpt));
            if label.text.is_empty() {
                annotation
            } else {
                annotation.label(printable(&label.text).into_owned())
            }
        };
        let mut shown = Snippet::source(excerpt.text.clone())
            .line_start(line)
            .path(printable(&source.place(primary.span.start)).into_owned())
            .annotation(mark(AnnotationKind::Primary, primary));
        for other in others {
            shown = shown.annotation(mark(AnnotationKind::Context, other));
        }
        group = group.element(shown);
        for other in diagnostic.others.iter().filter(|label| !here(label)) {
            group = group.element(elsewhere(source, other));
        }
    } else {
        group = group
            .element(Origin::path(printable(source.name()).into_owned()))
            .element(Padding);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(printable(help).into_owned()));
    }
    if let Some(note) = &diagnostic.note {
        group = group.element(Level::NOTE.message(printable(note).into_owned()));
    }
    let text = placed(source, diagnostic, renderer.render(&[group]));
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The rendered text, in which the places of a diagnostic's labels are places in their files.
fn placed(source: &Source, diagnostic: &Diagnostic, mut text: String) -> String {
    let Some(primary) = &diagnostic.primary else {
        return text;
    };
    let mut at = tell_place(source, primary, "--> ", 0, &mut text);
    let here = primary.span.start;
    for other in &diagnostic.others {
        if !source.is_one_place(other.span.start, here) {
            at = tell_place(source, other, "::: ", at, &mut text);
        }
    }
    text
}

/// Replaces the column in the excerpt that the renderer has written by the column in the file; the excerpt's stars have
/// the same length for every secret. Searches `text` after `from`, and returns the position of the place.
fn tell_place(
    source: &Source,
    label: &Caret,
    arrow: &str,
    from: usize,
    text: &mut String,
) -> usize {
    let position = source.shown_position(label.span.start);
    let place = source.place(label.span.start);
    let place = format!("{}:{}:", printable(&place), position.line);
    let behind = |what: &str, from: usize| Some(from + text[from..].find(what)? + what.len());
    let Some(column) = behind(arrow, from).and_then(|arrow| behind(&place, arrow)) else {
        return from;
    };
    let rest = text[column..].trim_start_matches(|one: char| one.is_ascii_digit());
    let digits = column..text.len() - rest.len();
    text.replace_range(digits, &position.column.to_string());
    column
}

/// The line of a label that is in another file or option than the mistake.
fn elsewhere<'a>(
    source: &'a Source,
    label: &'a Caret,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let (line, window) = source.lines_around(&label.span);
    let excerpt = if window.len() > MOST_BYTES {
        Excerpt::default()
    } else {
        source.excerpt(&window)
    };
    let annotation = AnnotationKind::Context.span(within(source, &label.span, &window, &excerpt));
    let shown = excerpt.text;
    let annotation = match (shown.is_empty(), label.text.is_empty()) {
        (true, _) => AnnotationKind::Context.span(0..0),
        (false, true) => annotation,
        (false, false) => annotation.label(printable(&label.text).into_owned()),
    };
    Snippet::source(shown)
        .line_start(line)
        .path(printable(&source.place(label.span.start)).into_owned())
        .annotation(annotation)
}

/// The place as numbers only.
fn bare(renderer: &Renderer, source: &Source, diagnostic: &Diagnostic, primary: &Caret) -> String {
    let position = source.shown_position(primary.span.start);
    let message = format!(
        "{} (line {}, column {})",
        diagnostic.message, position.line, position.column
    );
    let nowhere = Diagnostic {
        message,
        primary: None,
        ..diagnostic.clone()
    };
    snippet(renderer, source, &nowhere)
}

/// `span` relative to the start of `window`, on whole characters, and never across the end of a line: a caret marks one
/// line.
fn within(source: &Source, span: &Span, window: &Span, excerpt: &Excerpt) -> Span {
    let start = source.floor(span.start).clamp(window.start, window.end);
    let end = source.floor(span.end).clamp(start, window.end);
    let text = &source.text()[start..end];
    let line = text.find(['\n', '\r']).unwrap_or(text.len());
    excerpt.place(start - window.start)..excerpt.place(start + line - window.start)
}

/// A mistake without a line to show: its message, the words beside the caret, and the help.
fn sentences(diagnostic: &Diagnostic) -> String {
    let mut out = diagnostic.message.clone();
    let label = diagnostic.primary.as_ref().map(|primary| &primary.text);
    if let Some(label) = label.filter(|label| !label.is_empty()) {
        out.push_str(": ");
        out.push_str(label);
    }
    for (mark, text) in [("help", &diagnostic.help), ("note", &diagnostic.note)] {
        if let Some(text) = text {
            let _ = write!(out, "\n{mark}: {text}");
        }
    }
    printable(&out).into_owned()
}

fn object(source: &Source, diagnostic: &Diagnostic) -> Value {
    let here = diagnostic.start();
    let other = |label: &Caret| {
        let start = label.span.start;
        let mut other = place(source, label);
        if here.is_some_and(|here| !source.is_one_place(here, start)) {
            other.insert("file".into(), source.place(start).into());
        }
        Value::Object(other)
    };
    let others: Vec<Value> = diagnostic.others.iter().map(other).collect();
    let texts = [
        ("severity", Some(diagnostic.severity.as_str())),
        ("code", Some(diagnostic.code.as_str())),
        ("message", Some(diagnostic.message.as_str())),
        ("file", Some(&file_of(source, diagnostic))),
        ("help", diagnostic.help.as_deref()),
        ("note", diagnostic.note.as_deref()),
    ];
    let primary = diagnostic.primary.as_ref();
    let mut out = primary.map_or_else(Map::new, |primary| place(source, primary));
    out.extend(
        texts
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text?.into()))),
    );
    if !others.is_empty() {
        out.insert("others".into(), others.into());
    }
    Value::Object(out)
}

fn place(source: &Source, label: &Caret) -> Map<String, Value> {
    let (start, end) = (
        source.shown_position(label.span.start),
        source.shown_end(&label.span),
    );
    let numbers = [
        ("line", start.line),
        ("column", start.column),
        ("end_line", end.line),
        ("end_column", end.column),
    ];
    let numbers = numbers.map(|(key, number)| (key.to_owned(), number.into()));
    let mut out = Map::from_iter(numbers);
    if !label.text.is_empty() {
        out.insert("label".into(), label.text.as_str().into());
    }
    out
}
