//! Numbers in bodies, in every spelling and every division.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn names(path: &str) -> Arc<[Box<str>]> {
    path.split('.').map(Box::from).collect()
}

fn found(path: &str, text: &str, piece: usize) -> Option<u32> {
    let mut member = JsonProbe::at(&names(path));
    for piece in text.as_bytes().chunks(piece.max(1)) {
        member.read(piece);
    }
    member.found()
}

#[test]
fn the_member_is_found_where_it_stands_and_nowhere_else() {
    for (text, units) in [
        (r#"{"usage":{"total_tokens":42}}"#, Some(42)),
        (
            r#" { "id" : "x" , "usage" : { "prompt" : 1, "total_tokens" : 7 } , "z": [] } "#,
            Some(7),
        ),
        (
            r#"{"total_tokens":1,"other":{"usage":{"total_tokens":2}}}"#,
            None,
        ),
        (r#"{"usage":[{"total_tokens":3}]}"#, None),
        (r#"[{"usage":{"total_tokens":3}}]"#, None),
        (
            r#"{"usage":{"nested":{"total_tokens":4},"total_tokens":5}}"#,
            Some(5),
        ),
        (r#"{"usage":{"total_tokens":"6"}}"#, None),
        (r#"{"usage":{"total_tokens":null}}"#, None),
        (r#"{"usage":{"total_tokens":-6}}"#, None),
        (r#"{"usage":{"total_tokens":1.5}}"#, None),
        (
            r#"{"text":"\"usage\":{\"total_tokens\":9}","usage":{"total_tokens":8}}"#,
            Some(8),
        ),
        (
            r#"{"usage":null,"usage":{"total_tokens":99999999999}}"#,
            Some(u32::MAX),
        ),
        (r#"{"usage":{"total_tokens":1"#, None),
        ("", None),
        ("not json at all, {\"usage\":", None),
        (
            r#"{"a":[[],[1,2],{}],"usage":{"total_tokens":10}}"#,
            Some(10),
        ),
    ] {
        for piece in [1, 2, 7, 1_000] {
            assert_eq!(found("usage.total_tokens", text, piece), units, "{text}");
        }
    }
    assert_eq!(found("n", "{\"n\":1}\n{\"n\":2}\n{\"m\":3}", 3), Some(2));
}

#[test]
fn the_last_event_that_has_it_counts() {
    let stream = ": hello\r\n\r\ndata: {\"usage\":null}\r\n\r\nevent: x\r\ndata:{\"usage\":\r\ndata: {\"n\":3}}\r\n\r\n\
        data: {\"usage\":{\"n\":5}}\n\ndata: {\"broken\n\ndatum: {\"usage\":{\"n\":9}}\n\ndata: [DONE]\n\n";
    for piece in 1..40 {
        let mut events = EventProbe::with(JsonProbe::at(&names("usage.n")));
        for piece in stream.as_bytes().chunks(piece) {
            events.read(piece);
        }
        assert_eq!(events.member().found(), Some(5), "{piece}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ab\"\\\\{]{0,2}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_parser_finds_the_same(value in any_json(), piece in 1_usize..20, pretty: bool) {
        let value = json!({ "a": value.clone(), "b": value });
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        for path in ["a", "a.a", "a.b", "b.a.b", "b.b"] {
            let mut at = Some(&value);
            for name in path.split('.') {
                at = at.and_then(|at| at.as_object()?.get(name));
            }
            let wanted = at.and_then(Value::as_u64).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            prop_assert_eq!(found(path, &text, piece), wanted, "{} in {}", path, text);
        }
    }

    #[test]
    fn no_bytes_are_too_much(bytes: Vec<u8>) {
        let mut events = EventProbe::with(JsonProbe::at(&names("a.b")));
        events.read(&bytes);
        let mut member = JsonProbe::at(&names("a.b"));
        member.read(&bytes);
        member.read(&vec![b'['; 5_000]);
    }
}

#[test]
fn a_name_counts_however_it_is_spelled() {
    for text in [
        r#"{"us\u0061ge":{"\u0074otal_tokens":3}}"#,
        r#"{"usage":{"total\u005Ftokens":3}}"#,
        "\u{feff}{\"usage\":{\"total_tokens\":3}}",
    ] {
        for piece in [1, 3, 100] {
            assert_eq!(found("usage.total_tokens", text, piece), Some(3), "{text}");
        }
    }
    for (path, text, units) in [
        ("a\u{1F600}b", r#"{"a\ud83d\ude00b":1}"#, Some(1)),
        ("a\u{1F600}b", r#"{"a\ud83d\u0041b":1}"#, None),
        ("a\u{1F600}", r#"{"a\ud83d":1}"#, None),
        ("a/b", r#"{"a\/b":1}"#, Some(1)),
        ("a\"b", r#"{"a\"b":1}"#, Some(1)),
        ("a", r#"{"\u00zz":1,"a":2}"#, Some(2)),
    ] {
        assert_eq!(found(path, text, 1), units, "{text}");
    }
}

#[test]
fn what_is_there_and_no_number_is_known_as_such() {
    for (text, is_odd) in [
        (r#"{"n":"6"}"#, true),
        (r#"{"n":1.5}"#, true),
        (r#"{"n":-6}"#, true),
        (r#"{"n":[6]}"#, true),
        (r#"{"n":true}"#, true),
        (r#"{"n":null}"#, false),
        (r#"{"m":"6"}"#, false),
        (r#"{"n":"6","n":6}"#, false),
    ] {
        let mut member = JsonProbe::at(&names("n"));
        member.read(text.as_bytes());
        assert_eq!(member.is_odd(), is_odd, "{text}");
    }
}

#[test]
fn a_broken_line_breaks_no_other() {
    let text = "{\"n\":1}\n{\"n\": {]]\n{\"broken\n{\"n\":4}\n";
    for piece in 1..20 {
        let mut member = JsonProbe::at(&names("n")).in_lines();
        for piece in text.as_bytes().chunks(piece) {
            member.read(piece);
        }
        assert_eq!(member.found(), Some(4), "{piece}");
    }
}
