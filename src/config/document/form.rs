//! The forms of values: each form has a reader, and a shape for messages, the reference and the schema.

use super::fields::{Fields, Zero};
use super::vocabulary::{Emptiness, Table, ValueShape};
use super::words::Words;
use super::{Items, Setting, written_value};
use crate::config::input::{At, Span};
use crate::config::value::{ValueError, byte_rate, with_valid_offers};
use crate::limit::rate::MOST_UNITS;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// The reader of a key's value, and the shape of the value.
pub(super) trait Form<T> {
    /// The shape of the value.
    fn shape(&self) -> ValueShape;

    /// Reads `key` and notes its mistakes.
    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T>;
}

/// A table that has been read.
pub(super) trait Section: Sized {
    /// The declaration of the table.
    const TABLE: &'static Table;

    /// Reads every key.
    fn read(fields: &mut Fields<'_>) -> Self;

    /// Is a required key absent, or does any key have a mistake that has been reported?
    fn is_bad(&self) -> bool;
}

/// The function that reads a text.
pub(super) type TextReader<T> = fn(&str) -> Result<T, ValueError>;

/// A shape and its reader.
struct ShapedReader<R>(ValueShape, R);

impl<T, R: Fn(&'static str, &mut Fields<'_>) -> Setting<T>> Form<T> for ShapedReader<R> {
    fn shape(&self) -> ValueShape {
        self.0
    }

    fn read(&self, key: &'static str, fields: &mut Fields<'_>) -> Setting<T> {
        (self.1)(key, fields)
    }
}

/// A shape with a custom reader.
pub(super) fn custom<T>(
    shape: ValueShape,
    read: impl Fn(&'static str, &mut Fields<'_>) -> Setting<T>,
) -> impl Form<T> {
    ShapedReader(shape, read)
}

/// A text.
pub(super) fn text_form<T>(read: TextReader<T>) -> impl Form<T> {
    text_as(ValueShape::Text, read)
}

/// A text of this shape.
pub(super) fn text_as<T>(shape: ValueShape, read: TextReader<T>) -> impl Form<T> {
    custom(shape, move |key, fields| fields.text(key, read))
}

/// A text or a list of them.
pub(super) fn texts<T>(read: TextReader<T>) -> impl Form<Items<T>> {
    texts_as(ValueShape::Texts, read)
}

/// Texts of this shape.
pub(super) fn texts_as<T>(shape: ValueShape, read: TextReader<T>) -> impl Form<Items<T>> {
    custom(shape, move |key, fields| fields.texts(key, read))
}

/// A text or a list of texts. An empty list is reported, since it could mean nothing or everything.
pub(super) fn filled_texts<T>(read: TextReader<T>, empty: Emptiness) -> impl Form<Items<T>> {
    filled_list(ValueShape::Texts, read, empty)
}

/// A text of this shape, or a list of such texts that is not empty.
pub(super) fn filled_list<T>(
    shape: ValueShape,
    read: TextReader<T>,
    empty: Emptiness,
) -> impl Form<Items<T>> {
    custom(shape, move |key, fields| {
        let list = fields.texts(key, read);
        fields.filled(key, list, &empty)
    })
}

/// The report on an empty list, with this help.
pub(super) const fn empty_list(help: &'static str) -> Emptiness {
    Emptiness {
        message: "is an empty list",
        label: "at least one entry",
        help,
    }
}

/// One of the words of a type.
pub(super) fn word<T: Words>() -> impl Form<T> {
    custom(ValueShape::Choice(T::WORDS), |key, fields| {
        fields.choice(key)
    })
}

/// One of the words of a type, or a list of them.
pub(super) fn word_list<T: Words>() -> impl Form<Items<T>> {
    custom(ValueShape::Choices(T::WORDS), |key, fields| {
        let read = |text: &str| T::of(text).ok_or_else(|| ValueError::choice(key, text, T::WORDS));
        fields.texts(key, read)
    })
}

/// One of the words of a type, or a list of them that is not empty.
pub(super) fn filled_word_list<T: Words>(empty: Emptiness) -> impl Form<Items<T>> {
    custom(ValueShape::Choices(T::WORDS), move |key, fields| {
        let list = word_list().read(key, fields);
        fields.filled(key, list, &empty)
    })
}

/// `true` or `false`.
pub(super) fn flag() -> impl Form<bool> {
    custom(ValueShape::Flag, |key, fields| {
        fields.typed(key, DeValue::as_bool)
    })
}

/// A whole number from `least` to `most`.
pub(super) fn number(least: u32, most: u32) -> impl Form<u32> {
    let shape = ValueShape::Whole {
        least: least.into(),
        most: most.into(),
    };
    custom(shape, move |key, fields| fields.whole(key, least..=most))
}

/// A whole number from 1.
pub(super) fn count() -> impl Form<u32> {
    number(1, u32::MAX)
}

/// Units of a limit: a whole number from 1 to 2^53 - 1.
pub(super) fn units() -> impl Form<u64> {
    let (least, most) = (1, MOST_UNITS);
    let shape = ValueShape::Whole { least, most };
    custom(shape, move |key, fields| fields.whole(key, least..=most))
}

/// A time.
pub(super) fn time(zero: Zero) -> impl Form<Duration> {
    custom(ValueShape::Duration, move |key, fields| {
        fields.time(key, zero)
    })
}

/// A time above zero, or `false` for no time.
pub(super) fn time_or_off() -> impl Form<Option<Duration>> {
    custom(ValueShape::DurationOrOff, move |key, fields| {
        fields.time_or_off(key)
    })
}

/// A time within bounds, both as the file writes them; `why` follows the bound in the help.
pub(super) fn time_within(
    bounds: RangeInclusive<&'static str>,
    why: &'static str,
) -> impl Form<Duration> {
    custom(ValueShape::Duration, move |key, fields| {
        fields.time_within(key, bounds.clone(), why)
    })
}

/// Bytes in a second, or a bare 0.
pub(super) fn bytes_in_a_second() -> impl Form<u64> {
    custom(ValueShape::ByteRate, |key, fields| {
        let text = fields.typed(key, |value| match value {
            DeValue::String(text) => Some(text.clone()),
            DeValue::Integer(_) => Some(written_value::number(value).into()),
            _ => None,
        });
        text.and_then(|text, span| fields.take(with_valid_offers(&text, byte_rate), span))
    })
}

/// A table whose value is the result of `finish`.
pub(super) fn inner_table<R: Section, T>(
    finish: fn(R, &mut Fields<'_>) -> Option<T>,
) -> impl Form<T> {
    custom(ValueShape::Inner(R::TABLE), move |key, fields| {
        let table = fields.typed(key, DeValue::as_table);
        table.and_then(|table, span| {
            let name = At::new(key.to_owned(), span.clone());
            fields.inner(R::TABLE, key, name, table, |inner| {
                if table.is_empty() && R::TABLE.empty.is_some() {
                    inner.note_empty();
                    return None;
                }
                let read = R::read(inner);
                finish(read, inner)
            })
        })
    })
}

/// Reads an entry of `key` that is a table, and converts it by `finish`.
pub(super) fn entry_table<R: Section, T>(
    key: &'static str,
    fields: &mut Fields<'_>,
    table: &DeTable<'_>,
    span: Span,
    finish: fn(R, &mut Fields<'_>) -> Option<T>,
) -> Option<T> {
    let name = At::new(key.to_owned(), span);
    let read = |inner: &mut Fields<'_>| finish(R::read(inner), inner);
    fields.inner(R::TABLE, key, name, table, read)
}

/// A table that is used as written, if it has no mistake.
pub(super) fn whole<R: Section>(read: R, _: &mut Fields<'_>) -> Option<R> {
    (!read.is_bad()).then_some(read)
}

/// A table as written, together with its mistakes.
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
