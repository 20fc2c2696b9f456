//! The keys of one table: each is asked for once, by name and type; every mistake is noted with its place.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::suggest::{all_of, nearest, one_of};
use super::super::value::{ValueError, address, duration, in_list, quoted, rate};
use super::super::vocabulary::{Default, Table, ValueShape};
use super::words::Words;
use super::{IGNORE_WARNINGS, INCLUDE, List, Setting, TABLES};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// One table being read.
pub(super) struct Fields<'a> {
    vocabulary: &'static Table,
    /// `[limits.per-ip]`.
    title: String,
    /// What it is called, and where.
    name: At<String>,
    /// Its header.
    place: Span,
    table: &'a DeTable<'a>,
    /// Unknown keys, each under the name it probably means.
    misspelt: Vec<(&'static str, &'a Spanned<DeValue<'a>>)>,
    found: &'a mut Vec<Diagnostic>,
}

/// May a time be nothing?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zero {
    /// It may.
    Allowed,
    /// It would make no sense.
    Refused,
}

impl<'a> Fields<'a> {
    /// Starts reading a table of the top level; unknown keys and absent required ones are noted at once.
    pub(super) fn new(
        vocabulary: &'static Table,
        name: At<String>,
        place: Span,
        table: &'a DeTable<'a>,
        found: &'a mut Vec<Diagnostic>,
    ) -> Self {
        let mut fields = Self {
            title: vocabulary.title(&name.value),
            name,
            place,
            ..Self::unchecked(vocabulary, table, found)
        };
        fields.check();
        fields
    }

    /// A table of which nothing is noted before a key is read.
    pub(super) fn unchecked(
        vocabulary: &'static Table,
        table: &'a DeTable<'a>,
        found: &'a mut Vec<Diagnostic>,
    ) -> Self {
        Self {
            vocabulary,
            title: String::new(),
            name: At::default(),
            place: 0..0,
            table,
            misspelt: Vec::new(),
            found,
        }
    }

    /// Notes unknown keys and absent required ones.
    fn check(&mut self) {
        let Self {
            vocabulary, table, ..
        } = *self;
        let ignores = TABLES.iter().any(|table| std::ptr::eq(*table, vocabulary));
        for (key, value) in table {
            if ignores && key.get_ref() == IGNORE_WARNINGS.name {
                continue;
            }
            if vocabulary.key(key.get_ref()).is_none() && self.found.len() <= super::ENOUGH {
                self.unknown(key, value);
            }
        }
        for key in vocabulary.keys {
            match key.default {
                Default::Required => self.require(key.name),
                Default::Unless(others)
                    if others.iter().all(|other| self.value(other).is_none()) =>
                {
                    self.require(key.name);
                }
                _ => {}
            }
        }
    }

    /// Notes that `key` must be written, unless it is.
    pub(super) fn require(&mut self, key: &str) {
        let Some(key) = self.vocabulary.key(key) else {
            return;
        };
        if self.value(key.name).is_none() {
            let missing = Diagnostic::error(
                Code::MissingKey,
                format!("`{}` does not say `{}`", self.title, key.name),
            )
            .at(&self.place, format!("`{}` has no default", key.name))
            .help(format!("add `{} = {}`", key.name, key.example));
            self.found.push(missing);
        }
    }

    /// What the table is called.
    pub(super) fn name(&self) -> At<String> {
        self.name.clone()
    }

    /// The header of the table.
    pub(super) fn place(&self) -> Span {
        self.place.clone()
    }

    /// `[limits.per-ip]`.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Is nothing written in it?
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Notes that the table is empty, which is a mistake.
    pub(super) fn note_empty(&mut self) {
        let Some(empty) = &self.vocabulary.empty else {
            return;
        };
        let key = &self.name.value;
        let outer = self.title.strip_suffix(&format!(".{key}]"));
        let outer = outer.unwrap_or(&self.title);
        let message = format!("`{key}` in `{outer}]` {}", empty.message);
        self.found.push(
            Diagnostic::error(Code::EmptyList, message)
                .at(&self.name.span, empty.label)
                .help(empty.help),
        );
    }

    /// Notes a mistake.
    pub(super) fn note(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// A key's value as it stands; where there is none, that of a misspelling of it: one run reports every mistake in it.
    pub(super) fn value(&self, key: &str) -> Option<(&'a DeValue<'a>, Span)> {
        let misspelt = || self.misspelt.iter().find(|(meant, _)| *meant == key);
        self.table
            .get(key)
            .or_else(|| misspelt().map(|(_, value)| *value))
            .map(|value| (value.get_ref(), value.span()))
    }

    /// A text that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Setting<T> {
        let Some((value, span)) = self.value(key) else {
            return Setting::Absent;
        };
        let DeValue::String(text) = value else {
            return self.wrong_type(key, value, &span);
        };
        self.take(read(text), span)
    }

    /// A value or a list of values; `read` notes what is wrong with one.
    pub(super) fn items<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Self, &DeValue<'a>, &Span) -> Option<T>,
    ) -> List<T> {
        let Some((value, whole)) = self.value(key) else {
            return Setting::Absent;
        };
        let (mut entries, mut good) = (Vec::new(), true);
        let mut one = |item: &DeValue<'a>, span: Span| match read(self, item, &span) {
            Some(value) => entries.push(At::new(value, span)),
            None => good = false,
        };
        match value {
            DeValue::Array(items) => {
                for item in items.iter() {
                    one(item.get_ref(), item.span());
                }
            }
            single => one(single, whole.clone()),
        }
        let entries = At::new(entries, whole);
        if good {
            Setting::Valid(entries)
        } else {
            Setting::Partial(entries)
        }
    }

    /// A text, or a list of them, each of which `read` understands. A list that is written is not empty.
    pub(super) fn texts<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> List<T> {
        let alone = matches!(self.value(key), Some((DeValue::String(_), _)));
        self.items(key, |fields, item, span| {
            let DeValue::String(text) = item else {
                fields.wrong_type::<T>(key, item, span);
                return None;
            };
            let list = || alone.then(|| as_list(text, &read)).flatten();
            match read(text).map_err(|wrong| wrong.instead_if(list())) {
                Ok(value) => Some(value),
                Err(wrong) => {
                    fields.found.push(wrong.at(span));
                    None
                }
            }
        })
    }

    /// One of the words of a type.
    pub(super) fn choice<T: Words>(&mut self, key: &'static str) -> Setting<T> {
        let Some((value, span)) = self.value(key) else {
            return Setting::Absent;
        };
        let DeValue::String(text) = value else {
            return self.wrong_type(key, value, &span);
        };
        if let Some(value) = T::of(text) {
            return Setting::Valid(At::new(value, span));
        }
        let diagnostic = if T::LATER.contains(&text.as_ref()) {
            Diagnostic::error(
                Code::NotAvailable,
                format!("`{key} = \"{text}\"` is not available in this version"),
            )
            .at(&span, format!("{} can be had", all_of(T::WORDS)))
        } else {
            let near = nearest(text, T::WORDS.iter().copied());
            Diagnostic::error(
                Code::BadChoice,
                format!("{} is no choice for `{key}`", quoted(text)),
            )
            .at(&span, format!("must be {}", one_of(T::WORDS)))
            .help_if(near.map(|near| format!("did you mean `{near}`?")))
        };
        self.found.push(diagnostic);
        Setting::Invalid
    }

    /// A whole number within this range.
    pub(super) fn whole(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Setting<u32> {
        let Some((value, span)) = self.value(key) else {
            return Setting::Absent;
        };
        let DeValue::Integer(number) = value else {
            return self.wrong_type(key, value, &span);
        };
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let within = number.and_then(|number| u32::try_from(number).ok());
        match within.filter(|number| range.contains(number)) {
            Some(number) => Setting::Valid(At::new(number, span)),
            None => {
                let diagnostic = Diagnostic::error(
                    Code::BadNumber,
                    format!("`{key}` in `{}` is out of range", self.title),
                )
                .at(
                    &span,
                    format!("must be from {} to {}", range.start(), range.end()),
                );
                self.found.push(diagnostic);
                Setting::Invalid
            }
        }
    }

    /// Reads a table that stands inside this one, under `path`.
    pub(super) fn inner<T>(
        &mut self,
        vocabulary: &'static Table,
        path: &str,
        name: At<String>,
        table: &DeTable<'_>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let outer = self.title.trim_end_matches(']');
        let mut fields = Fields {
            title: format!("{outer}.{path}]"),
            place: name.span.clone(),
            name,
            ..Fields::unchecked(vocabulary, table, self.found)
        };
        fields.check();
        read(&mut fields)
    }

    /// A time.
    pub(super) fn time(&mut self, key: &'static str, zero: Zero) -> Setting<Duration> {
        let time = self.text(key, duration);
        match time.at() {
            Some(at) if at.value.is_zero() && zero == Zero::Refused => {
                let diagnostic = Diagnostic::error(
                    Code::BadDuration,
                    format!("`{key}` in `{}` leaves no time at all", self.title),
                )
                .at(&at.span, "must be longer than nothing")
                .help("leave it out for the default");
                self.found.push(diagnostic);
                Setting::Invalid
            }
            _ => time,
        }
    }

    /// Keeps a read value, or notes what is wrong with it.
    pub(super) fn take<T>(&mut self, read: Result<T, ValueError>, span: Span) -> Setting<T> {
        match read {
            Ok(value) => Setting::Valid(At::new(value, span)),
            Err(wrong) => {
                self.found.push(wrong.at(&span));
                Setting::Invalid
            }
        }
    }

    /// Notes a value of another type than the key takes.
    pub(super) fn wrong_type<T>(
        &mut self,
        key: &'static str,
        value: &DeValue<'_>,
        span: &Span,
    ) -> Setting<T> {
        let shape = self
            .vocabulary
            .key(key)
            .map_or(ValueShape::Text, |key| key.shape());
        let diagnostic = match (shape, value) {
            (ValueShape::Duration, DeValue::Integer(_) | DeValue::Float(_)) => {
                let number = number(value);
                Diagnostic::error(
                    Code::BadDuration,
                    format!("`{key}` in `{}` is a number without its unit", self.title),
                )
                .at(span, "how long is that?")
                .help_if(help_of(duration(&number)))
            }
            (ValueShape::Rate(_), DeValue::Integer(_) | DeValue::Float(_)) => {
                let number = number(value);
                Diagnostic::error(
                    Code::BadRate,
                    format!("`{key}` in `{}` is a number without a time", self.title),
                )
                .at(span, "in how long?")
                .help_if(help_of(rate(&number)))
            }
            (ValueShape::Whole { .. } | ValueShape::Cost(_), DeValue::String(text))
                if text.parse::<u64>().is_ok_and(|number| shape.holds(number)) =>
            {
                self.type_error(key, shape, value, span)
                    .help(format!("write `{key} = {text}`, without quotes"))
            }
            (ValueShape::Texts | ValueShape::Text, DeValue::Integer(_)) if key == "listen" => self
                .type_error(key, shape, value, span)
                .help_if(help_of(address(&number(value)))),
            _ => self.type_error(key, shape, value, span),
        };
        self.found.push(diagnostic);
        Setting::Invalid
    }

    fn type_error(
        &self,
        key: &str,
        shape: ValueShape,
        value: &DeValue<'_>,
        span: &Span,
    ) -> Diagnostic {
        let example = self.vocabulary.key(key).map_or("", |key| key.example);
        Diagnostic::error(
            Code::WrongType,
            format!(
                "`{key}` in `{}` takes {}, not {}",
                self.title,
                shape.describe(),
                describe(value)
            ),
        )
        .at(span, "")
        .help(format!("for example `{key} = {example}`"))
    }

    /// Notes a key that does not exist, and which one it probably means.
    fn unknown(&mut self, key: &Spanned<DeString<'_>>, value: &'a Spanned<DeValue<'a>>) {
        let Table {
            noun, keys, later, ..
        } = self.vocabulary;
        let (name, span) = (key.get_ref().as_ref(), key.span());
        if later.contains(&name) {
            let diagnostic = Diagnostic::error(
                Code::NotAvailable,
                format!(
                    "`{name}` in `{}` is not available in this version",
                    self.title
                ),
            )
            .at(&span, "");
            return self.found.push(diagnostic);
        }
        let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        let near = nearest(name, names.iter().copied()).and_then(|near| self.vocabulary.key(near));
        let owner = TABLES.iter().find(|table| table.key(name).is_some());
        let help = match (near, owner) {
            (Some(key), _) => format!("did you mean `{}`? {}", key.name, key.about),
            (None, None) if name == INCLUDE.name => {
                "`include` stands at the top of the file, before the first table".to_owned()
            }
            (None, None) if nearest(name, [IGNORE_WARNINGS.name]).is_some() => {
                format!(
                    "`{}` stands in tables of the top level, and at the top",
                    IGNORE_WARNINGS.name
                )
            }
            (None, Some(owner)) => format!("`{name}` belongs under `{}`", owner.title("NAME")),
            (None, None) => format!("{noun} has {}", all_of(&names)),
        };
        self.misspelt.extend(near.map(|key| (key.name, value)));
        let diagnostic = Diagnostic::error(
            Code::UnknownKey,
            format!("unknown key {} in `{}`", quoted(name), self.title),
        )
        .at(&span, format!("not a setting of {noun}"))
        .help(help);
        self.found.push(diagnostic);
    }
}

/// A value's type in plain words.
pub(super) fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Is it several texts in one? Then how to write them, if each can be read.
fn as_list<T>(text: &str, read: impl Fn(&str) -> Result<T, ValueError>) -> Option<String> {
    let parts: Vec<&str> = text
        .split([',', ' '])
        .filter(|part| !part.is_empty())
        .collect();
    (parts.len() > 1 && parts.iter().all(|part| read(part).is_ok())).then(|| in_list(&parts))
}

/// What the reader of a text would say to this one.
fn help_of<T>(read: Result<T, ValueError>) -> Option<String> {
    read.err()?.shown_help()
}

/// A number as it would stand in a text.
pub(super) fn number(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().trim_start_matches(['+', '-']).to_owned()
        }
        DeValue::Float(number) => format!("{}s", number.as_str()),
        _ => String::new(),
    }
}
