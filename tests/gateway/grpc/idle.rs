//! `idle` of a route: its streams and WebSockets may be silent for a longer or shorter time than `idle` of the server
//! allows.

use crate::support::grpc::call;
use crate::support::{Connection, Feed, File, Gateway, GrpcServer, PATIENCE, Upstream, request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Longer than the `idle` of the server, and shorter than the `idle` of the route.
const SILENCE: Duration = Duration::from_millis(2500);

fn file(upstream: &str) -> File {
    File::default()
        .server("idle = \"1s\"")
        .with(&format!("[upstreams.main]\nservers = \"{upstream}\""))
        .route("usual", "/{*rest}", "main", &[])
        .route("patient", "/shop.Orders/{*rest}", "main", &[])
        .with("idle = \"30s\"")
}

#[tokio::test]
async fn a_stream_may_be_silent_for_long() {
    let server = GrpcServer::start().await;
    let gateway = Gateway::start(&file(&server.url())).await;
    let client = gateway.h2().await;
    let (feed, body) = Feed::open();
    let mut answer = client
        .send(call("Echo", &[], body))
        .await
        .unwrap()
        .into_body();
    for text in ["one", "two"] {
        // Both directions are silent, and the connection has no other stream.
        sleep(SILENCE).await;
        let piece = Frame::data(Bytes::from_static(text.as_bytes()));
        feed.send(piece).await.unwrap();
        let frame = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
        assert_eq!(frame.unwrap().into_data().unwrap(), text);
    }
    drop(feed);
    let last = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
    assert_eq!(last.unwrap().trailers_ref().unwrap()["grpc-status"], "0");
    // On another route the `idle` of the server applies.
    let (_feed, body) = Feed::open();
    let silent = http::Request::post("http://gateway.test/other/Silent")
        .header("content-type", "application/grpc")
        .body(body);
    let start = Instant::now();
    let answer = client.send(silent.unwrap()).await.unwrap();
    let end = timeout(PATIENCE, answer.into_body().collect())
        .await
        .unwrap();
    assert!(start.elapsed() < SILENCE);
    assert_eq!(end.unwrap().trailers().unwrap()["grpc-status"], "4");
}

/// An HTTP/2 client that reads nothing for a while: neither its stream nor its connection ends.
#[tokio::test]
async fn a_client_may_take_nothing_for_long() {
    let server = GrpcServer::start().await;
    let gateway = Gateway::start(&file(&server.url())).await;
    let client = crate::support::H2::with_window(gateway.address(), 4).await;
    let (feed, body) = Feed::open();
    let mut answer = client
        .send(call("Echo", &[], body))
        .await
        .unwrap()
        .into_body();
    feed.send(Frame::data(Bytes::from_static(b"0123456789")))
        .await
        .unwrap();
    sleep(SILENCE).await;
    drop(feed);
    let mut taken = 0;
    while let Some(frame) = timeout(PATIENCE, answer.frame()).await.unwrap() {
        taken += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(taken, 10);
}

/// An upstream that switches protocols and then echoes.
async fn echoing() -> Upstream {
    Upstream::playing(async move |mut connection: Connection| {
        connection.request().await.unwrap();
        let switching =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        connection.wire.send(switching).await;
        while let Ok(bytes) = connection.wire.exactly(1).await {
            if connection.wire.try_send(bytes).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_websocket_may_be_silent_for_long() {
    let upstream = echoing().await;
    let gateway = Gateway::start(&file(&upstream.url())).await;
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut client = gateway.connect().await;
    client
        .send(request("GET", "/shop.Orders/chat", &upgrade))
        .await;
    client.head().await;
    sleep(SILENCE).await;
    client.send("x").await;
    assert_eq!(client.exactly(1).await.unwrap(), "x");
    let mut other = gateway.connect().await;
    other.send(request("GET", "/chat", &upgrade)).await;
    other.head().await;
    let ended = timeout(SILENCE, other.ended(PATIENCE)).await;
    assert!(ended.is_ok(), "the server's time holds elsewhere");
}

/// An `idle` of the route that is shorter than the server's.
#[tokio::test]
async fn a_route_may_be_less_patient() {
    let server = GrpcServer::start().await;
    let file = File::default()
        .with(&format!("[upstreams.main]\nservers = \"{}\"", server.url()))
        .route("all", "/{*rest}", "main", &[])
        .with("idle = \"500ms\"");
    let gateway = Gateway::start(&file).await;
    let (_feed, body) = Feed::open();
    let start = Instant::now();
    let answer = gateway
        .h2()
        .await
        .send(call("Silent", &[], body))
        .await
        .unwrap();
    let end = timeout(PATIENCE, answer.into_body().collect())
        .await
        .unwrap();
    assert!(start.elapsed() < PATIENCE / 6);
    assert_eq!(end.unwrap().trailers().unwrap()["grpc-status"], "4");
}
