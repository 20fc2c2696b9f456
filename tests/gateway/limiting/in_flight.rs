//! A limit on requests in flight, as clients see it.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, PATIENCE, Upstream, eventually, get};
use std::time::{Duration, Instant};

on_both_stores! {
    a_slot_is_taken_until_the_last_byte_and_then_free
    who_leaves_gives_the_slot_back
    a_slot_is_renewed_for_as_long_as_its_request_lives
    what_is_in_flight_is_told_as_no_rate
}

const ONE: &str = "by = \"ip\"\nalgorithm = \"concurrency\"\nmax = 1\nslot_ttl = \"3s\"";

async fn a_slot_is_taken_until_the_last_byte_and_then_free(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["flight"]).limit("flight", ONE);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for _ in 0..5 {
        // The slot is freed after the answer has been read: no request waits for Redis to free it.
        eventually(PATIENCE, "the slot is free", async || {
            gateway.get("/").await.status == 200
        })
        .await;
    }
    eventually(PATIENCE, "and again", async || {
        client.ask(get("/")).await.status == 200
    })
    .await;
}

async fn who_leaves_gives_the_slot_back(place: Place) {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &["flight"]).limit("flight", ONE);
    let gateway = place.gateway(file).await;
    let mut first = gateway.connect().await;
    let waiting = tokio::spawn(async move { first.ask(get("/")).await });
    upstream.sees(1).await;
    let refused = gateway.get("/").await.expect(429);
    assert_eq!(refused.number("retry-after-ms"), 1000);
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("1 request at a time"), "{detail}");
    waiting.abort();
    // The gateway notices that the client left, and the free slot lets the next request through to the upstream.
    eventually(PATIENCE, "the slot is free", async || {
        let asked = tokio::time::timeout(Duration::from_millis(200), gateway.get("/"));
        // No answer came, so the request was forwarded.
        asked.await.is_err()
    })
    .await;
    upstream.sees(2).await;
}

async fn a_slot_is_renewed_for_as_long_as_its_request_lives(place: Place) {
    let upstream = Upstream::silent().await;
    let short = ONE.replace("3s", "1s");
    let file = File::to(&upstream, &["flight"]).limit("flight", &short);
    let gateway = place.gateway(file).await;
    let mut first = gateway.connect().await;
    let waiting = tokio::spawn(async move { first.ask(get("/")).await });
    upstream.sees(1).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        gateway.get("/").await.expect(429);
    }
    waiting.abort();
}

async fn what_is_in_flight_is_told_as_no_rate(place: Place) {
    let upstream = Upstream::silent().await;
    let limits = |of: &str| format!("[routes.{of}]\npath = \"/{of}\"\nupstream = \"main\"\n");
    let file = File::to(&upstream, &["flight"])
        .limit("flight", ONE)
        .limit("calls", "by = \"everyone\"\nrate = \"9/h\"")
        .with(&format!(
            "{}limits = [\"calls\", \"flight\"]",
            limits("both")
        ));
    let gateway = place.gateway(file).await;
    let mut first = gateway.connect().await;
    let waiting = tokio::spawn(async move { first.ask(get("/")).await });
    upstream.sees(1).await;
    let refused = gateway.get("/").await.expect(429);
    assert_eq!(
        refused.field("ratelimit-policy"),
        "\"flight\";q=1;qu=\"concurrent-requests\""
    );
    assert_eq!(refused.field("ratelimit"), "\"flight\";r=0");
    assert!(!refused.fields.has("x-ratelimit-limit"), "{refused:?}");
    assert!(!refused.fields.has("x-ratelimit-reset"), "{refused:?}");
    // The same holds beside a rate: the older fields are about rates, and no rate refuses here.
    let refused = gateway.get("/both").await.expect(429);
    assert_eq!(
        refused.field("ratelimit-policy"),
        "\"calls\";q=9;w=3600, \"flight\";q=1;qu=\"concurrent-requests\""
    );
    assert_eq!(refused.remaining("flight"), 0);
    assert!(!refused.fields.has("x-ratelimit-limit"), "{refused:?}");
    assert!(!refused.fields.has("x-ratelimit-remaining"), "{refused:?}");
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["flight"])
    );
    waiting.abort();
}
