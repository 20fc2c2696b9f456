//! The parameters of a query, decoded byte for byte (URL Standard, section 5.1).

use super::percent;
use std::borrow::Cow;

/// The values of the parameters of this name.
pub(super) fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    pairs.filter_map(move |pair| {
        let (key, value) = split_pair(pair);
        (*decoded(key) == *name.as_bytes()).then(|| decoded(value))
    })
}

/// Would another reader find a value of this name that this one does not find? Some readers also split parameters at
/// `;`, and some do not compare names byte for byte.
#[must_use]
pub(super) fn is_read_elsewhere(query: &str, name: &str) -> bool {
    let mut pairs = query.as_bytes().split(|byte| *byte == b'&');
    pairs.any(|pair| {
        let is_whole = !pair.contains(&b';');
        let mut parts = pair.split(|byte| *byte == b';');
        parts.any(|part| {
            let (key, value) = split_pair(part);
            let key = decoded(key);
            let is_found = is_whole && *key == *name.as_bytes();
            !value.is_empty() && !is_found && is_taken_for(&key, name.as_bytes())
        })
    })
}

/// Does any common reader treat `key` as `name`? Some ignore case. Some remove the blanks around a name, and the text
/// behind its first NUL. Many read `k[]` and `k[x]` as entries of `k`. PHP writes `_` for characters that its variables
/// cannot have.
fn is_taken_for(key: &[u8], name: &[u8]) -> bool {
    let key = key.trim_ascii_start();
    let is_same = |(key, name): (&u8, &u8)| {
        key.eq_ignore_ascii_case(name) || *name == b'_' && matches!(*key, b'.' | b' ' | b'[')
    };
    let name = name.trim_ascii_start();
    let Some((start, rest)) = key.split_at_checked(name.len()) else {
        return false;
    };
    let ends = match rest.first() {
        None | Some(b'[' | 0) => true,
        Some(_) => rest.trim_ascii_start().is_empty(),
    };
    ends && start.iter().zip(name).all(is_same)
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, &[]),
    }
}

/// Text that is not an escape stays unchanged.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut text = text.to_vec();
    for byte in text.iter_mut().filter(|byte| **byte == b'+') {
        *byte = b' ';
    }
    Cow::Owned(percent::decode(&text))
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
        for query in [
            "x;k=a",
            "x=1;k=a",
            "K=a",
            "k=;k=a",
            "k=a;b",
            "k=a&K=b",
            "k[]=a",
            "k[0]=a",
            "x&K%5Bx%5D[y]=a",
            "%20k=a",
            "+k=a",
            "%09k=a",
            "k+=a",
            "k%00=a",
            "k%00x=a",
        ] {
            assert!(is_read_elsewhere(query, "k"), "{query}");
        }
        for query in [
            "", "k", "k=", "k=a", "k=&%6B=a", "x=k=a", "xk=a", "x;k=", "k%3Da", "k[]", "k[]=",
            "k.x=a", "k_=a", "kx=a", "x[k]=a", "[k]=a", "k+x=a", "%00k=a",
        ] {
            assert!(!is_read_elsewhere(query, "k"), "{query}");
        }
        for query in ["my.key=a", "my%20key=a", "my+key[]=a", "My[key=a"] {
            assert!(is_read_elsewhere(query, "my_key"), "{query}");
        }
        assert!(is_read_elsewhere("k.=a", "k_") && !is_read_elsewhere("my_key=a", "my.key"));
    }
}
