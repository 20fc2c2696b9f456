//! Connections at rest: after a second without a request, the gateway frees hyper's part of the connection until bytes
//! come.

use crate::support::{End, File, Gateway, PATIENCE, Upstream, Wire, get};
use std::time::{Duration, Instant};

/// The time after which a connection is at rest.
const REST: Duration = Duration::from_millis(1500);
/// The time for which an event must not happen.
const A_WHILE: Duration = Duration::from_millis(150);

async fn rested(gateway: &Gateway) -> Wire {
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    tokio::time::sleep(REST).await;
    client
}

#[tokio::test]
async fn a_connection_goes_on_after_each_rest() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let post = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n";
    let mut client = rested(&gateway).await;
    // An empty line after a body belongs to no message: the gateway leaves it unread, or drops it.
    client.ask(format!("{post}first\r\n")).await.expect(200);
    tokio::time::sleep(REST).await;
    for piece in ["\r\n", "PO", &post[2..], "sec"] {
        client.send(piece).await;
        tokio::time::sleep(A_WHILE / 5).await;
    }
    assert!(client.ask("nd").await.expect(200).text().contains("secnd"));
    tokio::time::sleep(REST).await;
    client.send(format!("{}{post}third", get("/"))).await;
    client.answer().await.expect(200);
    assert!(client.answer().await.expect(200).text().contains("third"));
    assert_eq!(client.ended(A_WHILE).await, End::Open);
}

/// The gateway still follows the framing after a rest: it finds a fault in the right head.
#[tokio::test]
async fn a_fault_in_a_head_after_a_rest_is_found() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let both = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    rested(&gateway).await.ask(both).await.expect(400);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_head_after_a_rest_has_its_deadline() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("head = \"700ms\"");
    let gateway = Gateway::start(&file).await;
    let mut client = rested(&gateway).await;
    client.send("GET / HT").await;
    client.answer().await.expect(408);
}

#[tokio::test]
async fn a_connection_at_rest_ends_with_its_idle_time() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"3s\"")).await;
    let since = Instant::now();
    let mut client = rested(&gateway).await;
    assert_eq!(client.ended(A_WHILE).await, End::Open);
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    assert!(since.elapsed() >= Duration::from_secs(3));
}

#[tokio::test]
async fn a_connection_at_rest_gives_way_and_drains() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("max_connections = 2\ndrain = \"20s\"");
    let gateway = Gateway::start(&file).await;
    let mut first = rested(&gateway).await;
    let mut second = rested(&gateway).await;
    let mut third = rested(&gateway).await;
    assert_ne!(
        first.ended(PATIENCE).await,
        End::Open,
        "it was idle longest"
    );
    assert_eq!(second.ended(A_WHILE).await, End::Open);
    gateway.signal("TERM");
    assert_ne!(second.ended(PATIENCE).await, End::Open);
    assert_ne!(third.ended(PATIENCE).await, End::Open);
}

/// The two ways in which a client may leave.
#[tokio::test]
async fn a_client_that_leaves_ends_its_connection_at_rest() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let (stays, leaves) = (rested(&gateway).await, rested(&gateway).await);
    drop(leaves);
    crate::support::eventually(PATIENCE, "the one that left is gone", async || {
        let metrics = gateway.metrics().await;
        metrics.lines().any(|line| line == "tollgate_connections 1")
    })
    .await;
    drop(stays);
}
