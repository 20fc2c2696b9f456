//! The file with values replaced by `--set`. A message about a mistake in a replaced value shows the option as it was
//! given.

use crate::config::document::table_named;
use crate::config::input::{Source, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings, nearest};
use crate::config::value::quoted;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The documents of a source's `--set` options, which must live as long as the tree that borrows from them.
pub(in crate::config::document) fn documents(source: &Source) -> Vec<String> {
    let sets = source.sets();
    sets.map(|(start, set)| set.document(start)).collect()
}

/// Applies the `--set` options of `source` to the tree of its file. A table that only the options name, with a name
/// similar to a table of the file, is probably a mistake.
pub(in crate::config::document) fn apply<'a>(
    source: &'a Source,
    documents: &'a [String],
    root: &mut DeTable<'a>,
    found: &mut Findings,
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

/// The value as TOML, or else as plain text, so that quotes of the shell need no inner quotes.
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
        // The old key is removed together with its place.
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
    let known = table_named(table).filter(|known| known.named)?;
    let DeValue::Table(there) = root.get(*table)?.get_ref() else {
        return None;
    };
    if there.contains_key(*name) {
        return None;
    }
    let suggestion = nearest(name, there.keys().map(|key| key.get_ref().as_ref()))?;
    let message = format!("{} is not the name of {}", quoted(name), known.noun);
    let slip = Diagnostic::error(Code::UnknownKey, message).at(span, "");
    Some(slip.help(format!("did you mean `{suggestion}`?")))
}
