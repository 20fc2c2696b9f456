//! The value of one key as written: absent, a mistake, or read, with its place.

use crate::config::input::{At, Span};

/// A key of a table as it is written in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::config) enum Setting<T> {
    /// The key is not written.
    #[default]
    Absent,
    /// The key is written with a mistake that has been reported.
    Invalid,
    /// A list without its mistaken entries.
    Partial(At<T>),
    /// The key is written, and its value has been read.
    Valid(At<T>),
}

impl<T> Setting<T> {
    /// The setting for a value that was read, or for a mistake.
    pub(super) fn of(value: Option<T>, span: Span) -> Self {
        value.map_or(Self::Invalid, |value| Self::Valid(At::new(value, span)))
    }

    /// Applies `read` to the value; `None` from `read` means a mistake that has been reported.
    pub(super) fn and_then<U>(self, read: impl FnOnce(T, &Span) -> Option<U>) -> Setting<U> {
        match self {
            Self::Absent => Setting::Absent,
            Self::Invalid | Self::Partial(_) => Setting::Invalid,
            Self::Valid(At { value, span }) => Setting::of(read(value, &span), span),
        }
    }

    /// The setting with another value.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<U> {
        match self {
            Self::Absent => Setting::Absent,
            Self::Invalid => Setting::Invalid,
            Self::Partial(at) => Setting::Partial(at.map(change)),
            Self::Valid(at) => Setting::Valid(at.map(change)),
        }
    }

    /// The part of the value that could be read.
    pub(in crate::config) fn written(&self) -> Option<&T> {
        match self {
            Self::Valid(at) | Self::Partial(at) => Some(&at.value),
            Self::Absent | Self::Invalid => None,
        }
    }

    /// The value with its place.
    pub(in crate::config) fn at(&self) -> Option<&At<T>> {
        match self {
            Self::Valid(at) => Some(at),
            Self::Absent | Self::Invalid | Self::Partial(_) => None,
        }
    }

    /// The value.
    pub(in crate::config) fn get(&self) -> Option<&T> {
        self.at().map(|at| &at.value)
    }

    /// The place of the value.
    pub(in crate::config) fn span(&self) -> Option<&Span> {
        self.at().map(|at| &at.span)
    }

    /// Is the setting a mistake that has been reported?
    pub(in crate::config) fn is_bad(&self) -> bool {
        matches!(self, Self::Invalid | Self::Partial(_))
    }

    /// Is the key not written?
    pub(in crate::config) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<T> Setting<Vec<T>> {
    /// A list that was written with `many` entries, of which these could be read.
    pub(super) fn list(entries: Vec<T>, many: usize, span: Span) -> Self {
        let is_whole = entries.len() == many;
        let entries = At::new(entries, span);
        if is_whole {
            Self::Valid(entries)
        } else {
            Self::Partial(entries)
        }
    }
}

impl<T: Copy> Setting<T> {
    /// The value, or `default` without one.
    pub(in crate::config) fn or(&self, default: T) -> T {
        self.get().copied().unwrap_or(default)
    }
}

impl<T: Clone> Setting<T> {
    /// This setting, or `other` if this one is not written.
    pub(in crate::config) fn or_else(&self, other: &Self) -> Self {
        if self.is_absent() { other } else { self }.clone()
    }
}

/// Names or values, each with its place.
pub(in crate::config) type Items<T> = Vec<At<T>>;

/// A list of names or values; it is empty if none is written.
pub(in crate::config) type List<T> = Setting<Items<T>>;

impl<T: Clone> List<T> {
    /// The values of the entries.
    pub(in crate::config) fn values<C: FromIterator<T>>(&self) -> C {
        self.entries().iter().map(|at| at.value.clone()).collect()
    }
}

impl<T> List<T> {
    /// The entries of the list that could be read.
    pub(in crate::config) fn entries(&self) -> &[At<T>] {
        self.written().map_or(&[], Vec::as_slice)
    }
}
