//! What is not TOML: the parser's findings, without the echoes that one slip makes.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{Source, Span};
use super::super::value::quoted;
use toml::de::{DeTable, DeValue, Error};

/// Notes what the parser found: of neighbouring errors the first, duplicates with both places. Says whether parts of
/// the file could not be read.
pub(super) fn report(
    source: &Source,
    root: &DeTable<'_>,
    errors: &[Error],
    found: &mut Vec<Diagnostic>,
) -> bool {
    let mut errors: Vec<(Span, &str)> = errors
        .iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message()))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut torn = false;
    // Up to where errors are taken for echoes of the one before.
    let mut quiet = 0;
    for (span, message) in errors {
        if span.start < quiet {
            continue;
        }
        if message == "duplicate key" {
            let (diagnostic, end) = duplicate(source, root, &span);
            found.push(diagnostic);
            quiet = end;
        } else {
            torn = true;
            found.push(broken(source, &span, message));
            quiet = next_table(source.text(), span.end);
        }
    }
    torn
}

/// The region a slip can confuse: to the next line that looks like a table header.
fn next_table(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    match rest.find("\n[") {
        Some(at) => from + at + 1,
        None => text.len() + 1,
    }
}

fn broken(source: &Source, span: &Span, message: &str) -> Diagnostic {
    // An error at the end of a line is shown there, not at the start of the next.
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let label = match expected {
        "" | "nothing" => String::new(),
        expected => format!("expected {expected}"),
    };
    let help = match what {
        "string values must be quoted" => Some("put the text between double quotes"),
        what if what.contains("unclosed table") => Some("a table header ends with `]`"),
        what if what.contains("unclosed array") => Some("a list ends with `]`"),
        what if what.contains("basic string") => {
            Some("a text ends with the quote it began with, on the same line")
        }
        _ => None,
    };
    let end = span.end.min(source.text().len());
    Diagnostic::error(Code::Syntax, format!("this is not TOML: {what}"))
        .at(&(span.start.min(end)..end), label)
        .help_if(help.map(str::to_owned))
}

/// A key or table that is written twice, and up to where the parser repeats itself about it.
fn duplicate(source: &Source, root: &DeTable<'_>, span: &Span) -> (Diagnostic, usize) {
    let text = source.text();
    let name = text.get(span.clone()).unwrap_or_default();
    let line_start = text[..source.floor(span.start)]
        .rfind('\n')
        .map_or(0, |at| at + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let header = line.trim_start().starts_with('[');
    let (earlier, end) = if header {
        (
            earlier_header(text, line_start, line),
            next_table(text, span.end),
        )
    } else {
        (
            earlier_key(root, name.trim_matches(['"', '\'']), span.start),
            span.end,
        )
    };
    let (what, shown) = if header {
        ("table", quoted(header_of(line)))
    } else {
        ("key", quoted(name))
    };
    let mut diagnostic =
        Diagnostic::error(Code::Duplicate, format!("{what} {shown} is written twice"))
            .at(span, "the second time");
    if let Some(first) = earlier {
        diagnostic = diagnostic.and(&first, "the first time");
    }
    (diagnostic.help("keep one of them"), end)
}

/// A header line without its comment.
fn header_of(line: &str) -> &str {
    let line = line.trim();
    line.find(']').map_or(line, |at| &line[..=at])
}

fn earlier_header(text: &str, before: usize, line: &str) -> Option<Span> {
    let bare = |line: &str| -> String {
        header_of(line)
            .chars()
            .filter(|c| !" \t\"'".contains(*c))
            .collect()
    };
    let wanted = bare(line);
    let mut start = 0;
    text[..before].split_inclusive('\n').find_map(|line| {
        let at = start;
        start += line.len();
        let indent = line.len() - line.trim_start().len();
        (line.trim_start().starts_with('[') && bare(line) == wanted)
            .then(|| at + indent..at + indent + header_of(line).len())
    })
}

/// The nearest key of that name above: in the parsed file the first of two is kept.
fn earlier_key(table: &DeTable<'_>, name: &str, before: usize) -> Option<Span> {
    let mut best: Option<Span> = None;
    for (key, value) in table {
        let inner = match value.get_ref() {
            DeValue::Table(inner) => earlier_key(inner, name, before),
            _ => None,
        };
        let here =
            (key.get_ref().as_ref() == name && key.span().start < before).then(|| key.span());
        for candidate in [inner, here].into_iter().flatten() {
            if best
                .as_ref()
                .is_none_or(|best| best.start < candidate.start)
            {
                best = Some(candidate);
            }
        }
    }
    best
}
