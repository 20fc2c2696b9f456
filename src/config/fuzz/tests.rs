//! Broken files: random bytes, truncated files and one-character mistakes never cause a panic and are never accepted
//! silently.

use crate::config::fixtures::long;
use crate::config::report::render::Colour;
use crate::config::{MOST_BYTES, load, parse};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const DEMO: &str = include_str!("../../../gateway.toml");
/// The folder with the files that two of the fixtures name.
const NAME: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/config/valid/gateway.toml"
);
const WHO: &str = include_str!("../../../tests/config/valid/groups-and-tokens.toml");
const EVERY: &str = include_str!("../../../tests/config/valid/every-key.toml");

/// Every text yields a result, and its report can be rendered.
fn answer(text: &str) -> bool {
    match parse(NAME, text) {
        Ok(compiled) => {
            let _ = compiled.report().human(Colour::On);
            true
        }
        Err(report) => {
            assert!(report.errors() > 0);
            let _ = report.human(Colour::Off);
            let _ = report.json_lines();
            false
        }
    }
}

/// The places of the vocabulary's keys in `text`: bare keys in front of `=`, and the first name of a header.
fn keys(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let begin = start + usize::from(line.starts_with('['));
        let rest = &text[begin..start + line.len()];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        if end > 0 {
            found.push(begin..begin + end);
        }
        start += line.len();
    }
    found
}

/// One-character mistakes in every key of `text`: a character is omitted, inserted, replaced, or swapped with the next
/// one. The mistakes are made at the key's beginning, middle and end, and in the long form at every character.
fn assert_no_slip_is_taken(name: &str, text: &str, slips: &[&str]) {
    for key in keys(text) {
        let ends = [key.start, key.start.midpoint(key.end), key.end - 1];
        for at in key.clone().filter(|at| long() || ends.contains(at)) {
            let swapped = match &text.as_bytes()[at..key.end] {
                [a, b, ..] if a != b => {
                    let (a, b) = (char::from(*a), char::from(*b));
                    format!("{}{b}{a}{}", &text[..at], &text[at + 2..])
                }
                _ => String::from("= ="),
            };
            let mut all = vec![swapped];
            for slip in slips {
                all.push(format!("{}{slip}{}", &text[..at], &text[at + 1..]));
                all.push(format!("{}{slip}{}", &text[..at], &text[at..]));
            }
            for changed in all.iter().filter(|changed| *changed != text) {
                let taken = parse(name, changed);
                assert!(taken.is_err(), "taken:\n{changed}");
            }
        }
    }
}

#[test]
fn no_slip_in_a_key_is_taken_quietly() {
    for (text, slips) in [
        (DEMO, &["", "x", "_", "A", "-", "\""][..]),
        (EVERY, &["", "x"]),
        (WHO, &["", "x"]),
    ] {
        assert!(keys(text).len() >= 9);
        assert!(parse(NAME, text).is_ok());
        assert_no_slip_is_taken(NAME, text, slips);
    }
}

/// The examples of the README and of the manual as whole files: if an example lacks a route, an upstream or a use of a
/// limit, these are added.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in docs.chain([root.join("README.md")]) {
        // The pages of diagnostics show mistakes, and another test covers them.
        let page =
            path.extension().is_none_or(|end| end != "md") || path.ends_with("diagnostics.md");
        if page {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let mut text = block.split("```").next().unwrap().to_owned();
            if !text.contains("[upstreams.") {
                text.push_str("\n[upstreams.api]\nservers = \"127.0.0.1:3000\"\n");
            }
            if !text.contains("[routes.") {
                let names = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("[limits.")?.split(']').next());
                let names: Vec<&str> = names.collect();
                let route = format!("\n[routes.api]\nupstream = \"api\"\nlimits = {names:?}\n");
                text.push_str(&route);
            }
            found.push((path.display().to_string(), text));
        }
    }
    let compose = root.join("deploy/gateway.compose.toml");
    let text = fs::read_to_string(&compose).unwrap();
    found.push((compose.display().to_string(), text));
    found
}

#[test]
fn no_slip_in_an_example_is_taken_quietly() {
    let mut held = 0;
    for (name, text) in examples() {
        if parse(&name, &text).is_ok() {
            held += 1;
            assert_no_slip_is_taken(&name, &text, &["", "x"]);
        }
    }
    assert!(held >= 4, "{held} examples were looked at");
}

#[test]
fn no_half_of_a_file_panics() {
    for text in [DEMO, EVERY, WHO] {
        // A test build takes tens of milliseconds for a file.
        let step = if long() { 1 } else { 5 };
        for (at, _) in text.char_indices().step_by(step) {
            answer(&text[..at]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        answer(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn noise_made_of_toml_never_panics(
        pieces in proptest::collection::vec(
            prop::sample::select(vec![
                "[", "]", "[[", "]]", "=", "\"", "'", "\"\"\"", ",", ".", "{", "}", "\n", " ", "#", "limits", "routes", "upstreams",
                "server", "store", "a", "by", "rate", "\"ip\"", "\"1/s\"", "servers", "\"a:1\"", "1", "-", "\\u00", "é", "true",
                "1979-05-27", "password", "url", "\"redis://a:b@c\"", "\r\n", "0x", "1e9", "\t",
            ]),
            0..60,
        )
    ) {
        answer(&pieces.concat());
    }

    #[test]
    fn a_changed_byte_never_panics(at in 0..EVERY.len(), byte in any::<u8>()) {
        let mut bytes = EVERY.as_bytes().to_vec();
        bytes[at] = byte;
        answer(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn large_and_deep_files_are_answered_in_time() {
    // A sixteenth of the largest file, which is enough to reveal quadratic work.
    let most = usize::try_from(MOST_BYTES / 16).unwrap();
    let deep = |piece: &str, end: &str| piece.repeat((most - end.len()) / piece.len()) + end;
    let many = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut index = 0;
        while text.len() < most - 200 {
            text.push_str(&line(index));
            index += 1;
        }
        text
    };
    for text in [
        deep("[", ""),
        deep("{a=", ""),
        format!("a = {}", deep("[", "")),
        format!("[{}]", deep("a.", "a")),
        format!("{} = 1", deep("a.", "a")),
        deep("x", " = 1"),
        deep("a = 1\n", ""),
        many(&|index| format!("k{index} = 1\n")),
        many(&|index| format!("[routes.r{index}]\nupstream = \"u{}\"\n", index * 7)),
        many(&|index| {
            format!(
                "[upstreams.u{index}]\nservers=\"a:1\"\n[routes.r{index}]\nupstream = \"x{index}\"\n"
            )
        }),
        many(&|index| format!("[routes.r{index}]\nupstream = \"u\"\n")),
        deep("password = \"://@", ""),
    ] {
        let begun = Instant::now();
        assert!(!answer(&text));
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", &text[..60]);
    }
}

#[test]
fn what_is_no_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let report = |path: &Path| load(path).unwrap_err().human(Colour::Off);
    assert!(report(&path).contains("No such file"));
    assert!(report(folder.path()).contains("not a regular file"));
    assert!(report(Path::new("/dev/zero")).contains("not a regular file"));
    fs::write(
        &path,
        [b"[server]\nlisten = \"".as_slice(), &[0xff, b'"']].concat(),
    )
    .unwrap();
    let text = report(&path);
    assert!(
        text.contains("not UTF-8") && text.contains(":2:11"),
        "{text}"
    );
    fs::write(&path, "#".repeat(usize::try_from(MOST_BYTES).unwrap() + 1)).unwrap();
    assert!(report(&path).contains("larger than 4 MiB"));
    fs::write(&path, format!("\u{feff}{DEMO}")).unwrap();
    assert!(load(&path).is_ok(), "a byte order mark is no mistake");
}

#[test]
fn a_pipe_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if made.is_ok_and(|status| status.success()) {
        assert!(load(&path).is_err());
    }
}
