//! A cursor over the JSON of one line: strings borrowed, numbers as their digits, nothing allocated for what is plain.
//!
//! A replay reads millions of short objects of which it needs a few members. serde_json was measured first: on the same
//! line again and again, 0.4 us for the shortest and 1.4 us for one of the access log, which is half of what a million
//! lines a second leave for everything, and more than all of it.

use super::line::Fault;
use std::borrow::Cow;

/// Deeper values are not looked into.
const DEEPEST: usize = 32;

/// A value of a member, borrowed from the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// Its digits.
    Number(&'a [u8]),
    /// Between its quotes.
    Text(Text<'a>),
    /// With its braces.
    Object(&'a [u8]),
    /// With its brackets.
    List(&'a [u8]),
}

/// The inside of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// What it stands for. What nobody reads need not be UTF-8.
    pub(super) fn read(self) -> Result<Cow<'a, str>, Fault> {
        let raw = std::str::from_utf8(self.raw).map_err(|_| Fault::NotText)?;
        if self.escaped {
            unescape(raw).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(raw))
        }
    }

    /// The bytes of one that has no escapes.
    pub(super) fn plain(self) -> Option<&'a [u8]> {
        (!self.escaped).then_some(self.raw)
    }
}

/// Hands every member of `object` to `each`, in order.
pub(super) fn members<'a>(
    object: &'a [u8],
    mut each: impl FnMut(&[u8], Value<'a>) -> Result<(), Fault>,
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

// Places are handed from step to step: they stay in registers.

/// The next byte that is no blank.
#[inline]
fn blank(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = text.get(at) {
        at += 1;
    }
    at
}

/// Behind `byte`, which must come next.
#[inline]
fn behind(text: &[u8], at: usize, byte: u8) -> Result<usize, Fault> {
    let at = blank(text, at);
    match text.get(at) {
        Some(there) if *there == byte => Ok(at + 1),
        _ => Err(Fault::NotJson),
    }
}

fn over(text: &[u8], at: usize) -> Result<(), Fault> {
    match blank(text, at) == text.len() {
        true => Ok(()),
        false => Err(Fault::NotJson),
    }
}

/// An object, from its brace on; where it ends.
#[inline]
fn walk<'a>(
    text: &'a [u8],
    at: usize,
    depth: usize,
    each: &mut impl FnMut(&[u8], Value<'a>) -> Result<(), Fault>,
) -> Result<usize, Fault> {
    let mut at = blank(text, behind(text, at, b'{')?);
    if text.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        let (name, end) = string(text, behind(text, at, b'"')?)?;
        let (value, end) = value(text, behind(text, end, b':')?, depth + 1)?;
        match name.escaped {
            false => each(name.raw, value)?,
            true => each(name.read()?.as_bytes(), value)?,
        }
        at = blank(text, end);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return Ok(at + 1),
            _ => return Err(Fault::NotJson),
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
#[inline]
fn value(text: &[u8], at: usize, depth: usize) -> Result<(Value<'_>, usize), Fault> {
    let start = blank(text, at);
    match text.get(start).ok_or(Fault::NotJson)? {
        b'"' => {
            let (text, end) = string(text, start + 1)?;
            Ok((Value::Text(text), end))
        }
        b'-' | b'0'..=b'9' => {
            let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
            let mut end = start + 1;
            while text.get(end).is_some_and(part) {
                end += 1;
            }
            Ok((Value::Number(&text[start..end]), end))
        }
        _ => other(text, start, depth),
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
                ("true", Value::Bool),
                ("false", Value::Bool),
            ];
            let is_there = |word: &str| text[start..].starts_with(word.as_bytes());
            let found = words.into_iter().find(|(word, _)| is_there(word));
            let (word, value) = found.ok_or(Fault::NotJson)?;
            Ok((value, start + word.len()))
        }
    }
}

/// The rest of a string whose opening quote has been taken, and where it ends.
#[inline]
fn string(text: &[u8], start: usize) -> Result<(Text<'_>, usize), Fault> {
    let (mut at, mut escaped) = (start, false);
    loop {
        at = plain(text, at);
        match text.get(at) {
            Some(b'"') => {
                let raw = &text[start..at];
                return Ok((Text { raw, escaped }, at + 1));
            }
            Some(b'\\') if at + 1 < text.len() => {
                escaped = true;
                at += 2;
            }
            _ => return Err(Fault::NotJson),
        }
    }
}

/// The first byte from `at` on that is a quote, a backslash or a control character.
#[inline]
fn plain(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    while let Some(Ok(eight)) = text.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let word = u64::from_le_bytes(eight);
        // The usual trick: the high bit of each byte that is zero, or below 0x20; a borrow only marks bytes behind
        // the first that is.
        let (quote, slash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        let stops = (quote.wrapping_sub(ONES) & !quote)
            | (slash.wrapping_sub(ONES) & !slash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if stops & HIGH != 0 {
            return at + (stops & HIGH).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    while text.get(at).is_some_and(|byte| !stop(byte)) {
        at += 1;
    }
    at
}

fn unescape(raw: &str) -> Result<String, Fault> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mark = rest.chars().next().ok_or(Fault::NotJson)?;
        rest = &rest[mark.len_utf8()..];
        out.push(match mark {
            '"' | '\\' | '/' => mark,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => code(&mut rest)?,
            _ => return Err(Fault::NotJson),
        });
    }
    out.push_str(rest);
    Ok(out)
}

/// The character behind `\u`, of one unit or of two; half a pair stands for nothing that can be told.
fn code(rest: &mut &str) -> Result<char, Fault> {
    let first = unit(rest)?;
    if (0xd800..0xdc00).contains(&first)
        && let Some(mut behind) = rest.strip_prefix("\\u")
        && let Ok(second @ 0xdc00..0xe000) = unit(&mut behind)
    {
        *rest = behind;
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn unit(rest: &mut &str) -> Result<u32, Fault> {
    let digits = rest.get(..4).ok_or(Fault::NotJson)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Fault::NotJson);
    }
    *rest = &rest[4..];
    u32::from_str_radix(digits, 16).map_err(|_| Fault::NotJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// What the cursor makes of a value, as serde_json would have it.
    fn read(value: Value<'_>) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool => serde_json::Value::Bool(true),
            Value::Number(digits) => serde_json::from_slice(digits).unwrap(),
            Value::Text(text) => text.read().unwrap().into(),
            Value::Object(raw) => {
                let mut object = serde_json::Map::new();
                members(raw, |name, value| {
                    object.insert(String::from_utf8(name.to_vec()).unwrap(), read(value));
                    Ok(())
                })
                .unwrap();
                object.into()
            }
            Value::List(raw) => {
                let mut list = Vec::new();
                entries(raw, |value| {
                    list.push(read(value));
                    Ok(())
                })
                .unwrap();
                list.into()
            }
        }
    }

    fn anything() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            Just(json!(true)),
            any::<i64>().prop_map(|number| json!(number)),
            any::<String>().prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_writes(value in anything(), pretty: bool) {
            let value = json!({ "inside": value });
            let text = match pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            prop_assert_eq!(read(Value::Object(text.as_bytes())), value);
        }

        #[test]
        fn nothing_makes_it_stumble(text: String) {
            let _ = members(text.as_bytes(), |_, _| Ok(()));
            let _ = members(format!("{{\"a\":{text}}}").as_bytes(), |_, _| Ok(()));
        }

        #[test]
        fn a_run_ends_at_the_first_odd_byte(bytes: Vec<u8>) {
            let odd = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
            prop_assert_eq!(plain(&bytes, 0), bytes.iter().position(odd).unwrap_or(bytes.len()));
        }
    }

    #[test]
    fn what_is_not_json_is_not_read() {
        for text in [
            "",
            "{",
            "{}x",
            "[]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":nul}",
            "{\"a\":\"b}",
            "{\"a\":\"\\",
            "{a:1}",
            "{\"a\":\"\u{1}\"}",
        ] {
            assert_eq!(
                members(text.as_bytes(), |_, _| Ok(())),
                Err(Fault::NotJson),
                "{text}"
            );
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(9_000), "]".repeat(9_000));
        assert_eq!(members(deep.as_bytes(), |_, _| Ok(())), Err(Fault::NotJson));
    }

    #[test]
    fn escapes_are_read() {
        let text = |raw: &'static str| {
            let raw = raw.as_bytes();
            Text { raw, escaped: true }.read()
        };
        assert_eq!(text(r#"\u00e9\ud83d\ude00\n\""#).unwrap(), "é😀\n\"");
        assert_eq!(text(r"\ud83d!").unwrap(), "\u{fffd}!");
        assert_eq!(text(r"\x"), Err(Fault::NotJson));
        assert_eq!(text(r"\u12"), Err(Fault::NotJson));
    }
}
