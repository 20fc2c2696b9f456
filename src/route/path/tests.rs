//! The spellings of a path: none of them circumvents a rule.

use super::*;
use proptest::prelude::*;

fn forms(raw: &str) -> (String, String) {
    let path = normalize(raw).unwrap_or_else(|bad| panic!("{raw}: {bad}"));
    (path.to_match().to_owned(), path.to_forward().to_owned())
}

#[test]
fn what_is_matched_and_what_is_forwarded() {
    for (raw, matched, forwarded) in [
        ("/", "/", "/"),
        ("//", "/", "/"),
        ("/a/b", "/a/b", "/a/b"),
        ("/a/b/", "/a/b", "/a/b/"),
        ("/a//b///", "/a/b", "/a/b/"),
        ("/a/./b", "/a/b", "/a/b"),
        ("/a/../b", "/b", "/b"),
        ("/a//../b", "/b", "/b"),
        ("/a/.", "/a", "/a/"),
        ("/a/b/..", "/a", "/a/"),
        ("/a/..", "/", "/"),
        ("/a/%2e%2E/b", "/b", "/b"),
        ("/a/.%2e/b", "/b", "/b"),
        ("/%61%2D%7e", "/a-~", "/a-~"),
        ("/a%20b", "/a%20b", "/a%20b"),
        ("/a%c3%a9", "/a%C3%A9", "/a%C3%A9"),
        ("/aé", "/a%C3%A9", "/aé"),
        ("/a|b", "/a%7Cb", "/a|b"),
        ("/a%7cb", "/a%7Cb", "/a%7Cb"),
        ("/%40me", "/@me", "/%40me"),
        ("/a;x=1/b;y", "/a/b", "/a;x=1/b;y"),
        ("/a%3Bx/b", "/a/b", "/a%3Bx/b"),
        ("/;x/a", "/a", "/;x/a"),
        ("/;x", "/", "/;x"),
        ("/a;", "/a", "/a;"),
        ("/a;x/../b", "/b", "/b"),
        ("/;x/..", "/", "/"),
        ("/%2561", "/%2561", "/%2561"),
        ("/...", "/...", "/..."),
        ("/.a/..b", "/.a/..b", "/.a/..b"),
        ("/a;x=../b", "/a/b", "/a;x=../b"),
    ] {
        assert_eq!(
            forms(raw),
            (matched.to_owned(), forwarded.to_owned()),
            "{raw}"
        );
    }
}

#[test]
fn what_origins_would_not_agree_on_is_refused() {
    for (raw, bad) in [
        ("", BadPath::NotAbsolute),
        ("a", BadPath::NotAbsolute),
        ("*", BadPath::NotAbsolute),
        ("/a%2fb", BadPath::Separator),
        ("/a%2Fb", BadPath::Separator),
        ("/a%5cb", BadPath::Separator),
        ("/a\\b", BadPath::Separator),
        ("/a%00", BadPath::Nul),
        ("/a%", BadPath::Escape),
        ("/a%2", BadPath::Escape),
        ("/a%zz", BadPath::Escape),
        ("/a%+1", BadPath::Escape),
        ("/%é", BadPath::Escape),
        ("/%%32%65", BadPath::Escape),
        ("/a\nb", BadPath::Character),
        ("/a b", BadPath::Character),
        ("/a\x7f", BadPath::Character),
        ("/a#b", BadPath::Character),
        ("/..", BadPath::AboveRoot),
        ("/a/../..", BadPath::AboveRoot),
        ("/%2e%2e/a", BadPath::AboveRoot),
        ("/a/..;x/b", BadPath::DotParameters),
        ("/a/..;/b", BadPath::DotParameters),
        ("/a/%2e%2e;x", BadPath::DotParameters),
        ("/a/.;x", BadPath::DotParameters),
        ("/a/..%3bx/b", BadPath::DotParameters),
        ("/%zz/..", BadPath::Escape),
    ] {
        assert_eq!(normalize(raw), Err(bad), "{raw:?}");
    }
}

#[test]
fn a_normal_path_is_not_copied() {
    for raw in [
        "/",
        "/v1/orders/17",
        "/a%20b/",
        "/a/",
        "/a;x=1",
        "/.well-known/x",
        "/@me",
    ] {
        let path = normalize(raw).unwrap();
        assert!(path.is_as_sent(), "{raw}");
        assert!(
            matches!(path.matched, PathText::Same(_)),
            "{raw} is matched by a copy"
        );
    }
    assert!(!normalize("/a/../a").unwrap().is_as_sent());
}

#[test]
fn a_literal_is_put_into_match_form() {
    for (written, matched) in [
        ("orders", "orders"),
        ("café", "caf%C3%A9"),
        ("%7euser", "~user"),
        ("@me", "@me"),
    ] {
        assert_eq!(literal(written).unwrap(), matched);
    }
    for never in ["", ".", "..", "a/b", "a%2fb", ";x", "a b", "%"] {
        assert!(literal(never).is_err(), "{never:?}");
    }
}

/// Spellings that some origin reads as `/limited`, and some that only resemble it.
const SPELLINGS: [&str; 96] = [
    "/limited",
    "/limited/",
    "//limited",
    "///limited//",
    "/./limited",
    "/././limited/.",
    "/limited/.",
    "/limited/./",
    "/x/../limited",
    "/x/y/../../limited",
    "/x/..//limited",
    "//x//..//limited",
    "/limited/x/..",
    "/limited/x/../",
    "/limited/../limited",
    "/%6cimited",
    "/%6Cimited",
    "/%6c%69%6d%69%74%65%64",
    "/l%69mited/",
    "/%2e/limited",
    "/%2E/limited",
    "/x/%2e%2e/limited",
    "/x/.%2e/limited",
    "/x/%2e./limited",
    "/x/%2E%2e/limited",
    "/limited/%2e",
    "/limited/x/%2e%2e",
    "/limited;",
    "/limited;x",
    "/limited;x=1",
    "/limited;x/",
    "/limited;x=1;y=2",
    "/limited%3b",
    "/limited%3Bx",
    "/limited%3bx=1/",
    "/limited;%2e%2e",
    "/;/limited",
    "/;x/limited",
    "/;x=1/limited",
    "/%3b/limited",
    "/%3Bx/limited",
    "/;x/;y/limited",
    "/;x//limited",
    "/;x/./limited",
    "/limited/;x",
    "/limited/;",
    "/limited/%3bx",
    "/limited/;x/.",
    "/limited/;x/..",
    "/x/;y/../../limited",
    "/x/;y/../limited",
    "/x;y/../limited",
    "/x/..;/limited",
    "/x/..;y/limited",
    "/x/..%3b/limited",
    "/x/..%3By/limited",
    "/x/%2e%2e;/limited",
    "/x/%2e%2e%3b/limited",
    "/.;/limited",
    "/.;x/limited",
    "/.%3b/limited",
    "/%2e;x/limited",
    "/limited/.;x",
    "/limited/x/..;y",
    "/..;/limited",
    "/../limited",
    "/../../limited",
    "/%2e%2e/limited",
    "/x/../../limited",
    "/x%2f..%2flimited",
    "/x/..%2flimited",
    "/x%2F../limited",
    "/.%2flimited",
    "/%2flimited",
    "/%2Flimited",
    "/limited%2f",
    "/limited%2F.",
    "/%5climited",
    "/%5Climited",
    "/\\limited",
    "/x\\..\\limited",
    "/x/..\\limited",
    "/x/..%5climited",
    "/limited\\",
    "/limited%5c",
    "/limited%00",
    "/limited%00.html",
    "/limited%0",
    "/limited%",
    "/%6climited",
    "/%256cimited",
    "/x/%252e%252e/limited",
    "/%252flimited",
    "/x/..%252flimited",
    "/limited%253bx",
    "/x/.%252e/limited",
];

fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match escape_at(path, at).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn without_parameters(path: &str) -> String {
    let cut = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    path.split('/').map(cut).collect::<Vec<_>>().join("/")
}

fn resolved(path: &str, merge: bool) -> String {
    let mut out: Vec<&str> = Vec::new();
    for segment in path.split(['/', '\\']) {
        match segment {
            "" if merge => {}
            "." => {}
            ".." => drop(out.pop()),
            name => out.push(name),
        }
    }
    out.retain(|segment| !segment.is_empty());
    format!("/{}", out.join("/"))
}

/// All readings of a path by lenient origins, each of which repairs paths in its own order.
fn lenient_readings(path: &str) -> Vec<String> {
    type Step = fn(&str) -> String;
    let steps: [Step; 4] = [
        decoded,
        without_parameters,
        |path| resolved(path, true),
        |path| resolved(path, false),
    ];
    let mut readings = vec![path.to_owned()];
    for a in 0..steps.len() {
        for b in 0..steps.len() {
            for c in 0..steps.len() {
                // Each step is taken only once: an origin that decodes twice decodes an escape that the gateway was
                // right to leave.
                if a == b || b == c || a == c {
                    continue;
                }
                let text = steps[c](&steps[b](&steps[a](path)));
                readings.push(resolved(&text, true));
                readings.push(text.trim_end_matches('\0').to_owned());
            }
        }
    }
    readings
}

fn dodges(raw: &str) -> bool {
    let Ok(path) = normalize(raw) else {
        return false;
    };
    let is_limited = |reading: &String| reading.trim_end_matches('/') == "/limited";
    path.to_match() != "/limited" && lenient_readings(path.to_forward()).iter().any(is_limited)
}

#[test]
fn no_spelling_dodges() {
    for raw in SPELLINGS {
        assert!(!dodges(raw), "{raw} -> {:?}", normalize(raw));
    }
}

#[test]
fn plain_respellings_are_served_and_not_refused() {
    for raw in &SPELLINGS[..50] {
        assert_eq!(normalize(raw).unwrap().to_match(), "/limited", "{raw}");
    }
}

fn spelling() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("/"),
        1 => Just("."),
        1 => Just(".."),
        1 => Just("%2e"),
        1 => Just(";"),
        1 => Just("%3B"),
        1 => Just("%2f"),
        1 => Just("%25"),
        2 => Just("limited"),
        1 => Just("%6cimited"),
        1 => Just("x"),
        1 => Just("é"),
        1 => Just("%c3%a9"),
        1 => Just("|"),
        1 => Just("@"),
        1 => Just("%40"),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn both_forms_are_final(raw in spelling()) {
        if let Ok(path) = normalize(&raw) {
            let twice = normalize(path.to_forward()).unwrap();
            prop_assert!(twice.is_as_sent());
            prop_assert_eq!(twice.to_forward(), path.to_forward());
            prop_assert_eq!(twice.to_match(), path.to_match());
            let matched = normalize(path.to_match()).unwrap();
            prop_assert_eq!(matched.to_match(), path.to_match());
            prop_assert_eq!(matched.to_forward(), path.to_match());
            prop_assert!(matched.is_as_sent());
        }
    }

    #[test]
    fn nothing_dodges(raw in spelling()) {
        prop_assert!(!dodges(&raw), "{:?}", normalize(&raw));
    }

    #[test]
    fn nothing_panics(raw in "\\PC*") {
        let _ = normalize(&raw);
        let _ = normalize(&format!("/{raw}"));
        let _ = literal(&raw);
    }
}
