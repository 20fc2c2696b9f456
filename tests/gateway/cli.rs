//! The command line: its arguments, its outputs, and its exit codes.

use crate::support::{File, Gateway, PATIENCE, Upstream, get, tollgate};
use std::net::TcpListener;
use std::path::Path;

const NONE: [&str; 0] = [];

pub(super) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) async fn check(text: &str) -> crate::support::Finished {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    // Other commands and files that the manual pages refer to.
    for (name, from) in [
        ("gold-keys.txt", "deploy/gold-keys.txt"),
        ("issuer.pem", "tests/config/jwt/rsa.pem"),
        ("keys.txt", "tests/config/valid/keys.txt"),
        ("gold.txt", "tests/config/valid/gold.txt"),
        ("own-day.txt", "tests/config/valid/own-day.txt"),
        ("staff.txt", "tests/config/valid/staff.txt"),
    ] {
        std::fs::copy(repository().join(from), folder.path().join(name)).unwrap();
    }
    tollgate(folder.path(), &["check"]).await
}

#[tokio::test]
async fn a_good_file_is_good() {
    let upstream = Upstream::echo().await;
    let done = check(&File::to(&upstream, &[]).text()).await;
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[tokio::test]
async fn every_mistake_is_shown_in_one_run() {
    let upstream = Upstream::echo().await;
    let text = File::to(&upstream, &["calls", "cals"])
        .limit("calls", "by = \"header:x-user\"\nrate = \"10\"\nbrust = 3")
        .with("[routes.lost]\npath = \"/lost\"\nupstream = \"nowhere\"")
        .text();
    let done = check(&text).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    for said in [
        "cals",
        "brust",
        "burst",
        "rate = \"10\"",
        "missing",
        "nowhere",
        "gateway.toml:",
        "^",
    ] {
        assert!(
            done.stderr.contains(said) || done.stdout.contains(said),
            "{said} is not said:\n{}\n{}",
            done.stdout,
            done.stderr
        );
    }
}

#[tokio::test]
async fn a_bad_file_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("gateway.toml"),
        "[routes.a]\nupstream = \"nowhere\"\n",
    )
    .unwrap();
    let done = tollgate(folder.path(), &["run"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("nowhere") && done.stderr.contains("gateway.toml:"),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_a_bad_answer() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["run", "--config", "absent.toml"][..],
        &["check", "absent.toml"],
    ] {
        let done = tollgate(folder.path(), arguments).await;
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains("absent.toml"), "{done:?}");
    }
}

#[tokio::test]
async fn wrong_usage_is_two() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["dance"][..],
        &["run", "--bananas"],
        &["check", "a.toml", "b.toml"],
        &["run", "--limit", "10/s"],
        &["run", "--to", "127.0.0.1:1", "--limit", "10 bananas"],
        &["run", "--to", "127.0.0.1:1", "--config", "gateway.toml"],
    ] {
        let done = tollgate(folder.path(), arguments).await;
        assert_eq!(done.code, Some(2), "{arguments:?}: {done:?}");
        assert!(
            !done.stderr.is_empty() && done.stdout.is_empty(),
            "{done:?}"
        );
    }
}

#[tokio::test]
async fn the_file_may_be_named_in_front_of_the_command() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.toml");
    std::fs::write(&other, File::to(&upstream, &[]).text()).unwrap();
    let other = other.to_str().unwrap().to_owned();
    for arguments in [
        &["--config", &other, "check"][..],
        &["check", "--config", &other],
        &["check", &other],
    ] {
        let done = tollgate(folder.path(), arguments).await;
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
    }
    let gateway = Gateway::launch(folder, &["--config", &other, "run"]).await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn what_contradicts_itself_on_the_command_line_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (
            &["--config", "a.toml", "check", "b.toml"][..],
            "two files are named, a.toml and b.toml",
        ),
        (
            &["--config", "a.toml", "check", "--config", "b.toml"],
            "two files are named, a.toml and b.toml",
        ),
        (&["check", "b.toml", "--config", "a.toml"], "--config"),
        (
            &["--config", "a.toml", "run", "--config", "b.toml"],
            "two files are named, a.toml and b.toml",
        ),
        (
            &["--config", "a.toml", "run", "--to", "127.0.0.1:1"],
            "--config a.toml and --to",
        ),
        (
            &["--to", "127.0.0.1:1", "check"],
            "--to is an option of `tollgate run`",
        ),
        (
            &["--to", "127.0.0.1:1", "run"],
            "--to is an option of `tollgate run`",
        ),
    ] {
        let done = tollgate(folder.path(), arguments).await;
        assert_eq!(done.code, Some(2), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(said), "{arguments:?}: {done:?}");
    }
}

#[tokio::test]
async fn help_and_version_are_results() {
    let folder = tempfile::tempdir().unwrap();
    for argument in ["--help", "--version"] {
        let done = tollgate(folder.path(), &[argument]).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.to_lowercase().contains("tollgate"), "{done:?}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let file = File::to(&upstream, &[]).server(&format!("listen = [\"{address}\"]"));
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let done = tollgate(folder.path(), &["run"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains(&address), "{done:?}");
}

#[tokio::test]
async fn a_bare_command_runs_the_file_in_its_folder() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("gateway.toml"),
        File::to(&upstream, &[]).text(),
    )
    .unwrap();
    let gateway = Gateway::launch(folder, &[]).await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn without_a_file_it_says_what_it_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let done = tollgate(folder.path(), &NONE).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("gateway.toml") && done.stderr.contains("--to"),
        "{done:?}"
    );
}

#[tokio::test]
async fn two_words_are_enough_without_a_file() {
    let upstream = Upstream::echo().await;
    let to = format!("127.0.0.1:{}", upstream.port());
    let arguments = [
        "run",
        "--to",
        &to,
        "--limit",
        "3/h",
        "--listen",
        "127.0.0.1:0",
    ];
    let gateway = Gateway::launch(tempfile::tempdir().unwrap(), &arguments).await;
    let mut client = gateway.connect().await;
    for status in [200, 200, 200, 429] {
        client.ask(get("/")).await.expect(status);
    }
    let left: Vec<_> = std::fs::read_dir(gateway.folder()).unwrap().collect();
    assert!(left.is_empty(), "it writes no file: {left:?}");
}

/// The answers of two gateways with a Redis of their own, which are asked in turn. Nothing if one of them decided
/// without Redis, as happens on a machine that is too busy.
async fn answers_with_a_redis() -> Option<Vec<u16>> {
    let (upstream, redis) = (Upstream::echo().await, crate::support::Redis::start().await);
    let to = format!("127.0.0.1:{}", upstream.port());
    let url = redis.url();
    let arguments = [
        "run",
        "--to",
        &to,
        "--limit",
        "3/h",
        "--listen",
        "127.0.0.1:0",
        "--redis",
        &url,
    ];
    let one = Gateway::launch(tempfile::tempdir().unwrap(), &arguments).await;
    let two = Gateway::launch(tempfile::tempdir().unwrap(), &arguments).await;
    let mut statuses = Vec::new();
    for gateway in [&one, &two, &one, &two] {
        let answer = gateway.get("/").await;
        if gateway.line_of(&answer).await["decided_by"] != "store" {
            return None;
        }
        statuses.push(answer.status);
    }
    Some(statuses)
}

#[tokio::test]
async fn two_gateways_without_a_file_share_a_redis() {
    for _ in 0..10 {
        if let Some(statuses) = answers_with_a_redis().await {
            assert_eq!(statuses, [200, 200, 200, 429]);
            return;
        }
    }
    panic!("no answer came from Redis ten times");
}

#[tokio::test]
async fn the_file_of_the_repository_admits_and_then_refuses() {
    let text = std::fs::read_to_string(repository().join("gateway.toml")).unwrap();
    // The ports are changed to free ones, so that the gateway runs beside others. Nothing else is changed.
    let free = text.replace(":8080\"", ":0\"").replace(":9090\"", ":0\"");
    assert_ne!(free, text, "the file says where it listens");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, free).unwrap();
    let mut gateway = Gateway::run(folder, &path).await;
    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(gateway.get("/").await.status);
    }
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(
        statuses[0] == 200 && (1..=14).contains(&refused),
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 429)),
        "{statuses:?}"
    );
    assert!(
        statuses.is_sorted(),
        "first the admitted, then the refused: {statuses:?}"
    );
    let said = gateway.said.text();
    for word in ["curl", "limit", "demo"] {
        assert!(said.contains(word), "{word} is not said:\n{said}");
    }
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_code_is_explained_and_a_misspelt_one_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let done = tollgate(folder.path(), &["explain", "missing-choice"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    for said in [
        "missing-choice: A limit without `missing`",
        "\n    [limits.per-key]\n",
        "\n    missing = \"refuse\"\n",
    ] {
        assert!(done.stdout.contains(said), "{said}: {}", done.stdout);
    }
    let done = tollgate(folder.path(), &["explain", "bad-rate", "--json"]).await;
    assert!(
        done.stdout.starts_with("{\"about\":\"A rate is not") && done.stdout.contains("10r/s"),
        "{done:?}"
    );
    let done = tollgate(folder.path(), &["explain", "mising-choise"]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{done:?}");
    assert!(
        done.stderr
            .contains("did you mean `tollgate explain missing-choice`?"),
        "{done:?}"
    );
    let done = tollgate(folder.path(), &["explain", "nonsense"]).await;
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("docs/diagnostics.md"), "{done:?}");
}

#[tokio::test]
async fn forges_are_told_in_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let bad = "[limits.calls]\nby = \"ip\"\nrate = \"10\"\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"calls\"\n";
    std::fs::write(folder.path().join("gateway.toml"), bad).unwrap();
    std::fs::write(
        folder.path().join("good.toml"),
        bad.replace("\"10\"", "\"10/s\""),
    )
    .unwrap();
    let check = async |arguments: &[&str]| {
        let arguments = [&["check"], arguments].concat();
        tollgate(folder.path(), &arguments).await
    };
    let github = check(&["--format", "github"]).await;
    assert_eq!(
        (github.code, github.stderr.as_str()),
        (Some(1), ""),
        "{github:?}"
    );
    let command = "::error file=gateway.toml,line=3,endLine=3,col=8,endColumn=11,title=bad-rate::`10` is not a rate: ";
    assert!(github.stdout.starts_with(command), "{github:?}");
    assert!(github.stdout.contains("%0Ahelp: "), "{github:?}");

    let sarif = check(&["--format", "sarif"]).await;
    assert_eq!(
        (sarif.code, sarif.stderr.as_str()),
        (Some(1), ""),
        "{sarif:?}"
    );
    let log: serde_json::Value = serde_json::from_str(&sarif.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{log}");
    assert_eq!(results[0]["ruleId"], "bad-rate");

    let sarif = check(&["good.toml", "--format", "sarif"]).await;
    let log: serde_json::Value = serde_json::from_str(&sarif.stdout).unwrap();
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
    let github = check(&["good.toml", "--format", "github"]).await;
    assert!(github.code == Some(0) && !github.stdout.contains("::"));
    let (short, long) = (check(&["--json"]).await, check(&["--format", "json"]).await);
    assert!(
        short.stdout == long.stdout && short.code == Some(1),
        "{short:?}"
    );
    assert_eq!(check(&["--json", "--format", "sarif"]).await.code, Some(2));
}

/// Arguments and files may contain escapes for colours, titles and reversed text.
#[tokio::test]
async fn a_terminal_obeys_nothing_that_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let rest = "[upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\n";
    write("gateway.toml", rest);
    write(
        "named.toml",
        &format!(
            "[limits.l]\nby = \"header:x-\u{202e}a\"\nrate = \"1/\u{9b}31m\"\n{rest}limits = \"\\u001b[31ml\"\n"
        ),
    );
    write(
        "raw.toml",
        &format!("# \u{1b}[31m \r \u{7f}\u{9b}\n[limits.\u{1b}[2J]\n{rest}"),
    );
    write("\u{1b}[31mfile.toml", "routes = 1\n");
    write(
        "body.toml",
        "[routes.r]\nrespond = { body = \"\\u009b31m\\u202e\" }\npath = \"/{\u{202e}a}\"\n",
    );
    let escape = "\u{1b}[31m";
    let target = format!("/{escape}");
    let field = format!("x: {escape}");
    let file = format!("{escape}file.toml");
    for arguments in [
        &["explain", "GET", &target][..],
        &["explain", "GET", "/\u{9b}31m"],
        &["explain", "GET", "/\u{202e}a", "--json"],
        &["explain", "GET", "/", "-H", &field],
        &["explain", "GET", "/", "--host", &target],
        &["explain", &target],
        &["explain", &target, "/"],
        &["check", &file],
        &["check", &target],
        &["check", "named.toml"],
        &["check", "named.toml", "--json"],
        &["check", "named.toml", "--format", "github"],
        &["check", "named.toml", "--format", "sarif"],
        &["check", "raw.toml"],
        &["check", "raw.toml", "--json"],
        &["check", "body.toml", "--print"],
        &["check", "body.toml", "--diff", &file],
        &["simulate", &target],
        &["run", "--to", &target],
        &["run", "--config", &file],
        &[escape],
        &["check", "--\u{1b}[31m"],
    ] {
        let done = tollgate(folder.path(), arguments).await;
        let all = format!("{}{}", done.stdout, done.stderr);
        let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!all.is_empty(), "{arguments:?}");
        assert!(!all.contains(obeyed), "{arguments:?}: {all:?}");
    }
}
