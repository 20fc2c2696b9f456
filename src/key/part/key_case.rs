//! Texts of keys in which case and blanks at the ends do not count.

use super::{SUBJECT, write_value};
use crate::key::{DigestText, percent};
use std::borrow::Cow;

/// Whether two texts that differ in case, or in blanks at their ends, are different keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyCase {
    /// They are.
    #[default]
    Sensitive,
    /// They are one: texts count in Unicode's lower case, without blanks at either end.
    Insensitive,
}

impl KeyCase {
    /// The text that counts.
    pub(in crate::key) fn text(self, value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
        match self {
            Self::Sensitive => value,
            Self::Insensitive => Cow::Owned(fold(&value)),
        }
    }
}

/// The text in lower case, without blanks at either end. Bytes that are not UTF-8 stay.
fn fold(value: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(value) {
        Ok(text) => text.trim().to_lowercase().into_bytes(),
        Err(_) => value.trim_ascii().to_ascii_lowercase(),
    }
}

/// Writes a part that a log has, in the form in which it counts here. Digests, addresses and other parts that are no
/// texts stay.
pub(in crate::key) fn write_logged(piece: &[u8], out: &mut Vec<u8>) {
    let is_text = |text: &[u8]| match text {
        [b'%', kind, ..] => !kind.is_ascii_lowercase() || kind.is_ascii_hexdigit(),
        _ => true,
    };
    let (front, text) = match piece.strip_prefix(SUBJECT) {
        Some(rest) => {
            let colon = rest.iter().position(|byte| *byte == b':');
            let at = colon.map_or(piece.len(), |colon| SUBJECT.len() + colon + 1);
            piece.split_at(at)
        }
        None => piece.split_at(0),
    };
    out.extend_from_slice(front);
    if is_text(text) && DigestText::read(text).is_none() {
        write_value(&fold(&percent::decode(text)), false, out);
    } else {
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_count_in_lower_case_without_blanks_at_their_ends() {
        for (text, counted) in [
            ("ANNA", "anna"),
            ("  Anna\t", "anna"),
            ("\u{a0}ÄNNE ", "änne"),
            ("a b", "a b"),
            ("ΣΑΣ", "σας"),
            ("", ""),
        ] {
            let found = KeyCase::Insensitive.text(text.as_bytes().into());
            assert_eq!(&*found, counted.as_bytes(), "{text}");
            let same = KeyCase::Sensitive.text(text.as_bytes().into());
            assert_eq!(&*same, text.as_bytes());
        }
        let found = KeyCase::Insensitive.text(b" A\xff ".as_slice().into());
        assert_eq!(&*found, b"a\xff");
    }

    #[test]
    fn parts_of_a_log_are_texts_or_stay() {
        for (piece, counted) in [
            ("ANNA", "anna"),
            ("%C3%84", "%C3%A4"),
            ("%20A%20", "a"),
            ("%ip=192.0.2.1", "%ip=192.0.2.1"),
            ("%none", "%none"),
            (
                "%sha=00000000000000000000000000000000",
                "%sha=00000000000000000000000000000000",
            ),
            ("%tls=AB:CN%3DAnna", "%tls=AB:cn%3Danna"),
        ] {
            let mut out = Vec::new();
            write_logged(piece.as_bytes(), &mut out);
            assert_eq!(out, counted.as_bytes(), "{piece}");
        }
    }
}
