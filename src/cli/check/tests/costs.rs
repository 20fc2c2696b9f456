//! The notes on costs that the answer decides.

use super::{Format, checked};

/// The notes on limit `l` with these lines.
fn notes(lines: &str) -> Vec<String> {
    let text = format!(
        "[limits.l]\nby = \"ip\"\nrate = \"5/15min\"\n{lines}\n[upstreams.u]\nservers = \"a:1\"\n\
        [routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
    );
    let answer = checked(&text, Format::Human, false);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let notes = answer.out.lines();
    let notes = notes.filter(|line| line.starts_with("note: limit l "));
    notes.map(str::to_owned).collect()
}

#[test]
fn what_the_answer_decides_is_noted() {
    for (lines, noted) in [
        ("refund = [\"5xx\", \"404\", \"cancel\"]", ""),
        ("refund = [\"401\"]", "gives 401 back: guesses"),
        ("refund = [\"4xx\"]", "gives 401 and 403 back: guesses"),
        (
            "cost = { status = { \"401\" = 2, else = 0 } }",
            "charges 2 until the answer is known: more than 2 requests of a key at once are refused",
        ),
        (
            "cost = { response_json = \"n\", estimate = 2, max = 5 }",
            "charges 2 for a successful answer that has no readable number",
        ),
        (
            "cost = { response_json = \"n\", estimate = 2, max = 5, on_silent = \"max\" }",
            "charges 5 for a successful answer that has no readable number",
        ),
        (
            "cost = { response_header = \"x-n\", max = 5, on_silent = \"max\" }",
            "charges 5 for a successful answer",
        ),
        ("cost = { response_header = \"x-n\", max = 5 }", ""),
        ("mode = \"shadow\"\nrefund = [\"401\"]", ""),
    ] {
        let found = notes(lines);
        match noted {
            "" => assert_eq!(found, [""; 0], "{lines}"),
            noted => assert!(
                found.len() == 1 && found[0].contains(noted),
                "{found:?} {lines}"
            ),
        }
    }
}
