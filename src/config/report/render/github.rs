//! A report as workflow commands: GitHub shows each mistake beside its line.

use super::MOST_LISTED;
use crate::config::input::Source;
use crate::config::report::Report;
use crate::config::report::diagnostic::{Diagnostic, Severity};
use std::fmt::Write as _;

impl Report {
    /// `::error file=gateway.toml,line=3,...::message` for each mistake, and the count at the end.
    #[must_use]
    pub fn github(&self) -> String {
        let mut out = String::new();
        for diagnostic in self.diagnostics.iter().take(MOST_LISTED) {
            command(&self.source, diagnostic, &mut out);
        }
        out.push_str(&data(&self.summary()));
        out.push('\n');
        out
    }
}

fn command(source: &Source, diagnostic: &Diagnostic, out: &mut String) {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Ignored => "notice",
    };
    let file = super::file_of(source, diagnostic);
    let _ = write!(out, "::{level} file={}", property(&file));
    if let Some(at) = &diagnostic.primary {
        let start = source.shown_position(at.span.start);
        let end = source.shown_end(&at.span);
        let _ = write!(out, ",line={},endLine={}", start.line, end.line);
        // Columns of a span over several lines have no meaning in GitHub.
        if start.line == end.line {
            let last = end.column.saturating_sub(1).max(start.column);
            let _ = write!(out, ",col={},endColumn={last}", start.column);
        }
    }
    let _ = writeln!(
        out,
        ",title={}::{}",
        property(diagnostic.code.as_str()),
        data(&super::sentences(diagnostic))
    );
}

/// The text after `::`, without line breaks, which would end the command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// The text after `=`.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    #[test]
    fn nothing_in_a_message_ends_its_command() {
        let text = "[limits.\"a,b:%\\n::error::\"]\nby = \"ip\"\n";
        let report = parse("a:b,c%.toml", text).unwrap_err();
        let out = report.github();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), report.diagnostics.len() + 1, "{out}");
        assert!(
            lines[0].starts_with("::error file=a%3Ab%2Cc%25.toml,line=1,endLine=1,col="),
            "{out}"
        );
        for line in &lines[..lines.len() - 1] {
            assert!(
                line.starts_with("::error file=") && !line.contains('\r'),
                "{line}"
            );
            assert_eq!(line.matches(",title=").count(), 1, "{line}");
        }
    }
}
