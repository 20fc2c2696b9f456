//! The names of written values in messages, and the advice about the intended value.

use super::vocabulary::Key;
use crate::config::report::{Code, Details as _, Diagnostic};
use crate::config::value::{ValueError, in_list, with_valid_offers};
use toml::Spanned;
use toml::de::DeValue;

/// A single value, or the values of a list.
pub(super) fn one_or_all<'v, 'a>(value: &'v Spanned<DeValue<'a>>) -> &'v [Spanned<DeValue<'a>>] {
    match value.get_ref() {
        DeValue::Array(items) => items,
        _ => std::slice::from_ref(value),
    }
}

/// The error about a value whose type `key` does not take; `key` is in `place`.
pub(super) fn type_error(key: &Key, place: &str, value: &DeValue<'_>) -> Diagnostic {
    let (name, takes) = (key.name, key.shape().describe());
    let message = format!("`{name}`{place} takes {takes}, not {}", describe(value));
    let example = format!("for example `{name} = {}`", key.example);
    Diagnostic::error(Code::WrongType, message).help(example)
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

/// The advice for a text with several entries: the same entries as a list, if each can be read.
pub(super) fn as_list<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, ValueError>,
) -> Option<String> {
    let parts: Vec<&str> = text
        .split([',', ' '])
        .filter(|part| !part.is_empty())
        .collect();
    (parts.len() > 1 && parts.iter().all(|part| read(part).is_ok())).then(|| in_list(&parts))
}

/// The help text of the error that the reader of a text returns.
pub(super) fn help_of<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, ValueError>,
) -> Option<String> {
    with_valid_offers(text, read).err()?.shown_help()
}

/// A number as it would be written in a text.
pub(super) fn number(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().trim_start_matches(['+', '-']).to_owned()
        }
        DeValue::Float(number) => format!("{}s", number.as_str()),
        _ => String::new(),
    }
}
