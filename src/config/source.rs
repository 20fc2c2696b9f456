//! A text with its name: where in it something stands, and how much of it may be shown.

use super::set::Set;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A stretch of the text, in bytes.
pub type Span = Range<usize>;

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub span: Span,
}

impl<T> At<T> {
    /// `value`, written at `span`.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }

    /// The same place, another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            value: change(self.value),
            span: self.span,
        }
    }
}

/// A line and a column as editors count them: from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
}

/// The text of a file.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: String,
    /// The text with what looks like a credential starred out, byte for byte: spans fit both.
    shown: String,
    /// Where each line begins.
    lines: Vec<usize>,
    /// What was given beside the file, and where in the text it stands: behind the file, each on a line of its own.
    sets: Vec<(usize, Set)>,
    without_store: bool,
}

impl Source {
    /// A text and the name that messages give it. A byte order mark in front is dropped.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self {
            name: name.into(),
            // A return at the end of a line is no mark that anybody wants to see.
            shown: super::redact::starred(&text).replace("\r\n", " \n"),
            text,
            lines,
            sets: Vec::new(),
            without_store: false,
        }
    }

    /// The same with values that replace what the file says.
    #[must_use]
    pub fn with_sets(name: impl Into<String>, text: impl Into<String>, sets: &[Set]) -> Self {
        let mut text: String = text.into();
        let mark = if text.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8()
        } else {
            0
        };
        let mut placed = Vec::new();
        for set in sets {
            text.push('\n');
            placed.push((text.len() - mark, set.clone()));
            text.push_str(set.text());
        }
        Self {
            sets: placed,
            ..Self::new(name, text)
        }
    }

    /// The same, but its `[store]` is not looked at.
    #[must_use]
    pub fn without_store(mut self) -> Self {
        self.without_store = true;
        self
    }

    /// Is its `[store]` not to be looked at?
    #[must_use]
    pub fn is_without_store(&self) -> bool {
        self.without_store
    }

    /// What replaces values of the file, and where it stands.
    pub(super) fn sets(&self) -> impl Iterator<Item = (usize, &Set)> {
        self.sets.iter().map(|(start, set)| (*start, set))
    }

    /// The file alone.
    #[must_use]
    pub fn file(&self) -> &str {
        match self.sets.first() {
            Some((start, _)) => &self.text[..start - 1],
            None => &self.text,
        }
    }

    /// What messages call the place of a byte: the file, or the option that was given.
    #[must_use]
    pub fn place(&self, offset: usize) -> String {
        match self.set_at(offset) {
            Some((_, set)) => format!("--set {}", set.key()),
            None => self.name.clone(),
        }
    }

    /// A path that is written at a byte: a relative one begins in the folder of its file.
    #[must_use]
    pub fn beside(&self, _offset: usize, path: &str) -> PathBuf {
        let folder = Path::new(&self.name).parent();
        folder.unwrap_or(Path::new("")).join(path)
    }

    /// Do two bytes stand in one file, or in one option?
    #[must_use]
    pub fn is_one_place(&self, one: usize, other: usize) -> bool {
        self.set_at(one).map(|(start, _)| *start) == self.set_at(other).map(|(start, _)| *start)
    }

    fn set_at(&self, offset: usize) -> Option<&(usize, Set)> {
        self.sets.iter().rfind(|(start, _)| *start <= offset)
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a count of its mistakes calls it.
    #[must_use]
    pub fn title(&self) -> String {
        match self.sets.is_empty() {
            true => self.name.clone(),
            false => format!("{} with --set", self.name),
        }
    }

    /// The text itself. It may hold secrets: show [`Source::shown`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as messages may show it.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Line and column of a byte.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.floor(offset);
        if let Some((start, _)) = self.set_at(offset) {
            return Position {
                line: 1,
                column: self.text[*start..offset].chars().count() + 1,
            };
        }
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines[line.saturating_sub(1)];
        Position {
            line,
            column: self.text[start..offset].chars().count() + 1,
        }
    }

    /// The whole lines that `span` touches: the first one's number and the bytes from its start to the end of the last.
    #[must_use]
    pub fn lines_around(&self, span: &Span) -> (usize, Span) {
        if let Some((start, set)) = self.set_at(span.start) {
            return (1, *start..start + set.text().len());
        }
        let first = self.position(span.start).line;
        let last = self.position(span.end.max(span.start)).line;
        let end = self
            .lines
            .get(last)
            .map_or(self.text.len(), |start| start - 1);
        (first, self.lines[first - 1]..end)
    }

    /// The nearest character boundary at or before `offset`.
    #[must_use]
    pub fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
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
}
