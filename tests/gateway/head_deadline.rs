//! A head has one deadline, counted from its first byte, whatever else its connection does.

use crate::support::{File, Gateway, PATIENCE, Upstream, Wire, get};
use std::time::{Duration, Instant};

/// A small part of the head's deadline.
const A_WHILE: Duration = Duration::from_millis(20);
/// A short deadline for heads, and a long time for idle connections.
const HASTY: &str = "first_byte = \"30s\"\nhead = \"700ms\"\nidle = \"30s\"";

/// Sends a head letter by letter, then a letter now and then, and never ends the head.
async fn drip(client: &mut Wire) {
    for letter in "GET /late HTTP/1.1\r\nHost: a.test\r\nX-Slow: ".chars() {
        client.send([letter as u8]).await;
    }
    for _ in 0..5 {
        tokio::time::sleep(A_WHILE * 5).await;
        // On a busy machine the gateway may have answered already.
        let _ = client.try_send("x").await;
    }
}

#[tokio::test]
async fn a_head_has_one_deadline_from_its_first_byte() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HASTY)).await;
    let (mut first, mut later) = (gateway.connect().await, gateway.connect().await);
    later.ask(get("/early")).await.expect(200);
    for (nth, client) in [&mut first, &mut later].into_iter().enumerate() {
        drip(client).await;
        let answer = client.answer().await.expect(408);
        assert_eq!(answer.field("connection"), "close");
        let line = gateway.access.line(nth + 1, "the line", |_| true).await;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&408.into(), &"client_timeout".into()),
            "{line}"
        );
        assert_eq!(
            (&line["method"], &line["path"]),
            (&"GET".into(), &"/late".into()),
            "{line}"
        );
    }
    assert_eq!(upstream.seen(), 1);
}

/// The deadline does not run between two requests. A head that comes in pieces, but in time, is a request.
#[tokio::test]
async fn a_head_in_pieces_is_served_and_a_rest_between_two_is_no_head() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("head = \"10s\"");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        for piece in ["GE", "T / HTTP/1.1\r\nHo", "st: a.test\r\n"] {
            client.send(piece).await;
            tokio::time::sleep(A_WHILE).await;
        }
        client.ask("\r\n").await.expect(200);
        // Line ends before a head do not belong to it.
        client.send("\r\n").await;
    }
    let hasty = Gateway::start(&File::to(&upstream, &[]).server(HASTY)).await;
    let mut client = hasty.connect().await;
    client.ask(get("/")).await.expect(200);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    client.ask(get("/")).await.expect(200);
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn a_head_of_http2_has_the_same_deadline() {
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    let upstream = Upstream::silent().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HASTY)).await;
    let mut client = gateway.connect().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send(frame(4, 0, 0, &[])).await;
    // The head `GET`, `http`, `/`. One request is never answered, and another has half a head.
    let head = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    client.send(frame(HEADERS, 5, 1, &head)).await;
    upstream.sees(1).await;
    client.send(frame(HEADERS, 1, 3, &head)).await;
    let (mut beat, start) = (tokio::time::interval(A_WHILE * 5), Instant::now());
    while client
        .try_send(frame(CONTINUATION, 0, 3, &[]))
        .await
        .is_ok()
    {
        assert!(
            start.elapsed() < PATIENCE,
            "frames of a head keep the connection for ever"
        );
        beat.tick().await;
    }
    let line = gateway.line_where("reason", "client_timeout").await;
    assert_eq!(line["status"], 408, "{line}");
    assert!(line["method"].is_null() && line["path"].is_null(), "{line}");
}
