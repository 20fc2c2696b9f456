//! What clients authenticate with, in the one spelling that it is counted by (RFC 9110, section 11.4).
//!
//! A scheme has no case, and how many blanks follow it means nothing: whoever could spell one credential in several ways
//! would have a counter for each. What is one word alone has no scheme, and its letters are its own.

use http::{HeaderName, header};
use smallvec::SmallVec;

/// A credential as it is counted; hardly any is longer than this, and then it has room of its own.
pub type Spelled = SmallVec<[u8; 1024]>;

/// Are the values of this field credentials?
#[must_use]
pub fn is_in(field: &HeaderName) -> bool {
    *field == header::AUTHORIZATION || *field == header::PROXY_AUTHORIZATION
}

/// `value` with its scheme in small letters, and one blank where there are several, or tabs.
#[must_use]
pub fn spelled(value: &[u8]) -> Spelled {
    let mut words = value.split(is_blank).filter(|word| !word.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    let mut spelled = Spelled::from_slice(first);
    if let Some(second) = second {
        spelled.make_ascii_lowercase();
        for word in std::iter::once(second).chain(words) {
            spelled.push(b' ');
            spelled.extend_from_slice(word);
        }
    }
    spelled
}

/// What stands around the value of a field on the wire, and between a scheme and what follows it.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `value` without the blanks around it, which no field's value has (RFC 9110, section 5.5).
#[must_use]
pub fn trim(value: &[u8]) -> &[u8] {
    let starts = value.iter().position(|byte| !is_blank(byte));
    let ends = value.iter().rposition(|byte| !is_blank(byte));
    match (starts, ends) {
        (Some(start), Some(end)) => &value[start..=end],
        _ => &[],
    }
}

/// The token of a credential that is `Bearer`, blanks, and a token; nothing where it is something else.
#[must_use]
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = trim(value);
    let end = value.iter().position(is_blank).unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    scheme.eq_ignore_ascii_case(BEARER).then(|| trim(rest))
}

/// Could somebody read a `Bearer` credential out of `value`: in a list, behind other words, with whatever between the
/// scheme and the token? Verifiers that look for the word are common.
#[must_use]
pub fn may_be_bearer(value: &[u8]) -> bool {
    let value = trim(value);
    let mut all = value.windows(BEARER.len()).enumerate();
    all.any(|(at, word)| {
        word.eq_ignore_ascii_case(BEARER)
            && at + BEARER.len() < value.len()
            && at
                .checked_sub(1)
                .is_none_or(|before| !is_of_a_word(value[before]))
    })
}

const BEARER: &[u8] = b"bearer";

/// Inside such, `bearer` is a piece of another word: of a name with hyphens, or of what Base64 makes of something.
fn is_of_a_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'/' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_credential_are_one() {
        for spelling in [
            "Bearer aB.c",
            "bearer aB.c",
            "BEARER   aB.c",
            "bEaReR\taB.c",
            "  Bearer \t aB.c\t ",
        ] {
            assert_eq!(&*spelled(spelling.as_bytes()), b"bearer aB.c", "{spelling}");
        }
        for (value, counted) in [
            ("aB.c", "aB.c"),
            (" aB.c ", "aB.c"),
            ("", ""),
            ("\t", ""),
            ("Digest a=\"B\",  c=d", "digest a=\"B\", c=d"),
        ] {
            assert_eq!(&*spelled(value.as_bytes()), counted.as_bytes(), "{value}");
        }
        let long = "k".repeat(5000);
        let value = format!("Token  {long}");
        assert_eq!(spelled(value.as_bytes()).len(), 5006);
    }

    #[test]
    fn a_bearer_is_seen_in_any_spelling_and_in_no_other_word() {
        for (value, token) in [
            ("Bearer t", Some("t")),
            ("bearer\tt", Some("t")),
            ("BEARER \t t ", Some("t")),
            ("Bearer", Some("")),
            ("Bearer t==", Some("t==")),
            ("Bearer t, Basic x", Some("t, Basic x")),
            ("Basic t", None),
            ("\"Bearer t\"", None),
            ("Bearert", None),
        ] {
            let found = bearer(value.as_bytes());
            assert_eq!(found, token.map(str::as_bytes), "{value}");
        }
        for value in [
            "Basic x, Bearer t",
            "Basic x,bearer t",
            "Basic x Bearer t",
            "\"Bearer t\"",
            "'bearer t'",
            "Bearer:t",
            "Bearer=t",
            "Bearert",
            "=Bearer t",
            "\u{a0}Bearer t",
        ] {
            assert!(may_be_bearer(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "Basic x",
            "Basic YmVhcmVyOng=",
            "Basic ab+bearerab/bearer",
            "Bearer",
            "AWS4-HMAC-SHA256 SignedHeaders=host;x-bearer-id, Signature=0",
            "Negotiate YII",
        ] {
            assert!(!may_be_bearer(value.as_bytes()), "{value}");
        }
    }
}
