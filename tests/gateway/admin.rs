//! The admin listener: metrics with true counts, health, and no routes of the data port.

use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, Wire, eventually, get, request};
use std::collections::BTreeMap;

/// All samples, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line
                .rsplit_once(' ')
                .unwrap_or_else(|| panic!("no sample: {line}"));
            let value = value
                .parse()
                .unwrap_or_else(|_| panic!("no number: {line}"));
            (name.to_owned(), value)
        })
        .collect()
}

/// The sum of all samples of `family` whose labels contain all of `labels`.
fn sum(samples: &BTreeMap<String, f64>, family: &str, labels: &[&str]) -> f64 {
    samples
        .iter()
        .filter(|(name, _)| name.split('{').next() == Some(family))
        .filter(|(name, _)| labels.iter().all(|label| name.contains(label)))
        .map(|(_, value)| value)
        .sum()
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("calls", "by = \"ip\"\nrate = \"3/h\"")
        .upstream("main", &[&upstream])
        .route("one", "/one", "main", &["calls"]);
    let gateway = Gateway::start(&file).await;
    for status in [200, 200, 200, 429, 429] {
        gateway.get("/one").await.expect(status);
    }
    gateway.get("/none").await.expect(404);
    eventually(PATIENCE, "six requests are counted", async || {
        sum(
            &samples(&gateway.metrics().await),
            "tollgate_http_requests_total",
            &[],
        ) == 6.0
    })
    .await;
    let samples = samples(&gateway.metrics().await);
    let requests = |labels: &[&str]| sum(&samples, "tollgate_http_requests_total", labels);
    assert_eq!(
        requests(&["route=\"one\"", "code=\"200\"", "source=\"upstream\""]),
        3.0
    );
    assert_eq!(
        requests(&["route=\"one\"", "code=\"429\"", "source=\"gateway\""]),
        2.0
    );
    assert_eq!(
        requests(&["route=\"none\"", "code=\"404\"", "source=\"gateway\""]),
        1.0
    );
    let decisions = |labels: &[&str]| sum(&samples, "tollgate_limit_decisions_total", labels);
    assert_eq!(decisions(&["limit=\"calls\"", "decision=\"allow\""]), 3.0);
    assert_eq!(decisions(&["limit=\"calls\"", "decision=\"refuse\""]), 2.0);
    assert_eq!(sum(&samples, "tollgate_http_requests_in_flight", &[]), 0.0);
    assert!(
        samples
            .keys()
            .any(|name| name.starts_with("tollgate_build_info{")),
        "{samples:?}"
    );
}

#[tokio::test]
async fn metrics_have_types_and_help() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    gateway.get("/").await.expect(200);
    for accept in ["", "application/openmetrics-text;version=1.0.0"] {
        let mut admin = Wire::to(gateway.admin().await).await;
        let answer = admin
            .ask(request("GET", "/metrics", &[("Accept", accept)]))
            .await
            .expect(200);
        let text = answer.text();
        let open = answer
            .field("content-type")
            .starts_with("application/openmetrics-text");
        assert_eq!(open, !accept.is_empty(), "{answer:?}");
        assert_eq!(text.ends_with("# EOF\n"), open);
        for name in samples(&text).keys() {
            let family = name.split('{').next().unwrap();
            let known = ["", "_total", "_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| family.strip_suffix(suffix))
                .any(|stem| {
                    text.contains(&format!("# TYPE {stem} "))
                        && text.contains(&format!("# HELP {stem} "))
                });
            assert!(known, "{family} has no type or no help");
        }
    }
}

#[tokio::test]
async fn no_client_becomes_a_label() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["user"])
        .limit(
            "user",
            "by = \"header:x-user\"\nmissing = \"skip\"\nrate = \"3/h\"",
        )
        .server("trust = [\"127.0.0.1\"]");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let before = samples(&gateway.metrics().await).len();
    let mut client = gateway.connect().await;
    for n in 0..50 {
        let (user, path, host) = (
            format!("user-{n}"),
            format!("/path-{n}?q=query-{n}"),
            format!("host-{n}.test"),
        );
        let address = format!("192.0.2.{n}");
        let fields = [
            ("X-User", user.as_str()),
            ("Host", &host),
            ("User-Agent", "agent-x"),
            ("X-Forwarded-For", &address),
        ];
        client.ask(request("GET", &path, &fields)).await.expect(200);
        client.send(request(&format!("METHOD{n}"), "/", &[])).await;
        client.answer().await;
    }
    let metrics = gateway.metrics().await;
    for word in [
        "user-", "path-", "query-", "host-", "agent-x", "192.0.2", "METHOD",
    ] {
        assert!(!metrics.contains(word), "{word} in:\n{metrics}");
    }
    let after = samples(&metrics).len();
    assert!(after < before + 100, "{before} samples became {after}");
}

#[tokio::test]
async fn health_is_told_and_nothing_else() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    gateway.admin_get("/healthz").await.expect(200);
    gateway.admin_get("/readyz").await.expect(200);
    gateway.admin_get("/elsewhere").await.expect(404);
    Wire::to(gateway.admin().await)
        .await
        .ask(request("POST", "/metrics", &[]))
        .await
        .expect(405);
    assert_eq!(upstream.seen(), 0);
    // The data port does not know the paths of the admin listener.
    assert_eq!(
        gateway.get("/metrics").await.expect(200).echoed().line,
        "GET /metrics HTTP/1.1"
    );
}

#[tokio::test]
async fn reloads_are_counted() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]);
    let gateway = Gateway::start(&file).await;
    let count = async |outcome: &str| {
        let samples = samples(&gateway.metrics().await);
        let last = sum(&samples, "tollgate_config_last_reload_successful", &[]);
        (
            sum(&samples, "tollgate_config_reloads_total", &[outcome]),
            last,
        )
    };
    gateway.rename_over("nonsense");
    eventually(PATIENCE, "a failed reload is counted", async || {
        count("failure").await == (1.0, 0.0)
    })
    .await;
    gateway.rename_over(&file.with("timeout = \"7s\"").text());
    eventually(PATIENCE, "a good reload is counted", async || {
        count("success").await == (1.0, 1.0)
    })
    .await;
}

#[tokio::test]
async fn a_line_of_the_access_log_tells_the_whole_request() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("calls", "by = \"ip\"\nrate = \"3/h\"")
        .upstream("main", &[&upstream])
        .route("one", "/one/{id}", "main", &["calls"]);
    let gateway = Gateway::start(&file).await;
    let answer = gateway
        .get_with(
            "/one/7?token=hidden",
            &[("User-Agent", "a \"quoted\"\tagent")],
        )
        .await
        .expect(200);
    let line = gateway.line_of(&answer).await;
    for (name, value) in [
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("host", "gateway.test"),
        ("path", "/one/7"),
        ("route", "one"),
        ("reason", "ok"),
        ("request_id", answer.field("x-request-id")),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["status"], 200);
    assert!(
        line["duration_ms"].as_f64().is_some_and(|took| took > 0.0),
        "{line}"
    );
    assert!(line["ts"].is_string() || line["ts"].is_number(), "{line}");
    assert!(
        !line.to_string().contains("hidden"),
        "a query may be a secret: {line}"
    );
}

#[tokio::test]
async fn a_bad_request_is_counted_too() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let answer = client.ask(request("GET", "/a%2fb", &[])).await.expect(400);
    assert_eq!(gateway.line_of(&answer).await["reason"], "bad_request");
    client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    eventually(PATIENCE, "both are counted", async || {
        let samples = samples(&gateway.metrics().await);
        sum(&samples, "tollgate_http_requests_total", &["code=\"400\""]) == 1.0
            && sum(&samples, "tollgate_http_requests_total", &["code=\"200\""]) == 1.0
    })
    .await;
}

#[tokio::test]
async fn every_metric_is_in_the_documentation() {
    let documented = include_str!("../../docs/observability.md");
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"]).limit("calls", "by = \"ip\"\nrate = \"3/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let text = gateway.metrics().await;
    let families = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("# TYPE ")?.split(' ');
        Some((words.next()?, words.next()?))
    });
    let mut known = 0;
    for (name, kind) in families {
        let total = if kind == "counter" && !name.ends_with("_total") {
            "_total"
        } else {
            ""
        };
        assert!(
            documented.contains(&format!("| `{name}{total}` |")),
            "{name}{total}"
        );
        known += 1;
    }
    assert!(known > 20, "{text}");
}

/// The number of decisions in one call: one if a single client asks at a time, several if many clients ask.
#[tokio::test]
async fn sizes_of_calls_to_the_store_are_told() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["calls"])
        .server("workers = 1")
        .redis(&redis, "timeout = \"2s\"")
        .limit("calls", "by = \"ip\"\nrate = \"100000/h\"\nlease = \"off\"");
    let gateway = Gateway::start(&file).await;
    let told = async || {
        let seen = samples(&gateway.metrics().await);
        let of = |suffix: &str| seen[&format!("tollgate_store_decisions_per_call_{suffix}")];
        let asked = sum(&seen, "tollgate_store_operations_total", &["decide", "ok"]);
        (of("bucket{le=\"1.0\"}"), of("count"), of("sum"), asked)
    };
    for _ in 0..5 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(told().await, (5.0, 5.0, 5.0, 5.0));
    // Questions without an answer gather.
    redis.freeze();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let mut wire = gateway.connect().await;
        asking.spawn(async move { wire.ask(get("/")).await });
    }
    eventually(PATIENCE, "all are asked", async || {
        samples(&gateway.metrics().await)["tollgate_http_requests_in_flight"] == 12.0
    })
    .await;
    redis.thaw();
    for answer in asking.join_all().await {
        answer.expect(200);
    }
    let (alone, calls, decisions, asked) = told().await;
    assert_eq!((decisions, asked), (17.0, 17.0));
    assert!(calls < 17.0 && alone < calls, "{alone} of {calls} alone");
}
