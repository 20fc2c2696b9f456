//! Cookies, and the value of one as upstreams read it: spellings that any common framework takes for one value are one.
//!
//! RFC 6265 leaves the value to the server. Most take one pair of double quotes away (some then read `\"` and `\101`
//! inside them, as Python does), and most decode percents, once. Whoever could spell one session in several ways would
//! have a counter for each. Two sessions that differ only so would share one, and no server hands out such.

use http::{HeaderMap, header};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

/// The cookies of one request: taken apart when a limit first asks for one, and once.
pub struct Cookies<'a> {
    fields: &'a HeaderMap,
    pairs: OnceCell<SmallVec<[Pair; 8]>>,
}

/// Where in which `Cookie` line a name and its value stand, each from its first byte to behind its last.
#[derive(Debug, Clone, Copy)]
struct Pair {
    line: usize,
    name: (usize, usize),
    value: (usize, usize),
}

impl<'a> Cookies<'a> {
    /// Those of a request with these fields.
    #[must_use]
    pub fn of(fields: &'a HeaderMap) -> Self {
        Self {
            fields,
            pairs: OnceCell::new(),
        }
    }

    /// The values of the cookies of this name, over all `Cookie` lines (RFC 6265, section 4.2; HTTP/2 may send a line for
    /// each).
    pub fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Cow<'a, [u8]>> + 's {
        let mut lines = self.lines().enumerate();
        let mut line = lines.next();
        self.pairs().iter().filter_map(move |pair| {
            while line.is_some_and(|(number, _)| number < pair.line) {
                line = lines.next();
            }
            let (_, line) = line?;
            let of = |(start, end): (usize, usize)| line.get(start..end);
            (of(pair.name)? == name.as_bytes()).then(|| of(pair.value).map(read))?
        })
    }

    /// Would another reader find a value of this name, where this one finds none? Some part cookies at commas too, as older
    /// standards have it (RFC 2965, section 3.3.4), and some do not look at the case of names.
    #[must_use]
    pub fn are_read_elsewhere(&self, name: &str) -> bool {
        let pieces = |line: &'a [u8]| line.split(|byte| matches!(byte, b';' | b','));
        self.lines().flat_map(pieces).any(|piece| {
            let Some(equals) = piece.iter().position(|byte| *byte == b'=') else {
                return false;
            };
            let (key, value) = (&piece[..equals], &piece[equals + 1..]);
            let is_named = key.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
            is_named && !value.trim_ascii().is_empty()
        })
    }

    fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = self.fields.get_all(header::COOKIE).into_iter();
        lines.map(http::HeaderValue::as_bytes)
    }

    fn pairs(&self) -> &[Pair] {
        self.pairs.get_or_init(|| {
            let mut pairs = SmallVec::new();
            for (number, line) in self.lines().enumerate() {
                let mut start = 0;
                for piece in line.split(|byte| *byte == b';') {
                    pairs.extend(Pair::of(number, start, piece));
                    start += piece.len() + 1;
                }
            }
            pairs
        })
    }
}

impl Pair {
    /// What `piece` of a line says, which begins at `start` there.
    fn of(line: usize, start: usize, piece: &[u8]) -> Option<Self> {
        let equals = piece.iter().position(|byte| *byte == b'=')?;
        let behind = equals + 1;
        Some(Self {
            line,
            name: without_blanks(start, &piece[..equals]),
            value: without_blanks(start + behind, &piece[behind..]),
        })
    }
}

/// Where `text`, which begins at `start`, begins and ends without the blanks around it.
fn without_blanks(start: usize, text: &[u8]) -> (usize, usize) {
    let start = start + text.len() - text.trim_ascii_start().len();
    (start, start + text.trim_ascii().len())
}

/// No cookie is shown.
impl fmt::Debug for Cookies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

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
pub(super) fn percent_decode(value: &[u8]) -> Vec<u8> {
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

    #[test]
    fn what_others_find_is_seen() {
        let elsewhere = |line: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(header::COOKIE, http::HeaderValue::from_static(line));
            Cookies::of(&fields).are_read_elsewhere("sid")
        };
        for line in ["x=1, sid=a", "x=1,sid=a; y=2", "SID=a", "$Version=1, sid=a"] {
            assert!(elsewhere(line), "{line}");
        }
        for line in ["", "x=1, y=2", "x=sid=a", "sid=", "x=1, sid=", "xsid=a"] {
            assert!(!elsewhere(line), "{line}");
        }
    }
}
