//! Limits that only count, beside limits that decide: their reports, and requests that they neither refuse nor hold.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, PATIENCE, Redis, Upstream, eventually, request};
use serde_json::json;

on_both_stores! {
    a_shadow_refuses_nobody_and_stands_in_no_response
    a_refused_request_charges_no_shadow
    shadows_are_judged_one_by_one
    the_rates_of_a_shadow_are_charged_together
    a_shadow_without_its_key_is_no_401
    a_queue_in_shadow_holds_nobody
    slots_of_a_shadow_come_back
    a_candidate_counts_beside_its_limit
    a_change_of_the_mode_keeps_the_counters
}

fn limit(lines: &str) -> String {
    format!("by = \"everyone\"\n{lines}")
}

async fn shadows(gateway: &Gateway, answer: &Answer) -> serde_json::Value {
    gateway.line_of(answer).await["shadow"].clone()
}

/// Waits until the metrics have this number of these decisions of `limit`.
async fn said(gateway: &Gateway, limit: &str, decision: &str, mode: &str, times: u64) {
    let row = format!(
        "tollgate_limit_decisions_total{{limit=\"{limit}\",route=\"all\",decision=\"{decision}\",decided_by=\"store\",mode=\"{mode}\"}} {times}\n"
    );
    eventually(PATIENCE, &row, async || {
        gateway.metrics().await.contains(&row)
    })
    .await;
}

async fn a_shadow_refuses_nobody_and_stands_in_no_response(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["tight", "wide"])
        .limit("wide", &limit("rate = \"9/h\""))
        .limit("tight", &limit("rate = \"2/h\"\nmode = \"shadow\""));
    let gateway = place.gateway(file).await;
    for turn in 0..4 {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(answer.field("ratelimit-policy"), "\"wide\";q=9;w=3600");
        assert!(!answer.field("ratelimit").contains("tight"), "{answer:?}");
        assert_eq!(answer.remaining("wide"), 8 - turn);
        let expected = if turn < 2 {
            json!([])
        } else {
            json!(["tight"])
        };
        assert_eq!(shadows(&gateway, &answer).await, expected);
        let line = gateway.line_of(&answer).await;
        assert_eq!(
            (&line["reason"], &line["limit"]),
            (&json!("ok"), &json!(null))
        );
        assert_eq!(line["costs"], json!({ "wide": 1, "tight": 1 }));
    }
    said(&gateway, "tight", "would_allow", "shadow", 2).await;
    said(&gateway, "tight", "would_refuse", "shadow", 2).await;
    assert!(gateway.metrics().await.contains(
        "tollgate_limit_decisions_total{limit=\"wide\",route=\"all\",decision=\"allow\",decided_by=\"store\"} 4\n"
    ));
}

async fn a_refused_request_charges_no_shadow(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["two", "three"])
        .limit("two", &limit("rate = \"2/h\""))
        .limit("three", &limit("rate = \"3/h\"\nmode = \"shadow\""));
    let gateway = place.gateway(file.server("workers = 1")).await;
    for status in [200, 200, 429, 429, 429] {
        let answer = gateway.get("/").await.expect(status);
        assert_eq!(shadows(&gateway, &answer).await, json!([]));
        if status == 429 {
            assert_eq!(answer.json()["violated-policies"], json!(["two"]));
        }
    }
    let asked = if place.remembers() { 3 } else { 5 };
    said(&gateway, "three", "would_allow", "shadow", asked).await;
}

async fn shadows_are_judged_one_by_one(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["one", "three"])
        .limit("one", &limit("rate = \"1/h\"\nmode = \"shadow\""))
        .limit(
            "three",
            &limit("algorithm = \"sliding-log\"\nrate = \"3/h\"\nmode = \"shadow\""),
        );
    let gateway = place.gateway(file).await;
    for expected in [
        json!([]),
        json!(["one"]),
        json!(["one"]),
        json!(["one", "three"]),
    ] {
        let answer = gateway.get("/").await.expect(200);
        assert!(!answer.fields.has("ratelimit") && !answer.fields.has("x-ratelimit-limit"));
        assert_eq!(shadows(&gateway, &answer).await, expected);
    }
}

async fn the_rates_of_a_shadow_are_charged_together(place: Place) {
    let upstream = Upstream::echo().await;
    let rates = limit(
        "rate = [\"2/h\", \"5/d\"]\nmode = \"shadow\"\ncost = { header = \"x-cost\", max = 5 }",
    );
    let file = File::to(&upstream, &["rates"]).limit("rates", &rates);
    let gateway = place.gateway(file).await;
    // A request that the limit by the hour refuses is not counted in the day either.
    for (cost, expected) in [
        ("1", json!([])),
        ("3", json!(["rates"])),
        ("3", json!(["rates"])),
        ("1", json!([])),
    ] {
        let answer = gateway.get_with("/", &[("x-cost", cost)]).await.expect(200);
        assert_eq!(shadows(&gateway, &answer).await, expected, "{cost}");
    }
    said(&gateway, "rates", "would_refuse", "shadow", 2).await;
}

async fn a_shadow_without_its_key_is_no_401(place: Place) {
    let upstream = Upstream::echo().await;
    let lines =
        "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"1/h\"\nmode = \"shadow\"";
    let file = File::to(&upstream, &["per-key"]).limit("per-key", lines);
    let gateway = place.gateway(file).await;
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(shadows(&gateway, &answer).await, json!(["per-key"]));
    said(&gateway, "per-key", "would_refuse", "shadow", 1).await;
    let answer = gateway.get_with("/", &[("x-api-key", "k")]).await;
    assert_eq!(shadows(&gateway, &answer.expect(200)).await, json!([]));
}

async fn a_queue_in_shadow_holds_nobody(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = "algorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 1\nmax_wait = \"2h\"\nmode = \"shadow\"";
    let file = File::to(&upstream, &["smooth"]).limit("smooth", &limit(lines));
    let gateway = place.gateway(file).await;
    for expected in [json!([]), json!([]), json!(["smooth"])] {
        let answer = gateway.get("/").await.expect(200);
        assert!(!answer.fields.has("server-timing"));
        let line = gateway.line_of(&answer).await;
        assert_eq!((&line["shadow"], &line["delay_ms"]), (&expected, &json!(0)));
    }
    for decision in ["would_allow", "would_delay", "would_refuse"] {
        said(&gateway, "smooth", decision, "shadow", 1).await;
    }
}

async fn slots_of_a_shadow_come_back(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = "algorithm = \"concurrency\"\nmax = 1\nmode = \"shadow\"";
    let file = File::to(&upstream, &["flight"]).limit("flight", &limit(lines));
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    eventually(PATIENCE, "the slot has come back", async || {
        let first = client.ask(request("GET", "/", &[])).await.expect(200);
        let before = shadows(&gateway, &first).await == json!([]);
        let second = client.ask(request("GET", "/", &[])).await.expect(200);
        before && shadows(&gateway, &second).await == json!([])
    })
    .await;
}

async fn a_candidate_counts_beside_its_limit(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = limit("rate = \"3/h\"\ncandidate = { rate = \"2/h\" }");
    let file = File::to(&upstream, &["calls"]).limit("calls", &lines);
    let gateway = place.gateway(file).await;
    for (status, expected) in [
        (200, json!([])),
        (200, json!([])),
        (200, json!(["calls:candidate"])),
        (429, json!(["calls:candidate"])),
    ] {
        let answer = gateway.get("/").await.expect(status);
        assert_eq!(answer.field("ratelimit-policy"), "\"calls\";q=3;w=3600");
        assert_eq!(shadows(&gateway, &answer).await, expected);
        assert_eq!(
            gateway.line_of(&answer).await["costs"],
            json!({ "calls": 1 })
        );
    }
    said(&gateway, "calls", "would_refuse", "candidate", 2).await;
}

async fn a_change_of_the_mode_keeps_the_counters(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = limit("rate = \"3/h\"\nmode = \"shadow\"");
    let file = File::to(&upstream, &["calls"]).limit("calls", &lines);
    let gateway = place.gateway(file).await;
    for _ in 0..2 {
        gateway.get("/").await.expect(200);
    }
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace("\"shadow\"", "\"enforce\""));
    let line = gateway
        .said
        .line(0, "the change", |line| line.contains("limits.calls: "))
        .await;
    assert!(
        line.contains("mode shadow to enforce, counters kept"),
        "{line}"
    );
    assert_eq!(gateway.get("/").await.expect(200).remaining("calls"), 0);
    gateway.get("/").await.expect(429);
}

#[tokio::test]
async fn a_shadow_in_trouble_touches_no_answer() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["calls", "tight", "log"])
        .limit(
            "calls",
            &limit("rate = \"9/h\"\ncandidate = { rate = \"8/h\" }"),
        )
        .limit("tight", &limit("rate = \"1/h\"\nmode = \"shadow\""))
        .limit(
            "log",
            &limit("rate = \"1/h\"\nalgorithm = \"sliding-log\"\nmode = \"shadow\""),
        )
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    // These values belong to another program and have other types.
    let _: ::redis::Value = redis
        .command(&["HSET", "tollgate:1:tight:tb:{*}", "f", "v"])
        .await;
    let _: ::redis::Value = redis
        .command(&["SET", "tollgate:1:log:sl3600000000:{*}", "v"])
        .await;
    for left in [8, 7] {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(answer.remaining("calls"), left);
        assert_eq!(shadows(&gateway, &answer).await, json!([]));
    }
    said(&gateway, "tight", "uncounted", "shadow", 2).await;
    said(&gateway, "log", "uncounted", "shadow", 2).await;
    said(&gateway, "calls", "would_allow", "candidate", 2).await;
    gateway
        .said
        .line(0, "a warning", |line| {
            line.contains("shadow of limit tight is not counted")
        })
        .await;
    let keys = redis.keys().await;
    for key in [
        "tollgate:1:calls:tb:{*}",
        "tollgate:1:calls:candidate-tb:{*}",
    ] {
        assert!(keys.iter().any(|one| one == key), "{keys:?}");
    }
    redis.kill().await;
    gateway.get("/").await.expect(503);
}

#[tokio::test]
async fn shadows_alone_need_no_store() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["tight", "own"])
        .limit("tight", &limit("rate = \"1/h\"\nmode = \"shadow\""))
        .limit(
            "own",
            &limit("rate = \"2/h\"\nscope = \"gateway\"\nmode = \"shadow\""),
        )
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    for expected in [json!([]), json!(["tight"])] {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(shadows(&gateway, &answer).await, expected);
    }
    redis.kill().await;
    // The limits that the gateway itself counts go on, and no request is refused because the others are missing.
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(shadows(&gateway, &answer).await, json!(["own"]));
}
