//! The parameters of a query, decoded byte for byte (URL Standard, section 5.1).

use super::cookie::percent_decode;
use std::borrow::Cow;

/// The values of the parameters of this name.
pub(super) fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    pairs.filter_map(move |pair| {
        let (key, value) = halves(pair);
        (*decoded(key) == *name.as_bytes()).then(|| decoded(value))
    })
}

/// Would another reader find a value of this name, where this one finds none? Some part parameters at `;` too, and some
/// do not look at the case of names.
#[must_use]
pub(super) fn is_read_elsewhere(query: &str, name: &str) -> bool {
    let mut pairs = query.as_bytes().split(|byte| matches!(byte, b'&' | b';'));
    pairs.any(|pair| {
        let (key, value) = halves(pair);
        !value.is_empty() && decoded(key).eq_ignore_ascii_case(name.as_bytes())
    })
}

fn halves(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, &[]),
    }
}

/// What is no escape stays as it is.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut text = text.to_vec();
    for byte in text.iter_mut().filter(|byte| **byte == b'+') {
        *byte = b' ';
    }
    Cow::Owned(percent_decode(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_byte_for_byte() {
        let all = |query| {
            values(query, "a b")
                .map(Cow::into_owned)
                .collect::<Vec<_>>()
        };
        for (query, value) in [
            ("a+b=c", &b"c"[..]),
            ("x&a%20b=%20c+&y", b" c "),
            ("%61+b=%ff", b"\xff"),
            ("a+b=%2B%zz%", b"+%zz%"),
            ("a+b", b""),
            ("a+b=c=d;e", b"c=d;e"),
        ] {
            assert_eq!(all(query), [value.to_vec()], "{query}");
        }
        assert!(all("").is_empty() && all("a=b&A+B=c&x;a+b=c").is_empty());
    }

    #[test]
    fn what_others_find_is_seen() {
        for query in ["x;k=a", "x=1;k=a", "K=a", "k=&%6B=a", "k=;k=a"] {
            assert!(is_read_elsewhere(query, "k"), "{query}");
        }
        for query in ["", "k", "k=", "x=k=a", "xk=a", "x;k=", "k%3Da"] {
            assert!(!is_read_elsewhere(query, "k"), "{query}");
        }
    }
}
