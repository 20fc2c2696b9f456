//! Refunds, as clients see them.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Connection, File, Gateway, PATIENCE, Upstream, eventually, free_port, get};
use std::sync::Arc;
use tokio::sync::Barrier;

on_both_stores! {
    what_a_server_failed_at_is_given_back
    what_a_server_answers_is_paid_for
    an_upstream_that_is_not_there_costs_nothing
    who_leaves_before_anything_was_forwarded_pays_nothing
    who_leaves_afterwards_pays
    an_upstream_that_says_nothing_in_time_costs_nothing
    buckets_give_back_all_of_it_whoever_came_after
}

const BROKEN: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

const CALLS: &str = "by = \"everyone\"\nrate = \"10/h\"\ncost = { header = \"x-cost\", default = 2, max = 2, min = 0 }";

/// A file with a limit that refunds, beside one that does not.
fn two(refund: &str) -> File {
    File::default()
        .limit("calls", &format!("{CALLS}\nrefund = {refund}"))
        .limit("kept", CALLS)
}

fn everywhere(upstream: &Upstream, refund: &str) -> File {
    two(refund)
        .upstream("main", &[upstream])
        .route("all", "/{*rest}", "main", &["calls", "kept"])
}

/// An upstream that answers only requests for `/peek`.
async fn peeked() -> Upstream {
    Upstream::playing(async move |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            if head.target() == "/peek" {
                connection.wire.send(MISSING).await;
            }
        }
    })
    .await
}

/// Waits until `calls` and `kept` have these numbers of units left. The questions cost nothing.
async fn left(gateway: &Gateway, calls: u64, kept: u64) {
    eventually(PATIENCE, "the charge is back", async || {
        let answer = gateway.get_with("/peek", &[("x-cost", "0")]).await;
        (answer.remaining("calls"), answer.remaining("kept")) == (calls, kept)
    })
    .await;
}

async fn what_a_server_failed_at_is_given_back(place: Place) {
    let upstream = Upstream::answering(BROKEN).await;
    let gateway = place.gateway(everywhere(&upstream, "[\"5xx\"]")).await;
    gateway.get("/").await.expect(503);
    left(&gateway, 10, 8).await;
    gateway.get("/").await.expect(503);
    left(&gateway, 10, 6).await;
}

async fn what_a_server_answers_is_paid_for(place: Place) {
    let upstream = Upstream::answering(MISSING).await;
    let gateway = place
        .gateway(everywhere(&upstream, "[\"5xx\", \"cancel\"]"))
        .await;
    gateway.get("/").await.expect(404);
    left(&gateway, 8, 8).await;
    left(&gateway, 8, 8).await;
}

async fn an_upstream_that_is_not_there_costs_nothing(place: Place) {
    let servers = format!(
        "[upstreams.main]\nservers = [\"http://127.0.0.1:{}\"]",
        free_port()
    );
    let file = two("\"5xx\"")
        .with(&servers)
        .route("all", "/{*rest}", "main", &["calls", "kept"]);
    let gateway = place.gateway(file).await;
    gateway.get("/").await.expect(502);
    left(&gateway, 10, 8).await;
}

async fn an_upstream_that_says_nothing_in_time_costs_nothing(place: Place) {
    let upstream = peeked().await;
    let file = everywhere(&upstream, "[\"5xx\"]").with("timeout = \"500ms\"");
    let gateway = place.gateway(file).await;
    gateway.get("/").await.expect(504);
    left(&gateway, 10, 8).await;
}

async fn who_leaves_before_anything_was_forwarded_pays_nothing(place: Place) {
    let upstream = peeked().await;
    let smooth =
        "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/5s\"\nrefund = \"cancel\"";
    let file = two("\"cancel\"")
        .limit("smooth", smooth)
        .upstream("main", &[&upstream])
        .route("peek", "/peek", "main", &["calls", "kept"])
        .route("all", "/{*rest}", "main", &["smooth", "calls", "kept"]);
    let gateway = place.gateway(file).await;
    let mut first = gateway.connect().await;
    first.send(get("/first")).await;
    upstream.sees(1).await;
    let mut second = gateway.connect().await;
    second.send(get("/second")).await;
    gateway.holds(1).await;
    left(&gateway, 6, 6).await;
    drop(second);
    left(&gateway, 8, 6).await;
    let line = gateway.line_where("path", "/second").await;
    assert_eq!(line["reason"], "client_gone");
}

async fn who_leaves_afterwards_pays(place: Place) {
    let upstream = peeked().await;
    let gateway = place
        .gateway(everywhere(&upstream, "[\"5xx\", \"cancel\"]"))
        .await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    upstream.sees(1).await;
    drop(client);
    gateway.line_where("reason", "client_gone").await;
    left(&gateway, 8, 8).await;
    left(&gateway, 8, 8).await;
}

/// A server fails all of two hundred requests. Ten of them are always under way at once.
async fn buckets_give_back_all_of_it_whoever_came_after(place: Place) {
    const TOGETHER: usize = 10;
    let all_here = Arc::new(Barrier::new(TOGETHER));
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let all_here = Arc::clone(&all_here);
        async move {
            while connection.request().await.is_ok() {
                all_here.wait().await;
                connection.wire.send(BROKEN).await;
            }
        }
    })
    .await;
    let numbers = "by = \"everyone\"\nrate = \"50/h\"\nrefund = \"5xx\"";
    let meter = format!("{numbers}\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"\nburst = 50");
    let file = File::default()
        .limit("tokens", numbers)
        .limit("meter", &meter)
        .upstream("main", &[&upstream])
        .route("tokens", "/tokens", "main", &["tokens"])
        .route("meter", "/meter", "main", &["meter"]);
    let gateway = place.gateway(file).await;
    let mut clients = Vec::new();
    for _ in 0..TOGETHER {
        clients.push(gateway.connect().await);
    }
    for path in ["/tokens", "/meter"] {
        for round in 0..20 {
            for client in &mut clients {
                client.send(get(path)).await;
            }
            for client in &mut clients {
                let answer = client.answer().await;
                assert_eq!(answer.status, 503, "round {round} of {path}");
                assert!(
                    answer.fields.get("retry-after").is_none(),
                    "round {round} of {path}"
                );
            }
        }
    }
}
