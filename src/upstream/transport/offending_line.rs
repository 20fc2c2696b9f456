//! The line for which an answer is refused, as shown in the log: escaped, and at most 128 bytes.

use crate::telemetry::excerpt;
use http::{HeaderName, HeaderValue};
use std::fmt;

/// The most bytes that are shown.
const MOST: usize = 128;

/// A line of an answer, or its beginning: printable ASCII unchanged, everything else as `\xNN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffendingLine(Box<str>);

/// The rule that finds the offending line of a head.
pub(super) enum Blame {
    /// The first line for which this is `true` when the head is cut after it.
    Unreadable(fn(&[u8]) -> bool),
    /// The first line.
    First,
    /// The first line with an invalid name or value.
    Field,
    /// The last line with this name.
    Named(&'static str),
    /// The longest line.
    Longest,
}

impl OffendingLine {
    /// The line in its shown form.
    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        Self(excerpt(line, MOST).into())
    }

    /// The offending line of a `head`.
    #[cold]
    pub(super) fn of_head(blame: &Blame, head: &[u8]) -> Self {
        let found = match blame {
            Blame::Unreadable(is_malformed) => Some(unreadable(head, *is_malformed)),
            Blame::First => None,
            Blame::Field => lines(head).skip(1).find(|line| !is_field(line)),
            Blame::Named(name) => {
                let is_it = |line: &&[u8]| name_of(line).eq_ignore_ascii_case(name.as_bytes());
                lines(head).filter(is_it).last()
            }
            Blame::Longest => lines(head).max_by_key(|line| line.len()),
        };
        Self::of(found.or_else(|| lines(head).next()).unwrap_or_default())
    }

    /// Is there nothing to show?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for OffendingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The lines of a head, without their ends.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or_default()
}

fn is_field(line: &[u8]) -> bool {
    let value = line.get(name_of(line).len() + 1..).unwrap_or_default();
    line.is_empty()
        || (HeaderName::from_bytes(name_of(line)).is_ok()
            && HeaderValue::from_bytes(value.trim_ascii()).is_ok())
}

/// The first line that the parser refuses. The head is cut after a varying number of lines: a malformed beginning stays
/// malformed with any continuation, so that a binary search is possible.
fn unreadable(head: &[u8], is_malformed: fn(&[u8]) -> bool) -> &[u8] {
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', head).map(|at| at + 1).collect();
    let good = ends.partition_point(|end| !is_malformed(&head[..*end]));
    let start = good.checked_sub(1).map_or(0, |before| ends[before]);
    lines(&head[start..]).next().unwrap_or_default()
}
