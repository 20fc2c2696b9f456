//! Logs of other servers. Each trace follows the documentation of its server: the client, the request, the time, and
//! what such a log cannot contain.

use super::{Bench, words};
use serde_json::{Value, json};

/// A file with one limit by address and one by path, trust in 10.0.0.0/8, and a host that is part of the routes.
const FILE: &str = "[server]\ntrust = [\"10.0.0.0/8\"]\n\
    [limits.a]\nby = \"ip\"\nrate = \"100/h\"\n\
    [limits.q]\nby = [\"method\", \"query:page\"]\nmissing = \"skip\"\nrate = \"100/h\"\n\
    [defaults]\nlimits = [\"a\", \"q\"]\n\
    [upstreams.u]\nservers = \"127.0.0.1:1\"\n\
    [routes.shop]\nhost = \"shop.example.com\"\npath = \"/v1/orders\"\nupstream = \"u\"\n\
    [routes.any]\npath = \"/v1/orders\"\nupstream = \"u\"\n";

fn bench(file: &str, trace: &str) -> Bench {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate/traces");
    Bench::of(file).trace(std::fs::read(folder.join(trace)).unwrap())
}

/// Line, microseconds since 17:48:50 UTC, client, route, and whether the query is known.
fn seen(decisions: &[Value]) -> Vec<(u64, u64, String, String, bool)> {
    let start = 1_795_196_930_000_000;
    let verdicts = |one: &Value| one["verdicts"].as_array().unwrap().clone();
    decisions
        .iter()
        .map(|one| {
            let at = one["ts_us"].as_u64().unwrap() - start;
            let client = one["verdicts"][0]["key"].as_str().unwrap().to_owned();
            let route = one["route"].as_str().unwrap_or("none").to_owned();
            (
                one["line"].as_u64().unwrap(),
                at,
                client,
                route,
                verdicts(one).len() > 1,
            )
        })
        .collect()
}

/// Replays one of the traces, and compares the result, which has the form of [`seen`].
async fn expect(trace: &str, form: &str, expected: &[(u64, u64, &str, &str, bool)]) -> Value {
    let bench = bench(FILE, trace);
    let told = seen(&bench.decisions(&[]).await);
    let told: Vec<_> = told
        .iter()
        .map(|(line, at, client, route, query)| (*line, *at, &**client, &**route, *query))
        .collect();
    assert_eq!(told, expected, "{trace}");
    let report = bench.report(&[]).await;
    let lines = report["read_as"].as_object().unwrap();
    assert!(lines.contains_key(form), "{trace}: {lines:?}");
    report
}

fn notes(report: &Value) -> Vec<&str> {
    let notes = report["notes"].as_array().unwrap().iter();
    notes.map(|note| note["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn common_and_combined_logs_are_read() {
    let report = expect(
        "common.log",
        "common",
        &[
            (1, 0, "203.0.113.9", "any", true),
            (2, 1_000_000, "2001:db8::/64", "any", false),
            (4, 2_000_000, "203.0.113.9", "any", false),
        ],
    )
    .await;
    assert_eq!(
        report["unreadable"]["first"][0]["reason"],
        "no method and path"
    );
    assert_eq!(notes(&report), ["no-host"]);
    let report = expect(
        "combined.log",
        "combined",
        &[
            (1, 0, "203.0.113.9", "any", false),
            (2, 1_000_000, "203.0.113.9", "any", false),
            (3, 2_000_000, "203.0.113.10", "shop", false),
        ],
    )
    .await;
    assert_eq!(notes(&report), ["not-replayable"], "no line has a query");
}

/// A trusted peer's list is read from the right. A list of any other peer is ignored.
#[tokio::test]
async fn the_list_of_nginx_main_is_walked_through_trust() {
    let client = |line, at, client| (line, at, client, "any", false);
    let mut expected = vec![
        client(1, 0, "203.0.113.9"),
        client(2, 0, "203.0.113.9"),
        client(3, 1_000_000, "2001:db8::/64"),
        client(4, 2_000_000, "192.0.2.77"),
    ];
    expected.push((5, 3_000_000, "10.0.0.2", "none", false));
    expect("nginx-main.log", "nginx-main", &expected).await;
    let bench = bench(FILE, "nginx-main.log");
    let distrusting = bench.decisions(&["--set", "server.trust=[]"]).await;
    let report = bench.report(&["--set", "server.trust=[]"]).await;
    let text = report["notes"][0]["text"].as_str().unwrap();
    assert!(text.contains("--set server.trust=10.0.0.2"), "{text}");
    let clients: Vec<String> = seen(&distrusting).into_iter().map(|one| one.2).collect();
    assert_eq!(
        clients,
        ["10.0.0.2", "10.0.0.2", "10.0.0.2", "192.0.2.77", "10.0.0.2"]
    );
}

#[tokio::test]
async fn caddys_and_traefiks_json_is_read() {
    let report = expect(
        "caddy.json",
        "caddy",
        &[
            // A line is written at the end of its request, and the request began before.
            (2, 500_000, "203.0.113.9", "shop", true),
            (3, 1_000_000, "203.0.113.9", "shop", false),
            (4, 1_999_990, "203.0.113.9", "shop", false),
        ],
    )
    .await;
    assert_eq!(
        report["without_client_and_path"],
        json!({ "count": 1, "first": [{ "line": 1 }] })
    );
    expect(
        "traefik.json",
        "traefik",
        &[
            (1, 123_456, "203.0.113.9", "shop", true),
            (2, 1_500_000, "203.0.113.9", "shop", false),
            (3, 2_000_000, "203.0.113.9", "shop", false),
        ],
    )
    .await;
    expect(
        "traefik.log",
        "traefik-common",
        &[
            (1, 0, "203.0.113.9", "any", false),
            (2, 1_000_000, "203.0.113.9", "any", false),
            (3, 2_000_000, "203.0.113.9", "any", false),
        ],
    )
    .await;
}

/// The fields are the ones that were sent, except those that the log has redacted.
#[tokio::test]
async fn keys_in_fields_of_others_count_and_struck_out_ones_do_not() {
    let file = FILE.replace(
        "by = \"ip\"",
        "by = \"header:x-api-key\"\nmissing = \"refuse\"",
    ) + "[limits.b]\nby = \"header:authorization\"\nmissing = \"skip\"\nrate = \"1/h\"\n";
    let file = file.replace("[\"a\", \"q\"]", "[\"a\", \"b\"]");
    for trace in ["caddy.json", "traefik.json"] {
        let bench = bench(&file, trace);
        let decisions = bench.decisions(&[]).await;
        assert_eq!(words(&decisions), ["admit", "refuse", "refuse"], "{trace}");
        let report = bench.report(&[]).await;
        assert_eq!(notes(&report), ["not-replayable"]);
        let text = report["notes"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("limit `b` counts by header:authorization"),
            "{text}"
        );
        let told = bench.simulate(&[]).await.stdout;
        assert!(told.contains(&format!("note: {text}")), "{told}");
    }
}

#[tokio::test]
async fn envoy_haproxy_and_load_balancers_are_read() {
    expect(
        "envoy.log",
        "envoy",
        &[
            (1, 310_000, "203.0.113.9", "shop", false),
            (2, 1_310_000, "203.0.113.9", "shop", false),
            (3, 2_000_000, "203.0.113.9", "shop", false),
        ],
    )
    .await;
    let report = expect(
        "haproxy.log",
        "haproxy",
        &[
            (1, 655_000, "203.0.113.9", "any", true),
            (2, 1_003_000, "203.0.113.9", "any", false),
            (3, 2_000_000, "2001:db8::/64", "shop", false),
        ],
    )
    .await;
    assert_eq!(notes(&report), ["no-zone", "nameless-fields"]);
    assert_eq!(report["unreadable"]["first"][0]["line"], 4);
    expect(
        "alb.log",
        "alb",
        &[
            (1, 185_641, "203.0.113.9", "shop", true),
            (2, 1_000_000, "203.0.113.9", "shop", false),
            (3, 2_000_000, "2001:db8::/64", "shop", false),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_compose_and_kubectl_put_in_front_is_passed_over() {
    let report = expect(
        "compose.log",
        "envoy",
        &[
            (1, 0, "203.0.113.9", "any", false),
            (2, 1_000_000, "203.0.113.9", "shop", false),
            (4, 2_000_000, "203.0.113.9", "shop", false),
            (5, 3_000_000, "203.0.113.9", "any", false),
            (6, 4_000_000, "203.0.113.9", "any", false),
        ],
    )
    .await;
    assert_eq!(
        report["read_as"],
        json!({ "json": 2, "combined": 1, "common": 1, "envoy": 1 })
    );
    assert_eq!(report["unreadable"]["count"], 1);
}

#[tokio::test]
async fn any_json_is_read_by_fields() {
    let fields = "client=a.b,path=request_uri,ts=t,method=verb,host=vhost,status=code,duration=took,cost=units,header:x-api-key=headers.x";
    let bench = bench(FILE, "fields.json");
    let decisions = bench.decisions(&["--fields", fields]).await;
    let told: Vec<_> = seen(&decisions);
    let told: Vec<_> = told.iter().map(|one| (one.1, &*one.2, &*one.3)).collect();
    let expected = [
        (0, "203.0.113.9", "shop"),
        (1_123_000, "203.0.113.9", "shop"),
        (2_000_000, "203.0.113.9", "any"),
    ];
    assert_eq!(told, expected);
    let report = bench
        .report(&["--fields", fields, "--fields", "referer=ref"])
        .await;
    assert_eq!(report["read_as"], json!({ "fields": 3 }));
    assert_eq!(
        report["notes"][0]["text"],
        "no line has `ref`, which --fields says is the referer"
    );
    for (fields, said) in [
        ("clinet=a", "did you mean `client`?"),
        ("client", "`client` is not NAME=MEMBER"),
        ("client=", "names no member"),
        ("client=a..b", "names no member"),
        ("client=a,client=b", "`client` is named twice"),
        ("header:a b=c", "names no field"),
    ] {
        let done = bench.simulate(&["--fields", fields]).await;
        assert_eq!(done.code, Some(2), "{fields}: {done:?}");
        assert!(done.stderr.contains(said), "{fields}: {done:?}");
    }
}

#[tokio::test]
async fn lines_that_name_nobody_and_nothing_are_no_requests() {
    let line = r#"{"ts":1795196930.5,"level":"info","host":"web-1","remote_addr":"203.0.113.9","request_uri":"/"}"#;
    let trace = format!("{line}\n").repeat(18);
    let bench = Bench::limit("rate = \"1/h\"").trace(&trace);
    let done = bench.simulate(&[]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    let said = "18 of 18 lines name no client and no path";
    assert!(
        done.stderr.contains(said) && done.stdout.contains(said),
        "{done:?}"
    );
    assert!(done.stderr.contains("--fields client="), "{done:?}");
    let good =
        "{\"ts\":1795196931,\"client\":\"203.0.113.9\"}\n{\"ts\":1795196932,\"path\":\"/\"}\n";
    let bench = Bench::limit("rate = \"1/h\"").trace(trace + good);
    let report = bench.report(&[]).await;
    assert_eq!(
        (&report["requests"], &report["lines"]),
        (&json!(2), &json!(20))
    );
    assert_eq!(report["without_client_and_path"]["count"], 18);
    assert_eq!(
        report["without_client"],
        json!({ "count": 1, "first": [{ "line": 20 }] })
    );
    assert_eq!(
        report["without_path"],
        json!({ "count": 1, "first": [{ "line": 19 }] })
    );
    let done = bench.simulate(&[]).await;
    assert!(
        done.stdout
            .contains("18 of 20 lines name no client and no path"),
        "{done:?}"
    );
    assert!(
        done.stdout.contains("1 of 20 lines name no path"),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_proxys_log_is_told() {
    let line = |client: &str| {
        format!(
            "{client} - - [20/Nov/2026:17:48:50 +0000] \"GET / HTTP/1.1\" 200 2 \"-\" \"curl\"\n"
        )
    };
    let told = async |file: &str, clients: &[&str]| {
        let trace: String = clients.iter().map(|client| line(client)).collect();
        let report = Bench::of(file).trace(trace).report(&[]).await;
        let notes = report["notes"].as_array().unwrap();
        let proxys = notes.iter().find(|note| note["code"] == "proxy-log");
        proxys.map(|note| note["text"].as_str().unwrap().to_owned())
    };
    let trusting = "[server]\ntrust = [\"10.0.0.0/8\"]\n[upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\n";
    let alone = trusting.replace("trust = [\"10.0.0.0/8\"]", "");
    let several = told(trusting, &["10.0.0.1", "10.0.0.2"]).await.unwrap();
    assert!(
        several.contains("every client is in a network of `trust`"),
        "{several}"
    );
    assert!(several.contains("$http_x_forwarded_for"), "{several}");
    let one = told(&alone, &["10.0.0.1", "10.0.0.1"]).await.unwrap();
    assert!(
        one.contains("every client is 10.0.0.1") && one.contains("`trust`"),
        "{one}"
    );
    for (file, clients) in [
        (trusting, ["10.0.0.1", "203.0.113.9"]),
        (&*alone, ["10.0.0.1", "10.0.0.2"]),
        (&*alone, ["203.0.113.9", "203.0.113.9"]),
    ] {
        assert_eq!(told(file, &clients).await, None, "{clients:?}");
    }
}
