//! A cursor over the JSON of one line: strings borrowed, numbers as their digits, nothing allocated for what is plain.
//!
//! A replay reads millions of short objects of which it needs a few members. serde_json was measured first: for the
//! shortest lines it takes as long as routing, keys and three decisions together, for lines of the access log four
//! times as long.

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
    Number(&'a str),
    /// Between its quotes.
    Text(Text<'a>),
    /// With its braces.
    Object(&'a str),
    /// With its brackets.
    List(&'a str),
}

/// The inside of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// What it stands for.
    pub(super) fn read(self) -> Result<Cow<'a, str>, Fault> {
        if self.escaped {
            unescape(self.raw).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(self.raw))
        }
    }
}

/// Hands every member of `object` to `each`, in order.
pub(super) fn members<'a>(
    object: &'a str,
    mut each: impl FnMut(&str, Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(object);
    cursor.members(0, &mut each)?;
    cursor.end()
}

/// Hands every entry of `list` to `each`, in order.
pub(super) fn entries<'a>(
    list: &'a str,
    mut each: impl FnMut(Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(list);
    cursor.entries(0, &mut each)?;
    cursor.end()
}

#[derive(Debug)]
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn end(&mut self) -> Result<(), Fault> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(Fault::NotJson),
        }
    }

    /// The next byte that is no blank, which stays.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.next() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(Fault::NotJson),
        }
    }

    /// Generic, so that what is done with a member stands where it is read.
    fn members(
        &mut self,
        depth: usize,
        each: &mut impl FnMut(&str, Value<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{')?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.expect(b'"')?;
            let name = self.string()?;
            self.expect(b':')?;
            let value = self.value(depth + 1)?;
            match name.escaped {
                false => each(name.raw, value)?,
                true => each(&name.read()?, value)?,
            }
            if !self.take(b',') {
                return self.expect(b'}');
            }
        }
    }

    fn skip_object(&mut self, depth: usize) -> Result<(), Fault> {
        self.members(depth, &mut |_, _| Ok(()))
    }

    fn entries(
        &mut self,
        depth: usize,
        each: &mut dyn FnMut(Value<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self.value(depth + 1)?)?;
            if !self.take(b',') {
                return self.expect(b']');
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, Fault> {
        if depth > DEEPEST {
            return Err(Fault::NotJson);
        }
        let first = self.next().ok_or(Fault::NotJson)?;
        let start = self.at;
        match first {
            b'"' => {
                self.at += 1;
                self.string().map(Value::Text)
            }
            b'{' => {
                self.skip_object(depth)?;
                Ok(Value::Object(self.since(start)))
            }
            b'[' => {
                self.entries(depth, &mut |_| Ok(()))?;
                Ok(Value::List(self.since(start)))
            }
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool),
            b'f' => self.word("false", Value::Bool),
            b'-' | b'0'..=b'9' => {
                let rest = &self.text.as_bytes()[start..];
                let part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = rest.iter().position(|byte| !part(byte));
                self.at += length.unwrap_or(rest.len());
                Ok(Value::Number(self.since(start)))
            }
            _ => Err(Fault::NotJson),
        }
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, Fault> {
        let there = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        if there {
            Ok(value)
        } else {
            Err(Fault::NotJson)
        }
    }

    fn since(&self, start: usize) -> &'a str {
        // Both ends stand at ASCII characters.
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The rest of a string whose opening quote has been taken.
    fn string(&mut self) -> Result<Text<'a>, Fault> {
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let mut escaped = false;
        loop {
            self.at += plain(&bytes[self.at..]);
            match bytes.get(self.at) {
                Some(b'"') => {
                    let raw = self.since(start);
                    self.at += 1;
                    return Ok(Text { raw, escaped });
                }
                Some(b'\\') if self.at + 1 < bytes.len() => {
                    escaped = true;
                    self.at += 2;
                }
                _ => return Err(Fault::NotJson),
            }
        }
    }
}

/// How many bytes in front are neither a quote nor a backslash nor a control character.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The usual trick: which bytes of a word are zero; borrows only mark bytes behind the first that is.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let (words, _) = bytes.as_chunks::<8>();
    for (index, chunk) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        let low = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let stops = low | zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c));
        if stops != 0 {
            return index * 8 + stops.trailing_zeros() as usize / 8;
        }
    }
    let rest = &bytes[words.len() * 8..];
    let stop = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    words.len() * 8 + rest.iter().position(stop).unwrap_or(rest.len())
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
            Value::Number(digits) => serde_json::from_str(digits).unwrap(),
            Value::Text(text) => text.read().unwrap().into(),
            Value::Object(raw) => {
                let mut object = serde_json::Map::new();
                members(raw, |name, value| {
                    object.insert(name.to_owned(), read(value));
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
            prop_assert_eq!(read(Value::Object(&text)), value);
        }

        #[test]
        fn nothing_makes_it_stumble(text: String) {
            let _ = members(&text, |_, _| Ok(()));
            let _ = members(&format!("{{\"a\":{text}}}"), |_, _| Ok(()));
        }

        #[test]
        fn a_run_ends_at_the_first_odd_byte(bytes: Vec<u8>) {
            let odd = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
            prop_assert_eq!(plain(&bytes), bytes.iter().position(odd).unwrap_or(bytes.len()));
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
            assert_eq!(members(text, |_, _| Ok(())), Err(Fault::NotJson), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(9_000), "]".repeat(9_000));
        assert_eq!(members(&deep, |_, _| Ok(())), Err(Fault::NotJson));
    }

    #[test]
    fn escapes_are_read() {
        let text = |raw| Text { raw, escaped: true }.read();
        assert_eq!(text(r#"\u00e9\ud83d\ude00\n\""#).unwrap(), "é😀\n\"");
        assert_eq!(text(r"\ud83d!").unwrap(), "\u{fffd}!");
        assert_eq!(text(r"\x"), Err(Fault::NotJson));
        assert_eq!(text(r"\u12"), Err(Fault::NotJson));
    }
}
