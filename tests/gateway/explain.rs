//! The answers of `tollgate explain` about a request, compared with the gateway's treatment of that request.

mod answers;
mod groups;
mod handshakes;
mod leases;
mod rare_heads;
mod servers;

use crate::support::{File, Finished, Gateway, Upstream, tollgate};
use serde_json::Value;

const FILE: &str = "\
[server]
trust = \"10.0.0.0/8\"

[store]
url = \"redis://nowhere\"
password = { env = \"NOBODY_SETS_THIS\" }

[limits.per-key]
by = \"header:x-api-key\"
missing = \"refuse\"
rate = \"100/min\"
burst = 20

[limits.smooth]
by = [\"ip\", \"route\"]
algorithm = \"leaky-bucket\"
rate = \"50/s\"
max_wait = \"2s\"

[limits.search]
by = \"path:id\"
rate = \"10/s\"
cost = { header = \"x-cost\", max = 50 }
exempt = { ip = \"192.0.2.0/24\" }

[upstreams.orders]
servers = \"10.1.0.5:3000\"

[routes.orders]
path = \"/v1/orders/{id}\"
methods = \"GET\"
upstream = \"orders\"
limits = [\"per-key\", \"smooth\", \"search\"]

[routes.write]
path = \"/v1/orders/{id}\"
methods = \"POST\"
upstream = \"orders\"

[routes.hosted]
host = \"a.example.com\"
path = \"/v1/orders/{id}\"
upstream = \"orders\"

[routes.all-v1]
path = \"/v1/{*rest}\"
upstream = \"orders\"

[routes.v2]
path = \"/v2/{*rest}\"
upstream = \"orders\"
";

#[tokio::test]
async fn live_says_what_is_left_and_charges_nothing() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["l", "w"])
        .limit(
            "l",
            "by = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"5/h\"",
        )
        .limit(
            "w",
            "by = \"ip\"\nalgorithm = \"sliding-log\"\nrate = [\"3/h\", \"9/d\"]",
        );
    let gateway = Gateway::start(&file).await;
    for _ in 0..2 {
        gateway
            .get_with("/", &[("x-api-key", "k")])
            .await
            .expect(200);
    }
    let live = format!("--live={}", gateway.admin().await);
    let ask = async || {
        let file = gateway.file().display().to_string();
        let words = [
            "explain",
            "GET",
            "/",
            "-H",
            "x-api-key: k",
            "--config",
            &file,
            "--json",
            &live,
        ];
        tollgate(gateway.folder(), &words).await
    };
    for _ in 0..2 {
        let said = ask().await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        let left: Vec<u64> = said["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| {
                limit["now"]["remaining"]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{said}"))
            })
            .collect();
        assert_eq!(left, [3, 1, 7]);
    }
    let people = tollgate(
        gateway.folder(),
        &[
            "explain",
            "GET",
            "/",
            "-H",
            "x-api-key: k",
            "--config",
            &gateway.file().display().to_string(),
            &live,
        ],
    )
    .await;
    for line in [
        "now: 3 of 5 left",
        "; the request takes 1",
        "\nanswer  the upstream's; every limit has room for it now, and nothing was counted here\n",
    ] {
        assert!(people.stdout.contains(line), "{line}: {}", people.stdout);
    }
    let nobody = format!("--live=127.0.0.1:{}", crate::support::free_port());
    let file = gateway.file().display().to_string();
    let gone = tollgate(
        gateway.folder(),
        &["explain", "GET", "/", "--config", &file, &nobody],
    )
    .await;
    assert_eq!(gone.code, Some(3), "{}", gone.stderr);
    // `--live` accepts only addresses, and says so.
    let named = ["explain", "GET", "/", "--live=localhost:9090"];
    let named = tollgate(gateway.folder(), &named).await;
    assert_eq!(named.code, Some(2), "{}", named.stderr);
    assert!(
        named.stderr.contains("--live[=<ADDRESS:PORT>]"),
        "{}",
        named.stderr
    );
}

async fn explain(arguments: &[&str]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), FILE).unwrap();
    let arguments = [&["explain"], arguments].concat();
    tollgate(folder.path(), &arguments).await
}

async fn said(arguments: &[&str]) -> String {
    let done = explain(arguments).await;
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(0), ""),
        "{arguments:?}: {done:?}"
    );
    done.stdout
}

#[tokio::test]
async fn a_request_is_explained_for_people() {
    let text = said(&[
        "GET",
        "/v1//orders/42;a=b/?q=1",
        "-H",
        "X-Api-Key: hidden",
        "-H",
        "x-forwarded-for: 6.6.6.6, 203.0.113.9, 10.0.0.7",
        "--from",
        "10.0.0.1",
    ])
    .await;
    assert!(!text.contains("hidden"), "{text}");
    for line in [
        "route   orders (gateway.toml:29) to upstream orders: http://10.1.0.5:3000",
        "        not write (gateway.toml:35): it takes POST only",
        "        not hosted (gateway.toml:40): it is for the host a.example.com",
        "        not all-v1 (gateway.toml:45): it takes the request too, but the path of the chosen route is more specific",
        "client  203.0.113.9: 10.0.0.1 is trusted, and X-Forwarded-For is read from the right: 10.0.0.7 is trusted, 203.0.113.9 is not",
        "path    /v1/orders/42: matched; forwarded as /v1/orders/42;a=b/",
        "limits  per-key (gateway.toml:8): at most 20 at once, 120 in the first minute, 100 in each later minute, per x-api-key; 401 without one",
        "          on an unused counter it admits this request and has 19 left; on a used-up one it refuses with 429",
        "          counts 1, by ip + route on the key 203.0.113.9|orders",
        "          on an unused counter it admits this request and has 100 left; on a used-up one it holds the request up to 2s, and refuses with 429 beyond that",
        "          counts 1, by path:id on the key 42",
        "answer  the upstream's, unless a limit refuses; nothing was counted here",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    assert!(!text.contains("v2"), "nothing like it:\n{text}");
}

#[tokio::test]
async fn refusals_are_explained_and_are_no_failure() {
    for (arguments, end) in [
        (
            &["GET", "/v1/orders/42"][..],
            "answer  401 by the gateway: the limit \"per-key\" needs header:x-api-key; the other limits count it, and if one refuses, its answer is sent instead; nothing was counted here\n",
        ),
        (
            &[
                "GET",
                "/v1/orders/42",
                "-H",
                "x-api-key: k",
                "-H",
                "x-cost: 0",
            ],
            "answer  429 by the gateway: the limit \"search\" refuses\n",
        ),
        (
            &["GET", "/nothing"],
            "answer  404 by the gateway: no route matches\n",
        ),
        (
            &["GET", "/a%2fb"],
            "answer  400 by the gateway: the path has a backslash or an escaped slash\n",
        ),
        (
            &["CONNECT", "/"],
            "answer  501 by the gateway: CONNECT is not implemented\n",
        ),
        (
            &["OPTIONS", "*"],
            "answer  204 by the gateway: it is for the gateway itself\n",
        ),
        (
            &["DELETE", "/v1/orders/1", "--host", "a.example.com"],
            "answer  the upstream's; no limit applies\n",
        ),
    ] {
        let text = said(arguments).await;
        assert!(text.ends_with(end), "{arguments:?}\n{text}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_wrong_usage() {
    for (arguments, said) in [
        (&["GET"][..], "tollgate explain GET /"),
        (&["GET", "/", "-H", "x-api-key"], "-H 'x-api-key: k'"),
        (&["GET", "/", "--from", "somewhere"], "--from"),
        (&["NO METHOD", "/"], "is not a method"),
        (&["bad-rate", "/"], "leave the other arguments out"),
    ] {
        let done = explain(arguments).await;
        assert_eq!(done.code, Some(2), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(said), "{arguments:?}: {done:?}");
    }
    let done = explain(&["GET", "/", "--config", "absent.toml"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[tokio::test]
async fn an_exemption_is_told() {
    let asked = [
        "GET",
        "/v1/orders/42",
        "-H",
        "x-api-key: k",
        "-H",
        "x-cost: 0",
    ];
    let text = said(&[&asked[..], &["--from", "192.0.2.7"]].concat()).await;
    assert!(
        text.contains(
            "\n          does not apply: the limit exempts such requests\nanswer  the upstream's, unless"
        ),
        "{text}"
    );
}

/// The keys, the route and the client that `explain` names are those that the gateway then counts and logs.
#[tokio::test]
async fn the_gateway_does_what_was_explained() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .server("trust = \"127.0.0.0/8\"")
        .upstream("main", &[&upstream])
        .limit("key", "by = \"header:x-api-key\"\nmissing = \"ip\"\nrate = \"9/h\"")
        .limit("who", "by = [\"ip/24\", \"path:id\", \"cookie:session\", \"query:q\", \"method\", \"host\"]\nmissing = \"shared\"\nrate = \"9/h\"")
        .route("one", "/things/{id}", "main", &["key", "who"])
        .route("rest", "/{*rest}", "main", &["key"]);
    let gateway = Gateway::start(&file).await;
    for (target, fields) in [
        ("/things/a%20b?q=x&q=x", vec![("x-api-key", "k")]),
        ("//things/./7;v=1/", vec![("cookie", "session=s; other=o")]),
        ("/else", vec![("x-forwarded-for", "6.6.6.6, 203.0.113.9")]),
    ] {
        let answer = gateway.get_with(target, &fields).await;
        let line = gateway.line_of(&answer).await;
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("-H{name}: {value}"))
            .collect();
        let mut arguments = vec!["explain", "GET", target, "--json", "--host", "gateway.test"];
        arguments.extend(fields.iter().map(String::as_str));
        let done = tollgate(gateway.folder(), &arguments).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        let explained: Value = serde_json::from_str(&done.stdout).unwrap();
        let limits = explained["limits"].as_array().unwrap().iter();
        let keys = limits.map(|limit| {
            let name = limit["name"].as_str().unwrap();
            (name.to_owned(), limit["key"].clone())
        });
        let keys = Value::from(keys.collect::<serde_json::Map<_, _>>());
        assert_eq!(keys, line["keys"], "{explained}\n{line}");
        assert_eq!(explained["route"]["name"], line["route"]);
        assert_eq!(explained["client"]["address"], line["client"]);
    }
    let target = "/things/7?q=x&q=y";
    gateway.get(target).await.expect(400);
    let arguments = ["explain", "GET", target, "--json", "--host", "gateway.test"];
    let done = tollgate(gateway.folder(), &arguments).await;
    let explained: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(explained["limits"][1]["ambiguous"], "query:q");
    assert_eq!(explained["answer"]["status"], 400);
}

/// A field that the gateway drops does not exist for routes and limits, and `explain` names the cause.
#[tokio::test]
async fn what_is_dropped_is_told_with_its_reason() {
    const DROPPING: &str = "\
[limits.per-client]
by = \"header:cf-connecting-ip\"
missing = \"skip\"
rate = \"10/s\"

[upstreams.u]
servers = \"10.1.0.5:3000\"

[routes.from]
path = \"/{*rest}\"
headers = { true-client-ip = true }
upstream = \"u\"

[routes.deletes]
path = \"/{*rest}\"
headers = { x-http-method = \"DELETE\", x-a = true }
upstream = \"u\"

[routes.named]
path = \"/{*rest}\"
headers = { x-named = true, x-a = true, x-b = true }
upstream = \"u\"

[routes.posts]
path = \"/posts\"
methods = \"POST\"
upstream = \"u\"

[routes.rest]
upstream = \"u\"
limits = \"per-client\"
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), DROPPING).unwrap();
    let mut asked = vec!["explain", "GET", "/a"];
    for field in [
        "True-Client-IP: 192.0.2.1",
        "CF-Connecting-IP: 192.0.2.1",
        "X-HTTP-Method: DELETE",
        "X_Odd: 1",
        "X-Named: 1",
        "X-A: 1",
        "X-B: 1",
        "Connection: x-named",
    ] {
        asked.extend(["-H", field]);
    }
    let text = tollgate(folder.path(), &asked).await.stdout;
    let address = "anybody could write any address there, and `[server] trust` does not name the peer that sends it";
    let method =
        "it asks for another method than the one that a route or a limit of the file looks at";
    let named = "`Connection` names it: it is for this gateway only";
    for line in [
        format!("dropped true-client-ip, since {address}"),
        format!("        cf-connecting-ip, since {address}"),
        format!("        x-http-method, since {method}"),
        format!("        x-named, since {named}"),
        "        x_odd, since a name with `_` or `\"` is read as another one by some upstreams"
            .into(),
        format!(
            "        not from (gateway.toml:9): it asks for header true-client-ip = true, and the request's field of that name is dropped, since {address}"
        ),
        format!(
            "        not deletes (gateway.toml:14): it asks for header x-http-method = \"DELETE\", and the request's field of that name is dropped, since {method}"
        ),
        format!(
            "        not named (gateway.toml:19): it asks for header x-named = true, and the request's field of that name is dropped, since {named}"
        ),
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    asked.push("--json");
    let object: Value =
        serde_json::from_str(&tollgate(folder.path(), &asked).await.stdout).unwrap();
    assert_eq!(object["dropped"].as_array().unwrap().len(), 5, "{object}");
    assert_eq!(object["dropped"][0]["field"], "true-client-ip");
    assert_eq!(object["limits"][0]["applies"], false);
}
