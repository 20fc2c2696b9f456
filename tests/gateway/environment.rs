//! Variables of the environment in the file: filled in by everything that reads it, read anew by a reload.

use crate::support::process::command;
use crate::support::{File, Finished, Gateway, PATIENCE, Upstream, eventually};
use std::path::Path;

async fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    let mut command = command();
    command
        .current_dir(folder)
        .args(arguments)
        .env_remove("CALLS")
        .envs(variables.iter().copied());
    let output = command.output().await.unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

const FILE: &str = "\
[limits.calls]
by = \"ip\"
rate = \"${CALLS}/${UNIT:-min}\"
[upstreams.u]
servers = \"a:1\"
[routes.r]
upstream = \"u\"
limits = \"calls\"
";

#[tokio::test]
async fn all_that_read_the_file_fill_it_in() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), FILE).unwrap();
    std::fs::write(
        folder.path().join("trace.json"),
        "{\"ts\":1,\"path\":\"/\"}\n{\"ts\":2,\"path\":\"/\"}\n{\"ts\":3,\"path\":\"/\"}\n",
    )
    .unwrap();
    let set = [("CALLS", "2")];
    let done = run(folder.path(), &["check"], &set).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout
            .contains("at most 2 at once, 4 in the first minute, 2 in each later minute"),
        "{done:?}"
    );
    let done = run(folder.path(), &["explain", "GET", "/"], &set).await;
    assert!(done.stdout.contains("has 1 left"), "{done:?}");
    let done = run(folder.path(), &["simulate", "trace.json", "--json"], &set).await;
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(report.to_string().contains("\"refused\":1"), "{report}");
}

#[tokio::test]
async fn what_is_not_set_or_wrong_is_shown_where_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), FILE).unwrap();
    let done = run(folder.path(), &["check"], &[]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    for said in [
        "error[unset-variable]: `CALLS` is not set",
        "--> gateway.toml:3:9",
        "1 error in",
    ] {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    let done = run(folder.path(), &["check"], &[("CALLS", "many")]).await;
    for said in [
        "error[bad-rate]: `many/min`",
        "= note: `${CALLS}` is `many`",
        "`${UNIT}` is `min`, its default",
    ] {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    let secret = FILE.replace("CALLS", "API_KEY");
    std::fs::write(folder.path().join("gateway.toml"), secret).unwrap();
    for format in ["human", "json", "github", "sarif"] {
        let done = run(
            folder.path(),
            &["check", "--format", format],
            &[("API_KEY", "hunter2")],
        )
        .await;
        let all = done.stdout + &done.stderr;
        assert!(!all.contains("hunter2") && all.contains("***"), "{all}");
    }
}

#[tokio::test]
async fn a_reload_fills_in_again() {
    let upstream = Upstream::echo().await;
    let file = |calls: &str| {
        let rate = format!("by = \"ip\"\nrate = \"{calls}/h\"");
        File::to(&upstream, &["calls"]).limit("calls", &rate)
    };
    let gateway = Gateway::start(&file("${NOT_SET_ANYWHERE:-1}")).await;
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    gateway.rename_over(&file("${NOT_SET_ANYWHERE:-3}").text());
    eventually(
        PATIENCE,
        "RateLimit-Policy shows the new quota",
        async || {
            let answer = gateway.get("/").await;
            answer.field("ratelimit-policy").contains("q=3")
        },
    )
    .await;
}

/// Wherever a secret of the environment stands, and whatever its name, once one of its places says that it is one.
#[tokio::test]
async fn a_printed_file_has_no_secret_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("gateway.toml"),
        "[store]\nurl = \"redis://cache\"\npassword = { env = \"PLAIN\" }\n\
         [groups.staff]\nby = \"jwt:role\"\nmembers = [\"${STAFF_TOKEN}\", \"b\"]\n\
         [jwt]\nkeys = \"${KEYS_SECRET}/k\"\nalgorithms = \"HS256\"\n\
         [limits.l]\nby = \"ip\"\nrate = \"7/s\"\nexempt = { groups = \"staff\" }\n\
         [routes.a]\npath = \"/a\"\nlimits = \"l\"\nrespond = { body = \"key ${API_TOKEN} of ${WHO}\" }\n\
         [routes.b]\npath = \"/b\"\nrespond = { body = \"${PLAIN}${DSN}\" }\n\
         [routes.c]\npath = \"/c\"\nredirect = { to = \"https://c.test/${API_TOKEN}\" }\n\
         [routes.d]\npath = \"/d\"\nheaders = { x-a = \"${API_TOKEN}\" }\nrespond = { body = \"$${API_TOKEN} ${NOT:-API}\" }\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("k"), "0123456789abcdef0123456789abcdef").unwrap();
    let set = [
        ("API_TOKEN", "hunter2"),
        ("PLAIN", "hunter3"),
        ("DSN", "db://u:hunter4@h"),
        ("STAFF_TOKEN", "hunter5"),
        ("KEYS_SECRET", "."),
        ("WHO", "me"),
    ];
    let done = run(folder.path(), &["check", "--print"], &set).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!done.stdout.contains("hunter"), "{}", done.stdout);
    for said in [
        "of me\"",
        "body = \"key ***",
        "$${API_TOKEN} API",
        "to = \"https://c.test/***",
        "/k\"",
    ] {
        assert!(done.stdout.contains(said), "{said}: {}", done.stdout);
    }
}
