//! The line for which an answer is refused, as the log shows it: escaped, and 128 bytes at most.

use crate::telemetry::excerpt;
use http::{HeaderName, HeaderValue};
use std::fmt;

/// The most bytes that are shown.
const MOST: usize = 128;

/// A line of an answer, or its beginning: printable ASCII, everything else as `\xNN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffendingLine(Box<str>);

/// What tells the line of a head that is to blame.
pub(super) enum Blame {
    /// It is the first that is `true` here as the end of a head's beginning.
    Unreadable(fn(&[u8]) -> bool),
    /// It is the first line.
    First,
    /// It is the first whose name or value is not valid.
    Field,
    /// It is the last of this name.
    Named(&'static str),
    /// It is the longest.
    Longest,
}

impl OffendingLine {
    /// The line as it is shown.
    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        Self(excerpt(line, MOST).into())
    }

    /// The line of a `head` that is to blame.
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

/// The first line that the parser does not take. The head is cut behind more and more of its lines: what is malformed
/// stays so, however much follows, so that half of the lines can be left out each time.
fn unreadable(head: &[u8], is_malformed: fn(&[u8]) -> bool) -> &[u8] {
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', head).map(|at| at + 1).collect();
    let good = ends.partition_point(|end| !is_malformed(&head[..*end]));
    let start = good.checked_sub(1).map_or(0, |before| ends[before]);
    lines(&head[start..]).next().unwrap_or_default()
}
