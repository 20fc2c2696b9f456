//! Costs that the response gives: an estimate is charged first, and settled when the cost is known.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{
    Answer, Connection, File, Gateway, PATIENCE, Redis, Upstream, eventually, get, h2, request,
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

on_both_stores! {
    a_field_of_the_response_settles_the_charge
    what_is_owed_is_waited_for
    what_was_too_much_comes_back
    every_window_is_settled
    a_silent_response_stays_at_the_estimate
    twenty_silent_answers_in_a_row_are_told
    silence_that_the_file_ignores_is_not_told
    a_failed_request_costs_nothing_where_that_comes_back
    a_member_of_the_body_settles_the_charge
    the_last_event_of_a_stream_settles_the_charge
    shadows_are_settled_too
    who_leaves_a_stream_pays_what_it_has_said
    who_leaves_before_the_last_event_pays_the_most
    who_owes_a_body_and_leaves_pays_the_most
    who_resets_a_stream_before_its_last_event_pays_the_most
    a_server_that_fails_leaves_the_estimate
}

/// An upstream that answers with the text in the request's `x-answer`: lines of a head and a body, with `|` for line
/// ends.
async fn obedient() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let told = head
                .fields
                .get("x-answer")
                .unwrap_or("||")
                .replace('|', "\r\n");
            let (fields, body) = told.split_once("\r\n\r\n").unwrap_or((&told, ""));
            let status = head.fields.get("x-status").unwrap_or("200 OK");
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{}\r\n\r\n{body}",
                body.len(),
                fields.trim()
            );
            let answer = answer.replace("\r\n\r\n\r\n", "\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn ask(gateway: &Gateway, answer: &str) -> Answer {
    gateway.get_with("/", &[("x-answer", answer)]).await
}

fn units(n: u64) -> String {
    format!("x-units: {n}||")
}

async fn costs(gateway: &Gateway, answer: &Answer) -> Value {
    gateway.line_of(answer).await["costs"].clone()
}

fn limit(lines: &str) -> String {
    format!("by = \"everyone\"\n{lines}")
}

async fn gateway(place: &Place, upstream: &Upstream, lines: &str) -> Gateway {
    let file = File::to(upstream, &["units"]).limit("units", &limit(lines));
    place.gateway(file).await
}

async fn a_field_of_the_response_settles_the_charge(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"20/h\"\ncost = { response_header = \"x-units\", estimate = 2, max = 15 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let answer = ask(&gateway, &units(5)).await.expect(200);
    assert_eq!(answer.remaining("units"), 18);
    assert_eq!(costs(&gateway, &answer).await, json!({ "units": 5 }));
    left(&gateway, 15).await;
    let answer = ask(&gateway, "||").await.expect(200);
    assert_eq!(costs(&gateway, &answer).await, json!({ "units": 2 }));
    left(&gateway, 13).await;
    // The cost counts as 15 at most, so that 2 units are owed.
    let answer = ask(&gateway, &units(99)).await.expect(200);
    assert_eq!(costs(&gateway, &answer).await, json!({ "units": 15 }));
    eventually(PATIENCE, "nothing is left", async || {
        ask(&gateway, &units(0)).await.status == 429
    })
    .await;
    let refused = ask(&gateway, &units(0)).await.expect(429);
    assert_eq!(costs(&gateway, &refused).await, json!({ "units": 2 }));
    // 2 units are owed and 2 are asked for, and one unit comes back every three minutes.
    let wait = refused.number("retry-after-ms");
    assert!((4 * 175_000..=4 * 180_000).contains(&wait), "{wait}");
    for outcome in ["settled", "silent"] {
        let row = format!("tollgate_limit_costs_total{{limit=\"units\",outcome=\"{outcome}\"}} ");
        assert!(gateway.metrics().await.contains(&row), "{row}");
    }
}

/// Waits until this number of units is left. Each question costs two units at first, and none in the end.
async fn left(gateway: &Gateway, left: u64) {
    eventually(PATIENCE, &format!("{left} are left"), async || {
        let asked = ask(gateway, &units(0)).await.expect(200);
        asked.remaining("units") + 2 == left
    })
    .await;
}

async fn what_is_owed_is_waited_for(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"10/s\"\nburst = 10\ncost = { response_header = \"x-units\", max = 1000 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let answer = ask(&gateway, &units(610)).await.expect(200);
    assert_eq!(costs(&gateway, &answer).await, json!({ "units": 610 }));
    eventually(PATIENCE, "the debt is there", async || {
        gateway.get("/").await.status == 429
    })
    .await;
    let refused = gateway.get("/").await.expect(429);
    // 600 units are owed, and one more is asked for: at ten units a second this takes about a minute.
    let wait = refused.number("retry-after-ms");
    assert!((50_000..=60_100).contains(&wait), "{wait}");
    assert_eq!(refused.remaining("units"), 0);
}

async fn what_was_too_much_comes_back(place: Place) {
    let upstream = obedient().await;
    let lines =
        "rate = \"10/h\"\ncost = { response_header = \"x-units\", estimate = 10, max = 10 }";
    let gateway = gateway(&place, &upstream, lines).await;
    for _ in 0..3 {
        // Each question asks for ten units, so everything that a request did not use must have come back.
        eventually(PATIENCE, "the rest has come back", async || {
            ask(&gateway, &units(0)).await.status == 200
        })
        .await;
    }
    eventually(PATIENCE, "one is spent", async || {
        ask(&gateway, &units(1)).await.status == 200
    })
    .await;
    eventually(PATIENCE, "nine are not ten", async || {
        let answer = ask(&gateway, &units(0)).await;
        answer.status == 429 && answer.remaining("units") == 9
    })
    .await;
}

async fn every_window_is_settled(place: Place) {
    let upstream = obedient().await;
    for (nth, rule) in [
        "algorithm = \"fixed-window\"\nrate = \"10/d\"",
        "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"10/month\"",
        "algorithm = \"sliding-window\"\nrate = \"10/d\"",
        "algorithm = \"leaky-bucket\"\nover = \"refuse\"\nburst = 10\nrate = \"10/d\"",
        "scope = \"gateway\"\nrate = \"10/d\"",
        "rate = [\"10/h\", \"15/d\"]",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("units-{nth}");
        let policy = match rule.starts_with("rate = [") {
            true => format!("{name}:h"),
            false => name.clone(),
        };
        let lines = format!("{rule}\ncost = {{ response_header = \"x-units\", estimate = 4 }}");
        let file = File::to(&upstream, &[&name]).limit(&name, &limit(&lines));
        let gateway = place.gateway(file).await;
        ask(&gateway, &units(1)).await.expect(200);
        eventually(PATIENCE, "three have come back", async || {
            let left = ask(&gateway, &units(0))
                .await
                .expect(200)
                .remaining(&policy);
            left == 5
        })
        .await;
        ask(&gateway, &units(40)).await.expect(200);
        eventually(PATIENCE, "the debt is there", async || {
            ask(&gateway, &units(0)).await.status == 429
        })
        .await;
    }
}

async fn a_silent_response_stays_at_the_estimate(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"10/h\"\ncost = { response_header = \"x-units\", estimate = 4 }";
    let gateway = gateway(&place, &upstream, lines).await;
    for (said, left) in [("||", 6), ("x-units: many||", 2)] {
        let answer = ask(&gateway, said).await.expect(200);
        assert_eq!(answer.remaining("units"), left);
        assert_eq!(costs(&gateway, &answer).await, json!({ "units": 4 }));
    }
    ask(&gateway, "||").await.expect(429);
    gateway
        .said
        .line(0, "a warning", |line| {
            line.contains("stays at its estimate")
        })
        .await;
}

async fn twenty_silent_answers_in_a_row_are_told(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"1000/h\"\ncost = { response_json = \"usage.total\", max = 9 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let json = |body: &str| format!("content-type: application/json||{body}");
    let (said, silent) = (json("{\"usage\":{\"total\":1}}"), json("{\"usage\":{}}"));
    let told = || {
        let text = gateway.said.text();
        text.matches("cost-never-said: 20 answers in a row").count()
    };
    // An answer that states a number begins a new row.
    for answer in [&silent; 19]
        .into_iter()
        .chain([&said])
        .chain([&silent; 19])
    {
        ask(&gateway, answer).await.expect(200);
    }
    // A failed answer does not belong to the row.
    let failing = [("x-answer", &*silent), ("x-status", "500 Oops")];
    gateway.get_with("/", &failing).await.expect(500);
    ask(&gateway, &silent).await.expect(200);
    eventually(PATIENCE, "the line", async || told() == 1).await;
    let text = gateway.said.text();
    assert!(
        text.contains(
            "no number in the member `usage.total` of JSON, by which limit units charges"
        ),
        "{text}"
    );
    for _ in 0..40 {
        ask(&gateway, &silent).await.expect(200);
    }
    assert_eq!(told(), 1, "once until one says it");
    ask(&gateway, &said).await.expect(200);
    for _ in 0..20 {
        ask(&gateway, &silent).await.expect(200);
    }
    eventually(PATIENCE, "the line again", async || told() == 2).await;
}

async fn silence_that_the_file_ignores_is_not_told(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"1000/h\"\ncost = { response_json = \"usage.total\", max = 9 }\nignore_warnings = \"cost-never-said\"";
    let gateway = gateway(&place, &upstream, lines).await;
    for _ in 0..25 {
        let silent = "content-type: application/json||{\"usage\":{}}";
        ask(&gateway, silent).await.expect(200);
    }
    assert!(!gateway.said.text().contains("cost-never-said"));
}

async fn a_failed_request_costs_nothing_where_that_comes_back(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"10/h\"\nrefund = \"5xx\"\ncost = { response_header = \"x-units\", estimate = 4, max = 9 }";
    let gateway = gateway(&place, &upstream, lines).await;
    for _ in 0..5 {
        eventually(PATIENCE, "it is given back", async || {
            let fields = [("x-answer", &*units(9)), ("x-status", "500 Oops")];
            gateway.get_with("/", &fields).await.status == 500
        })
        .await;
    }
}

async fn a_member_of_the_body_settles_the_charge(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"1000/h\"\ncost = { response_json = \"usage.total_tokens\", estimate = 10, max = 50 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let body = r#"{"choices":[{"usage":{"total_tokens":1}}],"usage":{"total_tokens":42}}"#;
    for (kind, told, cost) in [
        ("application/json; charset=utf-8", body, 42),
        (
            "application/problem+json",
            r#"{"usage":{"total_tokens":7000}}"#,
            50,
        ),
        ("text/plain", body, 10),
        ("application/json|content-encoding: gzip", body, 10),
        ("application/json", "{\"usage\":", 10),
    ] {
        let said = format!("content-type: {kind}||{told}");
        let answer = ask(&gateway, &said).await.expect(200);
        assert_eq!(answer.text(), told);
        assert_eq!(costs(&gateway, &answer).await, json!({ "units": cost }));
    }
    eventually(PATIENCE, "two could not be read", async || {
        let row = "tollgate_limit_costs_total{limit=\"units\",outcome=\"unreadable\"} 2\n";
        gateway.metrics().await.contains(row)
    })
    .await;
}

async fn the_last_event_of_a_stream_settles_the_charge(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"100/h\"\ncost = { response_json = \"usage.total_tokens\" }";
    let gateway = gateway(&place, &upstream, lines).await;
    let said = "content-type: text/event-stream||data: {\"usage\":{\"total_tokens\":3}}||data: {\"usage\":{\"total_tokens\":30}}||data: [DONE]||";
    let answer = ask(&gateway, said).await.expect(200);
    assert_eq!(costs(&gateway, &answer).await, json!({ "units": 30 }));
    eventually(PATIENCE, "thirty are spent", async || {
        gateway.get("/").await.expect(200).remaining("units") < 70
    })
    .await;
}

async fn shadows_are_settled_too(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"10/h\"\nmode = \"shadow\"\ncost = { response_header = \"x-units\" }";
    let gateway = gateway(&place, &upstream, lines).await;
    ask(&gateway, &units(40)).await.expect(200);
    eventually(PATIENCE, "it would have refused", async || {
        let answer = ask(&gateway, "||").await.expect(200);
        gateway.line_of(&answer).await["shadow"] == json!(["units"])
    })
    .await;
}

async fn who_leaves_a_stream_pays_what_it_has_said(place: Place) {
    const EVENT: &str = "data: {\"n\":7}\n\n";
    let upstream = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            connection.wire.send(format!("{head}{EVENT}")).await;
            connection.wire.ended(PATIENCE).await;
        }
    })
    .await;
    let lines = "rate = \"100/h\"\ncost = { response_json = \"n\" }";
    let gateway = gateway(&place, &upstream, lines).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    client.head().await;
    // The client gets the event while the stream goes on.
    assert_eq!(client.chunk().await.unwrap(), EVENT);
    drop(client);
    let line = gateway.line_where("reason", "client_gone").await;
    assert_eq!(line["costs"], json!({ "units": 7 }));
}

/// If a client has read everything but the cost, which comes last, it is charged that cost.
async fn who_leaves_before_the_last_event_pays_the_most(place: Place) {
    const EVENT: &str = "data: {\"text\":\"all there is\"}\n\n";
    let cost = "rate = \"5000/h\"\ncost = { response_json = \"n\", estimate = 1";
    let cases = [
        (", max = 1000 }", "/", 1000),
        (" }", "/", 5000),
        (", max = 1000, on_leave = \"estimate\" }", "/", 1),
        // No part of the body has come.
        (", max = 1000 }", "/head", 1),
        // The answer was complete, and stated no cost.
        (", max = 1000 }", "/whole", 1),
        // Here the server broke off.
        (", max = 1000 }", "/broken", 1),
    ];
    for (number, (more, path, charged)) in cases.into_iter().enumerate() {
        let upstream = Upstream::playing(async |mut connection: Connection| {
            let Ok(request) = connection.request().await else {
                return;
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
            let (length, body) = match request.target() {
                "/head" => (1000, ""),
                "/whole" => (EVENT.len(), EVENT),
                _ => (1000, EVENT),
            };
            let length = format!("content-length: {length}\r\n\r\n");
            connection.wire.send(format!("{head}{length}{body}")).await;
            if request.target() != "/broken" {
                connection.wire.ended(PATIENCE).await;
            }
        })
        .await;
        // Each case has its own counter: a case that takes all units must not take those of the next case.
        let name = format!("units{number}");
        let limits = File::to(&upstream, &[&name]).limit(&name, &limit(&format!("{cost}{more}")));
        let gateway = place.gateway(limits).await;
        let mut client = gateway.connect().await;
        client.send(get(path)).await;
        let head = client.head().await;
        assert_eq!(head.status(), 200, "{more} {path}");
        if path != "/head" {
            client.exactly(EVENT.len()).await.unwrap();
        }
        if path == "/broken" {
            client.ended(PATIENCE).await;
        }
        drop(client);
        let line = gateway.line_where("path", path).await;
        assert_eq!(line["costs"], json!({ name: charged }), "{more} {line}");
    }
}

/// A body that is announced and does not come breaks the connection to the server. The fault is the client's.
async fn who_owes_a_body_and_leaves_pays_the_most(place: Place) {
    const EVENT: &str = "data: {\"text\":\"all there is\"}\n\n";
    let upstream = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\n";
            connection.wire.send(format!("{head}{EVENT}")).await;
            connection.wire.ended(PATIENCE).await;
        }
    })
    .await;
    let lines = "rate = \"5000/h\"\ncost = { response_json = \"n\", estimate = 1, max = 1000 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let length = ("Content-Length", "1");
    let coded = ("Transfer-Encoding", "chunked");
    for (path, fields, rest, reason) in [
        ("/length", &[length][..], "", "client_gone"),
        ("/chunks", &[coded], "", "client_gone"),
        ("/broken", &[coded], "nonsense\r\n", "bad_request"),
        ("/none", &[], "", "client_gone"),
    ] {
        let mut client = gateway.connect().await;
        client.send(request("GET", path, fields)).await;
        client.head().await;
        client.exactly(EVENT.len()).await.unwrap();
        if rest.is_empty() {
            drop(client);
        } else {
            client.send(rest).await;
            client.ended(PATIENCE).await;
        }
        let line = gateway.line_where("path", path).await;
        assert_eq!(line["costs"], json!({ "units": 1000 }), "{line}");
        assert_eq!(line["reason"], reason, "{line}");
    }
}

/// Over HTTP/2 a client leaves a stream with a reset, and its connection stays open.
async fn who_resets_a_stream_before_its_last_event_pays_the_most(place: Place) {
    const EVENT: &str = "data: {\"text\":\"all there is\"}\n\n";
    let upstream = Upstream::playing(async |mut connection: Connection| {
        let Ok(request) = connection.request().await else {
            return;
        };
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\n";
        let body = match request.target() {
            "/head" => "",
            _ => EVENT,
        };
        connection.wire.send(format!("{head}{body}")).await;
        connection.wire.ended(PATIENCE).await;
    })
    .await;
    let lines = "rate = \"5000/h\"\ncost = { response_json = \"n\", estimate = 1, max = 1000 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let client = gateway.h2().await;
    for (path, charged) in [("/reset", 1000), ("/head", 1)] {
        let mut answer = client.send(h2::get(path)).await.unwrap();
        if charged > 1 {
            let frame = answer.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), EVENT);
        }
        drop(answer);
        let line = gateway.line_where("path", path).await;
        assert_eq!(line["costs"], json!({ "units": charged }), "{line}");
    }
    // The connection has stayed open.
    assert!(!client.closed());
}

async fn a_server_that_fails_leaves_the_estimate(place: Place) {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
    })
    .await;
    let lines = "rate = \"100/h\"\ncost = { response_header = \"x-units\", estimate = 30 }";
    let gateway = gateway(&place, &upstream, lines).await;
    for left in [70, 40, 10] {
        let answer = gateway.get("/").await.expect(502);
        assert_eq!(answer.remaining("units"), left);
        assert_eq!(costs(&gateway, &answer).await, json!({ "units": 30 }));
    }
    gateway.get("/").await.expect(429);
}

#[tokio::test]
async fn costs_that_a_gateway_counts_alone_are_settled_while_redis_is_away() {
    for on_down in ["open", "local"] {
        let (upstream, mut redis) = (obedient().await, Redis::start().await);
        let cost = "rate = \"100/h\"\ncost = { response_header = \"x-units\", estimate = 30 }";
        let file = File::to(&upstream, &["own", "shared"])
            .limit(
                "own",
                &format!("by = \"everyone\"\nscope = \"gateway\"\n{cost}"),
            )
            .limit("shared", &limit("rate = \"1000/h\""))
            .redis(
                &redis,
                &format!("timeout = \"2s\"\non_down = \"{on_down}\""),
            );
        let gateway = Gateway::start(&file).await;
        ask(&gateway, &units(5)).await.expect(200);
        redis.kill().await;
        // 95 units are left. Each request takes 30 until its response has stated the cost.
        for (units_left, cost) in [(65, 10), (55, 40), (15, 0)] {
            let answer = ask(&gateway, &units(cost)).await.expect(200);
            assert_eq!(answer.remaining("own"), units_left, "{on_down}");
            assert_eq!(
                costs(&gateway, &answer).await["own"],
                json!(cost),
                "{on_down}"
            );
        }
    }
}
