//! The drain: requests under way are finished, new requests are not taken, and the wait is bounded.

use crate::support::{
    Connection, End, File, Gateway, H2, PATIENCE, Upstream, Wire, eventually, get, h2, request,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// An upstream that answers `/slow` when `go` is notified, and all other requests at once.
async fn answers_when_told(go: &Arc<Notify>) -> Upstream {
    let go = Arc::clone(go);
    Upstream::playing(move |mut connection: Connection| {
        let go = Arc::clone(&go);
        async move {
            while let Ok(head) = connection.request().await {
                if head.target() == "/slow" {
                    go.notified().await;
                }
                if connection
                    .wire
                    .try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    })
    .await
}

async fn assert_takes_no_more(gateway: &Gateway) {
    eventually(PATIENCE, "new connections are refused", async || {
        Wire::try_to(gateway.address()).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn what_was_begun_is_finished_and_nothing_new_is_taken() {
    let go = Arc::new(Notify::new());
    let upstream = answers_when_told(&go).await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    gateway.admin_get("/readyz").await.expect(200);
    let mut client = gateway.connect().await;
    client.send(get("/slow")).await;
    upstream.sees(1).await;
    gateway.signal("TERM");
    assert_takes_no_more(&gateway).await;
    gateway.admin_get("/readyz").await.expect(503);
    gateway.admin_get("/healthz").await.expect(200);
    go.notify_one();
    let answer = client.answer().await.expect(200);
    assert_eq!(answer.text(), "done");
    assert_ne!(
        client.ended(PATIENCE).await,
        End::Open,
        "there is nothing more to ask here"
    );
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_stream_of_http2_is_finished() {
    let go = Arc::new(Notify::new());
    let upstream = answers_when_told(&go).await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    let client = gateway.h2().await;
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.ask(h2::get("/slow")).await })
    };
    upstream.sees(1).await;
    gateway.signal("TERM");
    assert_takes_no_more(&gateway).await;
    go.notify_one();
    assert_eq!(asking.await.unwrap().expect(200).text(), "done");
    eventually(PATIENCE, "the connection ends", async || client.closed()).await;
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_body_on_its_way_arrives_whole() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let go = Arc::clone(&told);
        async move {
            connection.request().await.unwrap();
            connection
                .wire
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                .await;
            go.notified().await;
            connection.wire.send("4\r\nlast\r\n0\r\n\r\n").await;
        }
    })
    .await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    client.head().await;
    assert_eq!(client.chunk().await.unwrap(), "first");
    gateway.signal("TERM");
    assert_takes_no_more(&gateway).await;
    go.notify_one();
    assert_eq!(client.chunk().await.unwrap(), "last");
    assert_eq!(client.chunk().await.unwrap(), "");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn idle_connections_are_closed_and_the_gateway_leaves_at_once() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    let (mut idle, http2, mut silent) = (
        gateway.connect().await,
        gateway.h2().await,
        gateway.connect().await,
    );
    idle.ask(get("/")).await.expect(200);
    http2.get("/").await.expect(200);
    let start = Instant::now();
    gateway.signal("TERM");
    assert_ne!(idle.ended(PATIENCE).await, End::Open);
    assert_ne!(silent.ended(PATIENCE).await, End::Open);
    eventually(PATIENCE, "the HTTP/2 connection ends", async || {
        http2.closed()
    })
    .await;
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn answers_that_nobody_takes_are_not_waited_for_longer_than_the_idle_time() {
    let upstream = Upstream::echo().await;
    let server = "idle = \"2s\"\ndrain = \"30s\"";
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server(server)).await;
    let client = H2::with_window(gateway.address(), 0).await;
    let unread = client.send(h2::get("/")).await.unwrap();
    assert_eq!(unread.status(), 200);
    let start = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    let took = start.elapsed();
    // A client that still has to read its answer is given time.
    assert!(
        took > Duration::from_secs(1) && took < Duration::from_secs(15),
        "{took:?}"
    );
    assert_eq!(
        gateway.line_where("path", "/").await["reason"],
        "client_stalled"
    );
    drop(unread);
}

#[tokio::test]
async fn waiting_has_an_end() {
    let upstream = Upstream::silent().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"1s\"")).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    upstream.sees(1).await;
    let start = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(950) && took < Duration::from_secs(15),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let upstream = Upstream::silent().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"30s\"")).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    upstream.sees(1).await;
    gateway.signal("TERM");
    assert_takes_no_more(&gateway).await;
    let start = Instant::now();
    gateway.signal("TERM");
    gateway.exit(PATIENCE).await;
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn an_interrupt_is_a_stop_too() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[])).await;
    gateway.get("/").await.expect(200);
    gateway.signal("INT");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

fn slowly(upstream: &Upstream, rate: &str, drain: &str) -> File {
    let lines = format!(
        "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"{rate}\"\nmax_wait = \"60s\"\nqueue = 10"
    );
    File::to(upstream, &["smooth"])
        .limit("smooth", &lines)
        .server(&format!("drain = \"{drain}\""))
}

/// Sends a request that a leaky bucket holds, and waits until it is held.
async fn held(gateway: &Gateway) -> Wire {
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    client.send(get("/held")).await;
    gateway.holds(1).await;
    client
}

#[tokio::test]
async fn a_hold_that_can_end_in_time_does() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&slowly(&upstream, "1/s", "20s")).await;
    let mut client = held(&gateway).await;
    gateway.signal("TERM");
    assert!(
        client
            .answer()
            .await
            .expect(200)
            .fields
            .has("server-timing")
    );
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_hold_that_cannot_end_in_time_is_told_to_come_back() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&slowly(&upstream, "1/30s", "2s")).await;
    let mut client = held(&gateway).await;
    gateway.signal("TERM");
    let answer = client.answer().await.expect(503);
    assert!(answer.number("retry-after") >= 1);
    assert_eq!(answer.field("connection"), "close");
    assert_eq!(answer.field("content-type"), "application/problem+json");
    assert_eq!(upstream.seen(), 1);
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    gateway.access.end().await;
    assert!(
        gateway
            .access
            .lines()
            .iter()
            .any(|line| line.contains("\"draining\"")),
        "{}",
        gateway.access.text()
    );
}

#[tokio::test]
async fn every_line_of_the_access_log_is_written_before_the_end() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 2")).await;
    let mut client = gateway.connect().await;
    for _ in 0..200 {
        client.ask(get("/")).await.expect(200);
    }
    gateway.stop().await;
    assert_eq!(gateway.access.lines().len(), 200);
}

#[tokio::test]
async fn what_is_cut_is_told_as_cut() {
    for http2 in [false, true] {
        let upstream = Upstream::silent().await;
        let file = File::to(&upstream, &[]).server("drain = \"300ms\"");
        let mut gateway = Gateway::start(&file).await;
        let mut client = gateway.connect().await;
        if http2 {
            let client = gateway.h2().await;
            tokio::spawn(async move { client.send(h2::get("/slow")).await });
        } else {
            client.send(get("/slow")).await;
        }
        upstream.sees(1).await;
        gateway.stop().await;
        let line = gateway.line_where("path", "/slow").await;
        assert_eq!(line["reason"], "drain_cut", "{line}");
        assert_eq!(line["status"], 503, "{line}");
        let said = gateway.said.text();
        assert!(said.contains("1 connection was cut"), "{said}");
    }
}

#[tokio::test]
async fn a_tunnel_that_is_cut_is_counted() {
    let upstream = Upstream::playing(|mut connection: Connection| async move {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        connection.wire.line().await.unwrap();
        connection.wire.send("and back\r\n").await;
        connection.wire.ended(PATIENCE).await;
    })
    .await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"300ms\"")).await;
    let upgrade = request(
        "GET",
        "/tunnel",
        &[("Connection", "upgrade"), ("Upgrade", "websocket")],
    );
    let (mut one, mut two) = (gateway.connect().await, gateway.connect().await);
    for client in [&mut one, &mut two] {
        client.send(&upgrade).await;
        assert_eq!(client.head().await.status(), 101);
        client.send("there\r\n").await;
        assert_eq!(client.line().await.unwrap(), "and back");
    }
    gateway.stop().await;
    let line = gateway.line_where("path", "/tunnel").await;
    assert_eq!(line["reason"], "drain_cut", "{line}");
    let bytes = (&line["bytes_in"], &line["bytes_out"]);
    assert_eq!(bytes, (&7.into(), &10.into()), "{line}");
    let said = gateway.said.text();
    assert!(said.contains("2 connections were cut"), "{said}");
}

#[tokio::test]
async fn the_first_request_of_a_connection_that_was_just_made_is_answered() {
    let upstream = Upstream::echo().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    let mut fresh = gateway.connect().await;
    gateway.signal("TERM");
    assert_takes_no_more(&gateway).await;
    let answer = fresh.ask(get("/")).await.expect(200);
    assert_eq!(answer.field("connection"), "close");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}
