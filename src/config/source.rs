//! A text with its name: where in it something stands, and how much of it may be shown.

use std::ops::Range;

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
            shown: super::redact::starred(&text),
            text,
            lines,
        }
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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
