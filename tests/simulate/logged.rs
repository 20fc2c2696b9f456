//! The access log of a real gateway is replayed: the same requests get the same answers, although the log contains no
//! secret.

use super::Bench;
use crate::support::{File, Gateway, Upstream, request};
use serde_json::{Value, json};

/// The fate of a request in the log, in the words of a replay.
fn said(line: &Value) -> &'static str {
    match line["reason"].as_str().unwrap() {
        "ok" => "admit",
        "limit_delayed" => "delay",
        "limit_refused" | "missing_key" | "unknown_key" | "bad_token" => "refuse",
        "no_route" => "no_route",
        other => panic!("{other}: {line}"),
    }
}

#[tokio::test]
async fn an_access_log_replays_to_the_same_decisions() {
    let upstream = Upstream::echo().await;
    // Lines of several workers are not in the order of their requests.
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&upstream])
        .limit("key", "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"3/h\"")
        .limit("user", "by = [\"header:x-user\", \"route\"]\nmissing = \"skip\"\nalgorithm = \"fixed-window\"\nrate = \"2/h\"")
        .limit("queue", "by = \"route\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/200ms\"\nqueue = 1\nmax_wait = \"1min\"")
        .route("keys", "/keys/{*rest}", "main", &["key", "user"])
        .route("slow", "/slow", "main", &["queue"]);
    let mut gateway = Gateway::start(&file).await;
    for turn in 0..12 {
        let (key, user) = (format!("secret-{}", turn % 3), format!("u{}", turn % 2));
        let fields = [("X-Api-Key", &*key), ("X-User", &*user)];
        let fields = if turn % 5 == 4 { &fields[..1] } else { &fields };
        gateway
            .get_with(&format!("/keys/{turn}?token=hidden"), fields)
            .await;
    }
    gateway.get("/keys/none").await.expect(401);
    gateway.get("/elsewhere").await.expect(404);
    gateway.get("/slow").await.expect(200);
    gateway.get("/slow").await.expect(200);
    gateway.stop().await;

    let log = gateway.access.text() + "\n";
    assert!(!log.contains("secret-") && !log.contains("hidden"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 16);
    let bench = Bench::of(&file.text()).trace(&log);
    let decisions = bench.decisions(&[]).await;
    for word in ["admit", "refuse", "no_route", "delay"] {
        assert!(super::count(&decisions, word) > 0, "{word}: {log}");
    }
    for (line, decision) in lines.iter().zip(&decisions) {
        assert_eq!(decision["decision"], said(line), "{line}\n{decision}");
        assert_eq!(decision["route"], line["route"]);
        let verdicts = decision["verdicts"].as_array().unwrap();
        let keys: Value = verdicts
            .iter()
            .map(|verdict| {
                (
                    verdict["limit"].as_str().unwrap().to_owned(),
                    verdict["key"].clone(),
                )
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(keys, line["keys"], "the very counters: {line}\n{decision}");
        if decision["decision"] == "refuse" && line["reason"] == "limit_refused" {
            assert_eq!(decision["limit"], line["limit"]);
        }
    }
    let wider = bench.decisions(&["--set", "limits.user.rate=100/h"]).await;
    assert!(super::count(&wider, "refuse") < super::count(&decisions, "refuse"));
}

/// Conditions of routes are no obstacle, since the line names the route. If the file no longer has this route, or the
/// route does not fit, a note states the number of such lines.
#[tokio::test]
async fn the_route_that_a_line_names_takes_the_request_again() {
    let upstream = Upstream::echo().await;
    let file = |rest: &str| {
        File::default()
            .upstream("main", &[&upstream])
            .limit("two", "by = \"route\"\nrate = \"2/h\"")
            .limit("one", "by = \"route\"\nrate = \"1/h\"")
            .route("plain", "/x", "main", &["one"])
            .with(rest)
    };
    let marked = "[routes.marked]\npath = \"/x\"\nheaders = { x-mark = true }\nupstream = \"main\"\nlimits = \"two\"\n\
                  [routes.asked]\npath = \"/y\"\nquery = { v = \"2\" }\nupstream = \"main\"\nlimits = \"two\"\n";
    let mut gateway = Gateway::start(&file(marked)).await;
    for status in [200, 200, 429] {
        gateway
            .get_with("/x", &[("X-Mark", "1")])
            .await
            .expect(status);
        gateway.get("/y?v=2").await.expect(status);
    }
    gateway.get("/x").await.expect(200);
    // The gateway itself answers: no limit is asked, neither in the log nor in the replay.
    let own = request("OPTIONS", "/x", &[("Max-Forwards", "0")]);
    gateway.connect().await.ask(own).await.expect(204);
    gateway.stop().await;
    let log = gateway.access.text() + "\n";
    let bench = Bench::of(&file(marked).text()).trace(&log);
    let decisions = bench.decisions(&[]).await;
    assert_eq!(decisions.len(), 8);
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["route"].is_null() {
            assert_eq!(decision["decision"], "no_route", "{decision}");
            assert_eq!(decision["verdicts"], json!([]));
        } else {
            assert_eq!(decision["decision"], said(&line), "{line}\n{decision}");
        }
        assert_eq!(decision["route"], line["route"]);
    }
    let told = bench.simulate(&[]).await.stdout;
    assert!(!told.contains("the log names routes"), "{told}");
    let moved = marked.replacen("path = \"/x\"", "path = \"/elsewhere\"", 1);
    let bench = Bench::of(&file(&moved).text()).trace(&log);
    let told = bench.simulate(&[]).await.stdout;
    let note =
        "the log names routes of 3 requests that this file does not have, or that do not fit";
    assert!(told.contains(note), "{told}");
}

/// A request that was refused for its key has charged the limits that could be asked, and does so in the replay.
#[tokio::test]
async fn guesses_replay_as_they_were_charged() {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&upstream])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .with("[groups.known]\nby = \"header:x-api-key\"\nmembers = \"secret-k\"")
        .limit(
            "key",
            "by = \"header:x-api-key\"\nmissing = \"refuse\"\nunknown = \"refuse\"\nrate = \"9/h\"",
        )
        .limit(
            "each",
            "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"9/h\"",
        )
        .limit(
            "user",
            "by = \"jwt:sub\"\nmissing = \"skip\"\nrate = \"9/h\"",
        )
        .limit("ip", "by = [\"ip\", \"route\"]\nrate = \"4/h\"")
        .route("keys", "/keys", "main", &["key", "each", "ip"])
        .route("users", "/users", "main", &["user", "ip"]);
    let mut gateway = Gateway::start(&file).await;
    for (key, status) in [
        ("secret-k", 200),
        ("secret-1", 401),
        ("", 401),
        ("secret-2", 401),
        ("secret-3", 429),
        ("secret-k", 429),
    ] {
        let fields = [("X-Api-Key", key)];
        gateway.get_with("/keys", &fields).await.expect(status);
    }
    for (token, status) in [
        ("Bearer secret-t", 401),
        ("Basic x", 200),
        ("Bearer secret-t", 401),
    ] {
        let fields = [("Authorization", token)];
        gateway.get_with("/users", &fields).await.expect(status);
    }
    gateway.stop().await;
    let log = gateway.access.text() + "\n";
    assert!(!log.contains("secret-"), "{log}");
    let decisions = Bench::of(&file.text()).trace(&log).decisions(&[]).await;
    assert_eq!(decisions.len(), 9);
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision["decision"], said(&line), "{line}\n{decision}");
        if said(&line) == "refuse" {
            assert_eq!(decision["limit"], line["limit"], "{line}\n{decision}");
        }
        let verdicts = decision["verdicts"].as_array().unwrap().iter();
        let name = |verdict: &Value| verdict["limit"].as_str().unwrap().to_owned();
        let keys: serde_json::Map<_, _> = verdicts
            .map(|verdict| (name(verdict), verdict["key"].clone()))
            .collect();
        assert_eq!(Value::from(keys), line["keys"], "{line}\n{decision}");
    }
}

/// The log has users, and never a password: the replay takes the keys and customers of the lines.
#[tokio::test]
async fn users_of_basic_authentication_replay_by_the_logged_keys() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["user", "staff"])
        .server("workers = 1")
        .with("[groups.staff]\nby = \"basic\"\ncustomers = { clerk = \"sha256:582ec2d080190e7bada67215c87fee6bbc9579018e22b81b42612acb95d06d52\" }")
        .limit("user", "by = \"basic:user\"\nmissing = \"skip\"\nrate = \"2/h\"\nkey_case = \"insensitive\"")
        .limit("staff", "by = \"customer\"\nmissing = \"skip\"\nrate = \"9/h\"");
    let mut gateway = Gateway::start(&file).await;
    // `anna:right-1`, `ANNA:secret`, `anna:right-1` again, and `ben:secret`.
    for (credential, status) in [
        ("Basic YW5uYTpyaWdodC0x", 200),
        ("Basic QU5OQTpzZWNyZXQ=", 200),
        ("Basic YW5uYTpyaWdodC0x", 429),
        ("Basic YmVuOnNlY3JldA==", 200),
        ("Bearer x", 200),
    ] {
        let fields = [("Authorization", credential)];
        gateway.get_with("/", &fields).await.expect(status);
    }
    gateway.stop().await;
    let log = gateway.access.text() + "\n";
    assert!(
        !log.contains("secret") && !log.contains("right-1") && !log.contains("Basic"),
        "{log}"
    );
    let decisions = Bench::of(&file.text()).trace(&log).decisions(&[]).await;
    assert_eq!(decisions.len(), 5);
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision["decision"], said(&line), "{line}\n{decision}");
        let verdicts = decision["verdicts"].as_array().unwrap().iter();
        let name = |verdict: &Value| verdict["limit"].as_str().unwrap().to_owned();
        let keys: serde_json::Map<_, _> = verdicts
            .map(|verdict| (name(verdict), verdict["key"].clone()))
            .collect();
        assert_eq!(Value::from(keys), line["keys"], "{line}\n{decision}");
    }
    // A log of others may have the field itself.
    let line = json!({ "ts": 1, "client": "203.0.113.9", "path": "/", "headers": { "authorization": "Basic YW5uYTpyaWdodC0x" } });
    let decisions = Bench::of(&file.text())
        .trace(line.to_string())
        .decisions(&[])
        .await;
    let keys: Vec<&Value> = decisions[0]["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["key"])
        .collect();
    assert_eq!(keys, ["anna", "clerk"]);
}

#[tokio::test]
async fn a_limit_that_counts_by_something_else_does_not_take_the_logs_keys() {
    let line = json!({ "ts": 1, "client": "203.0.113.9", "keys": { "a": "203.0.113.0/24" } });
    let file = "[limits.a]\nby = \"ip/24,64\"\nrate = \"1/h\"\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"a\"]\n";
    let bench = Bench::of(file).trace(line.to_string());
    let key = |decisions: Vec<Value>| decisions[0]["verdicts"][0]["key"].clone();
    assert_eq!(key(bench.decisions(&[]).await), "203.0.113.0/24");
    assert_eq!(
        key(bench.decisions(&["--set", "limits.a.by=ip"]).await),
        "203.0.113.9"
    );
}

#[tokio::test]
async fn a_line_that_stands_for_many_counts_as_many() {
    let line =
        json!({ "ts": 1, "client": "203.0.113.9", "reason": "limit_refused", "repeated": 6 });
    let bench = Bench::limit("rate = \"3/h\"").trace(line.to_string());
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        super::words(&decisions),
        [
            "admit", "admit", "admit", "refuse", "refuse", "refuse", "refuse"
        ]
    );
    assert!(decisions.iter().all(|one| one["line"] == 1));
}

/// Tiers are found by the keys of the log, and exemptions by its groups. With other members the tiers are others.
#[tokio::test]
async fn groups_are_known_again_though_the_log_has_no_secret() {
    let upstream = Upstream::echo().await;
    let group = |name: &str, by: &str, members: &str| {
        format!("[groups.{name}]\nby = \"{by}\"\nmembers = {members}")
    };
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&upstream])
        .with(&group("gold", "header:x-api-key", "[\"secret-0\"]"))
        .with(&group("probe", "cookie:probe", "[\"secret-p\"]"))
        .limit("key", "by = [\"route\", \"header:x-api-key\"]\nmissing = \"refuse\"\nunknown = \"ip\"\nrate = \"2/h\"\ntiers.gold = { rate = \"5/h\" }")
        .limit("all", "by = \"everyone\"\nrate = \"20/h\"\ntiers.probe = { cost = 2 }\ntiers.gold = { burst = 30 }")
        .limit("open", "by = \"header:x-user\"\nmissing = \"refuse\"\nrate = \"1/h\"\nexempt = { groups = \"probe\" }")
        .route("keys", "/keys", "main", &["key", "all"])
        .route("open", "/open", "main", &["open", "all"]);
    let mut gateway = Gateway::start(&file).await;
    for turn in 0..14 {
        let key = format!("secret-{}", turn % 3);
        gateway.get_with("/keys", &[("X-Api-Key", &key)]).await;
    }
    for _ in 0..3 {
        gateway
            .get_with("/open", &[("Cookie", "probe=secret-p")])
            .await
            .expect(200);
    }
    gateway.get("/open").await.expect(401);
    gateway.stop().await;

    let log = gateway.access.text() + "\n";
    assert!(!log.contains("secret-"), "{log}");
    let bench = Bench::of(&file.text()).trace(&log);
    let decisions = bench.decisions(&[]).await;
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision["decision"], said(&line), "{line}\n{decision}");
        for verdict in decision["verdicts"].as_array().unwrap() {
            let limit = verdict["limit"].as_str().unwrap();
            assert_eq!(
                verdict["group"], line["groups"][limit],
                "{line}\n{decision}"
            );
        }
    }
    let admitted = super::count(&decisions, "admit");
    assert_eq!(admitted, 5 + 2 + 3);
    let changed = format!("groups.gold.members={:?}", ["secret-9"]);
    let fewer = bench.decisions(&["--set", &changed]).await;
    assert_eq!(super::count(&fewer, "admit"), 2 + 3);
}

/// If a request was refused for an unknown key, the log does not contain that key, and a note says so.
#[tokio::test]
async fn who_was_unknown_is_unknown_in_a_replay() {
    let upstream = Upstream::echo().await;
    let lines = "missing = \"ip\"\nunknown = \"refuse\"\nrate = \"2/h\"";
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&upstream])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"secret-0\"")
        .limit("key", &format!("by = \"header:x-api-key\"\n{lines}"))
        .limit(
            "both",
            &format!("by = [\"method\", \"header:x-api-key\"]\n{lines}"),
        )
        .route("key", "/key", "main", &["key"])
        .route("both", "/both", "main", &["both"]);
    let mut gateway = Gateway::start(&file).await;
    for (target, key, status) in [
        ("/key", "secret-1", 401),
        ("/key", "secret-2", 401),
        ("/key", "secret-3", 401),
        ("/key", "secret-0", 200),
        ("/key", "", 200),
        ("/both", "secret-1", 401),
        ("/both", "secret-0", 200),
    ] {
        let answer = gateway.get_with(target, &[("X-Api-Key", key)]).await;
        assert_eq!(answer.status, status, "{target} {key}");
    }
    gateway.stop().await;

    let log = gateway.access.text() + "\n";
    let bench = Bench::of(&file.text()).trace(&log);
    let decisions = bench.decisions(&[]).await;
    for (line, decision) in log.lines().zip(&decisions) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(decision["decision"], said(&line), "{line}\n{decision}");
        assert_eq!(decision["retry_after_us"], Value::Null);
    }
    let by_address = ["--set", "limits.key.unknown=ip"];
    let changed = bench.decisions(&by_address).await;
    let words: Vec<&Value> = changed.iter().map(|one| &one["decision"]).collect();
    // Two requests with unknown keys share an address, so nothing is left for a request without a key.
    let expected = json!(["admit", "admit", "refuse", "admit", "refuse"]);
    assert_eq!(json!(words[..5]), expected);
    // In the opposite case, a request that was counted by address because of its key is refused.
    let strict = "missing = \"refuse\"\nunknown = \"refuse\"";
    let file = file
        .text()
        .replace("missing = \"ip\"\nunknown = \"refuse\"", strict);
    let line = |key: &str| {
        let keys = json!({ "key": key });
        json!({ "ts": 1, "client": "192.0.2.1", "path": "/key", "keys": keys }).to_string() + "\n"
    };
    let bench = Bench::of(&file).trace(line("%ip=192.0.2.1") + &line(&format!("%sha={:032}", 7)));
    assert_eq!(super::count(&bench.decisions(&[]).await, "refuse"), 2);
}
