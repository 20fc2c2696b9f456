//! The report on a file: its diagnostics in the order of the file, and the files that were read.
//!
//! In: diagnostics as they are found. Out: all diagnostics, as text, as JSON and in the forms of other programs.
//!
//! ```text
//! diagnostic     one mistake: its code, places and help
//! suggest        the nearest known name to a misspelt one, and words for lists and numbers
//! pages          the page of each diagnostic's code
//! render         the report as text and as JSON
//! render/github  the report beside the lines, on GitHub
//! render/sarif   the report for code scanning
//! ```

pub mod diagnostic;
pub mod pages;
pub mod render;
pub mod suggest;

pub(in crate::config) use diagnostic::{Caret, Code, Details, Diagnostic, Findings, Severity};
pub(in crate::config) use suggest::{all_of, counted, nearest, one_of};

use super::input::{Files, Source};
use std::sync::Arc;

/// The mistakes of one file.
#[derive(Debug, Clone)]
pub struct Report {
    /// The file.
    pub source: Arc<Source>,
    /// The mistakes, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The files that were read.
    pub files: Files,
}

impl Report {
    /// A report on `source`; the mistakes are sorted in the order of the file.
    #[must_use]
    pub fn new(source: Arc<Source>, mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by_key(|one| one.start().unwrap_or(usize::MAX));
        Self {
            source,
            diagnostics,
            files: Files::default(),
        }
    }

    /// The report with the files that were read.
    #[must_use]
    pub fn from_files(self, files: Files) -> Self {
        Self { files, ..self }
    }

    /// The mistakes in one line, if all errors are in other files than the main file.
    #[must_use]
    pub fn file_errors(&self) -> Option<String> {
        let errors = || {
            let all = self.diagnostics.iter();
            all.filter(|one| one.severity == Severity::Error)
        };
        // An unreadable main file has no place, or a place without a width.
        let named = |one: &Diagnostic| {
            let place = one.primary.as_ref();
            place.is_some_and(|label| !label.span.is_empty())
        };
        let is_in_side_file = |one: &Diagnostic| match one.code {
            Code::BadMember | Code::BadJwtKey => true,
            Code::Unreadable => named(one),
            _ => false,
        };
        let all = errors().next().is_some() && errors().all(is_in_side_file);
        all.then(|| {
            let messages: Vec<&str> = errors().map(|one| one.message.as_str()).collect();
            messages.join("; ")
        })
    }

    /// The number of errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// The number of warnings.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// The number of ignored warnings.
    #[must_use]
    pub fn ignored(&self) -> usize {
        self.count(Severity::Ignored)
    }

    /// `3 errors, 1 warning in gateway.toml`.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |number, word| (number > 0).then(|| counted(number, word));
        let parts = [
            count(self.errors(), "error"),
            count(self.warnings(), "warning"),
            count(self.ignored(), "ignored warning"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let found = match parts.as_slice() {
            [] => "nothing wrong".to_owned(),
            parts => parts.join(", "),
        };
        format!("{found} in {}", self.places())
    }

    /// The one file that contains the mistakes, or the number of files.
    fn places(&self) -> String {
        let source = &self.source;
        let starts = self.diagnostics.iter().filter_map(Diagnostic::start);
        let mut places: Vec<String> = starts.map(|start| source.place(start)).collect();
        places.sort();
        places.dedup();
        match (source.is_one_file(), places.as_slice()) {
            (false, [one]) => one.clone(),
            (false, [_, _, ..]) => format!("{} files", places.len()),
            _ => source.title(),
        }
    }

    fn count(&self, severity: Severity) -> usize {
        let all = self.diagnostics.iter();
        all.filter(|one| one.severity == severity).count()
    }
}
