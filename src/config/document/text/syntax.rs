//! Errors of TOML: the parser's findings, without the echoes of one mistake.

use super::foreign_file;
use crate::config::document::ENOUGH;
use crate::config::input::Span;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use std::iter;
use toml::de::{DeTable, Error};

/// Notes the errors of the parser: only the first of neighbouring errors, and duplicates with both places. A file of
/// another program is one error. Returns the parts of the file that could not be read.
pub(in crate::config::document) fn report(
    text: &str,
    root: &DeTable<'_>,
    errors: &[Error],
    found: &mut Findings,
) -> Vec<Span> {
    if !errors.is_empty()
        && let Some(foreign) = foreign_file::find(text)
    {
        foreign.note(found);
        return iter::once(0..text.len() + 1).collect();
    }
    let mut errors: Vec<(Span, &str)> = errors
        .iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message()))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut torn = Vec::new();
    // Errors before this byte count as consequences of the previous error.
    let mut quiet = 0;
    for (span, message) in errors {
        if span.start < quiet {
            continue;
        }
        if found.len() > ENOUGH {
            break;
        }
        if message == "duplicate key" {
            quiet = duplicate(text, root, &span, found);
        } else {
            note_broken(text, &span, message, found);
            quiet = end_of_tear(text, &span);
            torn.push(line_at(text, span.start).0..quiet);
        }
    }
    torn
}

/// The part of the text that a mistake can affect: the line, if a key's value begins and ends on the line, else the
/// text up to the next table.
fn end_of_tear(text: &str, span: &Span) -> usize {
    let (start, line) = line_at(text, span.start);
    let spans_lines = |value: &str| {
        value.trim_start().starts_with(['[', '{'])
            || value.contains("\"\"\"")
            || value.contains("'''")
    };
    let joint = line
        .find(['=', ':'])
        .filter(|_| !line.trim_start().starts_with(['[', '{']));
    match joint {
        Some(joint) if !spans_lines(&line[joint + 1..]) => (start + line.len() + 1).max(span.end),
        _ => next_table(text, span.end),
    }
}

/// The line that holds the byte `at`, and the line's start.
fn line_at(text: &str, at: usize) -> (usize, &str) {
    let at = text.floor_char_boundary(at);
    // The place of an error may be the line break itself.
    let start = text[..at].rfind('\n').map_or(0, |before| before + 1);
    (start, text[start..].lines().next().unwrap_or_default())
}

/// The start of the next line that looks like a table header.
pub(in crate::config::document) fn next_table(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    match rest.find("\n[") {
        Some(at) => from + at + 1,
        None => text.len() + 1,
    }
}

fn note_broken(text: &str, span: &Span, message: &str, found: &mut Findings) {
    let (_, line) = line_at(text, span.start);
    let help = written_otherwise(line);
    let (what, expected) = match help {
        Some(UNQUOTED) => ("a text without quotes", ""),
        _ => message.split_once(", expected ").unwrap_or((message, "")),
    };
    let label = match expected {
        "" | "nothing" => String::new(),
        expected => format!("expected {expected}"),
    };
    let help = match what {
        _ if help.is_some() => help,
        "string values must be quoted" => Some(UNQUOTED),
        "unexpected key or value" => {
            Some("write each key on a line of its own, with nothing after its value")
        }
        what if what.contains("unclosed table") => Some("a table header ends with `]`"),
        what if what.contains("unclosed array") => Some("a list ends with `]`"),
        what if what.contains("between array elements") => Some(
            "entries are separated by commas, and a list ends with `]`: is the one above closed?",
        ),
        what if what.contains("basic string") => {
            Some("a text ends with the quote it began with, on the same line")
        }
        _ => None,
    };
    let end = span.end.min(text.len());
    found
        .error(Code::Syntax, format!("this is not TOML: {what}"))
        .at(&(span.start.min(end)..end), label)
        .help_if(help.map(str::to_owned));
}

const UNQUOTED: &str = "write a text in double quotes, as in `rate = \"10/s\"`";

/// The advice for JSON, YAML, other comments and texts without quotes.
fn written_otherwise(line: &str) -> Option<&'static str> {
    let line = line.trim();
    if line.starts_with("//") || line.starts_with("/*") || line.starts_with(';') {
        return Some("a comment begins with `#`");
    }
    if line.starts_with('[') && line.ends_with(']') && line.contains(' ') {
        return Some("names have no blanks: `[limits.per-ip]`");
    }
    if line.starts_with('{') {
        return Some(
            "this is no JSON: tables are written `[limits.NAME]`, and keys as `by = \"ip\"`",
        );
    }
    let key = line.find(|c: char| !c.is_ascii_alphanumeric() && !"_-.\"' ".contains(c))?;
    let (key, rest) = line.split_at(key);
    if key.is_empty() {
        return None;
    }
    if rest.starts_with(':') {
        return Some("tables are written `[limits.NAME]`, and keys as `by = \"ip\"`");
    }
    let value = rest.strip_prefix('=')?;
    if value.starts_with('=') {
        return Some("one `=` is enough");
    }
    if value
        .trim_start()
        .starts_with(['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}'])
    {
        return Some("these quotes are curly; straight ones are needed, as in `rate = \"10/s\"`");
    }
    let bare = value
        .trim_start()
        .starts_with(|c: char| c.is_alphanumeric() || c == '/' || c == ':');
    let known = ["true", "false", "inf", "nan"].contains(&value.trim());
    (bare && !known).then_some(UNQUOTED)
}

/// Notes a key or table that is written twice, and returns the end of the part in which the parser repeats the error.
fn duplicate(text: &str, root: &DeTable<'_>, span: &Span, found: &mut Findings) -> usize {
    let name = text.get(span.clone()).unwrap_or_default();
    let (start, line) = line_at(text, span.start);
    let is_header = line.trim_start().starts_with('[');
    let (what, shown, earlier, end) = if is_header {
        let earlier = earlier_header(text, start, line);
        let end = next_table(text, span.end);
        ("table", quoted(header_of(line)), earlier, end)
    } else {
        let earlier = earlier_key(root, name.trim_matches(['"', '\'']), span.start);
        ("key", quoted(name), earlier, span.end)
    };
    found
        .error(Code::Duplicate, format!("{what} {shown} is written twice"))
        .at(span, "the second time")
        .and_if(earlier.as_ref(), "the first time")
        .help("keep one of them");
    end
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

/// The nearest earlier key with this name. The parsed file keeps the first of two keys.
fn earlier_key(table: &DeTable<'_>, name: &str, before: usize) -> Option<Span> {
    let keys = table.iter().flat_map(|(key, value)| {
        let inner = value.get_ref().as_table();
        let inner = inner.and_then(|inner| earlier_key(inner, name, before));
        let is_here = key.get_ref() == name && key.span().start < before;
        inner.into_iter().chain(is_here.then(|| key.span()))
    });
    keys.max_by_key(|span| span.start)
}
