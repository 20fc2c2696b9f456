//! Slow peers: none may hold a connection by sending nothing, by sending half a message, or by not reading.

use crate::support::{
    Connection, End, File, Gateway, H2, PATIENCE, Upstream, Wire, eventually, get, h2, request,
};
use http_body_util::BodyExt as _;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Deadlines that are short enough for a test.
const HURRY: &str = "first_byte = \"500ms\"\nidle = \"1s\"";
/// For a slow peer that must be served. Even a machine that stands still for a moment does not make the peer slower
/// than this.
const UNHURRIED: &str = "first_byte = \"500ms\"\nidle = \"2s\"";
/// A time below any other deadline that could end the connection, and above the delays of a busy machine.
const NOT_BY_ANOTHER: Duration = Duration::from_secs(9);
/// A small part of the deadline.
const A_WHILE: Duration = Duration::from_millis(20);

async fn hurried() -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    (upstream, gateway)
}

/// The life of a connection after `bytes` were sent on it.
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
        life >= Duration::from_millis(400) && life < NOT_BY_ANOTHER,
        "{life:?}"
    );
}

#[tokio::test]
async fn half_an_http2_greeting_is_closed() {
    let (_upstream, gateway) = hurried().await;
    for half in ["P", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let life = life_after(&gateway, half).await;
        assert!(life < NOT_BY_ANOTHER, "{half:?}: {life:?}");
    }
}

#[tokio::test]
async fn half_a_head_is_closed() {
    let (_upstream, gateway) = hurried().await;
    for half in ["G", "GET / HTTP/1.1\r\nHost: a.test\r\n"] {
        let life = life_after(&gateway, half).await;
        assert!(life < NOT_BY_ANOTHER, "{half:?}: {life:?}");
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
        life >= Duration::from_millis(800) && life < NOT_BY_ANOTHER,
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
    let file = File::to(&upstream, &[]).server("idle = \"3s\"");
    let gateway = Gateway::start(&file).await;
    let life = life_after(&gateway, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    // It must not be two idle times.
    assert!(
        life >= Duration::from_millis(2900) && life < Duration::from_millis(5900),
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
    let file = File::to(&upstream, &[])
        .server(UNHURRIED)
        .server("min_rate = 0");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let length = [("Content-Length", "20")];
    client.send(request("POST", "/", &length)).await;
    client.send("x").await;
    client.answer().await.expect(200);
    // In all, this takes longer than the idle time.
    let mut beat = tokio::time::interval(Duration::from_millis(300));
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
    // The bytes that the system does not take for the client stay in the gateway, longer than the idle time.
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..60 {
        beat.tick().await;
        client.exactly_ignored(SLOWLY).await;
    }
    client.exactly_ignored(LENGTH - 60 * SLOWLY).await;
}

/// The system reports room again only when much of a send buffer is free, and the buffer may have grown to megabytes.
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
    // If the system enlarges a receive buffer, the buffer's window opens in steps of a sixteenth. At this rate the
    // steps, which may be megabytes, are further apart than the idle time.
    client.shrink_receive_buffer(64 * 1024);
    client.send(get("/")).await;
    client.head().await;
    // This makes the send buffer grow.
    client.exactly_ignored(20_000_000).await;
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..60 {
        beat.tick().await;
        client.exactly_ignored(SLOWLY).await;
    }
    // The connection is still whole: if it had been cut, the bytes that were left would end long before.
    client.exactly_ignored(50_000_000).await;
}

/// An upstream with one endless answer, and a receiver that learns when the gateway has closed the connection to it.
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
    assert_eq!(line["ended_by"], "idle");
    let took = line["duration_ms"].as_f64().unwrap();
    assert!((900.0..9000.0).contains(&took), "{took} ms");
    // An orderly end would be behind megabytes that the client does not take.
    assert_eq!(client.ended(PATIENCE).await, End::Reset);
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

/// An upstream whose answers all have this many bytes.
async fn sized(length: usize) -> Upstream {
    Upstream::playing(move |mut connection| async move {
        while connection.request().await.is_ok() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            if connection.wire.try_send(head).await.is_err() {
                return;
            }
            let _ = connection.wire.try_send("x".repeat(length)).await;
        }
    })
    .await
}

async fn connections(gateway: &Gateway) -> String {
    let metrics = gateway.metrics().await;
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("tollgate_connections "));
    line.expect("a sample").to_owned()
}

/// Small answers, also the gateway's own, are given to h2 whole and at once, and are not polled again.
#[tokio::test]
async fn an_http2_client_that_takes_no_answer_holds_no_connection() {
    let upstream = sized(100).await;
    let file = File::to(&upstream, &["once"])
        .limit("once", "by = \"ip\"\nrate = \"1/h\"")
        .server(HURRY);
    let gateway = Gateway::start(&file).await;
    for status in [200, 429] {
        let client = H2::with_window(gateway.address(), 0).await;
        let path = format!("/{status}");
        let unread = client.send(h2::get(&path)).await.unwrap();
        assert_eq!(unread.status(), status);
        let line = gateway.line_where("path", &path).await;
        assert_eq!(line["reason"], "client_stalled");
        let took = line["duration_ms"].as_f64().unwrap();
        assert!((950.0..9000.0).contains(&took), "{took} ms");
        // The client still answers PINGs and waits. Only after that does it learn that its request has failed.
        let mut body = unread.into_body();
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap();
        frame.expect("an error").unwrap_err();
        eventually(PATIENCE, "the connection ends", async || client.closed()).await;
    }
    eventually(PATIENCE, "none is counted", async || {
        connections(&gateway).await == "tollgate_connections 0"
    })
    .await;
}

#[tokio::test]
async fn an_http2_stream_that_is_not_read_fails_beside_one_that_is() {
    let upstream = sized(200_000).await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(HURRY)).await;
    let client = H2::with_window(gateway.address(), 10_000).await;
    let start = Instant::now();
    let mut unread = client.send(h2::get("/unread")).await.unwrap().into_body();
    let reading = {
        let client = client.clone();
        tokio::spawn(async move {
            while start.elapsed() < Duration::from_secs(3) {
                let answer = client.get("/read").await.expect(200);
                assert_eq!(answer.body.len(), 200_000);
                tokio::time::sleep(A_WHILE).await;
            }
        })
    };
    let line = gateway.line_where("path", "/unread").await;
    assert_eq!(line["reason"], "client_stalled");
    let took = line["duration_ms"].as_f64().unwrap();
    assert!((950.0..9000.0).contains(&took), "{took} ms");
    // The client gets as many bytes as the window had room for, and then the reset.
    let mut read = 0;
    let error = loop {
        let frame = tokio::time::timeout(PATIENCE, unread.frame()).await;
        match frame.unwrap().expect("no end") {
            Ok(frame) => read += frame.into_data().unwrap().len(),
            Err(error) => break error,
        }
    };
    assert!(read <= 10_000, "{read} bytes");
    let error = format!("{error:?}");
    assert!(error.contains("Reset"), "{error}");
    reading.await.unwrap();
    assert!(!client.closed(), "the connection lives on");
}

/// An answer that h2 has received to its last byte is not over as long as the client still takes it, a little at a
/// time.
#[tokio::test]
async fn an_http2_client_may_read_the_end_slowly() {
    const LENGTH: usize = 16_000;
    let upstream = sized(LENGTH).await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(UNHURRIED)).await;
    let client = H2::with_window(gateway.address(), 1_000).await;
    let mut body = client.send(h2::get("/")).await.unwrap().into_body();
    let (mut read, start) = (0, Instant::now());
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap() {
        read += frame.unwrap().into_data().unwrap().len();
        // In all, this takes longer than the idle time.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(read, LENGTH);
    assert!(
        start.elapsed() > Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(gateway.line_where("path", "/").await["reason"], "ok");
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
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(UNHURRIED)).await;
    let client = H2::with_window(gateway.address(), 20_000).await;
    let mut body = client.send(h2::get("/")).await.unwrap().into_body();
    let mut read = 0;
    // In all, this takes longer than the idle time, but the bytes that are handed out at once never do.
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(A_WHILE * 5).await;
    }
    assert_eq!(read, 300_000);
}
