//! The answer that `tollgate explain` expects for a request: its source, its upstream, and the units that are left now.

use super::said;
use crate::support::{File, Gateway, Redis, Upstream, tollgate};
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

/// The next request gets the answer that `explain --live` expects.
#[tokio::test]
async fn live_answers_as_the_gateway_then_does() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["bucket", "window", "even"])
        .limit(
            "bucket",
            "by = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"3/h\"",
        )
        .limit(
            "window",
            "by = \"ip\"\nalgorithm = \"fixed-window\"\nrate = \"4/h\"\nstatus = 403",
        )
        .limit(
            "even",
            "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/s\"\nburst = 9\nqueue = 1",
        );
    let gateway = Gateway::start(&file).await;
    let live = format!("--live={}", gateway.admin().await);
    let file = gateway.file().display().to_string();
    for key in ["k", "k", "k", "k", "other", "other", "other"] {
        let field = format!("x-api-key: {key}");
        let words = [
            "explain", "GET", "/", "-H", &field, "--config", &file, &live, "--json",
        ];
        let said = tollgate(gateway.folder(), &words).await;
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        let people = tollgate(gateway.folder(), &words[..8]).await.stdout;
        let answer = gateway.get_with("/", &[("x-api-key", key)]).await;
        let (bucket, window) = (&said["limits"][0]["now"], &said["limits"][1]["now"]);
        match answer.status {
            200 => {
                assert_eq!(said["answer"]["by"], "upstream", "{said}");
                assert_eq!(said["answer"]["held_us"], 0, "{said}");
                assert_eq!(
                    (&bucket["outcome"], &bucket["takes"]),
                    (&"admit".into(), &1.into())
                );
            }
            429 => {
                assert_eq!(said["answer"]["status"], 429, "{said}");
                assert_eq!(said["answer"]["reason"], "the limit \"bucket\" refuses");
                assert_eq!(
                    (&bucket["outcome"], &bucket["takes"]),
                    (&"refuse".into(), &0.into())
                );
                assert_eq!(
                    (&window["outcome"], &window["takes"]),
                    (&"admit".into(), &0.into())
                );
                // A third of an hour, less the time that has passed.
                let told = answer.number("retry-after");
                let wait = bucket["wait_us"].as_u64().unwrap().div_ceil(1_000_000);
                assert!(wait.abs_diff(told) <= 60 && told <= 1200, "{wait} {told}");
                assert!(
                    people.contains("; refuses the request with 429, for another "),
                    "{people}"
                );
                assert!(
                    people
                        .contains("; the request takes nothing of it, since another limit refuses"),
                    "{people}"
                );
            }
            status => {
                assert_eq!(status, 403);
                assert_eq!(said["answer"]["status"], 403, "{said}");
                assert_eq!(window["outcome"], "refuse");
            }
        }
    }
}

/// Of two limits that refuse, the answer names the one with the longer wait. Units leave a log one by one, so that its
/// wait is shorter than the time until it is empty.
async fn live_names_the_limit_with_the_longer_wait(redis: Option<Redis>) {
    let upstream = Upstream::echo().await;
    let mut file = File::to(&upstream, &["log", "even", "bucket"])
        .limit(
            "log",
            "by = \"ip\"\nalgorithm = \"sliding-log\"\nrate = \"4/h\"\nstatus = 503",
        )
        .limit(
            "even",
            "by = \"everyone\"\nalgorithm = \"sliding-window\"\nrate = \"9/min\"\nbuckets = 6",
        )
        .limit(
            "bucket",
            "by = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"1/h\"",
        );
    if let Some(redis) = &redis {
        file = file.redis(redis, "timeout = \"2s\"\non_down = \"closed\"");
    }
    let gateway = Gateway::start(&file).await;
    for key in ["a", "b", "c", "d"] {
        gateway
            .get_with("/", &[("x-api-key", key)])
            .await
            .expect(200);
        // The counters are read one after the other, so that the waits must differ by more than the time between.
        sleep(Duration::from_secs(1)).await;
    }
    let live = format!("--live={}", gateway.admin().await);
    let file = gateway.file().display().to_string();
    let words = [
        "explain",
        "GET",
        "/",
        "-H",
        "x-api-key: b",
        "--config",
        &file,
        &live,
        "--json",
    ];
    let said = tollgate(gateway.folder(), &words).await;
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    let answer = gateway.get_with("/", &[("x-api-key", "b")]).await;
    assert_eq!(answer.status, 429);
    assert_eq!(said["answer"]["status"], 429, "{said}");
    assert_eq!(said["answer"]["reason"], "the limit \"bucket\" refuses");
    let now = |limit: usize| &said["limits"][limit]["now"];
    let wait = |limit: usize| now(limit)["wait_us"].as_u64().unwrap();
    assert_eq!(now(0)["outcome"], "refuse", "{said}");
    assert_eq!(now(1)["outcome"], "admit", "{said}");
    assert!(wait(0) < wait(2) && wait(0) > 3_500_000_000, "{said}");
    // Nothing was charged by the question.
    assert_eq!(now(0)["remaining"], 0, "{said}");
    assert_eq!(now(1)["remaining"], 5, "{said}");
}

#[tokio::test]
async fn live_names_the_limit_with_the_longer_wait_in_memory() {
    live_names_the_limit_with_the_longer_wait(None).await;
}

#[tokio::test]
async fn live_names_the_limit_with_the_longer_wait_in_redis() {
    live_names_the_limit_with_the_longer_wait(Some(Redis::start().await)).await;
}

/// The host of the URI counts as the field `Host`, as HTTP/1.1 clients send it.
#[tokio::test]
async fn a_whole_uri_names_its_host() {
    let text = said(&["POST", "http://a.example.com:80/v1/orders/1?q=2"]).await;
    assert!(
        text.contains("host    a.example.com\nroute   hosted "),
        "{text}"
    );
    for (target, end) in [
        (
            "https://a.example.com/v1/orders/1",
            "answer  400 by the gateway: the target has a scheme that is not served here\n",
        ),
        (
            "http://me@a.example.com/v1/orders/1",
            "answer  400 by the gateway: the URI has user information\n",
        ),
    ] {
        let text = said(&["GET", target]).await;
        assert!(text.ends_with(end), "{text}");
    }
}

#[tokio::test]
async fn routes_that_answer_themselves_say_what() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
        [routes.old]\npath = \"/old/{*rest}\"\nredirect = { to = \"https://new.test/x/{*rest}\", status = 301 }\n\
        [routes.gone]\npath = \"/gone\"\nrespond = { status = 410 }\nlimits = \"l\"\n\
        [routes.picky]\npath = \"/gone\"\nheaders = { x-v = \"2\", authorization = \"hidden\" }\nquery = { q = true }\nrespond = { status = 411 }\n\
        [limits.l]\nby = \"header:x-t\"\nmissing = \"skip\"\nrate = \"1/h\"\n";
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let ask = async |arguments: &[&str]| {
        let arguments = [&["explain", "GET"], arguments].concat();
        let done = tollgate(folder.path(), &arguments).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let said = ask(&["/old/a//b?q=1"]).await;
    for line in [
        "path    /old/a/b: matched; nothing is forwarded",
        "answer  301 by the gateway: the route redirects to https://new.test/x/a/b?q=1; no limit applies",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
    let said = ask(&["/gone?q", "-H", "x-t: \u{a0}v \t"]).await;
    for line in [
        "        not picky (gateway.toml:8): it asks for header authorization = \"***\" and header x-v = \"2\"",
        "          counts 1, by header:x-t on the key %C2%A0v",
        "answer  410 by the gateway: the route answers itself, unless a limit refuses; nothing was counted here",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
    let said: Value = serde_json::from_str(&ask(&["/gone", "--json"]).await).unwrap();
    assert_eq!(said["answer"]["status"], 410);
    assert_eq!(said["path"]["forwarded"], Value::Null);
}

/// A listener that redirects everything to `https` answers before routes and limits. A request without a scheme is then
/// taken for one over TLS.
#[tokio::test]
async fn a_listener_that_sends_requests_on_is_known() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["api.pem", "api.key"] {
        std::fs::copy(format!("tests/config/tls/{name}"), folder.path().join(name)).unwrap();
    }
    let text = "\
        [server]\nlisten = [{ address = \":80\", redirect = \"https\" }, { address = \":443\", tls = true }]\n\
        [tls.api]\ncert = \"api.pem\"\nkey = \"api.key\"\n\
        [routes.r]\npath = \"/{*rest}\"\nscheme = \"https\"\nrespond = { status = 204 }\n";
    let ask = async |text: &str, asked: &[&str]| {
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let done = tollgate(folder.path(), &[&["explain", "GET"], asked].concat()).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let sent_on = "answer  308 by the gateway: the listener sends it on to https://api.example.com/a/../b?q=1";
    let said = ask(text, &["http://api.example.com:80/a/../b?q=1"]).await;
    assert!(said.lines().any(|line| line == sent_on), "{said}");
    for asked in [
        &["https://api.example.com/"][..],
        &["/", "--host", "api.example.com"],
    ] {
        let said = ask(text, asked).await;
        assert!(
            said.contains("tls     identity api of listener :443"),
            "{said}"
        );
        assert!(said.contains("answer  204 by the gateway"), "{said}");
    }
    // If another listener serves requests without TLS, they are served.
    let open = text.replace("listen = [", "listen = [\":8080\", ");
    let said = ask(&open, &["http://api.example.com/"]).await;
    assert!(said.contains("answer  404 by the gateway"), "{said}");
}
