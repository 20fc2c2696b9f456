//! The text of a file with its name: places in the text, and the parts of the text that can be shown.

use super::environment::EnvironmentFiles;
use super::files::fence::{AllowedPaths, Fence, real};
use super::files::{FileContent, Files};
use super::grant::Grant;
use super::set::Set;
use crate::config::secrets::redaction;
use crate::telemetry::printable_in_place;
use std::collections::BTreeSet;
use std::env::VarError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub use super::span::{At, Span};

/// A line and a column as editors count them: from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPosition {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
}

/// The text of a file, followed by the texts of its included files and options, each on separate lines: one number is a
/// place in any of these texts.
#[derive(Debug, Clone)]
pub struct Source {
    text: String,
    /// The text with stars for credentials, byte for byte, so that spans fit both texts. The text with stars is made
    /// only when a part is shown.
    shown: OnceLock<String>,
    /// The places of the credentials.
    hidden: OnceLock<Vec<Span>>,
    /// The start of each line.
    lines: Vec<usize>,
    /// The parts of the text, the main file first.
    parts: Vec<SourcePart>,
    /// The folders of the source's files, without links.
    folders: OnceLock<Arc<BTreeSet<PathBuf>>>,
    /// The variables that its parts can use.
    environment: EnvironmentFiles,
    without_store: bool,
    torn: bool,
}

/// A part of the text from one file or one option.
#[derive(Debug, Clone)]
struct SourcePart {
    span: Span,
    /// The part's name in messages: the name of a file, or the option.
    name: String,
    /// The option that replaces a value of the file, if the part is an option.
    set: Option<Set>,
    /// The grant of an included file; the main file and options are not restricted.
    grant: Option<Arc<Grant>>,
}

/// A part of the text in the form in which messages show it.
#[derive(Debug, Default)]
pub(in crate::config) struct Excerpt {
    pub(in crate::config) text: String,
    /// The places that have stars, and the position of the stars.
    stars: Vec<(Span, usize)>,
}

/// The stars for a credential, however long it is.
const STARS: &str = "***";

impl Excerpt {
    /// The position of the byte `at` in the excerpt.
    pub(in crate::config) fn place(&self, at: usize) -> usize {
        let behind = self.stars.partition_point(|(of, _)| of.start <= at);
        let Some((of, start)) = behind.checked_sub(1).map(|last| &self.stars[last]) else {
            return at;
        };
        match at.checked_sub(of.end) {
            Some(behind) => start + STARS.len() + behind,
            None => start + (at - of.start).min(STARS.len()),
        }
    }
}

impl Source {
    /// A text with its name in messages. A leading byte order mark is dropped.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl AsRef<str>) -> Self {
        let mut source = Self {
            text: String::new(),
            shown: OnceLock::new(),
            hidden: OnceLock::new(),
            lines: vec![0],
            parts: Vec::new(),
            folders: OnceLock::new(),
            environment: EnvironmentFiles::default(),
            without_store: false,
            torn: false,
        };
        source.push(name.into(), text.as_ref(), None, None);
        source
    }

    /// A source with options that replace values of the file.
    #[must_use]
    pub fn with_sets(name: impl Into<String>, text: impl AsRef<str>, sets: &[Set]) -> Self {
        let mut source = Self::new(name, text);
        for set in sets {
            let name = format!("--set {}", set.key());
            source.push(name, set.text(), Some(set.clone()), None);
        }
        source
    }

    /// The source with the variables of `environment`.
    #[must_use]
    pub fn in_environment(mut self, environment: &EnvironmentFiles) -> Self {
        self.environment.clone_from(environment);
        self
    }

    /// The value of a variable.
    pub(in crate::config) fn variable(&self, name: &str) -> Result<String, VarError> {
        self.environment.variable(name)
    }

    /// Appends another file, under `grant`.
    pub(in crate::config) fn include(&mut self, name: String, text: &str, grant: Arc<Grant>) {
        self.push(name, text, None, Some(grant));
    }

    fn push(&mut self, name: String, text: &str, set: Option<Set>, grant: Option<Arc<Grant>>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if !self.parts.is_empty() {
            self.text.push('\n');
            self.lines.push(self.text.len());
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.shown = OnceLock::new();
        self.hidden = OnceLock::new();
        self.folders = OnceLock::new();
        let breaks = text.match_indices('\n');
        self.lines.extend(breaks.map(|(at, _)| start + at + 1));
        self.parts.push(SourcePart {
            span: start..self.text.len(),
            name,
            set,
            grant,
        });
    }

    /// The source without its `[store]`.
    #[must_use]
    pub fn without_store(mut self) -> Self {
        self.without_store = true;
        self
    }

    /// Is `[store]` left out of the source?
    #[must_use]
    pub fn is_without_store(&self) -> bool {
        self.without_store
    }

    /// Notes that a file of the source could not be included.
    pub(in crate::config) fn tear(&mut self) {
        self.torn = true;
    }

    /// Has a file of the source not been included?
    pub(in crate::config) fn is_torn(&self) -> bool {
        self.torn
    }

    /// The options that replace values of the file, each with its place.
    pub(in crate::config) fn sets(&self) -> impl Iterator<Item = (usize, &Set)> {
        let parts = self.parts.iter();
        parts.filter_map(|part| Some((part.span.start, part.set.as_ref()?)))
    }

    /// The file alone.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.text[self.parts[0].span.clone()]
    }

    /// The included files, and the place where each begins.
    pub(in crate::config) fn included(&self) -> impl Iterator<Item = (usize, &str)> {
        let others = self.parts.iter().skip(1);
        let files = others.filter(|part| part.set.is_none());
        files.map(|part| (part.span.start, &self.text[part.span.clone()]))
    }

    /// Does the source have one file only?
    pub(in crate::config) fn is_one_file(&self) -> bool {
        self.included().next().is_none()
    }

    /// The name of a byte's origin in messages: the file, or the option as given.
    #[must_use]
    pub fn place(&self, offset: usize) -> String {
        self.part(offset).name.clone()
    }

    /// A path that is written at a byte; a relative path starts in the folder of the file that contains the byte.
    #[must_use]
    pub fn resolve_path(&self, offset: usize, path: &str) -> PathBuf {
        self.folder(self.part(offset)).join(path)
    }

    fn folder<'p>(&'p self, part: &'p SourcePart) -> &'p Path {
        let name = match part.set {
            None => &part.name,
            Some(_) => self.name(),
        };
        Path::new(name).parent().unwrap_or(Path::new(""))
    }

    /// Reads the file that is named at a byte, up to `most` bytes, if the file that names it is allowed to read it.
    ///
    /// # Errors
    /// If the file cannot be read: the reason.
    pub fn read(
        &self,
        offset: usize,
        path: &str,
        most: u64,
        content: FileContent,
        files: &mut Files,
    ) -> io::Result<Vec<u8>> {
        let fence = self.fence(offset);
        let path = self.resolve_path(offset, path);
        files.read_within(fence.as_ref(), &path, most, content)
    }

    /// The grant of the file that contains a byte; `None` if the file is not restricted.
    pub(in crate::config) fn grant(&self, offset: usize) -> Option<&Grant> {
        self.part(offset).grant.as_deref()
    }

    /// The grants of the included files, each entry once.
    pub(in crate::config) fn grants(&self) -> impl Iterator<Item = &Grant> {
        let mut seen = BTreeSet::new();
        let all = self.parts.iter().filter_map(|part| part.grant.as_deref());
        all.filter(move |grant| seen.insert(grant.span.start))
    }

    /// The fence of the file that contains a byte; `None` if the file can read all files.
    pub(in crate::config) fn fence(&self, offset: usize) -> Option<Fence> {
        let grant = self.grant(offset)?;
        self.fence_with(offset, &grant.secrets)
    }

    /// The fence of sockets on which servers in the file of a byte can listen; `None` if sockets can be anywhere.
    pub(in crate::config) fn socket_fence(&self, offset: usize) -> Option<Fence> {
        let grant = self.grant(offset)?;
        self.fence_with(offset, &grant.sockets)
    }

    /// The fence of an included file, which is granted `allowed`.
    fn fence_with(&self, offset: usize, allowed: &[AllowedPaths]) -> Option<Fence> {
        let part = self.part(offset);
        part.grant.as_ref()?;
        let taken = self.folders.get_or_init(|| {
            let folders: BTreeSet<&Path> =
                self.parts.iter().map(|part| self.folder(part)).collect();
            Arc::new(folders.into_iter().map(real).collect())
        });
        Some(Fence::around(
            real(self.folder(part)),
            &real(self.folder(&self.parts[0])),
            Arc::clone(taken),
            allowed.to_vec(),
        ))
    }

    /// Are two bytes in the same file or the same option?
    #[must_use]
    pub fn is_one_place(&self, one: usize, other: usize) -> bool {
        self.part(one).span == self.part(other).span
    }

    /// The start of the file or option that contains a byte; the start identifies the file.
    pub(in crate::config) fn start(&self, offset: usize) -> usize {
        self.part(offset).span.start
    }

    /// The end of the file or option that contains a byte.
    pub(in crate::config) fn end(&self, offset: usize) -> usize {
        self.part(offset).span.end
    }

    fn part(&self, offset: usize) -> &SourcePart {
        let after = self.parts.partition_point(|part| part.span.start <= offset);
        &self.parts[after.saturating_sub(1)]
    }

    /// The source's name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts[0].name
    }

    /// The source's name after a count of its mistakes.
    #[must_use]
    pub fn title(&self) -> String {
        match self.sets().next() {
            None => self.name().to_owned(),
            Some(_) => format!("{} with --set", self.name()),
        }
    }

    /// The text itself. The text may contain secrets: messages use [`Source::shown`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text at `span`.
    pub(in crate::config) fn written(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The text in a form that messages can show.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.shown.get_or_init(|| {
            let part = |part: &SourcePart| {
                let text = &self.text[part.span.clone()];
                // A carriage return at the end of a line is not shown as a control character.
                printable_in_place(redaction::starred(text).replace("\r\n", " \n"))
            };
            let parts: Vec<String> = self.parts.iter().map(part).collect();
            parts.join("\n")
        })
    }

    /// The places of credentials in the text, in order.
    fn hidden(&self) -> &[Span] {
        self.hidden.get_or_init(|| {
            let each = self.parts.iter().flat_map(|part| {
                let found = redaction::hidden(&self.text[part.span.clone()]).into_iter();
                found.map(move |one| part.span.start + one.start..part.span.start + one.end)
            });
            each.collect()
        })
    }

    /// The text at `window` in the form that messages show: three stars for each credential.
    pub(in crate::config) fn excerpt(&self, window: &Span) -> Excerpt {
        let shown = &self.shown()[window.clone()];
        let first = self.hidden().partition_point(|one| one.end <= window.start);
        let mut excerpt = Excerpt::default();
        let mut kept = 0;
        for one in &self.hidden()[first..] {
            if one.start >= window.end {
                break;
            }
            let end = one.end.min(window.end) - window.start;
            let mut at = one.start.saturating_sub(window.start);
            // Line breaks stay.
            for stars in shown[at..end].split('\n') {
                if !stars.is_empty() {
                    excerpt.text.push_str(&shown[kept..at]);
                    kept = at + stars.len();
                    excerpt.stars.push((at..kept, excerpt.text.len()));
                    excerpt.text.push_str(STARS);
                }
                at += stars.len() + 1;
            }
        }
        excerpt.text.push_str(&shown[kept..]);
        excerpt
    }

    /// Line and column of a byte as messages show them: for a byte after a credential on the same line, the place of
    /// that credential, since the column would reveal the credential's length.
    pub(in crate::config) fn shown_position(&self, offset: usize) -> TextPosition {
        self.position(self.shown_place(offset))
    }

    /// Line and column of the end of `span`, shown in the same way.
    pub(in crate::config) fn shown_end(&self, span: &Span) -> TextPosition {
        let first = self.hidden().partition_point(|one| one.end <= span.start);
        let hidden = self.hidden().get(first);
        let hidden = hidden.filter(|one| one.start < span.end);
        let end = hidden.map_or(span.end, |one| one.start.max(span.start));
        self.shown_position(end)
    }

    /// The byte at `offset`, or the first credential before it on the same line.
    fn shown_place(&self, offset: usize) -> usize {
        let part = self.part(offset);
        let line = match part.set {
            Some(_) => part.span.start,
            None => self.lines[self.line(self.floor(offset))],
        };
        let first = self.hidden().partition_point(|one| one.end <= line);
        let hidden = self.hidden().get(first);
        let hidden = hidden.filter(|one| one.start < offset);
        hidden.map_or(offset, |one| one.start.max(line))
    }

    /// Line and column of a byte.
    #[must_use]
    pub fn position(&self, offset: usize) -> TextPosition {
        let offset = self.floor(offset);
        let part = self.part(offset);
        if part.set.is_some() {
            return TextPosition {
                line: 1,
                column: self.text[part.span.start..offset].chars().count() + 1,
            };
        }
        let line = self.line(offset);
        TextPosition {
            line: line - self.line(part.span.start) + 1,
            column: self.text[self.lines[line]..offset].chars().count() + 1,
        }
    }

    /// The number of a byte's line in the whole text, counted from 0.
    fn line(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|start| *start <= offset);
        after.saturating_sub(1)
    }

    /// The whole lines that `span` touches: the number of the first line, and the bytes from its start to the end of
    /// the last line.
    #[must_use]
    pub fn lines_around(&self, span: &Span) -> (usize, Span) {
        let part = self.part(span.start);
        if part.set.is_some() {
            return (1, part.span.clone());
        }
        let first = self.line(self.floor(span.start));
        let last = self.line(self.floor(span.end.clamp(span.start, part.span.end)));
        let end = self
            .lines
            .get(last + 1)
            .map_or(self.text.len(), |start| start - 1);
        let number = first - self.line(part.span.start) + 1;
        (number, self.lines[first]..end.min(part.span.end))
    }

    /// The nearest character boundary at or before `offset`.
    #[must_use]
    pub fn floor(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_as_editors_count() {
        let source = Source::new("x", "\u{feff}ab\né = 1\r\n");
        let at = |offset| {
            let position = source.position(offset);
            (position.line, position.column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(2), (1, 3));
        assert_eq!(at(3), (2, 1));
        assert_eq!(at(5), (2, 2));
        assert_eq!(at(4), (2, 1), "inside a character: its beginning");
        assert_eq!(at(999), (3, 1));
    }

    #[test]
    fn included_files_have_lines_of_their_own() {
        let mut source = Source::new("etc/x", "a\nb");
        let nothing = Arc::new(Grant::default());
        source.include("etc/d/y".into(), "\u{feff}\nc\n", Arc::clone(&nothing));
        source.include("z".into(), "password = 1", nothing);
        let at = |offset: usize| {
            let position = source.position(offset);
            let (line, window) = source.lines_around(&(offset..offset));
            assert_eq!(line, position.line);
            let window = source.text()[window].to_owned();
            (source.place(offset), position.line, window)
        };
        assert_eq!(at(2), ("etc/x".into(), 2, "b".into()));
        assert_eq!(at(3), ("etc/x".into(), 2, "b".into()));
        assert_eq!(at(4), ("etc/d/y".into(), 1, String::new()));
        assert_eq!(at(5), ("etc/d/y".into(), 2, "c".into()));
        assert_eq!(at(8), ("z".into(), 1, "password = 1".into()));
        assert_eq!(source.shown(), "a\nb\n\nc\n\npassword = *");
        assert_eq!(source.resolve_path(5, "k"), Path::new("etc/d/k"));
        assert_eq!(source.resolve_path(5, "/k"), Path::new("/k"));
        assert!(source.is_one_place(0, 3) && !source.is_one_place(3, 4));
    }
}
