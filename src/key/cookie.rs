//! The value of a cookie as upstreams read it: spellings that any common framework takes for one value are one.
//!
//! RFC 6265 leaves the value to the server. Most take one pair of double quotes away (some then read `\"` and `\101`
//! inside them, as Python does), and most decode percents, once. Whoever could spell one session in several ways would
//! have a counter for each. Two sessions that differ only so would share one, and no server hands out such.

use std::borrow::Cow;

/// `value` without its quotes and escapes.
#[must_use]
pub fn read(value: &[u8]) -> Cow<'_, [u8]> {
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let plain = match quoted {
        Some(inner) if inner.contains(&b'\\') => Cow::Owned(unquote(inner)),
        Some(inner) => Cow::Borrowed(inner),
        None => Cow::Borrowed(value),
    };
    if !plain.contains(&b'%') {
        return plain;
    }
    Cow::Owned(percent_decode(&plain))
}

fn unquote(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let (b'\\', Some((&next, after))) = (byte, behind.split_first()) else {
            out.push(byte);
            continue;
        };
        let octal = behind.get(..3).and_then(|digits| {
            let value = digits.iter().try_fold(0_u32, |value, digit| {
                Some(value * 8 + char::from(*digit).to_digit(8)?)
            })?;
            u8::try_from(value).ok()
        });
        match octal {
            Some(decoded) => {
                out.push(decoded);
                rest = &behind[3..];
            }
            None => {
                out.push(next);
                rest = after;
            }
        }
    }
    out
}

/// What is no escape stays as it is.
fn percent_decode(value: &[u8]) -> Vec<u8> {
    let hex = |byte: Option<&u8>| {
        let digit = char::from(*byte?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, hex(behind.first()), hex(behind.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                rest = &behind[2..];
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_value_are_one() {
        for spelling in [
            "a.b=",
            "\"a.b=\"",
            "a%2Eb=",
            "a%2eb%3D",
            "\"a%2eb%3d\"",
            "\"\\141.b=\"",
            "\"\\a.b=\"",
            "%61%2e%62%3d",
        ] {
            assert_eq!(&*read(spelling.as_bytes()), b"a.b=", "{spelling}");
        }
        for as_it_is in [
            "", "\"", "a\"b", "\"a", "a%", "a%2", "a%zz", "a+b", "a\\b", "%%", "100%",
        ] {
            assert_eq!(&*read(as_it_is.as_bytes()), as_it_is.as_bytes());
        }
        assert_eq!(&*read(b"%2561"), b"%61", "once");
        assert_eq!(&*read(b"\"\\"), b"\"\\");
        assert_eq!(&*read(b"\"a\\\""), b"a\\", "a backslash before nothing");
        assert_eq!(&*read(b"\"\\777\""), b"777", "no byte");
        assert_eq!(&*read(b"%ff\xff"), b"\xff\xff");
    }
}
