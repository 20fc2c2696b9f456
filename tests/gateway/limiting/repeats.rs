//! Repeated requests, as clients see them.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Connection, File, Gateway, PATIENCE, Redis, Upstream, eventually, request};

on_both_stores! {
    a_repeat_goes_free_and_is_seen_to
    another_method_path_cost_or_client_is_another_request
    what_is_no_id_is_charged
    a_repeat_is_not_held
    what_goes_back_is_forgotten_and_what_was_repeated_stays
    a_repeat_is_granted_what_the_first_was
}

const ONCE: &str = "dedupe = { header = \"Idempotency-Key\", ttl = \"1h\" }";

fn calls(more: &str) -> String {
    format!("by = \"ip\"\nrate = \"10/h\"\n{ONCE}\n{more}")
}

fn with_id(id: &str) -> [(&'static str, &str); 1] {
    [("idempotency-key", id)]
}

async fn a_repeat_goes_free_and_is_seen_to(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls", "every"])
        .limit("calls", &calls(""))
        .limit("every", "by = \"ip\"\nrate = \"10/h\"");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (nth, left) in [(0, 9), (1, 9), (2, 9), (3, 9), (4, 8)] {
        let answer = client
            .ask(request("POST", "/pay", &with_id("a-secret-id")))
            .await;
        let answer = answer.expect(200);
        assert_eq!(answer.remaining("calls"), left, "{nth}");
        assert_eq!(answer.remaining("every"), 9 - nth, "{nth}");
        let line = gateway.line_of(&answer).await;
        let free = (1..4).contains(&nth);
        let reason = if free { "repeat" } else { "ok" };
        assert_eq!(line["reason"], reason, "{nth}");
        let costs = serde_json::json!({ "calls": u64::from(!free), "every": 1 });
        assert_eq!(line["costs"], costs, "{nth}");
        assert!(!line.to_string().contains("a-secret-id"));
    }
    let metrics = gateway.metrics().await;
    let counted = |decision: &str, count: u32| {
        let line = format!(
            "tollgate_limit_decisions_total{{limit=\"calls\",route=\"all\",decision=\"{decision}\",decided_by=\"store\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{metrics}");
    };
    counted("repeat", 3);
    counted("allow", 2);
}

async fn another_method_path_cost_or_client_is_another_request(place: Place) {
    let upstream = Upstream::echo().await;
    let key = "by = \"header:x-key\"\nmissing = \"shared\"\nrate = \"20/h\"\ncost = { header = \"x-cost\", max = 9, min = 0 }";
    let file = File::to(&upstream, &["calls"]).limit("calls", &format!("{key}\n{ONCE}"));
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (method, path, cost, left) in [
        ("POST", "/pay", "1", 19),
        ("PUT", "/pay", "1", 18),
        ("POST", "/pay/2", "1", 17),
        ("POST", "/pay", "4", 13),
        // The same path again, spelled in another way.
        ("POST", "/./pay//2/", "1", 13),
        ("POST", "/pay", "4", 13),
        // A request that costs nothing is no repeat.
        ("POST", "/pay", "0", 13),
    ] {
        let fields = [("idempotency-key", "x"), ("x-cost", cost)];
        let answer = client.ask(request(method, path, &fields)).await.expect(200);
        assert_eq!(answer.remaining("calls"), left, "{method} {path} {cost}");
    }
    let fields = [
        ("idempotency-key", "x"),
        ("x-cost", "1"),
        ("x-key", "other"),
    ];
    let answer = client
        .ask(request("POST", "/pay", &fields))
        .await
        .expect(200);
    assert_eq!(answer.remaining("calls"), 19);
}

async fn what_is_no_id_is_charged(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"]).limit("calls", &calls(""));
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let (longest, long) = ("x".repeat(256), "x".repeat(257));
    let twice = [("idempotency-key", "a"), ("idempotency-key", "a")];
    let (none, empty, long) = ([], with_id(""), with_id(&long));
    for (nth, fields) in [&none[..], &empty, &long, &twice].into_iter().enumerate() {
        for again in 1..=2 {
            let answer = client.ask(request("GET", "/", fields)).await.expect(200);
            let left = 10 - 2 * nth as u64 - again;
            assert_eq!(answer.remaining("calls"), left, "{fields:?}");
        }
    }
    for _ in 0..2 {
        let answer = client.ask(request("GET", "/", &with_id(&longest))).await;
        assert_eq!(answer.expect(200).remaining("calls"), 1);
    }
    let warning =
        "idempotency-key of 127.0.0.1 is longer than 256 bytes; limit calls charges the request";
    let warned = |line: &str| line.contains(warning) && !line.contains("xxx");
    gateway.said.line(0, "a warning", warned).await;
}

async fn a_repeat_is_not_held(place: Place) {
    let upstream = Upstream::echo().await;
    let smooth = format!(
        "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 5\nmax_wait = \"9h\"\n{ONCE}"
    );
    let file = File::to(&upstream, &["smooth"]).limit("smooth", &smooth);
    let gateway = place.gateway(file).await;
    gateway.get("/").await.expect(200);
    let mut held = gateway.connect().await;
    held.send(request("GET", "/", &with_id("x"))).await;
    gateway.holds(1).await;
    // The client has given up waiting, and asks again.
    let answer = gateway.get_with("/", &with_id("x")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["reason"], "repeat");
    gateway.holds(1).await;
    drop(held);
    gateway.line_where("reason", "client_gone").await;
    // The repeat has used the place of the first request, so the next request waits behind it.
    let mut next = gateway.connect().await;
    next.send(request("GET", "/", &[])).await;
    gateway.holds(1).await;
}

const BROKEN: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

async fn what_goes_back_is_forgotten_and_what_was_repeated_stays(place: Place) {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let answer = if head.target() == "/fine" {
                FINE
            } else {
                BROKEN
            };
            connection.wire.send(answer).await;
        }
    })
    .await;
    let more = "refund = \"5xx\"\ncost = { header = \"x-cost\", max = 9, min = 0 }";
    let file = File::to(&upstream, &["calls"]).limit("calls", &calls(more));
    let gateway = place.gateway(file).await;
    let left = async |expected: u64| {
        eventually(PATIENCE, "so much is left", async || {
            let answer = gateway.get_with("/fine", &[("x-cost", "0")]).await;
            answer.remaining("calls") == expected
        })
        .await;
    };
    // Each request fails, its charge is given back, and the next one is charged again: no repeat goes free without a
    // charge.
    for _ in 0..6 {
        let answer = gateway.get_with("/broken", &with_id("x")).await.expect(503);
        assert_eq!(answer.remaining("calls"), 9);
        left(10).await;
    }
    let answer = gateway.get_with("/fine", &with_id("y")).await.expect(200);
    assert_eq!(answer.remaining("calls"), 9);
    let again = gateway.get_with("/fine", &with_id("y")).await.expect(200);
    assert_eq!(again.remaining("calls"), 9);
    left(9).await;
}

async fn a_repeat_is_granted_what_the_first_was(place: Place) {
    let upstream = Upstream::echo().await;
    let more = "partial = true\ncost = { header = \"x-cost\", max = 50 }";
    let file = File::to(&upstream, &["calls"]).limit("calls", &calls(more));
    let gateway = place.gateway(file).await;
    gateway.get_with("/", &[("x-cost", "7")]).await.expect(200);
    let fields = [("x-cost", "5"), ("idempotency-key", "x")];
    for reason in ["ok", "repeat"] {
        let answer = gateway.get_with("/", &fields).await.expect(200);
        assert_eq!(answer.echoed().fields.all("tollgate-granted"), ["3"]);
        assert_eq!(answer.remaining("calls"), 0);
        assert_eq!(gateway.line_of(&answer).await["reason"], reason);
    }
}

#[tokio::test]
async fn gateways_share_what_they_remember_and_hide_what_it_was() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["calls"])
        .limit("calls", &calls("").replace("\"ip\"", "\"everyone\""))
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    for gateway in [&one, &two, &one, &two] {
        let answer = gateway.get_with("/", &with_id("a-secret-id")).await;
        assert_eq!(answer.expect(200).remaining("calls"), 9);
    }
    let mut keys = redis.keys().await;
    keys.sort();
    assert_eq!(keys[0], "tollgate:1:calls:tb:{*}");
    let digest = keys[1].strip_prefix("tollgate:1:calls:tb:{*}:d:").unwrap();
    assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(keys.len(), 2);
    let life: u64 = redis.command(&["PTTL", &keys[1]]).await;
    assert!((3_500_000..=3_600_000).contains(&life), "{life}");
}

#[tokio::test]
async fn who_moves_up_keeps_its_own_id() {
    let upstream = Upstream::echo().await;
    let smooth = format!(
        "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 5\nmax_wait = \"9h\"\n{ONCE}"
    );
    let file = File::to(&upstream, &["smooth"])
        .limit("smooth", &smooth)
        .server("workers = 1");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut held = Vec::new();
    for id in ["leaves", "stays"] {
        let mut client = gateway.connect().await;
        client.send(request("GET", "/", &with_id(id))).await;
        held.push(client);
        gateway.holds(held.len()).await;
    }
    drop(held.remove(0));
    gateway.holds(1).await;
    // The request that stayed has moved up and was charged. The request whose client left was not.
    gateway.get_with("/", &with_id("stays")).await.expect(200);
    let mut again = gateway.connect().await;
    again.send(request("GET", "/", &with_id("leaves"))).await;
    gateway.holds(2).await;
    drop((held, again));
}
