//! Values for responses of the gateway: error bodies, percentages, public names.

use super::{Code, ValueError, quoted, with_valid_offers};
use crate::snapshot::errors::Page;

/// What the gateway's own responses look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ErrorText {
    Problem,
    Text,
    Html,
    Accept,
    File(String),
}

/// Reads `problem+json`, `text`, `html`, `accept` or `file:PATH`.
pub(in crate::config) fn error_text(text: &str) -> Result<ErrorText, ValueError> {
    const WORDS: [&str; 5] = ["problem+json", "text", "html", "accept", "file:PATH"];
    match text {
        "problem+json" => return Ok(ErrorText::Problem),
        "text" => return Ok(ErrorText::Text),
        "html" => return Ok(ErrorText::Html),
        "accept" => return Ok(ErrorText::Accept),
        _ => {}
    }
    let Some(path) = text.strip_prefix("file:") else {
        return Err(ValueError::choice("body", text, &WORDS));
    };
    if path.is_empty() || !Page::ENDS.iter().any(|end| path.ends_with(end)) {
        return Err(ValueError::new(
            Code::BadChoice,
            format!("{} does not say what kind of file it is", quoted(text)),
            format!(
                "its name must end with {}",
                crate::config::suggest::one_of(&Page::ENDS)
            ),
        ));
    }
    Ok(ErrorText::File(path.to_owned()))
}

/// Reads `10%`, up to 100.
pub(in crate::config) fn percent(text: &str) -> Result<u8, ValueError> {
    with_valid_offers(text, |text| {
        let wrong = |label: &str| {
            let message = format!("{} is not a share of the time to wait", quoted(text));
            ValueError::new(Code::BadNumber, message, label)
        };
        let Some(digits) = text.strip_suffix('%') else {
            let meant = text.parse::<u8>().ok().map(|number| format!("{number}%"));
            return Err(wrong("must be whole percents").offer(meant));
        };
        match digits.parse::<u8>() {
            Ok(percent) if percent <= 100 && !digits.starts_with('+') => Ok(percent),
            _ => Err(wrong("must be from `0%` to `100%`")),
        }
    })
}

/// Reads a tag that counters share.
pub(in crate::config) fn tag(text: &str) -> Result<String, ValueError> {
    name(text, "cannot be a tag")
}

/// Reads a name for the wire.
pub(in crate::config) fn public_name(text: &str) -> Result<String, ValueError> {
    name(text, "cannot be the name of a limit")
}

/// Reads a name of the characters that the name of a limit may have.
fn name(text: &str, what: &str) -> Result<String, ValueError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_good) {
        return Ok(text.to_owned());
    }
    let label = "1 to 64 letters, digits, `_` and `-`";
    Err(ValueError::of(Code::BadName, text, what, label))
}
