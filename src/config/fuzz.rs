//! The entry point for a fuzzer: any bytes are read as a file. The fuzz target is in `fuzz/`; `tests/fuzzing` calls the
//! entry point with its own mutations.

use super::input::Source;
use super::report::render::Colour;
use super::{Files, compile, decode_text};

/// A name in a folder that does not exist, so that no file named in `bytes` exists.
const NAME: &str = "/nonexistent/gateway.toml";

/// Reads `bytes` as a file and renders the report in every form. Is the file valid?
///
/// # Panics
/// If a refused file has no error, or two readings of a file differ.
pub fn file(bytes: &[u8]) -> bool {
    // Patterns could search the whole machine.
    if bytes.windows(7).any(|window| window == b"include") {
        return false;
    }
    let read = || {
        let text = decode_text(NAME, bytes.to_vec())?;
        compile(Source::new(NAME, text), Files::default(), None)
    };
    let (taken, report) = match read() {
        Ok(compiled) => (true, compiled.report()),
        Err(report) => (false, report),
    };
    assert!(taken || report.errors() > 0, "not taken, and no word why");
    let shown = report.human(Colour::Off);
    for form in [report.json_lines(), report.sarif(), report.github()] {
        assert!(!form.is_empty() || report.diagnostics.is_empty());
    }
    let second = match read() {
        Ok(compiled) => compiled.report(),
        Err(report) => report,
    };
    assert_eq!(second.human(Colour::Off), shown, "two readings differ");
    taken
}

#[cfg(test)]
mod tests;
