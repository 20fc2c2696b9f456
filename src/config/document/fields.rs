//! The keys of one table: each is asked for once, by name and type; every mistake is noted with its place.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::suggest::{all_of, nearest, one_of};
use super::super::value::{ValueError, address, byte_rate, duration, in_list, quoted, rate};
use super::super::vocabulary::{Default, IGNORE_WARNINGS, INCLUDE, Shape, TABLES, Table};
use super::{List, Setting};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// One table being read.
pub(super) struct Fields<'a> {
    vocabulary: &'static Table,
    /// `[limits.per-ip]`.
    title: String,
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
    /// Starts reading; unknown keys and absent required ones are noted at once.
    pub(super) fn new(
        vocabulary: &'static Table,
        name: &str,
        place: Span,
        table: &'a DeTable<'a>,
        found: &'a mut Vec<Diagnostic>,
    ) -> Self {
        let title = vocabulary.title(name);
        let mut fields = Self {
            vocabulary,
            title,
            place,
            table,
            misspelt: Vec::new(),
            found,
        };
        let ignores = TABLES.iter().any(|table| std::ptr::eq(*table, vocabulary));
        for (key, value) in table {
            if ignores && key.get_ref() == IGNORE_WARNINGS.name {
                continue;
            }
            if vocabulary.key(key.get_ref()).is_none() && fields.found.len() <= super::ENOUGH {
                fields.unknown(key, value);
            }
        }
        for key in vocabulary.keys {
            match key.default {
                Default::Required => fields.require(key.name),
                Default::Unless(others)
                    if others.iter().all(|other| fields.value(other).is_none()) =>
                {
                    fields.require(key.name);
                }
                _ => {}
            }
        }
        fields
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

    /// Notes a mistake.
    pub(super) fn note(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// A key's value as it stands; where there is none, that of a misspelling of it: what else is wrong with it is
    /// told in the same run.
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

    /// A text, or a list of them, each of which `read` understands. A list that is written is not empty.
    pub(super) fn texts<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> List<T> {
        let Some((value, whole)) = self.value(key) else {
            return Setting::Absent;
        };
        let items: Vec<(&DeValue<'_>, Span)> = match value {
            DeValue::Array(items) => items
                .iter()
                .map(|item| (item.get_ref(), item.span()))
                .collect(),
            single => vec![(single, whole.clone())],
        };
        let alone = matches!(value, DeValue::String(_));
        let mut entries = Vec::with_capacity(items.len());
        let mut good = true;
        for (item, span) in items {
            let entry = match item {
                DeValue::String(text) => {
                    let list = || alone.then(|| as_list(text, &read)).flatten();
                    self.take(read(text).map_err(|wrong| wrong.instead_if(list())), span)
                }
                other => self.wrong_type(key, other, &span),
            };
            match entry {
                Setting::Valid(entry) => entries.push(entry),
                Setting::Absent | Setting::Partial(_) | Setting::Invalid => good = false,
            }
        }
        let entries = At::new(entries, whole);
        if good {
            Setting::Valid(entries)
        } else {
            Setting::Partial(entries)
        }
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        later: &[&str],
    ) -> Setting<T> {
        let Some((value, span)) = self.value(key) else {
            return Setting::Absent;
        };
        let DeValue::String(text) = value else {
            return self.wrong_type(key, value, &span);
        };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| word == text) {
            return Setting::Valid(At::new(*meaning, span));
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let diagnostic = if later.contains(&text.as_ref()) {
            Diagnostic::error(
                Code::NotAvailable,
                format!("`{key} = \"{text}\"` is not available in this version"),
            )
            .at(&span, format!("{} can be had", all_of(&names)))
        } else {
            Diagnostic::error(
                Code::BadChoice,
                format!("{} is no choice for `{key}`", quoted(text)),
            )
            .at(&span, format!("must be {}", one_of(&names)))
            .help_if(
                nearest(text, names.iter().copied()).map(|near| format!("did you mean `{near}`?")),
            )
        };
        self.found.push(diagnostic);
        Setting::Invalid
    }

    /// A whole number within the range of the vocabulary.
    pub(super) fn whole(&mut self, key: &'static str) -> Setting<u32> {
        let Some((value, span)) = self.value(key) else {
            return Setting::Absent;
        };
        let shape = self.vocabulary.key(key).map(|key| key.shape);
        let Some((least, most)) = shape.and_then(Shape::range) else {
            return Setting::Invalid;
        };
        let DeValue::Integer(number) = value else {
            return self.wrong_type(key, value, &span);
        };
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let within = number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (least..=most).contains(number));
        match within.and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Setting::Valid(At::new(number, span)),
            None => {
                let diagnostic = Diagnostic::error(
                    Code::BadNumber,
                    format!("`{key}` in `{}` is out of range", self.title),
                )
                .at(&span, format!("must be from {least} to {most}"));
                self.found.push(diagnostic);
                Setting::Invalid
            }
        }
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &'static str) -> Setting<bool> {
        match self.value(key) {
            None => Setting::Absent,
            Some((DeValue::Boolean(flag), span)) => Setting::Valid(At::new(*flag, span)),
            Some((other, span)) => self.wrong_type(key, other, &span),
        }
    }

    /// Reads a table that stands inside this one, under `name`.
    pub(super) fn inner<T>(
        &mut self,
        vocabulary: &'static Table,
        name: &str,
        (table, place): (&DeTable<'_>, Span),
        read: impl FnOnce(Fields<'_>) -> T,
    ) -> T {
        read(Fields::new(vocabulary, name, place, table, self.found))
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

    /// Bytes in a second, or a bare 0.
    pub(super) fn byte_rate(&mut self, key: &'static str) -> Setting<u64> {
        match self.value(key) {
            Some((value @ DeValue::Integer(_), span)) => self.take(byte_rate(&number(value)), span),
            _ => self.text(key, byte_rate),
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
            .map_or(Shape::Text, |key| key.shape);
        let diagnostic = match (shape, value) {
            (Shape::Duration, DeValue::Integer(_) | DeValue::Float(_)) => {
                let number = number(value);
                Diagnostic::error(
                    Code::BadDuration,
                    format!("`{key}` in `{}` is a number without its unit", self.title),
                )
                .at(span, "how long is that?")
                .help_if(help_of(duration(&number)))
            }
            (Shape::Rate, DeValue::Integer(_) | DeValue::Float(_)) => {
                let number = number(value);
                Diagnostic::error(
                    Code::BadRate,
                    format!("`{key}` in `{}` is a number without a time", self.title),
                )
                .at(span, "in how long?")
                .help_if(help_of(rate(&number)))
            }
            (Shape::Whole { .. } | Shape::Cost, DeValue::String(text))
                if text.parse::<u64>().is_ok_and(|number| shape.holds(number)) =>
            {
                self.type_error(key, shape, value, span)
                    .help(format!("write `{key} = {text}`, without quotes"))
            }
            (Shape::Texts | Shape::Text, DeValue::Integer(_)) if key == "listen" => self
                .type_error(key, shape, value, span)
                .help_if(help_of(address(&number(value)))),
            _ => self.type_error(key, shape, value, span),
        };
        self.found.push(diagnostic);
        Setting::Invalid
    }

    fn type_error(&self, key: &str, shape: Shape, value: &DeValue<'_>, span: &Span) -> Diagnostic {
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

/// A number as somebody would write it into a text.
fn number(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().trim_start_matches(['+', '-']).to_owned()
        }
        DeValue::Float(number) => format!("{}s", number.as_str()),
        _ => String::new(),
    }
}
