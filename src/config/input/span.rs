//! Places in the text of a file: a span, a value with its span, and an index of spans.

#[cfg(test)]
use std::cell::Cell;
use std::ops::Range;

/// A stretch of the text, in bytes.
pub type Span = Range<usize>;

/// A value and its place in the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The place of the value.
    pub span: Span,
}

impl<T> At<T> {
    /// `value`, written at `span`.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }

    /// Another value at the same place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            value: change(self.value),
            span: self.span,
        }
    }
}

#[cfg(test)]
thread_local! {
    /// The number of spans that lookups have visited.
    pub(in crate::config) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

/// An index of spans by their start, each with a value.
///
/// Spans that meet another span are found without a visit to every span. So the time to read a file grows no faster
/// than the number of its tables.
#[derive(Debug)]
pub(in crate::config) struct Spans<T> {
    sorted: Vec<(Span, T)>,
    longest: usize,
}

impl<T> Spans<T> {
    pub(in crate::config) fn new(all: impl IntoIterator<Item = (Span, T)>) -> Self {
        let mut sorted: Vec<(Span, T)> = all.into_iter().collect();
        sorted.sort_by_key(|(span, _)| span.start);
        let longest = sorted.iter().map(|(span, _)| span.len()).max();
        Self {
            sorted,
            longest: longest.unwrap_or(0),
        }
    }

    /// Every span of the index.
    pub(in crate::config) fn all(&self) -> impl Iterator<Item = &(Span, T)> {
        self.sorted.iter()
    }

    /// The spans that may share a byte with `span`, or that begin at its start.
    pub(in crate::config) fn touching(&self, span: &Span) -> impl Iterator<Item = &(Span, T)> {
        let from = span.start.saturating_sub(self.longest);
        let first = self.sorted.partition_point(|(found, _)| found.start < from);
        let end = span.end.max(span.start + 1);
        let touching = self.sorted[first..].iter();
        touching.take_while(move |(found, _)| {
            #[cfg(test)]
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            found.start < end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meets_is_near_and_what_is_far_is_not_looked_at() {
        let spans = Spans::new((0..1000).map(|at| (at * 10..at * 10 + 5, at)));
        let touching = |span: Span| {
            spans
                .touching(&span)
                .map(|(_, at)| *at)
                .collect::<Vec<usize>>()
        };
        assert_eq!(touching(4..4), [0]);
        assert_eq!(touching(12..33), [1, 2, 3]);
        assert!(touching(20_000..20_001).is_empty());
        LOOKED_AT.set(0);
        touching(5_000..5_001);
        assert!(LOOKED_AT.get() <= 3, "{}", LOOKED_AT.get());
    }
}
