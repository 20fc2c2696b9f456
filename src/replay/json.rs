//! A cursor over the JSON of one line: strings borrowed, numbers as their digits, nothing allocated for what is plain.
//!
//! A replay reads millions of short objects of which it needs a few members. Others were measured on the shortest line
//! and on one of the access log, walking all members: this cursor takes 81 and 408 ns, serde_json (borrowed names,
//! ignored values) 107 and 559, jiter 140 and 720, sonic-rs (without the flags of one processor) 211 and 875. serde_json
//! is the measure of what is JSON: the tests below hold that the cursor takes what serde_json takes, and means the same.

use super::Fault;
use std::borrow::Cow;

/// Deeper values are not looked into: as deep as serde_json goes.
const DEEPEST: usize = 126;

/// A value of a member, borrowed from the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Its digits.
    Number(&'a [u8]),
    /// Between its quotes.
    Text(JsonText<'a>),
    /// With its braces.
    Object(&'a [u8]),
    /// With its brackets.
    List(&'a [u8]),
}

/// The inside of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonText<'a> {
    /// With its quotes.
    quoted: &'a [u8],
    escaped: bool,
    /// May not all be ASCII.
    wide: bool,
}

impl<'a> JsonText<'a> {
    fn raw(self) -> &'a [u8] {
        &self.quoted[1..self.quoted.len() - 1]
    }

    /// What it stands for. A text that is not read need not be UTF-8.
    pub(super) fn read(self) -> Result<Cow<'a, str>, Fault> {
        let text = std::str::from_utf8(self.raw()).map_err(|_| Fault::NotText)?;
        if !self.escaped {
            return Ok(Cow::Borrowed(text));
        }
        // The escapes are well-formed: half a pair of surrogates is what they may still be.
        let text = serde_json::from_slice(self.quoted).map_err(|_| Fault::NotText)?;
        Ok(Cow::Owned(text))
    }

    /// The bytes of what it stands for; they are UTF-8.
    pub(super) fn bytes(self) -> Result<Cow<'a, [u8]>, Fault> {
        if !self.escaped && !self.wide {
            return Ok(Cow::Borrowed(self.raw()));
        }
        Ok(match self.read()? {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// The bytes of one that has no escapes, whatever they are.
    pub(super) fn plain(self) -> Option<&'a [u8]> {
        (!self.escaped).then(|| self.raw())
    }

    /// Does it stand for `text`?
    pub(super) fn is(self, text: &str) -> bool {
        match self.plain() {
            Some(raw) => raw == text.as_bytes(),
            None => self.read().is_ok_and(|read| read == text),
        }
    }
}

/// Hands every member of `object` to `each`, in order.
pub(super) fn members<'a>(
    object: &'a [u8],
    mut each: impl FnMut(JsonText<'a>, Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let end = walk(object, blank(object, 0), 0, &mut each)?;
    over(object, end)
}

/// Hands every entry of `list` to `each`, in order.
pub(super) fn entries<'a>(
    list: &'a [u8],
    mut each: impl FnMut(Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let end = pace(list, blank(list, 0), 0, &mut each)?;
    over(list, end)
}

/// Eight bytes at once: a one in each, and the high bit of each.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

// Places are handed from step to step: they stay in registers.

/// The next byte that is no blank.
#[inline(always)]
fn blank(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = text.get(at) {
        at += 1;
    }
    at
}

/// Behind `byte`, which must come next.
#[inline(always)]
fn behind(text: &[u8], at: usize, byte: u8) -> Result<usize, Fault> {
    let at = blank(text, at);
    match text.get(at) {
        Some(there) if *there == byte => Ok(at + 1),
        _ => Err(Fault::NotJson),
    }
}

fn over(text: &[u8], at: usize) -> Result<(), Fault> {
    if blank(text, at) == text.len() {
        Ok(())
    } else {
        Err(Fault::NotJson)
    }
}

/// What comes next in an object.
enum Next<'a> {
    /// A member of this name, and where its value begins.
    Member(JsonText<'a>, usize),
    /// Its end, and what is behind it.
    End(usize),
}

/// The next of an object's members: of the first, `at` is its brace, else the end of the value before.
#[inline]
fn next(text: &[u8], at: usize, is_first: bool) -> Result<Next<'_>, Fault> {
    let at = if is_first {
        behind(text, at, b'{')?
    } else {
        at
    };
    let at = blank(text, at);
    let at = match text.get(at) {
        Some(b'}') => return Ok(Next::End(at + 1)),
        Some(b',') if !is_first => at + 1,
        Some(_) if is_first => at,
        _ => return Err(Fault::NotJson),
    };
    let (name, end) = string(text, behind(text, at, b'"')?)?;
    let start = blank(text, behind(text, end, b':')?);
    Ok(Next::Member(name, start))
}

/// The next member of the object that the whole of `text` is: its name, and where its value begins. `at` is where the
/// value before has ended, 0 before the first. Nothing at the end.
pub(super) fn member(text: &[u8], at: usize) -> Result<Option<(JsonText<'_>, usize)>, Fault> {
    match next(text, at, at == 0)? {
        Next::Member(name, start) => Ok(Some((name, start))),
        Next::End(end) => over(text, end).map(|()| None),
    }
}

/// The value of such a member and where it ends.
#[inline(always)]
pub(super) fn value_at(text: &[u8], at: usize) -> Result<(Value<'_>, usize), Fault> {
    value(text, at, 1)
}

/// An object, from its brace on; where it ends.
#[inline]
fn walk<'a>(
    text: &'a [u8],
    mut at: usize,
    depth: usize,
    each: &mut impl FnMut(JsonText<'a>, Value<'a>) -> Result<(), Fault>,
) -> Result<usize, Fault> {
    let mut is_first = true;
    loop {
        match next(text, at, is_first)? {
            Next::Member(name, start) => {
                let (value, end) = value(text, start, depth + 1)?;
                each(name, value)?;
                (at, is_first) = (end, false);
            }
            Next::End(end) => return Ok(end),
        }
    }
}

/// A list, from its bracket on; where it ends.
fn pace<'a>(
    text: &'a [u8],
    at: usize,
    depth: usize,
    each: &mut impl FnMut(Value<'a>) -> Result<(), Fault>,
) -> Result<usize, Fault> {
    let mut at = blank(text, behind(text, at, b'[')?);
    if text.get(at) == Some(&b']') {
        return Ok(at + 1);
    }
    loop {
        let (value, end) = value(text, at, depth + 1)?;
        each(value)?;
        at = blank(text, end);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return Ok(at + 1),
            _ => return Err(Fault::NotJson),
        }
    }
}

/// A value and where it ends.
#[inline(always)]
fn value(text: &[u8], at: usize, depth: usize) -> Result<(Value<'_>, usize), Fault> {
    let start = blank(text, at);
    match text.get(start).ok_or(Fault::NotJson)? {
        b'"' => {
            let (text, end) = string(text, start + 1)?;
            Ok((Value::Text(text), end))
        }
        b'-' | b'0'..=b'9' => {
            let end = number(text, start)?;
            Ok((Value::Number(&text[start..end]), end))
        }
        _ => other(text, start, depth),
    }
}

/// A number from its first byte on; where it ends.
#[inline]
fn number(text: &[u8], start: usize) -> Result<usize, Fault> {
    let whole = start + usize::from(text.get(start) == Some(&b'-'));
    let mut at = match text.get(whole) {
        Some(b'0') => whole + 1,
        _ => digits(text, whole)?,
    };
    if text.get(at) == Some(&b'.') {
        at = digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits(text, at + 1 + usize::from(sign))?;
    }
    Ok(at)
}

/// At least one digit; where they end.
#[inline]
fn digits(text: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at > start {
        Ok(at)
    } else {
        Err(Fault::NotJson)
    }
}

/// What stands for itself, and what has values inside.
fn other(text: &[u8], start: usize, depth: usize) -> Result<(Value<'_>, usize), Fault> {
    if depth > DEEPEST {
        return Err(Fault::NotJson);
    }
    match text[start] {
        b'{' => {
            let end = walk(text, start, depth, &mut |_, _| Ok(()))?;
            Ok((Value::Object(&text[start..end]), end))
        }
        b'[' => {
            let end = pace(text, start, depth, &mut |_| Ok(()))?;
            Ok((Value::List(&text[start..end]), end))
        }
        _ => {
            let words = [
                ("null", Value::Null),
                ("true", Value::Bool(true)),
                ("false", Value::Bool(false)),
            ];
            let is_there = |word: &str| text[start..].starts_with(word.as_bytes());
            let found = words.into_iter().find(|(word, _)| is_there(word));
            let (word, value) = found.ok_or(Fault::NotJson)?;
            Ok((value, start + word.len()))
        }
    }
}

/// The rest of a string whose opening quote has been taken, and where it ends.
#[inline(always)]
fn string(text: &[u8], start: usize) -> Result<(JsonText<'_>, usize), Fault> {
    let (mut at, mut escaped, mut wide) = (start, false, false);
    loop {
        (at, wide) = plain(text, at, wide);
        match text.get(at) {
            Some(b'"') => {
                let text = JsonText {
                    quoted: &text[start - 1..=at],
                    escaped,
                    wide,
                };
                return Ok((text, at + 1));
            }
            Some(b'\\') => {
                escaped = true;
                at = escape(text, at + 1)?;
            }
            _ => return Err(Fault::NotJson),
        }
    }
}

/// An escape from behind its backslash on; where it ends. What it stands for is looked at when it is read.
#[cold]
fn escape(text: &[u8], at: usize) -> Result<usize, Fault> {
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_hexdigit);
    match text.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') if text.get(at + 1..at + 5).is_some_and(digits) => Ok(at + 5),
        _ => Err(Fault::NotJson),
    }
}

/// The first byte from `at` on that is a quote, a backslash or a control character, and whether any before it, or near it,
/// is not ASCII, or was before.
#[inline]
fn plain(text: &[u8], at: usize, mut wide: bool) -> (usize, bool) {
    let mut rest = text.get(at..).unwrap_or_default();
    while let Some((eight, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*eight);
        wide |= word & HIGH != 0;
        // The usual trick: the high bit of each byte that is zero, or below 0x20; a borrow only marks bytes behind
        // the first that is.
        let (quote, slash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        let stops = (quote.wrapping_sub(ONES) & !quote)
            | (slash.wrapping_sub(ONES) & !slash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if stops & HIGH != 0 {
            let within = (stops & HIGH).trailing_zeros() as usize / 8;
            return (text.len() - rest.len() + within, wide);
        }
        rest = behind;
    }
    let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    let end = rest.iter().position(stop).unwrap_or(rest.len());
    wide |= !rest[..end].is_ascii();
    (text.len() - rest.len() + end, wide)
}

#[cfg(test)]
mod tests;
