//! The grant of an entry of `include` to the files that it takes in. An included file belongs to a team, not to the operator: it
//! reads, drops and claims only what its entry grants, and a message shows the entry that would grant more.

use super::diagnostic::{Code, Diagnostic};
use super::files::fence::{self, AllowedPaths};
use super::files::glob;
use super::source::{At, Source, Span};
use super::value::quoted;
use crate::route::{HostPattern, PathPattern};
use std::path::Path;

/// The grant of one entry. An entry that is a plain text grants nothing and bounds nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Grant {
    /// The entry, in the main file.
    pub(super) span: Span,
    /// The keys of the entry and their values as written, in the order of the file.
    pub(super) written: Vec<(&'static str, Vec<String>)>,
    /// Hosts that its routes may be for; nothing is any.
    pub(super) hosts: Option<Vec<HostPattern>>,
    /// Paths that its routes may be for; nothing is any.
    pub(super) paths: Option<Vec<PathPattern>>,
    /// Files beyond their own folders that it may read.
    pub(super) secrets: Vec<AllowedPaths>,
    /// Patterns of the variables that it may read.
    pub(super) variables: Vec<String>,
    /// Patterns of the `[defaults]` limits that its routes may drop.
    pub(super) drops: Vec<At<String>>,
}

impl Grant {
    /// May the files read the variable of this name?
    pub(super) fn reads_variable(&self, name: &str) -> bool {
        let mut patterns = self.variables.iter();
        patterns.any(|pattern| glob::matches(pattern, name))
    }

    /// May the routes of the files drop the limit of this name?
    pub(super) fn drops(&self, name: &str) -> bool {
        let mut patterns = self.drops.iter();
        patterns.any(|pattern| glob::matches(&pattern.value, name))
    }

    /// Does the entry only name files?
    pub(super) fn is_plain(&self) -> bool {
        self.written.iter().all(|(key, _)| *key == "files")
    }

    /// The entry as it would have to be written for `value` to be granted under `key`.
    pub(super) fn with(&self, key: &'static str, value: &str) -> String {
        let value = format!("{:?}", value.replace('$', "$$"));
        let mut keys = self.written.clone();
        match keys.iter_mut().find(|(own, _)| *own == key) {
            Some((_, values)) => values.push(value),
            None => keys.push((key, vec![value])),
        }
        entry(&keys)
    }

    /// The entry without its bound on `key`.
    pub(super) fn without(&self, key: &str) -> String {
        let mut keys = self.written.clone();
        keys.retain(|(own, _)| *own != key);
        entry(&keys)
    }

    /// `diagnostic`, with the entry that would have to say `instead`.
    pub(super) fn shown(
        &self,
        diagnostic: Diagnostic,
        source: &Source,
        instead: &str,
    ) -> Diagnostic {
        diagnostic
            .and(&self.span, "the entry of `include` that it comes from")
            .help(self.help(source, instead))
    }

    /// The help that shows the entry to write.
    pub(super) fn help(&self, source: &Source, instead: &str) -> String {
        format!(
            "if it may, write in {}, in place of that entry: `{instead}`",
            source.name()
        )
    }
}

fn entry(keys: &[(&'static str, Vec<String>)]) -> String {
    let keys = keys.iter().map(|(key, values)| match values.as_slice() {
        [only] if *key == "files" => format!("{key} = {only}"),
        values => format!("{key} = [{}]", values.join(", ")),
    });
    let keys: Vec<String> = keys.collect();
    format!("{{ {} }}", keys.join(", "))
}

/// The error of an included file that names a file at `span` which it may not read.
pub(super) fn unread(source: &Source, span: &Span, path: &str) -> Option<Diagnostic> {
    let (grant, fence) = (source.grant(span.start)?, source.fence(span.start)?);
    let whole = source.beside(span.start, path);
    if fence.holds(&whole) {
        return None;
    }
    let message = format!(
        "{} may not read the file {}",
        source.place(span.start),
        quoted(path)
    );
    let refused = Diagnostic::error(Code::NotGranted, message)
        .at(span, "outside its own folder")
        .note(OWN_FOLDER);
    let instead = grant.with("secrets", &to_write(source, &whole));
    Some(grant.shown(refused, source, &instead))
}

const OWN_FOLDER: &str = "an included file's own folder is the one that it stands in, without those of other files; the folder of the main file belongs to no included file";

/// The path as the main file would write it.
fn to_write(source: &Source, path: &Path) -> String {
    let path = fence::to_allow(path);
    let folder = fence::real(Path::new(source.name()).parent().unwrap_or(Path::new("")));
    let short = path.strip_prefix(&folder).unwrap_or(&path);
    short.display().to_string()
}

/// The error of an included file that reads a variable at `span` which it may not read.
pub(super) fn unasked(source: &Source, span: &Span, name: &str) -> Option<Diagnostic> {
    let grant = source.grant(span.start)?;
    if grant.reads_variable(name) {
        return None;
    }
    let message = format!(
        "{} may not read the variable {}",
        source.place(span.start),
        quoted(name)
    );
    let refused = Diagnostic::error(Code::NotGranted, message).at(
        span,
        "an included file reads no variable that it is not granted",
    );
    Some(grant.shown(refused, source, &grant.with("variables", name)))
}
