//! Numbers in bodies, in every spelling and every division.

use super::*;
use crate::key::{WeighedMember, Weight};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The cost of one member for each path, all of weight 1.
fn cost(paths: &[&str]) -> Arc<JsonCost> {
    let members = paths.iter().map(|path| WeighedMember {
        places: path
            .split('|')
            .map(|place| place.split('.').map(Box::from).collect())
            .collect(),
        weight: Weight::ONE,
    });
    Arc::new(JsonCost::new(members.collect()).unwrap())
}

fn probe(path: &str) -> JsonProbe {
    JsonProbe::of(&cost(&[path]))
}

fn sum(paths: &[&str], text: &str, piece: usize) -> Option<u64> {
    let mut members = JsonProbe::of(&cost(paths));
    for piece in text.as_bytes().chunks(piece.max(1)) {
        members.read(piece);
    }
    members.units()
}

fn found(path: &str, text: &str, piece: usize) -> Option<u64> {
    sum(&[path], text, piece)
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
        (r#"[{"usage":{"total_tokens":3}}]"#, Some(3)),
        (r#"[[{"usage":{"total_tokens":3}}]]"#, None),
        (
            r#"[ {"usage":{"total_tokens":3}}, 7, [], {"usage":{"total_tokens":4}}, {"x":[{}]} ]"#,
            Some(4),
        ),
        (
            r#"{"usage":{"nested":{"total_tokens":4},"total_tokens":5}}"#,
            Some(5),
        ),
        (r#"{"usage":{"total_tokens":"6"}}"#, None),
        (r#"{"usage":{"total_tokens":null}}"#, None),
        (r#"{"usage":{"total_tokens":-6}}"#, None),
        (r#"{"usage":{"total_tokens":1.5}}"#, Some(2)),
        (r#"{"usage":{"total_tokens":30.0}}"#, Some(30)),
        (r#"{"usage":{"total_tokens":3e1}}"#, Some(30)),
        (r#"{"usage":{"total_tokens":0.3E+2}}"#, Some(30)),
        (r#"{"usage":{"total_tokens":3000e-2 }}"#, Some(30)),
        (r#"{"usage":{"total_tokens":0.5}}"#, Some(1)),
        (r#"{"usage":{"total_tokens":1.}}"#, None),
        (r#"{"usage":{"total_tokens":1e}}"#, None),
        (r#"{"usage":{"total_tokens":1-2}}"#, None),
        (
            r#"{"text":"\"usage\":{\"total_tokens\":9}","usage":{"total_tokens":8}}"#,
            Some(8),
        ),
        (
            r#"{"usage":null,"usage":{"total_tokens":99999999999}}"#,
            Some(99_999_999_999),
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
        let mut events = EventProbe::with(probe("usage.n"));
        for piece in stream.as_bytes().chunks(piece) {
            events.read(piece);
        }
        assert_eq!(events.members().units(), Some(5), "{piece}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        (0..1_000_000_u32, 0..4).prop_map(|(n, e)| Value::from(f64::from(n) / 10_f64.powi(e))),
        any::<i32>().prop_map(Value::from),
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
            let wanted = at.and_then(Value::as_f64).filter(|n| n.is_sign_positive());
            // Billionths are read: the smallest numbers of all are none.
            let wanted = wanted.map(|n| if n < 1e-9 { 0 } else { n.ceil() as u64 });
            prop_assert_eq!(found(path, &text, piece), wanted, "{} in {}", path, text);
        }
    }

    #[test]
    fn no_bytes_are_too_much(bytes: Vec<u8>) {
        let mut events = EventProbe::with(probe("a.b"));
        events.read(&bytes);
        let mut member = probe("a.b");
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
        (r#"{"n":1.5}"#, false),
        (r#"{"n":-6}"#, true),
        (r#"{"n":[6]}"#, true),
        (r#"{"n":true}"#, true),
        (r#"{"n":null}"#, false),
        (r#"{"m":"6"}"#, false),
    ] {
        let mut member = probe("n");
        member.read(text.as_bytes());
        assert_eq!(member.is_odd(), is_odd, "{text}");
    }
}

#[test]
fn a_broken_line_breaks_no_other() {
    let text = "{\"n\":1}\n{\"n\": {]]\n{\"broken\n{\"n\":4}\n";
    for piece in 1..20 {
        let mut member = probe("n").in_lines();
        for piece in text.as_bytes().chunks(piece) {
            member.read(piece);
        }
        assert_eq!(member.units(), Some(4), "{piece}");
    }
}

#[test]
fn members_are_added_each_where_it_was_last() {
    let paths = ["u.i|m.u.i", "u.o", "d"];
    for (text, units) in [
        (r#"{"u":{"i":1,"o":2},"d":4}"#, Some(7)),
        (r#"{"m":{"u":{"i":1}}}{"u":{"o":2}}{"u":{"o":3}}"#, Some(4)),
        (r#"{"m":{"u":{"i":1}}}{"u":{"i":9,"o":2}}"#, Some(11)),
        (r#"{"u":{"i":null,"o":null},"d":null}"#, None),
        (r#"{"u":{"i":1,"o":2},"u":{"o":5}}"#, Some(6)),
        (r#"{"u":{"i":{"i":1},"o":2}}"#, Some(2)),
    ] {
        for piece in 1..text.len() {
            assert_eq!(sum(&paths, text, piece), units, "{text}");
        }
    }
}

#[test]
fn a_member_may_hold_other_members() {
    for (text, units, odd) in [
        (r#"{"n":{"m":3}}"#, Some(3), false),
        (r#"{"n":4}"#, Some(4), false),
        (r#"{"n":[]}"#, None, true),
    ] {
        let mut members = probe("n|n.m");
        members.read(text.as_bytes());
        assert_eq!((members.units(), members.is_odd()), (units, odd), "{text}");
    }
}

/// However long names, numbers and nesting are, the search keeps its bound.
#[test]
fn the_memory_is_bounded() {
    let long = "n".repeat(256);
    let mut members = probe(&format!("{long}.{long}"));
    members.read(b"{\"");
    members.read(&vec![b'x'; 1_000_000]);
    members.read(b"\":");
    members.read(&vec![b'1'; 1_000_000]);
    members.read(b",\"a\":");
    members.read(&vec![b'['; 1_000_000]);
    let held = members.name.capacity() + members.open.capacity() + 2 * members.way.capacity();
    assert!(held <= 4096, "{held}");
}
