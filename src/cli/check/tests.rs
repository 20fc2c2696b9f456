//! What `check` answers, and with which exit code.

use super::*;

fn checked(text: &str, format: Format, deny_warnings: bool) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    let mut answer = answer(&file, &What::Meaning, format, deny_warnings, Colour::Off);
    let shown = format!("{}/", folder.path().display());
    answer.out = answer.out.replace(&shown, "");
    answer.err = answer.err.replace(&shown, "");
    answer
}

const GOOD: &str = "\
    [store]\nurl = \"redis://cache\"\n\
    [limits.per-key]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"100/min\"\nburst = 20\n\
    [upstreams.u]\nservers = \"a:1\"\n\
    [routes.r]\nupstream = \"u\"\n";

#[test]
fn a_good_file_is_said_in_numbers() {
    let text = format!("{GOOD}limits = \"per-key\"\n");
    let answer = checked(&text, Format::Human, true);
    assert_eq!(
        answer.out,
        "gateway.toml is good: 1 route, 1 upstream, 1 limit\n  \
         per-key  at most 20 at once, 120 in the first minute, 100 in each later minute, per x-api-key; 401 without one\n\
         note: while Redis is away each gateway counts alone, as one of those that were there: N gateways together admit each limit once, but one request in each where a burst or a window's limit is smaller than N\n"
    );
    assert_eq!((answer.err.as_str(), answer.code), ("", 0));
}

#[test]
fn what_the_manual_shows_is_good_and_says_what_many_gateways_admit() {
    let manual = concat!(
        include_str!("../../../docs/repeats-and-scope.md"),
        include_str!("../../../docs/outages.md"),
        include_str!("../../../docs/costs-and-shadows.md")
    );
    let examples = manual.split("```toml\n").skip(1);
    let mut all = String::new();
    for example in examples.map(|rest| rest.split("```").next().unwrap()) {
        let names: Vec<&str> = example
            .lines()
            .filter_map(|line| line.strip_prefix("[limits.")?.strip_suffix(']'))
            .collect();
        let text = format!(
            "{example}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = {names:?}\n"
        );
        let answer = checked(&text, Format::Human, true);
        assert_eq!((answer.err.as_str(), answer.code), ("", 0), "{text}");
        all.push_str(&answer.out);
    }
    assert!(all.contains("within 10min counts once, and 3 repeats go free"));
    assert!(all.contains("at most 200 in flight, for everyone together; each gateway by itself"));
    assert!(all.contains("so N gateways together admit N times as much"));
}

#[test]
fn a_list_of_rates_is_one_limit() {
    let text = format!("{GOOD}limits = \"per-key\"\n").replace(
        "\"100/min\"\nburst = 20",
        "[\"10/s\", \"100/min\"]\ncandidate = { rate = [\"9/s\", \"90/min\"] }",
    );
    let answer = checked(&text, Format::Human, true);
    let first = answer.out.lines().next();
    assert_eq!(
        first,
        Some("gateway.toml is good: 1 route, 1 upstream, 1 limit"),
        "{}{}",
        answer.err,
        answer.out
    );
    assert_eq!(answer.out.matches("\n  per-key").count(), 4);
}

#[test]
fn warnings_are_told_and_denied_only_when_asked() {
    let answer = checked(GOOD, Format::Human, false);
    assert!(answer.err.starts_with("warning[unused-limit]") && answer.code == 0);
    assert!(answer.err.ends_with("1 warning in gateway.toml\n"));
    assert_eq!(checked(GOOD, Format::Human, true).code, 1);
}

#[test]
fn mistakes_are_told_for_people_and_for_programs() {
    let text = GOOD.replace("100/min", "100");
    let people = checked(&text, Format::Human, false);
    assert!(people.out.is_empty() && people.code == 1);
    assert!(
        people.err.contains("--> gateway.toml:6:8"),
        "{}",
        people.err
    );
    let programs = checked(&text, Format::Json, false);
    let lines: Vec<Value> = programs
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["code"], "unused-limit");
    assert_eq!(
        (&lines[1]["line"], &lines[1]["column"]),
        (&json!(6), &json!(8))
    );
    assert_eq!(lines[2]["errors"], 1);
}
