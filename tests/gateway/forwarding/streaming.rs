//! Bodies are streamed in both directions, over both protocols.

use crate::support::{
    Answer, Connection, Feed, File, Gateway, Upstream, h2, long, process, request,
};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// An upstream that sends a first chunk, and sends the rest when `go` is notified.
async fn two_chunks(go: &Arc<Notify>) -> Upstream {
    let go = Arc::clone(go);
    Upstream::playing(move |mut connection: Connection| {
        let go = Arc::clone(&go);
        async move {
            while connection.request().await.is_ok() {
                connection
                    .wire
                    .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                    .await;
                go.notified().await;
                connection.wire.send("4\r\nlast\r\n0\r\n\r\n").await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_response_arrives_while_it_is_being_made() {
    let go = Arc::new(Notify::new());
    let upstream = two_chunks(&go).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/", &[])).await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.chunk().await.unwrap(), "first");
    go.notify_one();
    assert_eq!(client.chunk().await.unwrap(), "last");
    assert_eq!(client.chunk().await.unwrap(), "");
}

#[tokio::test]
async fn a_response_arrives_while_it_is_being_made_over_http2() {
    let go = Arc::new(Notify::new());
    let upstream = two_chunks(&go).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client = gateway.h2().await;
    let mut body = client.send(h2::get("/")).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");
    go.notify_one();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "last");
}

/// An upstream that reports the first chunk of a request, and then echoes the request.
async fn first_chunk_said(arrived: &Arc<Notify>) -> Upstream {
    let arrived = Arc::clone(arrived);
    Upstream::playing(move |mut connection: Connection| {
        let arrived = Arc::clone(&arrived);
        async move {
            let head = connection.request().await.unwrap();
            assert_eq!(connection.wire.chunk().await.unwrap(), "first");
            arrived.notify_one();
            let (rest, trailers) = connection.wire.chunks().await.unwrap();
            connection.send_echo(&head, &rest, &trailers).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn a_request_arrives_while_it_is_being_made() {
    let arrived = Arc::new(Notify::new());
    let upstream = first_chunk_said(&arrived).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Transfer-Encoding", "chunked")]))
        .await;
    client.send_chunk("first").await;
    arrived.notified().await;
    client.send("4\r\nlast\r\n0\r\n\r\n").await;
    assert_eq!(client.answer().await.expect(200).echoed().body, "last");
}

#[tokio::test]
async fn a_request_arrives_while_it_is_being_made_over_http2() {
    let arrived = Arc::new(Notify::new());
    let upstream = first_chunk_said(&arrived).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client = gateway.h2().await;
    let (feeding, body) = Feed::open();
    feeding
        .send(Frame::data(Bytes::from_static(b"first")))
        .await
        .unwrap();
    let asking = tokio::spawn(async move {
        client
            .ask(Request::post("http://gateway.test/").body(body).unwrap())
            .await
    });
    arrived.notified().await;
    feeding
        .send(Frame::data(Bytes::from_static(b"last")))
        .await
        .unwrap();
    drop(feeding);
    assert_eq!(asking.await.unwrap().expect(200).echoed().body, "last");
}

#[tokio::test]
async fn an_answer_given_before_the_request_is_complete_reaches_the_client() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection.wire.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbig!").await;
        connection.wire.ended(Duration::from_secs(5)).await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "1000000")]))
        .await;
    client.send("a beginning").await;
    let answer: Answer = client.answer().await.expect(413);
    assert_eq!(answer.text(), "big!");
}

/// Sends bodies through in pieces. Returns by how much the gateway's memory grew meanwhile.
async fn growth_while_streaming(total: usize) -> u64 {
    const PIECE: usize = 256 * 1024;
    let upstream = Upstream::playing(move |mut connection: Connection| async move {
        connection.request().await.unwrap();
        connection
            .wire
            .send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"
            ))
            .await;
        let piece = vec![b'x'; PIECE];
        for _ in 0..total / PIECE {
            connection.wire.send(&piece).await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/", &[])).await;
    assert_eq!(client.head().await.length(), Some(total));
    // A first part fills all buffers.
    let warm = 8 * 1024 * 1024;
    client.exactly_ignored(warm).await;
    let before = process::resident(gateway.pid());
    client.exactly_ignored(total - warm).await;
    process::resident(gateway.pid()).saturating_sub(before)
}

#[tokio::test]
async fn memory_stays_flat_while_much_streams_through() {
    let total = if long() { 10 << 30 } else { 128 << 20 };
    let grown = growth_while_streaming(total).await;
    assert!(grown < 8 << 20, "{grown} bytes more while {total} passed");
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_upstream() {
    const PIECE: usize = 64 * 1024;
    const MANY: usize = 2048;
    let sent = Arc::new(Semaphore::new(0));
    let counting = Arc::clone(&sent);
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let sent = Arc::clone(&counting);
        async move {
            connection.request().await.unwrap();
            let length = PIECE * MANY;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            connection.wire.send(head).await;
            let piece = vec![b'x'; PIECE];
            while connection.wire.try_send(&piece).await.is_ok() {
                sent.add_permits(1);
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/", &[])).await;
    client.head().await;
    // The client asked for 128 MiB and reads nothing. Only kernel buffers fill, and the upstream stops sending.
    let mut last = 0;
    while let Ok(piece) = timeout(Duration::from_millis(250), sent.acquire()).await {
        piece.unwrap().forget();
        last += 1;
    }
    assert!(last < MANY / 2, "{last} of {MANY} pieces left the upstream");
    // When the client reads, the upstream goes on.
    client.exactly_ignored(PIECE * (last + 1)).await;
}
