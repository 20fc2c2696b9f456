//! Tests of variables in a test environment.

use super::*;
use crate::config::report::Report;
use crate::config::report::render::Colour;
use std::sync::Arc;

fn environment(name: &str) -> Result<String, VarError> {
    let set = [
        ("RATE", "10"),
        ("HOST", "cache"),
        ("EMPTY", ""),
        ("DOLLAR", "a$b${RATE}"),
        ("API_TOKEN", "abcdefgh"),
    ];
    let value = set.iter().find(|(known, _)| *known == name);
    value
        .map(|(_, value)| (*value).to_owned())
        .ok_or(VarError::NotPresent)
}

fn filled(text: &str) -> Result<String, Vec<(Code, String)>> {
    expand(&environment, text)
        .map(|(text, _)| text)
        .map_err(|slips| {
            let described = |slip: Slip| (slip.code, text[slip.at].to_owned());
            slips.into_iter().map(described).collect()
        })
}

#[test]
fn variables_are_filled_in_once() {
    for (text, expected) in [
        ("${RATE}/s", "10/s"),
        ("${HOST}:${RATE}", "cache:10"),
        ("${NOT:-a:-b}", "a:-b"),
        ("${NOT:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${RATE:?say it}", "10"),
        ("$${RATE}", "${RATE}"),
        ("$$$$", "$$"),
        ("^/a$", "^/a$"),
        ("$RATE", "$RATE"),
        ("${DOLLAR}", "a$b${RATE}"),
        ("é${RATE}é", "é10é"),
    ] {
        assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_cannot_be_filled_in_is_shown_at_its_place() {
    let slip = |code, at: &str| (code, at.to_owned());
    for (text, expected) in [
        ("a${NOT}b", vec![slip(Code::UnsetVariable, "${NOT}")]),
        (
            "${EMPTY:?say it}",
            vec![slip(Code::UnsetVariable, "${EMPTY:?say it}")],
        ),
        (
            "${NOT}${RATE}${NEVER}",
            vec![
                slip(Code::UnsetVariable, "${NOT}"),
                slip(Code::UnsetVariable, "${NEVER}"),
            ],
        ),
        ("é${NOT", vec![slip(Code::BadVariable, "${NOT")]),
        ("${}", vec![slip(Code::BadVariable, "${}")]),
        ("${1A}", vec![slip(Code::BadVariable, "${1A}")]),
        ("${RATE-5}", vec![slip(Code::BadVariable, "${RATE-5}")]),
        (
            "${NOT:-${RATE}}",
            vec![slip(Code::BadVariable, "${NOT:-${RATE}")],
        ),
    ] {
        assert_eq!(filled(text), Err(expected), "{text}");
    }
}

/// The report of a file whose only mistake is `wrong`.
fn report_of(text: &str, code: Code, at: &str) -> String {
    let source = Source::new("gateway.toml", text);
    let (mut root, _) = DeTable::parse_recoverable(source.file());
    let mut found = Findings::default();
    let variables = fill_from(&environment, &source, root.get_mut(), &mut found);
    assert!(found.is_empty(), "{found:?}");
    let start = text.find(at).unwrap();
    found
        .error(code, "`abcdefgh` and 10 are wrong")
        .at(&(start..start + at.len()), "`abcdefgh`")
        .help("write `abcdefgh`");
    let secrets = Secrets::new(variables.secrets());
    variables.tell(&source, &secrets, &mut found);
    Report::new(Arc::new(source), found.into_inner()).human(Colour::Off)
}

#[test]
fn mistakes_say_what_the_variables_gave() {
    let text = "[limits.a]\nrate = [\"1/s\", \"${RATE}/${NOT:-x}\"]\n";
    let report = report_of(text, Code::BadRate, "\"${RATE}/${NOT:-x}\"");
    assert!(report.contains("--> gateway.toml:2:16"), "{report}");
    assert!(report.contains("note: `${RATE}` is `10`\n"), "{report}");
    assert!(report.contains("`${NOT}` is `x`, its default"), "{report}");
}

#[test]
fn secrets_are_not_told() {
    for (text, at) in [
        ("[a]\nrate = \"${API_TOKEN}\"\n", "\"${API_TOKEN}\""),
        (
            "[a]\npassword = \"${RATE}\"\n[b]\nx = \"${API_TOKEN}\"",
            "\"${RATE}\"",
        ),
    ] {
        let report = report_of(text, Code::BadRate, at);
        assert!(!report.contains("abcdefgh"), "{report}");
        assert!(report.contains("is `***`"), "{report}");
        assert!(report.contains("this is wrong with `${"), "{report}");
        assert!(!report.contains("10 are"), "{report}");
    }
}

#[test]
fn a_secret_from_outside_is_not_in_the_file() {
    let dropped = |line: &str, at: &str| {
        !report_of(&format!("[store]\n{line}\n"), Code::SecretInFile, at).contains("secret-in-file")
    };
    assert!(dropped("password = \"${API_TOKEN}\"", "\"${API_TOKEN}\""));
    assert!(!dropped(
        "password = \"x${API_TOKEN}\"",
        "\"x${API_TOKEN}\""
    ));
    let url = "\"redis://u:${API_TOKEN}@${HOST}\"";
    assert!(dropped(&format!("url = {url}"), url));
    let url = "\"redis://u:hunter2@${HOST}\"";
    assert!(!dropped(&format!("url = {url}"), url));
}
