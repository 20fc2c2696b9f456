//! Servers and limits: a request gets one decision, whatever the servers do, and refunds depend on the final answer.

use super::{answering, breaking, file};
use crate::support::{Connection, File, Gateway, PATIENCE, Upstream, eventually, free_port, get};
use std::time::Duration;

fn limited(file: File, limit: &str) -> File {
    let text = file.limit("calls", limit);
    text.with("[routes.peek]\npath = \"/limited/{*rest}\"\nupstream = \"main\"\nlimits = [\"calls\"]\ntimeout = \"500ms\"")
}

#[tokio::test]
async fn a_request_is_charged_once_however_often_it_is_sent() {
    let (good, bad) = (Upstream::echo().await, breaking().await);
    let dead = format!("http://127.0.0.1:{}", free_port());
    let file = file(&[dead, bad.url(), good.url()], "eject = false");
    let limit = "by = \"everyone\"\nrate = \"100/h\"";
    let gateway = Gateway::start(&limited(file, limit)).await;
    for asked in 1..=6 {
        let answer = gateway.get("/limited/x").await.expect(200);
        assert_eq!(answer.remaining("calls"), 100 - asked);
    }
}

#[tokio::test]
async fn probes_charge_nothing() {
    let upstream = Upstream::echo().await;
    let lines = "health = { path = \"/limited/healthz\", interval = \"50ms\", timeout = \"50ms\" }";
    let limit = "by = \"everyone\"\nrate = \"100/h\"";
    let gateway = Gateway::start(&limited(file(&[upstream.url()], lines), limit)).await;
    upstream.sees(5).await;
    let answer = gateway.get("/limited/x").await.expect(200);
    assert_eq!(answer.remaining("calls"), 99);
}

#[tokio::test]
async fn refunds_look_at_the_final_answer() {
    let (good, bad) = (Upstream::echo().await, answering(503).await);
    let limit = "by = \"everyone\"\nrate = \"100/h\"\nrefund = \"5xx\"";
    let lines = "eject = false\nretry = { on = [\"connect\", \"503\"] }";
    let urls = [bad.url(), good.url()];
    let gateway = Gateway::start(&limited(file(&urls, lines), limit)).await;
    for asked in 1..=4 {
        let answer = gateway.get("/limited/x").await.expect(200);
        assert_eq!(
            answer.remaining("calls"),
            100 - asked,
            "the second answer is good"
        );
    }
    // The gateway's own answers, given where no server is available, count as server errors too.
    let dead = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let lines = "none_left = \"503\"\nhealth = { connect = true, interval = \"30s\" }";
    let gateway = Gateway::start(&limited(file(&dead, lines), limit)).await;
    gateway
        .said
        .line(0, "none is left", |line| line.contains("requests get 503"))
        .await;
    for _ in 0..3 {
        let answer = gateway.get("/limited/x").await.expect(503);
        assert_eq!(answer.remaining("calls"), 99, "given back each time");
    }
}

/// A server that keeps requests waiting until their clients leave.
#[tokio::test]
async fn a_slot_spans_attempts_and_the_queue_and_is_free_at_the_end() {
    let hanging = Upstream::silent().await;
    let entry = format!("{{ url = \"{}\", max_requests = 1 }}", hanging.url());
    let limit = "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 2";
    let lines = "queue = { max = 5, wait = \"400ms\" }\nretry = false";
    let gateway = Gateway::start(&limited(file(&[entry], lines), limit)).await;
    let mut first = gateway.connect().await;
    first.send(get("/limited/1")).await;
    hanging.sees(1).await;
    let mut second = gateway.connect().await;
    second.send(get("/limited/2")).await;
    eventually(PATIENCE, "the second waits", async || {
        gateway.admin_get("/v1/upstreams").await.json()["upstreams"][0]["waiting"] == 1
    })
    .await;
    // Both requests have a slot: the one at the server, and the one in the queue.
    gateway.get("/limited/3").await.expect(429);
    second.answer().await.expect(503);
    first.answer().await.expect(504);
    eventually(PATIENCE, "the slots are free", async || {
        let mut wire = gateway.connect().await;
        wire.send(get("/limited/4")).await;
        wire.answer().await.status == 504
    })
    .await;
}

/// The request of a client that leaves the queue was not forwarded.
#[tokio::test]
async fn who_leaves_the_queue_pays_nothing() {
    let server = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            if head.target() == "/limited/hold" {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let nothing = Default::default();
            if connection
                .send_echo(&head, &Default::default(), &nothing)
                .await
                .is_err()
            {
                return;
            }
        }
    })
    .await;
    let entry = format!("{{ url = \"{}\", max_requests = 1 }}", server.url());
    let limit = "by = \"everyone\"\nrate = \"100/h\"\nrefund = \"cancel\"";
    let gateway = Gateway::start(&limited(file(&[entry], ""), limit)).await;
    let mut first = gateway.connect().await;
    first.send(get("/limited/hold")).await;
    server.sees(1).await;
    let mut leaving = gateway.connect().await;
    leaving.send(get("/limited/leave")).await;
    eventually(PATIENCE, "it waits", async || {
        gateway.admin_get("/v1/upstreams").await.json()["upstreams"][0]["waiting"] == 1
    })
    .await;
    leaving.reset();
    first.answer().await.expect(200);
    eventually(PATIENCE, "its charge is back", async || {
        let answer = gateway.get("/limited/x").await.expect(200);
        let asked = server.seen() as u64;
        answer.remaining("calls") == 100 - asked
    })
    .await;
}
