//! The keys of one table. Each key is read once, by name and type; every mistake is noted with its place.

mod times;

pub(super) use times::Zero;

use super::foreign_words::{ForeignName, value_advice};
use super::unknown_table::dotted_name;
use super::vocabulary::{Default, Emptiness, Table, ValueShape};
use super::words::Words;
use super::written_value::{as_list, help_of, number, one_or_all, type_error};
use super::{IGNORE_WARNINGS, List, Setting, TABLES, misplaced};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings, all_of, nearest, one_of};
use crate::config::value::{ValueError, address, duration, quoted, rate, with_valid_offers};
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The end of the advice to write a number, `true` or `false` in place of a text.
pub(super) const WITHOUT_QUOTES: &str = ", without quotes";

/// A table that is being read.
pub(super) struct Fields<'a> {
    vocabulary: &'static Table,
    /// `[limits.per-ip]`.
    title: String,
    /// The table's noun and its place.
    name: At<String>,
    /// The place of the table's header.
    place: Span,
    table: &'a DeTable<'a>,
    /// Unknown keys, each under the name that it probably means.
    misspelt: Vec<(&'static str, &'a Spanned<DeValue<'a>>)>,
    /// Keys that the advice about words of others writes: their absence is not another mistake.
    advised: Vec<&'static str>,
    found: &'a mut Findings,
}

impl<'a> Fields<'a> {
    /// Starts to read a table of the top level; unknown keys and absent required keys are noted at once.
    pub(super) fn new(
        vocabulary: &'static Table,
        name: At<String>,
        place: Span,
        table: &'a DeTable<'a>,
        found: &'a mut Findings,
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

    /// A table whose mistakes are noted only when its keys are read.
    pub(super) fn unchecked(
        vocabulary: &'static Table,
        table: &'a DeTable<'a>,
        found: &'a mut Findings,
    ) -> Self {
        Self {
            vocabulary,
            title: String::new(),
            name: At::default(),
            place: 0..0,
            table,
            misspelt: Vec::new(),
            advised: Vec::new(),
            found,
        }
    }

    /// Notes unknown keys and absent required keys.
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

    /// Notes `key` as missing, unless it is written.
    pub(super) fn require(&mut self, key: &str) {
        let Some(key) = self.vocabulary.key(key) else {
            return;
        };
        if self.value(key.name).is_none() && !self.advised.contains(&key.name) {
            let message = format!("`{}` does not say `{}`", self.title, key.name);
            self.found
                .error(Code::MissingKey, message)
                .at(&self.place, format!("`{}` has no default", key.name))
                .help(format!("add `{} = {}`", key.name, key.example));
        }
    }

    /// The name of the table in messages.
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

    /// Is the table empty?
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
        self.found
            .error(Code::EmptyList, message)
            .at(&self.name.span, empty.label)
            .help(empty.help);
    }

    /// The list of `key`; an empty list is a mistake.
    pub(super) fn filled<T>(&mut self, key: &str, list: List<T>, empty: &Emptiness) -> List<T> {
        let Some(at) = list.at().filter(|at| at.value.is_empty()) else {
            return list;
        };
        self.wrong(key, Code::EmptyList, empty.message)
            .at(&at.span, empty.label)
            .help(empty.help);
        Setting::Invalid
    }

    /// Notes an error.
    pub(super) fn error(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.found.error(code, message)
    }

    /// Notes a warning.
    pub(super) fn warning(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.found.warning(code, message)
    }

    /// Notes an error about `key`: "`KEY` in `[TABLE]` is out of range".
    pub(super) fn wrong(&mut self, key: &str, code: Code, what: &str) -> &mut Diagnostic {
        let message = format!("`{key}` in `{}` {what}", self.title);
        self.found.error(code, message)
    }

    /// A key's value as written. If the key is absent, the value of a misspelt form of the key is used, so that one run
    /// reports every mistake.
    pub(super) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let misspelt = || self.misspelt.iter().find(|(meant, _)| *meant == key);
        self.table
            .get(key)
            .or_else(|| misspelt().map(|(_, value)| *value))
    }

    /// The value of a key, if `pick` accepts its type.
    pub(super) fn typed<T>(
        &mut self,
        key: &'static str,
        pick: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Setting<T> {
        let Some(value) = self.value(key) else {
            return Setting::Absent;
        };
        let picked = pick(value.get_ref());
        Setting::of(picked.or_else(|| self.wrong_type(key, value)), value.span())
    }

    /// A text that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Setting<T> {
        let text = self.typed(key, DeValue::as_str);
        text.and_then(|text, span| {
            let foreign = || value_advice(self.vocabulary, key, text, &read);
            let read = with_valid_offers(text, &read).map_err(|wrong| wrong.instead_if(foreign()));
            self.take(read, span)
        })
    }

    /// A value or a list of values; `read` notes the mistakes of each.
    pub(super) fn items<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Self, &'a Spanned<DeValue<'a>>) -> Option<T>,
    ) -> List<T> {
        let Some(value) = self.value(key) else {
            return Setting::Absent;
        };
        let items = one_or_all(value);
        let entries = items
            .iter()
            .filter_map(|item| Some(At::new(read(self, item)?, item.span())));
        Setting::list(entries.collect(), items.len(), value.span())
    }

    /// A table of names; `read` notes the mistakes of each.
    pub(super) fn named<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Self, At<String>, &'a Spanned<DeValue<'a>>) -> Option<T>,
    ) -> Setting<Vec<T>> {
        let table = match self.typed(key, DeValue::as_table) {
            Setting::Valid(table) => table,
            Setting::Absent => return Setting::Absent,
            Setting::Invalid | Setting::Partial(_) => return Setting::Invalid,
        };
        let entries = table.value.iter().filter_map(|(name, value)| {
            let name = At::new(name.get_ref().to_string(), name.span());
            read(self, name, value)
        });
        Setting::list(entries.collect(), table.value.len(), table.span)
    }

    /// A text that `read` understands, or a list of such texts. An empty list is a mistake.
    pub(super) fn texts<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> List<T> {
        self.items(key, |fields, item| fields.text_item(key, item, &read))
    }

    /// One text of `key`, which has a text or a list of them.
    pub(super) fn text_item<T>(
        &mut self,
        key: &'static str,
        item: &Spanned<DeValue<'_>>,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        let Some(text) = item.get_ref().as_str() else {
            return self.wrong_type(key, item);
        };
        let alone = self
            .value(key)
            .is_some_and(|value| value.get_ref().is_str());
        let list = || {
            let list = alone.then(|| as_list(text, &read)).flatten();
            list.or_else(|| value_advice(self.vocabulary, key, text, &read))
        };
        let read = with_valid_offers(text, &read).map_err(|wrong| wrong.instead_if(list()));
        self.take(read, &item.span())
    }

    /// One of the words of the type.
    pub(super) fn choice<T: Words>(&mut self, key: &'static str) -> Setting<T> {
        let word = self.typed(key, DeValue::as_str);
        word.and_then(|word, span| {
            let value = T::of(word);
            if value.is_none() && T::LATER.contains(&word) {
                let message = format!("`{key} = \"{word}\"` is not available in this version");
                let label = format!("{} are available", all_of(T::WORDS));
                self.error(Code::NotAvailable, message).at(span, label);
            } else if value.is_none() {
                let suggestion = nearest(word, T::WORDS.iter().copied());
                let read =
                    |word: &str| T::of(word).ok_or_else(|| ValueError::choice(key, word, T::WORDS));
                let help = value_advice(self.vocabulary, key, word, read)
                    .or_else(|| suggestion.map(|word| format!("did you mean `{word}`?")));
                let message = format!("{} is no choice for `{key}`", quoted(word));
                self.error(Code::BadChoice, message)
                    .at(span, format!("must be {}", one_of(T::WORDS)))
                    .help_if(help);
            }
            value
        })
    }

    /// A whole number within this range.
    pub(super) fn whole<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Setting<T>
    where
        T: TryFrom<i128> + PartialOrd + Display,
    {
        let number = self.typed(key, DeValue::as_integer);
        number.and_then(|number, span| {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
            let number = number.and_then(|number| T::try_from(number).ok());
            let within = number.filter(|number| range.contains(number));
            if within.is_none() {
                let label = format!("must be from {} to {}", range.start(), range.end());
                self.wrong(key, Code::BadNumber, "is out of range")
                    .at(span, label);
            }
            within
        })
    }

    /// Reads a table inside this table, under `path`.
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

    /// Notes a mistake and returns no value.
    pub(super) fn refuse<T>(&mut self, wrong: Diagnostic) -> Option<T> {
        self.found.push(wrong);
        None
    }

    /// Keeps a value that was read, or notes its mistake.
    pub(super) fn take<T>(&mut self, read: Result<T, ValueError>, span: &Span) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(wrong) => self.refuse(wrong.at(span)),
        }
    }

    /// Notes a value whose type the key does not take.
    pub(super) fn wrong_type<T>(
        &mut self,
        key: &'static str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<T> {
        let (span, value) = (&value.span(), value.get_ref());
        let known = self.vocabulary.key(key)?;
        let shape = known.shape();
        match (shape, value) {
            (
                ValueShape::Duration | ValueShape::DurationOrOff,
                DeValue::Integer(_) | DeValue::Float(_),
            ) => {
                let number = number(value);
                let help = if matches!(shape, ValueShape::DurationOrOff) && number == "0" {
                    Some(format!("write `{key} = false` for no bound"))
                } else {
                    help_of(&number, duration)
                };
                self.wrong(key, Code::BadDuration, "is a number without its unit")
                    .at(span, "how long is that?")
                    .help_if(help);
            }
            (ValueShape::Rate(_), DeValue::Integer(_) | DeValue::Float(_)) => {
                let help = help_of(&number(value), rate);
                self.wrong(key, Code::BadRate, "is a number without a time")
                    .at(span, "in how long?")
                    .help_if(help);
            }
            _ => {
                let help = match (shape, value) {
                    (ValueShape::Whole { .. } | ValueShape::Cost(_), DeValue::String(text))
                        if text
                            .parse::<u64>()
                            .is_ok_and(|number| shape.includes(number)) =>
                    {
                        Some(format!("write `{key} = {text}`{WITHOUT_QUOTES}"))
                    }
                    (ValueShape::Flag, DeValue::String(text))
                        if matches!(text.as_ref(), "true" | "false") =>
                    {
                        Some(format!("write `{key} = {text}`{WITHOUT_QUOTES}"))
                    }
                    (_, DeValue::Integer(_)) if key == "listen" => help_of(&number(value), address),
                    _ => None,
                };
                let place = format!(" in `{}`", self.title);
                let wrong = type_error(known, &place, value).at(span, "");
                return self.refuse(wrong.help_if(help));
            }
        }
        None
    }

    /// Notes a key that does not exist, and the key that was probably meant.
    fn unknown(&mut self, key: &Spanned<DeString<'_>>, value: &'a Spanned<DeValue<'a>>) {
        let Table {
            noun, keys, later, ..
        } = self.vocabulary;
        let (name, span) = (key.get_ref().as_ref(), key.span());
        if later.contains(&name) {
            self.wrong(name, Code::NotAvailable, "is not available in this version")
                .at(&span, "");
            return;
        }
        let names = keys.iter().map(|key| key.name);
        let suggestion =
            nearest(name, names).and_then(|suggestion| self.vocabulary.key(suggestion));
        let foreign = ForeignName::find(Some(self.vocabulary), name);
        let outer = &self.name.value;
        let dotted = dotted_name(self.vocabulary, outer, name, value.get_ref());
        let help = match dotted.filter(|_| foreign.is_none() && suggestion.is_none()) {
            Some(help) => help,
            None => misplaced::advice(self.vocabulary, name, foreign.as_ref(), suggestion),
        };
        let advised = foreign.iter().flat_map(|one| one.keys(self.vocabulary));
        self.advised.extend(advised);
        // The value of a word of others has another form.
        let misspelt = suggestion.filter(|_| foreign.is_none());
        self.misspelt.extend(misspelt.map(|key| (key.name, value)));
        let message = format!("unknown key {} in `{}`", quoted(name), self.title);
        self.error(Code::UnknownKey, message)
            .at(&span, format!("not a setting of {noun}"))
            .help(help);
    }
}
