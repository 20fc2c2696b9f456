//! The forms that values have: how each is read, and what messages, the reference and the schema say that a key takes.

use super::super::source::At;
use super::super::value::{ValueError, byte_rate};
use super::super::vocabulary::{Emptiness, Table, ValueShape};
use super::fields::{Fields, Zero, number};
use super::words::Words;
use super::{Items, Setting};
use std::time::Duration;
use toml::de::DeValue;

/// How the value of a key is read, and what it is.
pub(super) trait Form<T> {
    /// What it takes.
    fn shape(&self) -> ValueShape;

    /// Reads `key`; what is wrong with it is noted.
    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T>;
}

/// A table that has been read.
pub(super) trait Section: Sized {
    /// What is known about it.
    const TABLE: &'static Table;

    /// Reads every key.
    fn read(fields: &mut Fields<'_>) -> Self;

    /// Is a key a mistake that has been reported, or a required one absent?
    fn is_bad(&self) -> bool;
}

/// How a text is read.
pub(super) type TextReader<T> = fn(&str) -> Result<T, ValueError>;

/// A text.
pub(super) struct PlainText<T>(pub(super) TextReader<T>);

/// A text of this shape.
pub(super) struct TextAs<T>(pub(super) ValueShape, pub(super) TextReader<T>);

/// A text or a list of them.
pub(super) struct Texts<T>(pub(super) TextReader<T>);

/// Texts of this shape.
pub(super) struct TextsAs<T>(pub(super) ValueShape, pub(super) TextReader<T>);

/// A text or a list of them, of which an empty one would mean nothing at all, or everything. Neither is guessed: it is
/// reported.
pub(super) struct FilledTexts<T>(pub(super) TextReader<T>, pub(super) Emptiness);

/// The report on an empty list, with this help.
pub(super) const fn empty_list(help: &'static str) -> Emptiness {
    Emptiness {
        message: "is an empty list",
        label: "at least one entry",
        help,
    }
}

/// One of the words of a type.
pub(super) struct Word;

/// One of the words of a type, or a list of them.
pub(super) struct WordList;

/// Yes or no.
pub(super) struct Flag;

/// A whole number, from and to.
pub(super) struct Whole(pub(super) u32, pub(super) u32);

/// A whole number from 1.
pub(super) const COUNT: Whole = Whole(1, u32::MAX);

/// A time.
pub(super) struct Time(pub(super) Zero);

/// Bytes in a second, or a bare 0.
pub(super) struct ByteRate;

/// A table, and what is made of it.
pub(super) struct InnerTable<R, T>(pub(super) fn(R, &mut Fields<'_>) -> Option<T>);

/// A shape with a reader of its own.
pub(super) struct Custom<T>(
    pub(super) ValueShape,
    pub(super) fn(&'static str, &mut Fields<'_>) -> Setting<T>,
);

impl<T> Form<T> for PlainText<T> {
    fn shape(&self) -> ValueShape {
        ValueShape::Text
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        fields.text(key, self.0)
    }
}

impl<T> Form<T> for TextAs<T> {
    fn shape(&self) -> ValueShape {
        self.0
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        fields.text(key, self.1)
    }
}

impl<T> Form<Items<T>> for Texts<T> {
    fn shape(&self) -> ValueShape {
        ValueShape::Texts
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<Items<T>> {
        fields.texts(key, self.0)
    }
}

impl<T> Form<Items<T>> for TextsAs<T> {
    fn shape(&self) -> ValueShape {
        self.0
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<Items<T>> {
        fields.texts(key, self.1)
    }
}

impl<T> Form<Items<T>> for FilledTexts<T> {
    fn shape(&self) -> ValueShape {
        ValueShape::Texts
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<Items<T>> {
        let list = fields.texts(key, self.0);
        fields.filled(key, list, &self.1)
    }
}

impl<T: Words> Form<T> for Word {
    fn shape(&self) -> ValueShape {
        ValueShape::Choice(T::WORDS)
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        fields.choice(key)
    }
}

impl<T: Words> Form<Items<T>> for WordList {
    fn shape(&self) -> ValueShape {
        ValueShape::Choices(T::WORDS)
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<Items<T>> {
        let read = |text: &str| T::of(text).ok_or_else(|| ValueError::choice(key, text, T::WORDS));
        fields.texts(key, read)
    }
}

impl Form<bool> for Flag {
    fn shape(&self) -> ValueShape {
        ValueShape::Flag
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<bool> {
        fields.typed(key, DeValue::as_bool)
    }
}

impl Form<u32> for Whole {
    fn shape(&self) -> ValueShape {
        ValueShape::Whole {
            least: self.0,
            most: self.1,
        }
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<u32> {
        fields.whole(key, self.0..=self.1)
    }
}

impl Form<Duration> for Time {
    fn shape(&self) -> ValueShape {
        ValueShape::Duration
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<Duration> {
        fields.time(key, self.0)
    }
}

impl Form<u64> for ByteRate {
    fn shape(&self) -> ValueShape {
        ValueShape::ByteRate
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<u64> {
        let text = fields.typed(key, |value| match value {
            DeValue::String(text) => Some(text.clone()),
            DeValue::Integer(_) => Some(number(value).into()),
            _ => None,
        });
        text.and_then(|text, span| fields.take(byte_rate(&text), span))
    }
}

impl<R: Section, T> Form<T> for InnerTable<R, T> {
    fn shape(&self) -> ValueShape {
        ValueShape::Inner(R::TABLE)
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        let table = fields.typed(key, DeValue::as_table);
        table.and_then(|table, span| {
            let name = At::new(key.to_owned(), span.clone());
            fields.inner(R::TABLE, key, name, table, |inner| {
                if table.is_empty() && R::TABLE.empty.is_some() {
                    inner.note_empty();
                    return None;
                }
                let read = R::read(inner);
                (self.0)(read, inner)
            })
        })
    }
}

impl<T> Form<T> for Custom<T> {
    fn shape(&self) -> ValueShape {
        self.0
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        (self.1)(key, fields)
    }
}

/// A table that is taken as it is written, if nothing in it is a mistake.
pub(super) fn whole<R: Section>(read: R, _: &mut Fields<'_>) -> Option<R> {
    (!read.is_bad()).then_some(read)
}

/// A table as it is written, with the mistakes in it.
#[expect(
    clippy::unnecessary_wraps,
    reason = "made of a table as other values are"
)]
pub(super) fn as_written<R>(read: R, _: &mut Fields<'_>) -> Option<R> {
    Some(read)
}

/// Any text.
#[expect(clippy::unnecessary_wraps, reason = "read as other texts are")]
pub(super) fn any(text: &str) -> Result<String, ValueError> {
    Ok(text.to_owned())
}
