//! Attacks that any client can make: addresses and methods in fields, many addresses of one network, long lists, floods
//! of control frames, and names that lead to the admin listener.

use crate::support::{File, Gateway, Upstream, Wire, request};
use tokio::task::JoinSet;
use tollgate::intake::claimed_fields::{CLAIMED, USERS};

/// Fields that frameworks take for the client's address, or for a setting.
const ADDRESSES: [&str; 12] = [
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Appengine-Remote-Addr",
    "EO-Connecting-IP",
    "DDG-Connecting-IP",
    "X-Vercel-Proxied-For",
    "Fastly-SSL",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Real-IP",
    "Forwarded-For",
    "Proxy",
];
const METHODS: [&str; 3] = [
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
];

#[tokio::test]
async fn a_stranger_tells_no_address_and_a_trusted_peer_does() {
    let upstream = Upstream::echo().await;
    let fields = ADDRESSES.map(|name| (name, "192.0.2.66"));
    for (trust, passes) in [("", false), ("trust = [\"127.0.0.1\"]", true)] {
        let file = File::to(&upstream, &["forged"])
            .limit(
                "forged",
                "by = \"header:cf-connecting-ip\"\nmissing = \"ip\"\nrate = \"4/h\"",
            )
            .server(trust);
        let gateway = Gateway::start(&file).await;
        let seen = gateway.get_with("/", &fields).await.expect(200).echoed();
        for name in ADDRESSES {
            // Only the gateway may write the fields in which proxies name the client.
            let expected = match name {
                "X-Real-IP" => Some("127.0.0.1"),
                _ => passes.then_some("192.0.2.66"),
            };
            assert_eq!(seen.fields.get(name), expected, "{name} {trust}");
        }
        // A client cannot count as a new client by changing its fields.
        for n in 0..3 {
            let address = format!("192.0.2.{n}");
            let fields = [("CF-Connecting-IP", address.as_str())];
            gateway.get_with("/", &fields).await.expect(200);
        }
        let last = gateway
            .get_with("/", &[("CF-Connecting-IP", "192.0.2.99")])
            .await;
        assert_eq!(last.status, if passes { 200 } else { 429 }, "{trust}");
    }
}

/// All of the fields, spread over several requests, since a head has 100 fields at most.
#[tokio::test]
async fn a_stranger_writes_no_field_of_another_gateway() {
    let upstream = Upstream::echo().await;
    for (trust, passes) in [("", false), ("trust = [\"127.0.0.1\"]", true)] {
        let gateway = Gateway::start(&File::to(&upstream, &[]).server(trust)).await;
        for some in CLAIMED.chunks(50) {
            let names: Vec<String> = some.iter().map(|one| one.name.replace('*', "dn")).collect();
            let capitals: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
            let fields: Vec<_> = capitals
                .iter()
                .map(|name| (name.as_str(), "203.0.113.66"))
                .collect();
            let seen = gateway.get_with("/", &fields).await.expect(200).echoed();
            for name in names {
                let expected = match name.as_str() {
                    "x-real-ip" => Some("127.0.0.1"),
                    _ => passes.then_some("203.0.113.66"),
                };
                assert_eq!(seen.fields.get(&name), expected, "{name} {trust}");
            }
        }
        // Fields that name users belong to the application.
        let fields: Vec<_> = USERS.iter().map(|one| (one.name, "anna")).collect();
        let seen = gateway.get_with("/", &fields).await.expect(200).echoed();
        for one in USERS {
            assert_eq!(seen.fields.get(one.name), Some("anna"), "{}", one.name);
        }
    }
}

#[tokio::test]
async fn no_field_turns_a_request_into_another_where_the_method_is_looked_at() {
    let upstream = Upstream::echo().await;
    let plain = File::to(&upstream, &[]);
    let routes = plain.clone().with(
        "[routes.writes]\npath = \"/{*rest}\"\nmethods = [\"DELETE\"]\nupstream = \"main\"\n",
    );
    let limits = File::to(&upstream, &["by-method"])
        .limit("by-method", "by = [\"ip\", \"method\"]\nrate = \"100/h\"");
    let exempts = File::to(&upstream, &["few"]).limit(
        "few",
        "by = \"ip\"\nrate = \"100/h\"\nexempt = { methods = \"HEAD\" }",
    );
    let repeats = File::to(&upstream, &["once"]).limit(
        "once",
        "by = \"ip\"\nrate = \"100/h\"\ndedupe = { header = \"idempotency-key\" }",
    );
    for (file, passes) in [
        (plain, true),
        (routes, false),
        (limits, false),
        (exempts, false),
        (repeats, false),
    ] {
        let gateway = Gateway::start(&file).await;
        let fields = METHODS.map(|name| (name, "DELETE"));
        let seen = gateway.get_with("/", &fields).await.expect(200).echoed();
        for name in METHODS {
            assert_eq!(seen.fields.has(name), passes, "{name}\n{}", file.text());
        }
    }
}

#[tokio::test]
async fn one_network_of_ipv6_holds_no_more_than_one_client() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["smooth"])
        .limit(
            "smooth",
            "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/30s\"\nqueue = 50\nmax_wait = \"1h\"",
        )
        .server("trust = [\"127.0.0.1\"]\nmax_held_per_client = 3");
    let gateway = Gateway::start(&file).await;
    let from = |address: String| request("GET", "/", &[("X-Forwarded-For", &address)]);
    gateway.get("/").await.expect(200);
    let mut held = Vec::new();
    for n in 1..=3 {
        let mut client = gateway.connect().await;
        client.send(from(format!("2001:db8::{n}"))).await;
        gateway.holds(n).await;
        held.push(client);
    }
    for n in 4..=29 {
        let mut client = gateway.connect().await;
        let answer = client.ask(from(format!("2001:db8::{n}:1"))).await;
        let answer = answer.expect(503);
        assert_eq!(gateway.line_of(&answer).await["reason"], "too_many_held");
    }
    // Other clients still find room.
    let mut neighbour = gateway.connect().await;
    neighbour.send(from("2001:db8:0:1::1".into())).await;
    gateway.holds(4).await;
}

#[tokio::test]
async fn a_list_of_names_in_connection_has_an_end() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let list = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
        names.join(", ")
    };
    let hundred = [("Connection", list(100))];
    let fields = hundred
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    gateway.get_with("/", &fields).await.expect(200);
    for (first, second) in [(list(101), String::new()), (list(60), list(60))] {
        let fields = [("Connection", first.as_str()), ("Connection", &second)];
        let refused = gateway.get_with("/", &fields).await.expect(400);
        assert!(refused.text().contains("100 fields"), "{}", refused.text());
        assert_eq!(gateway.line_of(&refused).await["reason"], "bad_request");
    }
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_admin_listener_answers_to_its_own_names() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"]).limit("calls", "by = \"everyone\"\nrate = \"3/h\"");
    let gateway = Gateway::start(&file).await;
    let admin = gateway.admin().await;
    let ask = async |method: &str, path: &str, fields: &[(&str, &str)]| {
        Wire::to(admin)
            .await
            .ask(request(method, path, fields))
            .await
    };
    let evil = format!("rebound.example.com:{}", admin.port());
    for path in ["/v1/store", "/v1/peek", "/elsewhere"] {
        let answer = ask("GET", path, &[("Host", &evil)]).await.expect(421);
        assert!(answer.text().contains("localhost"), "{}", answer.text());
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        ask("GET", path, &[("Host", &evil)]).await.expect(200);
    }
    for host in [admin.to_string(), "localhost".into(), "[::1]".into()] {
        ask("GET", "/v1/store", &[("Host", &host)])
            .await
            .expect(200);
    }
    let peek = |fields: &[(&str, &str)]| {
        let body = r#"{"counters":[]}"#;
        let length = body.len().to_string();
        let mut all = vec![("Host", "localhost"), ("Content-Length", &length)];
        all.extend(fields);
        format!("{}{body}", request("POST", "/v1/peek", &all))
    };
    let json = ("Content-Type", "application/json; charset=utf-8");
    for (fields, status) in [
        (&[json][..], 200),
        (&[], 415),
        (&[("Content-Type", "text/plain")], 415),
        (&[("Content-Type", "application/jsonx")], 415),
        (&[json, ("Origin", "https://evil.example.com")], 403),
        (&[json, ("Origin", "null")], 403),
        (&[json, ("Origin", "http://localhost:9090")], 200),
        (&[json, ("Origin", "localhost")], 403),
        (
            &[
                json,
                ("Origin", "http://localhost"),
                ("Origin", "https://evil.example.com"),
            ],
            403,
        ),
        (&[json, json], 415),
        (&[json, ("Content-Type", "text/plain")], 415),
        (&[json, ("Content-Type", "application/json")], 415),
    ] {
        let mut client = Wire::to(admin).await;
        let answer = client.ask(peek(fields)).await;
        assert_eq!(answer.status, status, "{fields:?} {}", answer.text());
    }
}

#[tokio::test]
async fn the_log_is_flooded_by_no_network() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["few"])
        .limit("few", "by = \"everyone\"\nrate = \"1/h\"")
        .server("trust = [\"127.0.0.1\"]");
    let gateway = Gateway::start(&file).await;
    let mut clients = JoinSet::new();
    for client in 0..4 {
        let mut wire = gateway.connect().await;
        clients.spawn(async move {
            for n in 0..250 {
                let address = format!("2001:db8::{client}:{n:x}");
                let asked = request("GET", "/", &[("X-Forwarded-For", &address)]);
                wire.ask(asked).await;
            }
        });
    }
    clients.join_all().await;
    let repeated = |line: &str| line.contains("\"repeated\"");
    let line = gateway.access.line(0, "a line for many", repeated).await;
    assert!(line.contains("\"client\":\"2001:db8::"), "{line}");
}
