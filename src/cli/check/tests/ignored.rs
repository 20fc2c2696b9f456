//! Tests of warnings that a file ignores: in the file itself, in its included files, and in its printed form.

use super::*;

#[test]
fn a_warning_that_is_meant_is_listed_and_passed_wherever_it_is_ignored() {
    let ignore = "ignore_warnings = [\"waits-longer\"]\n";
    let said =
        "limit `patient` may delay a request for 1min, but route `r` gives its upstream only 30s";
    assert_eq!(checked(PATIENT, Format::Human, true).code, 1);
    let of_limit = PATIENT.replace("max_wait", &format!("{ignore}max_wait"));
    for text in [
        format!("{ignore}{PATIENT}"),
        of_limit.clone(),
        format!("{PATIENT}{ignore}"),
        PATIENT.replace(
            "[routes.r]\n",
            "[routes.r]\nignore_warnings = \"waits-longer\"\n",
        ),
    ] {
        let answer = checked(&text, Format::Human, true);
        assert_eq!(answer.code, 0, "{text}{}", answer.err);
        let listed = "ignored[waits-longer] gateway.toml:";
        assert!(
            answer.err.starts_with(listed) && answer.err.contains(said),
            "{}",
            answer.err
        );
        assert!(
            answer.err.contains("1 ignored warning in gateway.toml"),
            "{}",
            answer.err
        );
        assert!(
            answer.out.contains("gateway.toml is good"),
            "{}",
            answer.out
        );
    }
    let json = checked(&of_limit, Format::Json, true);
    let lines: Vec<Value> = (json.out.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["severity"], &lines[0]["code"]),
        (&json!("ignored"), &json!("waits-longer"))
    );
    assert_eq!(
        (&lines[1]["warnings"], &lines[1]["ignored"]),
        (&json!(0), &json!(1))
    );
    let sarif: Value = serde_json::from_str(&checked(&of_limit, Format::Sarif, true).out).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["suppressions"], json!([{ "kind": "inSource" }]));
    let github = checked(&of_limit, Format::Github, true);
    assert!(
        github.out.starts_with("::notice file=gateway.toml"),
        "{}",
        github.out
    );
    assert_eq!(github.code, 0);
}

#[test]
fn what_is_not_there_to_be_ignored_is_told() {
    let with = |place: &str, line: &str| PATIENT.replace(place, &format!("{place}{line}\n"));
    for (text, code, said) in [
        // The finding is not about this table.
        (
            with("[upstreams.u]\n", "ignore_warnings = [\"waits-longer\"]"),
            "ignores-nothing",
            "nothing in `[upstreams.u]` warns of `waits-longer`",
        ),
        (
            with(
                "[routes.r]\n",
                "ignore_warnings = [\"waits-longer\", \"unused-limit\"]",
            ),
            "ignores-nothing",
            "nothing in `[routes.r]` warns of `unused-limit`",
        ),
        (
            format!("ignore_warnings = [\"overlap\"]\n{PATIENT}"),
            "ignores-nothing",
            "nothing in the file warns of `overlap`",
        ),
        (
            with("[routes.r]\n", "ignore_warnings = [\"waits-loner\"]"),
            "bad-choice",
            "did you mean `waits-longer`?",
        ),
        (
            with("[routes.r]\n", "ignore_warnings = 3"),
            "wrong-type",
            "`ignore_warnings` takes",
        ),
        (
            with("[routes.r]\n", "ignore_warning = [\"waits-longer\"]"),
            "unknown-key",
            "`ignore_warnings`",
        ),
        // An error stays an error.
        (
            with("[routes.r]\n", "ignore_warnings = [\"unknown-limit\"]")
                .replace("= \"patient\"", "= \"paint\""),
            "unknown-limit",
            "`paint`",
        ),
    ] {
        let answer = checked(&text, Format::Human, true);
        assert_eq!(answer.code, 1, "{text}{}", answer.err);
        assert!(
            answer.err.contains(&format!("[{code}]")) && answer.err.contains(said),
            "{text}{}",
            answer.err
        );
    }
}

#[test]
fn an_included_file_ignores_what_is_its_own_and_a_printed_file_what_the_first_did() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (limit, rest) = PATIENT.split_at(PATIENT.find("[upstreams").unwrap());
    write(
        "gateway.toml",
        &format!("include = \"limits.toml\"\n{rest}"),
    );
    write(
        "limits.toml",
        &format!("{limit}ignore_warnings = [\"waits-longer\"]\n"),
    );
    let file = folder.path().join("gateway.toml");
    let ask = |what: &CheckTask| plainly(&file, what, Format::Human, true);
    let meaning = ask(&CheckTask::Meaning);
    assert_eq!(meaning.code, 0, "{}", meaning.err);
    assert!(
        meaning.err.contains("ignored[waits-longer]"),
        "{}",
        meaning.err
    );
    let printed = ask(&CheckTask::Print);
    assert!(
        printed.out.contains("ignore_warnings = [\"waits-longer\"]"),
        "{}",
        printed.out
    );
    assert_eq!(
        checked(&printed.out, Format::Human, true).code,
        0,
        "{}",
        printed.out
    );
    let same = ask(&CheckTask::Diff(file.clone()));
    assert!(same.out.contains("would change nothing"), "{}", same.out);
    // At the top of a file, the key would apply to other people's files.
    write(
        "limits.toml",
        &format!("ignore_warnings = [\"waits-longer\"]\n{limit}"),
    );
    assert!(ask(&CheckTask::Meaning).err.contains("[only-in-main]"));
    let whole = format!("ignore_warnings = [\"waits-longer\"]\n{PATIENT}");
    write("gateway.toml", &whole);
    let printed = ask(&CheckTask::Print);
    assert_eq!(
        checked(&printed.out, Format::Human, true).code,
        0,
        "{}",
        printed.out
    );
}
