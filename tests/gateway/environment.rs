//! Environment variables in the file: every command fills them in, and a reload reads them again.

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

/// If a value of the environment is a secret at one place of the file, it is hidden at all places, whatever the
/// variable's name.
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

/// A file that has secrets of the environment in every text that commands show.
const HIDING: &str = "\
[jwt]
keys = \"${KEYS_SECRET}/k\"
algorithms = \"HS256\"
issuer = \"https://i.test/${A_PAT}\"
[limits.l]
by = \"ip\"
rate = \"7/s\"
exempt = { paths = \"/${A_HMAC}\" }
[upstreams.u]
servers = \"${A_PW}.test:80\"
[routes.p]
path = \"/p/${A_TOKEN}\"
upstream = \"u\"
limits = \"l\"
rewrite = \"/q/${A_TOKEN}\"
headers = { key = \"${A_TOKEN}\" }
[routes.q]
redirect = { to = \"https://h.test/${A_TOKEN}/x\" }
[routes.d]
path = \"/d\"
respond = { body = \"${UNSET_PASSWORD:-hunter-set} ${A_URL} ${PLAIN} ${WHO}\" }
response_headers.set = { x-a = { env = \"PLAIN\" }, x-b = { file = \"s\" } }
";

const HIDDEN: [(&str, &str); 12] = [
    ("KEYS_SECRET", "."),
    ("A_PAT", "hunter-pat"),
    ("A_HMAC", "hunter-hmac"),
    ("A_PW", "Hunter-pw"),
    ("A_TOKEN", "hunter~%41b"),
    ("A_URL", "u:hunter-url@h"),
    ("PLAIN", "hunter-plain"),
    ("WHO", "me"),
    ("B_PAT", "hunter-pat-2"),
    ("B_HMAC", "hunter-hmac-2"),
    ("B_PW", "hunter-pw-2"),
    ("B_TOKEN", "hunter-token-2"),
];

fn hiding() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gateway.toml", HIDING);
    write(
        "new.toml",
        &HIDING.replace("${A_", "${B_").replace("B_URL", "A_URL"),
    );
    write(
        "wrong.toml",
        &HIDING.replace("\"7/s\"", "\"7/${UNSET_PASSWORD:-hunter}\""),
    );
    write("k", "0123456789abcdef0123456789abcdef");
    write("s", "hunter-file");
    folder
}

#[tokio::test]
async fn whatever_is_told_of_a_file_has_no_secret() {
    let folder = hiding();
    let diff = ["check", "--diff", "gateway.toml", "new.toml"];
    let all: [(&[&str], &[&str]); 12] = [
        (
            &["explain", "GET", "/"],
            &["redirects to https://h.test/***/x; no limit"],
        ),
        (
            &["explain", "GET", "/", "--json"],
            &["https://h.test/***/x\""],
        ),
        (
            &["explain", "GET", "/p/h~A", "-H", "key: h~A"],
            &["/p/h~A: matched", "https://h.test/***/x"],
        ),
        (&["check"], &["; not for /***"]),
        (&["check", "--json"], &["; not for /***"]),
        (&["check", "--format", "github"], &["; not for /***"]),
        (&["check", "--format", "sarif"], &["2.1.0"]),
        (
            &["check", "--print"],
            &[
                "issuer = \"https://i.test/***\"",
                "exempt = { paths = \"/***2\" }",
                "headers = { key = \"***4\" }",
                "body = \"***5 ***6 ***7 me\"",
                "x-a = \"***7\", x-b = \"***8\"",
            ],
        ),
        (
            &diff,
            &[
                "limits.l: exempt /*** to /***2,",
                "upstreams.u: servers http://***3.test:80 to http://***4.test:80",
                "routes.p: path /p/***5 to /p/***6,",
                "rewrite /q/***5 to /q/***6",
                "routes.q: redirect https://h.test/***5/x (308) to https://h.test/***6/x (308)",
                "jwt: issuer https://i.test/***7 to https://i.test/***8",
            ],
        ),
        (
            &[&diff[..], &["--json"]].concat(),
            &["path /p/***5 to /p/***6"],
        ),
        (
            &["check", "wrong.toml"],
            &["${UNSET_PASSWORD:-***}", "bad-rate"],
        ),
        (&["check", "wrong.toml", "--json"], &["bad-rate"]),
    ];
    for (arguments, said) in all {
        let done = run(folder.path(), arguments, &HIDDEN).await;
        let all = done.stdout + &done.stderr;
        assert!(
            !all.to_lowercase().contains("hunter"),
            "{arguments:?}: {all}"
        );
        for said in said {
            assert!(all.contains(said), "{arguments:?}: {said}: {all}");
        }
    }
}

#[tokio::test]
async fn a_request_keeps_its_path_where_a_secret_routes_it() {
    let folder = hiding();
    let asked = ["explain", "GET", "/p/hunter~%41b", "-H", "key: hunter~%41b"];
    let done = run(folder.path(), &asked, &HIDDEN).await;
    assert!(
        done.stdout.contains("\npath    /p/hunter~Ab: matched"),
        "{done:?}"
    );
    assert!(done.stdout.contains("http://***.test:80"), "{done:?}");
    assert!(done.stdout.contains("forwarded as /q/***"), "{done:?}");
}

#[tokio::test]
async fn a_gateway_says_no_secret_when_it_starts_and_reloads() {
    let folder = hiding();
    let port = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let [old, new] = ["gateway.toml", "new.toml"]
        .map(|name| port.to_owned() + &std::fs::read_to_string(folder.path().join(name)).unwrap());
    std::fs::write(folder.path().join("gateway.toml"), &old).unwrap();
    let variables = HIDDEN.map(|(name, value)| (name, Path::new(value)));
    let gateway = Gateway::launch_with(folder, &["run"], &variables).await;
    let answer = gateway.get("/").await;
    assert_eq!(answer.field("location"), "https://h.test/hunter~Ab/x");
    gateway.rename_over(&new);
    let told = "routes.q: redirect https://h.test/***5/x (308) to https://h.test/***6/x (308)";
    eventually(PATIENCE, told, async || gateway.said.text().contains(told)).await;
    let said = gateway.said.text();
    assert!(!said.to_lowercase().contains("hunter"), "{said}");
    for line in [
        "308 to https://h.test/***/x",
        "p  ->  http://***.test:80",
        "upstreams.u: servers http://***3.test:80 to",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

const NUMBERS: &str = "\
[server]
listen = \"127.0.0.1:${PORT}\"
workers = \"${WORKERS:-2}\"
[limits.calls]
by = \"ip\"
rate = \"10/min\"
burst = \"${CALLS}\"
tiers.gold = { burst = \"${CALLS}\" }
cost = \"${COST:-1}\"
lease = \"${LEASE:-off}\"
[limits.window]
by = \"ip\"
algorithm = \"sliding-window\"
rate = \"10/min\"
strict = \"${STRICT}\"
[groups.gold]
by = \"ip\"
members = \"10.0.0.1\"
[upstreams.u]
servers = { url = \"a:1\", weight = \"${WEIGHT:-3}\" }
eject = \"${EJECT:-false}\"
[routes.r]
path = \"/x\"
upstream = \"u\"
limits = [\"calls\", \"window\"]
[routes.moved]
redirect = { to = \"/x\", status = \"${MOVED:-307}\" }
";

#[tokio::test]
async fn a_variable_alone_may_be_a_number_or_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, NUMBERS).unwrap();
    let set = [
        ("PORT", "8080"),
        ("CALLS", "7"),
        ("STRICT", "true"),
        ("LEASE", "50"),
        ("EJECT", "false"),
    ];
    let done = run(folder.path(), &["check"], &set).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("at most 7 at once"), "{done:?}");

    // The printed file has the numbers themselves, so it needs no variable.
    let printed = run(folder.path(), &["check", "--print"], &set).await.stdout;
    for line in [
        "workers = 2",
        "burst = 7",
        "strict = true",
        "lease = 50",
        "eject = false",
        "status = 307",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    std::fs::write(&file, &printed).unwrap();
    let done = run(folder.path(), &["check"], &[]).await;
    assert_eq!(done.code, Some(0), "{done:?}");

    std::fs::write(&file, NUMBERS).unwrap();
    let with = |name: &'static str, value: &'static str| {
        let mut all = set.to_vec();
        all.retain(|(other, _)| *other != name);
        all.push((name, value));
        all
    };
    for (name, value, said) in [
        (
            "CALLS",
            "many",
            "`burst` in `[limits.calls]` takes a whole number from 1, not a text",
        ),
        ("CALLS", "0", "`burst` in `[limits.calls]` is out of range"),
        (
            "CALLS",
            "1.5",
            "`burst` in `[limits.calls]` takes a whole number from 1, not a text",
        ),
        (
            "STRICT",
            "yes",
            "`strict` in `[limits.window]` takes `true` or `false`, not a text",
        ),
        (
            "STRICT",
            "1",
            "`strict` in `[limits.window]` takes `true` or `false`, not a text",
        ),
    ] {
        let done = run(folder.path(), &["check"], &with(name, value)).await;
        assert_eq!(done.code, Some(1), "{name}={value}: {done:?}");
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
        let told = format!("`${{{name}}}` is `{value}`");
        assert!(done.stderr.contains(&told), "{told}: {}", done.stderr);
    }

    // A variable cannot hold a part of a number.
    let parts = NUMBERS.replace(
        "burst = \"${CALLS}\"\ntiers",
        "burst = \"${CALLS}0\"\ntiers",
    );
    std::fs::write(&file, parts).unwrap();
    let done = run(folder.path(), &["check"], &set).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    let said = "comes from one variable alone: `\"${CALLS}\"`";
    assert!(done.stderr.contains(said), "{}", done.stderr);
}

#[tokio::test]
async fn variables_may_come_from_the_file_of_a_unit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), FILE).unwrap();
    std::fs::write(
        folder.path().join("old.toml"),
        FILE.replace("${UNIT:-min}", "h"),
    )
    .unwrap();
    std::fs::write(
        folder.path().join("unit.env"),
        "# the unit's\nCALLS='2'\nUNIT=min # no comment behind a value\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("more.env"), "UNIT=\"min\"\n").unwrap();
    let files = [
        "--env-file",
        "unit.env",
        "--env-file=more.env",
        "--env-file=-none.env",
    ];
    let with = |command: &[&'static str]| [command, &files[..]].concat();

    let done = run(folder.path(), &["check"], &[]).await;
    assert_eq!(done.code, Some(1), "without the file: {done:?}");
    let way = "`check`, `explain` and `simulate` take a unit's variables by `--env-file FILE`";
    assert!(done.stderr.contains(way), "{done:?}");
    let done = run(folder.path(), &with(&["check"]), &[("CALLS", "9")]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("at most 2 at once"), "{done:?}");
    let absent = "--env-file -none.env: there is no such file, and the `-` allows that";
    assert!(done.stderr.contains(absent), "{done:?}");
    let done = run(folder.path(), &with(&["check", "--print"]), &[]).await;
    assert!(done.stdout.contains("rate = \"2/min\""), "{done:?}");
    let done = run(folder.path(), &with(&["check", "--diff", "old.toml"]), &[]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("would make"), "{done:?}");
    let done = run(folder.path(), &with(&["explain", "GET", "/"]), &[]).await;
    assert!(done.stdout.contains("has 1 left"), "{done:?}");

    // Lines that systemd would skip are skipped, with a warning.
    let odd = "export CALLS=7\nCALLS=2\nno assignment\nA-B=s3cret\nUNIT=min\n";
    std::fs::write(folder.path().join("odd.env"), odd).unwrap();
    let done = run(folder.path(), &["check", "--env-file", "odd.env"], &[]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("at most 2 at once"), "{done:?}");
    for told in [
        "odd.env:1: `export` belongs to shells",
        "odd.env:3: no `=`",
        "odd.env:4: the text in front of the `=` is not a name",
    ] {
        assert!(done.stderr.contains(told), "{done:?}");
    }
    assert!(!done.stderr.contains("s3cret"), "{done:?}");

    let done = run(folder.path(), &["check", "--env-file", "none.env"], &[]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("cannot read --env-file none.env"),
        "{done:?}"
    );
}
