//! Every connection with TLS ends with a notice, so that a client can tell an orderly end from a connection that was
//! cut.

use super::{asked, gateway, gateway_with};
use crate::support::tls::Authority;
use crate::support::{Connection, End, PATIENCE, Upstream};

#[tokio::test]
async fn orderly_ends_are_announced() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [ca.identity("api", &["api.test"])];
    let server = "idle = \"700ms\"\nhead = \"300ms\"\nfirst_byte = \"400ms\"";
    let gateway = gateway_with(&upstream, server, &identities).await;
    let tls = gateway.tls().await;
    let client = ca.trusting();
    // The client asks for the end of the connection.
    let mut wire = client.wire(tls, "api.test").await;
    let last = "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";
    wire.ask(last).await.expect(200);
    assert_eq!(wire.ended(PATIENCE).await, End::Closed);
    // The client sends nothing, or no further request.
    let mut silent = client.wire(tls, "api.test").await;
    let mut idle = client.wire(tls, "api.test").await;
    idle.ask(asked("api.test")).await.expect(200);
    assert_eq!(silent.ended(PATIENCE).await, End::Closed);
    assert_eq!(idle.ended(PATIENCE).await, End::Closed);
    // The head of a request is late, or never comes.
    let mut late = client.wire(tls, "api.test").await;
    late.send("GET / HT").await;
    late.answer().await.expect(408);
    assert_eq!(late.ended(PATIENCE).await, End::Closed);
    let mut broken = client.wire(tls, "api.test").await;
    broken.ask("\u{1}\r\n\r\n").await.expect(400);
    assert_eq!(broken.ended(PATIENCE).await, End::Closed);
}

#[tokio::test]
async fn a_drain_is_announced() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let mut gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    let mut idle = ca.trusting().wire(tls, "api.test").await;
    idle.ask(asked("api.test")).await.expect(200);
    gateway.signal("TERM");
    assert_eq!(idle.ended(PATIENCE).await, End::Closed);
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_big_answer_arrives_whole_however_slowly_it_is_taken() {
    const SIZE: usize = 2 << 20;
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
        connection.wire.send(head).await;
        connection.wire.send(vec![b'x'; SIZE]).await;
        connection.wire.ended(PATIENCE).await;
    })
    .await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let mut wire = ca.trusting().wire(gateway.tls().await, "api.test").await;
    wire.shrink_receive_buffer(64 * 1024);
    wire.send(asked("api.test")).await;
    wire.head().await;
    // Meanwhile the gateway's buffers are full.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    wire.exactly_ignored(SIZE).await;
    wire.send(asked("api.test")).await;
}

/// An answer of HTTP/1.0 ends with its connection. If the answer is cut, the connection must not end in order.
#[tokio::test]
async fn an_answer_that_is_cut_shows_it() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
            .await;
    })
    .await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let mut wire = ca.trusting().wire(gateway.tls().await, "api.test").await;
    wire.send("GET / HTTP/1.0\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(wire.ended(PATIENCE).await, End::Reset);
}

/// The gateway notices a client that leaves in the middle of a request, and gives its request up.
#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let upstream = Upstream::silent().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    for nth in 1..=2 {
        let mut wire = ca.trusting().wire(tls, "api.test").await;
        wire.send(asked("api.test")).await;
        upstream.sees(nth).await;
        // One client leaves with a notice, and one without.
        if nth == 1 {
            wire.finish_sending().await;
        }
        drop(wire);
        upstream.closes(nth).await;
    }
}
