//! Peers that take their time: nobody may hold a connection by saying nothing, half of it, or by not listening.

use crate::support::{
    Connection, End, File, Gateway, H2, PATIENCE, Upstream, Wire, eventually, get, h2, request,
};
use http_body_util::BodyExt as _;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Short enough to be seen in a test.
const HURRY: &str = "first_byte = \"500ms\"\nidle = \"1s\"";
/// A small part of it.
const A_WHILE: Duration = Duration::from_millis(20);

async fn hurried() -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    (upstream, gateway)
}

/// How long an opened connection lived after `bytes` were sent on it.
async fn life_after(gateway: &Gateway, bytes: &str) -> Duration {
    let start = Instant::now();
    let mut client: Wire = gateway.connect().await;
    client.send(bytes).await;
    assert_ne!(
        client.ended(PATIENCE).await,
        End::Open,
        "{bytes:?} keeps its connection for ever"
    );
    start.elapsed()
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let (_upstream, gateway) = hurried().await;
    let life = life_after(&gateway, "").await;
    assert!(
        life >= Duration::from_millis(400) && life < Duration::from_secs(3),
        "{life:?}"
    );
}

#[tokio::test]
async fn half_an_http2_greeting_is_closed() {
    let (_upstream, gateway) = hurried().await;
    for half in ["P", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let life = life_after(&gateway, half).await;
        assert!(life < Duration::from_secs(3), "{half:?}: {life:?}");
    }
}

#[tokio::test]
async fn half_a_head_is_closed() {
    let (_upstream, gateway) = hurried().await;
    for half in ["G", "GET / HTTP/1.1\r\nHost: a.test\r\n"] {
        let life = life_after(&gateway, half).await;
        assert!(life < Duration::from_secs(4), "{half:?}: {life:?}");
    }
}

#[tokio::test]
async fn a_head_that_trickles_is_closed() {
    let (upstream, gateway) = hurried().await;
    let mut client = gateway.connect().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a.test\r\nX-Slow: ")
        .await;
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    let mut letters = 0;
    while client.try_send("x").await.is_ok() {
        letters += 1;
        assert!(
            letters < 60,
            "a letter each 100 ms keeps the connection for ever"
        );
        beat.tick().await;
    }
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (_upstream, gateway) = hurried().await;
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    let start = Instant::now();
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    let life = start.elapsed();
    assert!(
        life >= Duration::from_millis(800) && life < Duration::from_secs(4),
        "{life:?}"
    );
}

#[tokio::test]
async fn an_http2_connection_that_says_nothing_more_is_closed() {
    let (_upstream, gateway) = hurried().await;
    let client = gateway.h2().await;
    client.get("/").await.expect(200);
    eventually(PATIENCE, "the idle HTTP/2 connection ends", async || {
        client.closed()
    })
    .await;
}

#[tokio::test]
async fn a_silent_http2_connection_lives_one_idle_time() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("idle = \"2s\"");
    let gateway = Gateway::start(&file).await;
    let life = life_after(&gateway, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(
        life >= Duration::from_millis(1900) && life < Duration::from_millis(2700),
        "{life:?}"
    );
}

#[tokio::test]
async fn an_upload_may_go_on_behind_its_answer_as_long_as_it_does() {
    let (telling, told) = tokio::sync::oneshot::channel();
    let telling = std::sync::Mutex::new(Some(telling));
    let upstream = Upstream::playing(move |mut connection| {
        let telling = telling.lock().unwrap().take().expect("one connection");
        async move {
            connection.request().await.unwrap();
            connection
                .wire
                .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
            telling.send(connection.wire.exactly(10).await).unwrap();
            connection.wire.ended(PATIENCE).await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let mut client = gateway.connect().await;
    let length = [("Content-Length", "20")];
    client.send(request("POST", "/", &length)).await;
    client.send("x").await;
    client.answer().await.expect(200);
    // Longer than the idle time in all.
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    for _ in 1..10 {
        beat.tick().await;
        client.send("x").await;
    }
    assert_eq!(told.await.unwrap().unwrap(), "xxxxxxxxxx");
    assert_ne!(client.ended(PATIENCE).await, End::Open);
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_of_it() {
    const LENGTH: usize = 3_000_000;
    const SLOWLY: usize = 10_000;
    let upstream = Upstream::playing(|mut connection| async move {
        connection.request().await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        connection.wire.send(head).await;
        connection.wire.send(vec![b'x'; LENGTH]).await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let mut client = gateway.connect().await;
    client.shrink_receive_buffer(32 * 1024);
    client.send(get("/")).await;
    client.head().await;
    // What the system does not take for the client is in the gateway's hands, longer than the idle time.
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..60 {
        beat.tick().await;
        client.exactly_ignored(SLOWLY).await;
    }
    client.exactly_ignored(LENGTH - 60 * SLOWLY).await;
}

/// The system says that there is room again only when much of a buffer is free that has grown to megabytes.
#[tokio::test]
async fn a_client_that_reads_slowly_is_served_also_through_a_large_send_buffer() {
    const SLOWLY: usize = 50_000;
    let upstream = Upstream::playing(|mut connection| async move {
        connection.request().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
        connection.wire.send(head).await;
        let piece = vec![b'x'; 64 * 1024];
        while connection.wire.try_send(&piece).await.is_ok() {}
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    client.head().await;
    // Grows the buffer.
    client.exactly_ignored(20_000_000).await;
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..60 {
        beat.tick().await;
        client.exactly_ignored(SLOWLY).await;
    }
    // The connection is still whole: what it was cut with would end long before.
    client.exactly_ignored(50_000_000).await;
}

/// An upstream that answers once and without end, and hears when it is let go.
async fn endless() -> (Upstream, oneshot::Receiver<()>) {
    let (telling, told) = oneshot::channel();
    let telling = std::sync::Mutex::new(Some(telling));
    let upstream = Upstream::playing(move |mut connection| {
        let telling = telling.lock().unwrap().take();
        async move {
            connection.request().await.unwrap();
            connection
                .wire
                .send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                .await;
            let piece = vec![b'x'; 64 * 1024];
            while connection.wire.try_send(&piece).await.is_ok() {}
            telling.expect("one connection").send(()).unwrap();
        }
    })
    .await;
    (upstream, told)
}

#[tokio::test]
async fn a_client_that_never_reads_is_not_served_for_ever() {
    let (upstream, told) = endless().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let client = gateway.connect().await;
    client.shrink_receive_buffer(4096);
    let mut client = client;
    client.send(get("/")).await;
    tokio::time::timeout(PATIENCE, told)
        .await
        .expect("the upstream is let go")
        .unwrap();
    let line = gateway.line_where("path", "/").await;
    assert_eq!(line["reason"], "client_stalled");
    let took = line["duration_ms"].as_f64().unwrap();
    assert!((900.0..3500.0).contains(&took), "{took} ms");
}

#[tokio::test]
async fn an_http2_client_that_never_opens_its_window_is_not_served_for_ever() {
    for window in [0, 1_000] {
        let (upstream, told) = endless().await;
        let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
        let client = H2::with_window(gateway.address(), window).await;
        let unread = client.send(h2::get("/")).await.unwrap();
        assert_eq!(unread.status(), 200);
        tokio::time::timeout(PATIENCE, told)
            .await
            .expect("the upstream is let go")
            .unwrap();
        let line = gateway.line_where("path", "/").await;
        assert_eq!(line["reason"], "client_stalled");
        drop(unread);
    }
}

#[tokio::test]
async fn an_http2_client_may_read_slowly() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n")
            .await;
        for _ in 0..30 {
            connection.wire.send("x".repeat(10_000)).await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let client = H2::with_window(gateway.address(), 20_000).await;
    let mut body = client.send(h2::get("/")).await.unwrap().into_body();
    let mut read = 0;
    // Longer than the idle time in all, and never as long for what is handed out at once.
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(A_WHILE).await;
    }
    assert_eq!(read, 300_000);
}
