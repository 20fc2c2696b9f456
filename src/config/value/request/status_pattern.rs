//! Statuses of answers, as `refund` and `cost.status` name them.

use crate::config::report::nearest;
use crate::config::value::{Code, ValueError};
use crate::key::StatusPattern;

/// The advice about a text that names no status.
const FORMS: &str =
    "write a status from 200 to 599, a class from `2xx` to `5xx`, or `grpc-0` to `grpc-16`";

/// Reads `401`, `4xx` or `grpc-14`; `word` is a word that the key takes, too.
pub(in crate::config) fn status_pattern(
    text: &str,
    word: &'static str,
) -> Result<StatusPattern, ValueError> {
    StatusPattern::of(text).ok_or_else(|| {
        let lower = text.trim().to_ascii_lowercase();
        let similar = match (lower.strip_prefix("grpc"), lower.as_bytes()) {
            (Some(status), _) => format!("grpc-{}", status.trim_matches(['-', '_', ' '])),
            (None, [class, _, b'x']) => format!("{}xx", char::from(*class)),
            (None, _) => lower,
        };
        let is_word = nearest(text, [word]).is_some();
        let offer = match StatusPattern::of(&similar) {
            Some(_) => Some(similar),
            None => is_word.then(|| word.to_owned()),
        };
        ValueError::of(
            Code::BadStatus,
            text,
            "is no status of an answer",
            format!("a status, a class, or `{word}`"),
        )
        .offer(offer)
        .help(FORMS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_offered() {
        for (text, offer) in [
            ("4XX", Some("4xx")),
            ("50x", Some("5xx")),
            ("grpc14", Some("grpc-14")),
            ("GRPC_16", Some("grpc-16")),
            ("cancels", Some("cancel")),
            (" 401", Some("401")),
            ("600", None),
            ("1xx", None),
            ("errors", None),
            ("", None),
        ] {
            let wrong = status_pattern(text, "cancel").expect_err(text);
            assert_eq!(wrong.code, Code::BadStatus);
            assert_eq!(wrong.offers.first().map(String::as_str), offer, "{text}");
        }
        assert!(status_pattern("401", "cancel").is_ok());
    }
}
