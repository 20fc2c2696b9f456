//! Cookies, and the value of a cookie as upstreams read it. Spellings that any common framework treats as one value
//! count as one.
//!
//! RFC 6265 leaves the value to the server. Most servers remove one pair of double quotes (some then read `\"` and
//! `\101` inside them, as Python does), and most decode percents, once. Without a normal form, a client that spells one
//! session in several ways would have a counter for each spelling. Two sessions whose texts differ only in spelling
//! would share a counter, and no server hands out such sessions.

use super::percent;
use http::{HeaderMap, header};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

/// The cookies of one request, parsed once, when a limit first needs one.
pub struct Cookies<'a> {
    fields: &'a HeaderMap,
    pairs: OnceCell<Pairs>,
}

/// Buckets of names, so that many limits by cookies do not each read all cookies.
const BUCKETS: usize = 64;

/// The pairs of the `Cookie` lines.
struct Pairs {
    all: SmallVec<[Pair; 8]>,
    /// The last pair of each bucket, counted from 1; 0 if there is none.
    last: [usize; BUCKETS],
}

/// The line and the ranges of a name and its value, each from its first byte to after its last.
#[derive(Debug, Clone, Copy)]
struct Pair {
    line: usize,
    name: (usize, usize),
    value: (usize, usize),
    /// Is the pair found only by readers that also split at commas or blanks?
    is_inside: bool,
    /// The previous pair in the bucket, counted in the same way.
    before: usize,
}

impl<'a> Cookies<'a> {
    /// The cookies of a request with these fields.
    #[must_use]
    pub fn of(fields: &'a HeaderMap) -> Self {
        Self {
            fields,
            pairs: OnceCell::new(),
        }
    }

    /// The values of the cookies of this name, over all `Cookie` lines (RFC 6265, section 4.2; HTTP/2 may send a line
    /// for each).
    pub fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Cow<'a, [u8]>> + 's {
        let named = self.as_long_as(name);
        let named = named.filter(|(pair, key, _)| !pair.is_inside && *key == name.as_bytes());
        named.map(|(_, _, value)| cookie_value(value))
    }

    /// Would another reader find a value of this name that this one does not find? Some readers split at commas, as
    /// older standards require (RFC 2965, section 3.3.4). Some split at blanks, as Python does. Some ignore the case of
    /// names.
    #[must_use]
    pub fn are_read_elsewhere(&self, name: &str) -> bool {
        let bytes = name.as_bytes();
        self.as_long_as(name).any(|(pair, key, value)| {
            let is_found = !pair.is_inside && key == bytes && is_read_alike(value);
            !value.is_empty() && key.eq_ignore_ascii_case(bytes) && !is_found
        })
    }

    /// The pairs of this name's bucket whose name has the same length, with name and value; the last first.
    fn as_long_as<'s>(
        &'s self,
        name: &'s str,
    ) -> impl Iterator<Item = (&'s Pair, &'a [u8], &'a [u8])> + 's {
        let pairs = self.pairs();
        let last = pairs.at(pairs.last[bucket(name.as_bytes())]);
        let same = std::iter::successors(last, |pair| pairs.at(pair.before));
        let same = same.filter(|pair| pair.name.1 - pair.name.0 == name.len());
        let mut seen: Option<(usize, &'a [u8])> = None;
        same.filter_map(move |pair| {
            let line = match seen {
                Some((number, line)) if number == pair.line => line,
                _ => self.lines().nth(pair.line)?,
            };
            seen = Some((pair.line, line));
            let of = |(start, end): (usize, usize)| line.get(start..end);
            Some((pair, of(pair.name)?, of(pair.value)?))
        })
    }

    fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = self.fields.get_all(header::COOKIE).into_iter();
        lines.map(http::HeaderValue::as_bytes)
    }

    fn pairs(&self) -> &Pairs {
        self.pairs.get_or_init(|| {
            let mut pairs = Pairs {
                all: SmallVec::new(),
                last: [0; BUCKETS],
            };
            for (number, line) in self.lines().enumerate() {
                let mut start = 0;
                for text in line.split(|byte| *byte == b';') {
                    let piece = CookiePiece {
                        line: number,
                        start,
                        text,
                    };
                    pairs.add(line, piece.pair());
                    let mut at = end_of(text, 0, |byte| !byte.is_ascii_whitespace());
                    while let Some(word) = next_word(text, at) {
                        pairs.add(line, piece.pair_inside(word));
                        at = word;
                    }
                    start += text.len() + 1;
                }
            }
            pairs
        })
    }
}

impl Pairs {
    /// The pair of this number, counted from 1.
    fn at(&self, number: usize) -> Option<&Pair> {
        self.all.get(number.checked_sub(1)?)
    }

    /// Adds the pair of `line`, if there is one.
    fn add(&mut self, line: &[u8], pair: Option<Pair>) {
        let Some(pair) = pair else { return };
        let name = line.get(pair.name.0..pair.name.1).unwrap_or_default();
        let last = &mut self.last[bucket(name)];
        let before = std::mem::replace(last, self.all.len() + 1);
        self.all.push(Pair { before, ..pair });
    }
}

/// The bucket of a name. Names that differ in case alone have the same one.
fn bucket(name: &[u8]) -> usize {
    let mix = |sum: usize, byte: &u8| {
        let letter = usize::from(byte.to_ascii_lowercase());
        sum.wrapping_mul(31).wrapping_add(letter)
    };
    name.iter().fold(name.len(), mix) % BUCKETS
}

/// The text between two semicolons of a `Cookie` line.
struct CookiePiece<'p> {
    line: usize,
    /// The position in the line at which the text begins.
    start: usize,
    text: &'p [u8],
}

impl CookiePiece<'_> {
    /// The whole piece as a pair.
    fn pair(&self) -> Option<Pair> {
        let Self { line, start, text } = *self;
        let equals = text.iter().position(|byte| *byte == b'=')?;
        let behind = equals + 1;
        Some(Pair {
            line,
            name: without_blanks(start, &text[..equals]),
            value: without_blanks(start + behind, &text[behind..]),
            is_inside: false,
            before: 0,
        })
    }

    /// The pair that begins with the word at `word` inside of the piece, with or without blanks around its `=`.
    fn pair_inside(&self, word: usize) -> Option<Pair> {
        let Self { line, start, text } = *self;
        let name = end_of(text, word, |byte| is_between(byte) || *byte == b'=');
        let equals = end_of(text, name, |byte| !byte.is_ascii_whitespace());
        if name == word || text.get(equals) != Some(&b'=') {
            return None;
        }
        let value = end_of(text, equals + 1, |byte| !byte.is_ascii_whitespace());
        Some(Pair {
            line,
            name: (start + word, start + name),
            value: (start + value, start + end_of(text, value, is_between)),
            is_inside: true,
            before: 0,
        })
    }
}

/// The position at which the next word of `piece` begins, after the word at `word`.
fn next_word(piece: &[u8], word: usize) -> Option<usize> {
    let between = end_of(piece, word, is_between);
    let next = end_of(piece, between, |byte| !is_between(byte));
    (next < piece.len()).then_some(next)
}

/// Is this a byte at which some readers split, though RFC 6265 does not?
fn is_between(byte: &u8) -> bool {
    *byte == b',' || byte.is_ascii_whitespace()
}

/// Do all readers find a value here, and the same one?
fn is_read_alike(value: &[u8]) -> bool {
    !value.iter().any(is_between) && !cookie_value(value).is_empty()
}

/// The first position from `start` on whose byte fulfils `is_such`, else the end.
fn end_of(piece: &[u8], start: usize, is_such: impl FnMut(&u8) -> bool) -> usize {
    let rest = piece.get(start..).unwrap_or_default();
    start + rest.iter().position(is_such).unwrap_or(rest.len())
}

/// The start and the end of `text`, which begins at `start`, without the blanks around it.
fn without_blanks(start: usize, text: &[u8]) -> (usize, usize) {
    let start = start + text.len() - text.trim_ascii_start().len();
    (start, start + text.trim_ascii().len())
}

/// The output shows no cookie.
impl fmt::Debug for Cookies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

/// `value` without its quotes and escapes.
#[must_use]
pub fn cookie_value(value: &[u8]) -> Cow<'_, [u8]> {
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
    Cow::Owned(percent::decode(&plain))
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
            assert_eq!(&*cookie_value(spelling.as_bytes()), b"a.b=", "{spelling}");
        }
        for as_it_is in [
            "", "\"", "a\"b", "\"a", "a%", "a%2", "a%zz", "a+b", "a\\b", "%%", "100%",
        ] {
            assert_eq!(&*cookie_value(as_it_is.as_bytes()), as_it_is.as_bytes());
        }
        assert_eq!(&*cookie_value(b"%2561"), b"%61", "once");
        assert_eq!(&*cookie_value(b"\"\\"), b"\"\\");
        assert_eq!(
            &*cookie_value(b"\"a\\\""),
            b"a\\",
            "a backslash before nothing"
        );
        assert_eq!(&*cookie_value(b"\"\\777\""), b"777", "no byte");
        assert_eq!(&*cookie_value(b"%ff\xff"), b"\xff\xff");
    }

    #[test]
    fn what_others_find_is_seen() {
        let elsewhere = |line: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(header::COOKIE, http::HeaderValue::from_static(line));
            Cookies::of(&fields).are_read_elsewhere("sid")
        };
        for line in [
            "x=1, sid=a",
            "x=1,sid=a; y=2",
            "SID=a",
            "$Version=1, sid=a",
            "x=1 sid=a",
            "y=2; x=1\tsid=a; z=3",
            "x=1 sid = a",
            "x=1 sid= \"a\"",
            "x sid=a",
            "sid=a b",
            "sid=a,b",
            "sid=a; SID=b",
            "sid=\"\"",
        ] {
            assert!(elsewhere(line), "{line}");
        }
        for line in [
            "",
            "x=1, y=2",
            "x=sid=a",
            "sid=",
            "sid=a",
            "x=1; sid=a; sid=b",
            "x=1, sid=",
            "xsid=a",
            "x=1 y=2",
            "x=1 sid",
            "x=1 sid= ",
            "x=1 sid y=2",
            "x=1 xsid=a",
        ] {
            assert!(!elsewhere(line), "{line}");
        }
        // A value without escapes is not copied.
        let mut fields = HeaderMap::new();
        let line = http::HeaderValue::from_static(" sid=a b c; y=2;  z = 3");
        fields.insert(header::COOKIE, line);
        assert_eq!(Cookies::of(&fields).pairs().all.len(), 3);
    }
}
