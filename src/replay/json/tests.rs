//! The cursor compared with serde_json: the accepted texts, the refused texts, the values.

use super::*;
use crate::replay::line;
use proptest::prelude::*;
use serde_json::json;

/// The cursor's value as a value of serde_json.
fn read_value(value: Value<'_>) -> Result<serde_json::Value, Fault> {
    Ok(match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(is) => is.into(),
        Value::Number(digits) => {
            serde_json::from_str(digits).map_err(|_| Fault::BadMember("range"))?
        }
        Value::Text(text) => {
            let whole = text.read()?;
            assert!(text.is(&whole));
            whole.into()
        }
        Value::Object(raw) => {
            let mut object = serde_json::Map::new();
            for member in members(raw) {
                let (name, value) = member?;
                object.insert(name.read()?.into_owned(), read_value(value)?);
            }
            object.into()
        }
        Value::List(raw) => {
            let list = entries(raw).map(|entry| read_value(entry?));
            list.collect::<Result<Vec<_>, _>>()?.into()
        }
    })
}

fn walk(object: &str) -> Result<(), Fault> {
    members(object).try_for_each(|member| member.map(drop))
}

/// Checks that serde_json and the cursor agree about these bytes.
fn compare(bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    let skipped = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    let text = line::line_text(bytes).unwrap_or_default();
    let walked = walk(&text).is_ok();
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(value) if is_object => {
            assert_eq!(read_value(Value::Object(&text)), Ok(value), "{shown}");
        }
        // serde_json skips some values that it does not read: half a pair of surrogates, bytes that are not UTF-8, a
        // number beyond a double.
        Err(_) if is_object && walked => {
            assert!(skipped, "{shown}");
            assert!(read_value(Value::Object(&text)).is_err(), "{shown}");
        }
        _ => assert!(!walked, "{shown}"),
    }
    if is_object && skipped && !walked {
        let depth = bytes
            .iter()
            .filter(|byte| matches!(byte, b'{' | b'['))
            .count();
        assert!(depth > DEEPEST, "{shown}");
    }
}

/// Pieces of JSON, in any order.
fn crumbs() -> impl Strategy<Value = Vec<u8>> {
    let crumb = prop::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"ts\":", "0", "-", "1", "12", ".", "5", "e",
        "E+", "01", "1.5e-3", "1e999", "null", "true", "false", "nul", " ", "\t", "\r\n", "\\",
        "\\u00e9", "\\ud83d", "\\ude00", "\\n", "\\x", "\u{e9}", "\u{1}", "\u{7f}", "{\"a\":",
        "[1,", "\u{feff}",
    ]);
    prop::collection::vec(crumb, 0..24).prop_map(|crumbs| crumbs.concat().into_bytes())
}

fn anything() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(|is| json!(is)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
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
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        let expected = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read_value(Value::Object(&text)), Ok(expected));
    }

    #[test]
    fn it_takes_what_serde_json_takes(bytes: Vec<u8>, text: String, crumbs in crumbs()) {
        compare(&bytes);
        compare(format!("{{\"a\":{text}}}").as_bytes());
        compare(format!("{{\"a\":\"{text}\"}}").as_bytes());
        compare(&crumbs);
        compare(&[b"{\"a\":", &crumbs[..], b"}"].concat());
        compare(&[b"{\"a\":\"", &crumbs[..], b"\"}"].concat());
    }

    #[test]
    fn a_line_with_an_accident_is_taken_alike(value in anything(), at: prop::sample::Index, byte: u8, kind in 0..3) {
        let mut bytes = json!({ "ts": 12.5, "inside": value, "x": "\u{1f600}\n" }).to_string().into_bytes();
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        compare(&bytes);
    }

    #[test]
    fn a_run_ends_at_the_first_odd_byte(text: String) {
        let odd = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
        let end = text.as_bytes().iter().position(odd);
        prop_assert_eq!(plain(&text, 0), end.unwrap_or(text.len()));
    }
}

#[test]
fn a_number_ends_at_the_first_byte_that_is_no_digit() {
    for digits in 0..20 {
        for byte in 0..=u8::MAX {
            for behind in 0..10 {
                let mut text = "7".repeat(digits);
                text.push(char::from(byte));
                text.push_str(&"9".repeat(behind));
                let end = text.bytes().position(|byte| !byte.is_ascii_digit());
                let end = end.unwrap_or(text.len());
                let found = super::digits(&text, 0);
                assert_eq!(
                    found,
                    if end > 0 {
                        Ok(end)
                    } else {
                        Err(Fault::NotJson)
                    }
                );
            }
        }
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
        assert_eq!(walk(text), Err(Fault::NotJson), "{text}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(9_000), "]".repeat(9_000));
    assert_eq!(walk(&deep), Err(Fault::NotJson));
    for depth in 120..130 {
        compare(format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        compare(format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)).as_bytes());
    }
    // A form feed is not a blank in JSON.
    compare(b"\x0c{\"a\":1}");
    compare(b"{\"a\":1}\x0c");
    // The last of several members of one name counts, in serde_json and in the cursor.
    compare(br#"{"a":1,"b":2,"a":{"c":3,"\u0063":4}}"#);
}

#[test]
fn escapes_are_read() {
    let text = |raw: &str| {
        let object = format!("{{\"a\":\"{raw}\"}}");
        match members(&object).next() {
            Some(Ok((_, Value::Text(text)))) => text.read().map(Cow::into_owned),
            _ => Err(Fault::NotJson),
        }
    };
    assert_eq!(text(r#"\u00e9\ud83d\ude00\n\""#).unwrap(), "é😀\n\"");
    for surrogate in [r"\ud83d!", r"\ud83d\u0041", r"\ude00", r"\ud83d\ud83d"] {
        assert_eq!(text(surrogate), Err(Fault::NotText), "{surrogate}");
    }
    assert_eq!(text(r"\x"), Err(Fault::NotJson));
    assert_eq!(text(r"\u12"), Err(Fault::NotJson));
}
