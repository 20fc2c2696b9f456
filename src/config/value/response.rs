//! Values for responses of the gateway: error bodies, percentages, public names.

use super::{Code, ValueError};
use crate::config::report::one_of;
use crate::snapshot::errors::{ErrorBody, ErrorPage};

/// The form of the gateway's own responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ErrorText {
    /// A form that needs no file.
    Ready(ErrorBody),
    /// The path of the file with the body.
    File(String),
}

/// The words for forms that need no file.
static FORMS: [(&str, ErrorBody); 4] = [
    ("problem+json", ErrorBody::Problem),
    ("text", ErrorBody::Text),
    ("html", ErrorBody::Html),
    ("accept", ErrorBody::ByAccept),
];

/// The word for a body, unless the body comes from a file.
pub(in crate::config) fn error_word(body: &ErrorBody) -> Option<&'static str> {
    let mut forms = FORMS.iter();
    forms.find(|(_, form)| form == body).map(|(word, _)| *word)
}

/// Reads `problem+json`, `text`, `html`, `accept` or `file:PATH`.
pub(in crate::config) fn error_text(text: &str) -> Result<ErrorText, ValueError> {
    const WORDS: [&str; 5] = ["problem+json", "text", "html", "accept", "file:PATH"];
    if let Some((_, body)) = FORMS.iter().find(|(word, _)| *word == text) {
        return Ok(ErrorText::Ready(body.clone()));
    }
    let Some(path) = text.strip_prefix("file:") else {
        return Err(ValueError::choice("body", text, &WORDS));
    };
    if path.is_empty() || !ErrorPage::ENDS.iter().any(|end| path.ends_with(end)) {
        let ends = one_of(&ErrorPage::ENDS);
        let label = format!("its name must end with {ends}");
        let what = "does not say what kind of file it is";
        return Err(ValueError::of(Code::BadChoice, text, what, label));
    }
    Ok(ErrorText::File(path.to_owned()))
}

/// Reads `10%`, up to 100.
pub(in crate::config) fn percent(text: &str) -> Result<u8, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(
            Code::BadNumber,
            text,
            "is not a share of the time to wait",
            label,
        )
    };
    let Some(digits) = text.strip_suffix('%') else {
        let meant = text.parse::<u8>().ok().map(|number| format!("{number}%"));
        return Err(wrong("must be whole percents").offer(meant));
    };
    match digits.parse::<u8>() {
        Ok(percent) if percent <= 100 && !digits.starts_with('+') => Ok(percent),
        _ => Err(wrong("must be from `0%` to `100%`")),
    }
}

/// Reads a tag that groups counters.
pub(in crate::config) fn tag(text: &str) -> Result<String, ValueError> {
    name(text, "cannot be a tag")
}

/// Reads a name that clients see.
pub(in crate::config) fn public_name(text: &str) -> Result<String, ValueError> {
    let joined = text.split_ascii_whitespace().collect::<Vec<_>>().join("-");
    name(text, "cannot be the name of a limit").map_err(|wrong| wrong.offer([joined]))
}

/// Reads the prefix of every key in Redis, which a `:` follows.
pub(in crate::config) fn key_prefix(text: &str) -> Result<String, ValueError> {
    if is_name(text, b"_-.") {
        return Ok(text.to_owned());
    }
    let message = "this cannot be in front of every Redis key";
    let label = "letters, digits, `_`, `-` and `.`, at most 64 of them";
    Err(ValueError::new(Code::BadName, message, label))
}

/// Reads a name of the characters that the name of a limit can have.
fn name(text: &str, what: &str) -> Result<String, ValueError> {
    if is_name(text, b"_-") {
        return Ok(text.to_owned());
    }
    let label = "1 to 64 letters, digits, `_` and `-`";
    Err(ValueError::of(Code::BadName, text, what, label))
}

/// Does `text` consist of 1 to 64 letters, digits and `others`?
pub(in crate::config) fn is_name(text: &str, others: &[u8]) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_good)
}
