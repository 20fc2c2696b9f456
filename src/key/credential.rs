//! Credentials of clients, in the one spelling that limits count by (RFC 9110, section 11.4).
//!
//! A scheme is case-insensitive, and the number of blanks after it has no meaning. Without one spelling, a client that
//! spells one credential in several ways would have a counter for each. A single word has no scheme, and keeps the case
//! of its letters.

pub(super) mod basic;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use http::{HeaderName, header};
use smallvec::SmallVec;

/// A credential in the form that counts. Hardly any is longer than this; a longer one is allocated.
pub type CredentialText = SmallVec<[u8; 1024]>;

/// Are the values of this field credentials?
#[must_use]
pub fn is_in(field: &HeaderName) -> bool {
    *field == header::AUTHORIZATION || *field == header::PROXY_AUTHORIZATION
}

/// `value` with its scheme in lower case, and one blank in place of several, or of tabs.
#[must_use]
pub fn spelled(value: &[u8]) -> CredentialText {
    let mut words = value.split(is_blank).filter(|word| !word.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    let mut spelled = CredentialText::from_slice(first);
    if let Some(second) = second {
        spelled.make_ascii_lowercase();
        for word in std::iter::once(second).chain(words) {
            spelled.push(b' ');
            spelled.extend_from_slice(word);
        }
    }
    spelled
}

/// The blanks around a field's value on the wire, and between a scheme and its credential.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `value` without the blanks around it, which belong to no field's value (RFC 9110, section 5.5).
#[must_use]
pub fn trim(value: &[u8]) -> &[u8] {
    let starts = value.iter().position(|byte| !is_blank(byte));
    let ends = value.iter().rposition(|byte| !is_blank(byte));
    match (starts, ends) {
        (Some(start), Some(end)) => &value[start..=end],
        _ => &[],
    }
}

/// The token of a credential of the form `Bearer`, blanks, token; `None` for any other form.
#[must_use]
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = trim(value);
    let end = value.iter().position(is_blank).unwrap_or(value.len());
    let (scheme, rest) = value.split_at(end);
    scheme.eq_ignore_ascii_case(BEARER).then(|| trim(rest))
}

/// Could a verifier read a `Bearer` credential from `value`: in a list, after other words, or with any text between the
/// scheme and the token? Verifiers that search for the word are common. A quoted parameter belongs to its own scheme,
/// unless the parameter holds a token: a verifier that searches for the word, or splits at commas, ignores quotes.
#[must_use]
pub fn may_be_bearer(value: &[u8]) -> bool {
    may_be_of(BEARER, begins_with_token, value)
}

/// The text behind `Basic` at the start of a credential without blanks around it; blanks are part of the text.
fn behind_basic(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(BASIC.len())?;
    scheme.eq_ignore_ascii_case(BASIC).then_some(rest)
}

/// Could a verifier read a `Basic` credential from `value`, which does not begin with one? Verifiers that search for
/// the word are common.
fn may_be_basic(value: &[u8]) -> bool {
    may_be_of(BASIC, begins_with_user, value)
}

/// Could a verifier read a credential of `scheme` from `value`? A quoted parameter counts only if a credential follows
/// the word there.
fn may_be_of(scheme: &[u8], begins_with_credential: fn(&[u8]) -> bool, value: &[u8]) -> bool {
    let value = trim(value);
    let mut is_first = true;
    let mut unquoted = 0;
    for (at, &byte) in value.iter().enumerate() {
        let (before, here) = value.split_at(at);
        if byte == b'"' && at >= unquoted && is_parameter(before) {
            unquoted = at + quoted(here).unwrap_or(1);
        }
        let is_inside = before.last().is_some_and(|before| is_of_a_word(*before));
        let word = here.get(..scheme.len());
        if !is_inside && word.is_some_and(|word| word.eq_ignore_ascii_case(scheme)) {
            let behind = &here[scheme.len()..];
            // Some verifiers accept any text after the letters of the scheme.
            let is_one = match behind.first() {
                None => false,
                Some(_) if is_first => true,
                Some(next) => {
                    ends_a_scheme(*next) && (at >= unquoted || begins_with_credential(behind))
                }
            };
            if is_one {
                return true;
            }
        }
        is_first &= !is_of_a_word(byte);
    }
    false
}

/// Does `before` end in a name and `=`, so that what follows is a parameter's value?
fn is_parameter(before: &[u8]) -> bool {
    let name = trim(before).strip_suffix(b"=").map(trim);
    name.and_then(<[u8]>::last)
        .is_some_and(|last| is_of_a_word(*last))
}

/// The length of the quoted string at the start of `text` (RFC 9110, section 5.6.4), if the string is complete.
fn quoted(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })?;
    Some(end + 2)
}

/// Does `text` begin with a token of three parts? A signed token has three (RFC 7515, section 7.1).
fn begins_with_token(text: &[u8]) -> bool {
    let mut text = text.iter().skip_while(|byte| ends_a_scheme(**byte));
    let token = text.by_ref().take_while(|byte| is_of_a_word(**byte));
    token.filter(|byte| **byte == b'.').count() >= 2
}

/// Does `text` begin with a user and a password in Base64, as lenient decoders read it: with or without padding, and with
/// any bits behind the last byte?
fn begins_with_user(text: &[u8]) -> bool {
    let text = text.iter().skip_while(|byte| ends_a_scheme(**byte));
    let letters = text.take_while(|byte| is_of_base64url(**byte) || matches!(byte, b'+' | b'/'));
    let mut letters: Vec<u8> = letters
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => *byte,
        })
        .collect();
    if letters.len() % 4 == 1 {
        letters.pop();
    }
    let decoded = LENIENT.decode(letters);
    decoded.is_ok_and(|decoded| decoded.contains(&b':'))
}

/// Is there a token of three parts in `value`, under any scheme, or under none? Some verifiers would trust it: they
/// take the last word of a credential, or skip the length of `Bearer`, with a blank or without. The head of a token is
/// JSON, whose beginning is `eyJ` in Base64. Lenient decoders know both alphabets of Base64, and its padding.
#[must_use]
pub fn may_be_token(value: &[u8]) -> bool {
    let value = trim(value);
    let mut before = 0;
    value.split(|byte| !is_of_base64(*byte)).any(|word| {
        let at = before;
        before += word.len() + 1;
        let may_begin = |nth: usize| {
            let behind = nth.checked_sub(1).map(|nth| word[nth]);
            behind.is_none_or(|byte| !is_of_base64url(byte)) || is_behind_bearer(at + nth)
        };
        let mut starts = (0..word.len()).filter(|nth| word[*nth..].starts_with(JSON));
        let start = starts.find(|nth| may_begin(*nth));
        let dots = |start: usize| word[start..].iter().filter(|byte| **byte == b'.');
        start.is_some_and(|start| dots(start).take(2).count() == 2)
    })
}

/// Would a reader that skips the length of `Bearer` begin here?
fn is_behind_bearer(at: usize) -> bool {
    at == BEARER.len() || at == BEARER.len() + 1
}

fn is_of_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Is it a byte of a token, in either alphabet of Base64?
fn is_of_base64(byte: u8) -> bool {
    is_of_base64url(byte) || matches!(byte, b'.' | b'+' | b'/' | b'=')
}

/// May a token begin after this byte? Beyond ASCII there are other blanks.
fn ends_a_scheme(byte: u8) -> bool {
    is_blank(&byte) || matches!(byte, b'=' | b':' | b'"' | b'\'') || !byte.is_ascii()
}

const BEARER: &[u8] = b"bearer";
const BASIC: &[u8] = b"basic";

/// The most lenient decoder of Base64.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The beginning of a JSON object with a name, in Base64.
const JSON: &[u8] = b"eyJ";

/// Does this byte belong to a word? After such a byte, `bearer` is a part of another word: of a name with hyphens, or
/// of Base64.
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
            "Bearer\u{a0}t",
            "Bearer-t",
            ",;Bearert",
            "\"Bearer\" t",
            "Basic x, \"Bearer t\"",
            "Basic x,bearer:t",
            "Basic x,\tBearer\tt",
            "Basic x,Bearer\u{a0}t",
            "Basic Bearer t",
            "Digest realm=\"r\", Bearer t",
            "Digest realm=\"a \\\" b\", Bearer t",
            "Digest realm=\"r, Bearer t",
            "=\"Bearer t\"",
            "Digest realm=\"Bearer a.b.c\"",
            "Digest realm=\"x, Bearer \ta.b.c\", nonce=\"x\"",
            "Digest realm=\"\\\", Bearer a.b.c, x=\"",
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
            "Digest username=\"bearer\", realm=\"r\"",
            "Digest username=\"bob\", realm=\"Bearer tokens\", nonce=\"x\"",
            "Digest realm=\"Bearer tokens of 1.2.3\", nonce=\"x\"",
            "Digest realm = \"a \\\" Bearer t\", nonce=\"x\"",
            "OAuth oauth_token=\"bearer\"",
            "OAuth token_type=Bearer, x=y",
            "ApiKey bearer-key",
            "Hawk id=\"bearer-1\"",
            "Basic Bearer+x",
            "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=bearer;host, Signature=y",
            "Basic x, Bearer",
        ] {
            assert!(!may_be_bearer(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn a_token_is_seen_under_every_scheme_and_none() {
        for value in [
            "eyJh.eyJz.c2ln",
            "JWT eyJh.eyJz.c2ln",
            "Token\teyJh.eyJz.c2ln",
            "token=eyJh.eyJz.c2ln",
            "Token token=\"eyJh.eyJz.c2ln\", x=y",
            "DPoP eyJh.eyJz.c2ln",
            "JWT:eyJh.eyJz.c2ln",
            "xxxxxxeyJh.eyJz.c2ln",
            "xxxxxxxeyJh.eyJz.c2ln",
            "x.eyJh.eyJz.c2ln",
            "Basic x, JWT eyJh.eyJz.c2ln",
            "\u{a0}eyJh.eyJz.c2ln",
            // An unsigned token, a token with detached claims, and an encrypted token of five parts.
            "OAuth eyJh.eyJz.",
            "OAuth eyJh..c2ln",
            "OAuth eyJh.a.b.c.d",
            "OAuth eyJ+/a==.eyJz=.c2ln==",
        ] {
            assert!(may_be_token(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "eyJh",
            "Basic eyJhOmI=",
            "Token eyJh.eyJz",
            "Token eyJh eyJz.c2ln",
            "Token a.b.eyJz",
            "Api xeyJh.eyJz.c2ln",
            "Token EYJH.EYJZ.c2ln",
            "AWS4-HMAC-SHA256 Credential=a.b.c, SignedHeaders=host, Signature=eyJ",
            "ApiKey v1.2.3",
        ] {
            assert!(!may_be_token(value.as_bytes()), "{value}");
        }
    }

    /// The value may be as long as a whole head.
    #[test]
    fn a_long_value_is_read_once() {
        for piece in ["a=\"", "a=\\\"", "a= \"\\", "bearer", "= ", "\" "] {
            let long = format!("x {}", piece.repeat(300_000));
            // If the value were read again for each of these, the test would not end.
            assert!(!may_be_bearer(long.as_bytes()), "{piece}");
        }
        for piece in ["a=\"", "a= \"\\", "basic", "= ", "a=\"basic ", "\"basic\""] {
            let long = format!("x {}", piece.repeat(300_000));
            let _ = may_be_basic(long.as_bytes());
        }
        for piece in ["eyJ", "eyJ ", ".", "eyJ=", "xeyJ"] {
            assert!(!may_be_token(piece.repeat(300_000).as_bytes()), "{piece}");
        }
    }
}
