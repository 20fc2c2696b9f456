//! `--set limits.per-ip.rate=5/s`: the file with some of its values replaced, and the mistakes in them shown as given.

use super::diagnostic::{Code, Diagnostic};
use super::document::{INCLUDE, TABLES};
use super::source::{Source, Span};
use super::suggest::nearest;
use super::value::quoted;
use std::borrow::Cow;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One value to replace: a key of the file with dots in it, and what stands there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    text: String,
    equals: usize,
}

impl Set {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// When it is no such thing, in words.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("`--set {text}` {why}; write KEY=VALUE, as in --set limits.per-ip.rate=5/s")
        };
        let equals = text
            .find('=')
            .ok_or_else(|| wrong("does not say what to set"))?;
        let set = Self {
            text: text.to_owned(),
            equals,
        };
        let plain = |part: &str| {
            let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !part.is_empty() && part.bytes().all(bare)
        };
        if !set.key().split('.').all(plain) {
            return Err(wrong("does not name a key of the file"));
        }
        if set.key() == INCLUDE.name {
            return Err(format!(
                "`--set {text}` would change nothing: what the file includes has been read by then"
            ));
        }
        if set.key() == "store" || set.key().starts_with("store.") {
            return Err(format!(
                "`--set {text}` would change nothing: a replay ignores [store]; --store chooses where it counts"
            ));
        }
        Ok(set)
    }

    /// The whole, as given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key, with its dots.
    #[must_use]
    pub fn key(&self) -> &str {
        self.text[..self.equals].trim()
    }

    /// The value as a document of its own, in which it stands where it stands in the source.
    fn document(&self, start: usize) -> String {
        let (value, mark) = (start + self.equals + 1, "v=");
        let blanks = " ".repeat(value.saturating_sub(mark.len()));
        format!("{blanks}{mark}{}", &self.text[self.equals + 1..])
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The values of a source's sets, to be kept for as long as what is read from them.
pub(super) fn documents(source: &Source) -> Vec<String> {
    let sets = source.sets();
    sets.map(|(start, set)| set.document(start)).collect()
}

/// Puts the sets of `source` into the table read from its file. A table that only they name, and that is nearly the name
/// of one in the file, is taken for a slip.
pub(super) fn apply<'a>(
    source: &'a Source,
    documents: &'a [String],
    root: &mut DeTable<'a>,
    found: &mut Vec<Diagnostic>,
) {
    for ((start, set), document) in source.sets().zip(documents) {
        let mut at = start;
        let parts: Vec<(&str, Span)> = set.text[..set.equals]
            .split('.')
            .map(|part| {
                let span = at..at + part.len();
                at = span.end + 1;
                (part.trim(), span)
            })
            .collect();
        let span = start + set.equals + 1..start + set.text.len();
        let value = Spanned::new(span, value(&set.text[set.equals + 1..], document));
        match slip(root, &parts) {
            Some(slip) => found.push(slip),
            None => put(root, &parts, value),
        }
    }
}

/// TOML where it is TOML, else the text itself: then a shell's quotes need no others inside.
fn value<'a>(text: &'a str, document: &'a str) -> DeValue<'a> {
    let parsed = DeTable::parse(document).ok().map(Spanned::into_inner);
    let only = parsed.filter(|table| table.len() == 1);
    only.and_then(|mut table| table.remove("v"))
        .map_or(DeValue::String(Cow::Borrowed(text)), Spanned::into_inner)
}

fn put<'a>(table: &mut DeTable<'a>, parts: &[(&'a str, Span)], value: Spanned<DeValue<'a>>) {
    let Some(((name, span), rest)) = parts.split_first() else {
        return;
    };
    let key = || Spanned::new(span.clone(), Cow::Borrowed(*name));
    if rest.is_empty() {
        // Its old place goes with it.
        table.remove(*name);
        table.insert(key(), value);
        return;
    }
    let is_table = |value: &Spanned<DeValue<'_>>| matches!(value.get_ref(), DeValue::Table(_));
    if !table.get(*name).is_some_and(is_table) {
        table.remove(*name);
        let empty = Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
        table.insert(key(), empty);
    }
    if let Some(DeValue::Table(inner)) = table.get_mut(*name).map(Spanned::get_mut) {
        put(inner, rest, value);
    }
}

/// `limits.perip.rate=5/s`, where the file has `per-ip`.
fn slip(root: &DeTable<'_>, parts: &[(&str, Span)]) -> Option<Diagnostic> {
    let [(table, _), (name, span), _, ..] = parts else {
        return None;
    };
    let known = TABLES
        .iter()
        .find(|known| known.named && known.name == *table)?;
    let DeValue::Table(there) = root.get(*table)?.get_ref() else {
        return None;
    };
    if there.contains_key(*name) {
        return None;
    }
    let near = nearest(name, there.keys().map(|key| key.get_ref().as_ref()))?;
    let message = format!("{} is not the name of {}", quoted(name), known.noun);
    Some(
        Diagnostic::error(Code::UnknownKey, message)
            .at(span, "")
            .help(format!("did you mean `{near}`?")),
    )
}
