//! `drain_delay`: after the signal to stop, new connections are accepted for a while, and clients are asked to leave.

use super::{WebSocket, upstream};
use crate::support::h2_frames::{DATA, GOAWAY, HEAD, HEADERS, frame, greeted, read_frame};
use crate::support::{Connection, End, File, Gateway, PATIENCE, Upstream, Wire, eventually, get};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[tokio::test]
async fn connections_are_accepted_for_a_while_and_clients_are_asked_to_leave() {
    let upstream = upstream().await;
    let server = "drain_delay = \"2s\"\ndrain = \"300ms\"";
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server(server)).await;
    let mut kept = gateway.connect().await;
    let answer = kept.ask(get("/")).await.expect(200);
    assert!(!answer.fields.has("connection"));
    let http2 = gateway.h2().await;
    http2.get("/").await.expect(200);
    let start = Instant::now();
    gateway.signal("TERM");
    eventually(PATIENCE, "the gateway leaves", async || {
        gateway.admin_get("/readyz").await.status == 503
    })
    .await;
    eventually(PATIENCE, "GOAWAY", async || http2.closed()).await;
    let answer = kept.ask(get("/")).await.expect(200);
    assert_eq!(answer.field("connection"), "close");
    assert_ne!(kept.ended(PATIENCE).await, End::Open);
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(answer.field("connection"), "close");
    // A new HTTP/2 connection can still carry several requests, and an upgrade still works.
    let late = gateway.h2().await;
    for _ in 0..3 {
        late.get("/").await.expect(200);
    }
    let mut tunnel = WebSocket::open(&gateway).await;
    tunnel.lives().await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "the machine is too slow"
    );
    eventually(PATIENCE, "new connections are refused", async || {
        Wire::try_to(gateway.address()).await.is_err()
    })
    .await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_delay() {
    let upstream = upstream().await;
    let file = File::to(&upstream, &[]).server("drain_delay = \"1min\"");
    let mut gateway = Gateway::start(&file).await;
    gateway.signal("TERM");
    let leaves = |line: &str| line.contains("connections are still accepted for 60s");
    gateway.said.line(0, "the delay", leaves).await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

/// Java's client drops the answer that it waits for when it reads GOAWAY (JDK-8335181). So GOAWAY comes after the
/// answer.
#[tokio::test]
async fn over_http2_clients_are_asked_to_leave_behind_an_answer() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let go = Arc::clone(&told);
        async move {
            while connection.request().await.is_ok() {
                go.notified().await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                connection.wire.send(answer).await;
            }
        }
    })
    .await;
    let file = File::to(&upstream, &[]).server("drain_delay = \"10min\"");
    let gateway = Gateway::start(&file).await;
    let mut client = greeted(&gateway).await;
    client.send(frame(HEADERS, 5, 1, &HEAD)).await;
    upstream.sees(1).await;
    gateway.signal("TERM");
    eventually(PATIENCE, "the gateway leaves", async || {
        gateway.admin_get("/readyz").await.status == 503
    })
    .await;
    // A further request is answered too.
    client.send(frame(HEADERS, 5, 3, &HEAD)).await;
    upstream.sees(2).await;
    go.notify_one();
    let mut answered = 0;
    loop {
        let (kind, flags, _) = read_frame(&mut client).await.unwrap();
        match kind {
            // This frame ends the stream.
            DATA if flags & 1 == 1 => {
                answered += 1;
                go.notify_one();
            }
            GOAWAY => break,
            _ => {}
        }
    }
    assert_eq!(answered, 2, "the answers that came before GOAWAY");
}
