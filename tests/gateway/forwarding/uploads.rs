//! Uploads that are answered before they end: they arrive whole, and an upload that is given up holds no connection.

use crate::support::{
    Connection, End, File, Gateway, PATIENCE, Upstream, eventually, process, request,
};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

const EARLY: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
/// The size of an upload, in bytes: a little more than the kernel buffers for a server that does not read.
const LARGE: usize = 4_000_000;

fn head(length: usize) -> String {
    request("POST", "/", &[("Content-Length", &length.to_string())])
}

#[tokio::test]
async fn those_of_unknown_length_arrive_whole_at_a_server_of_http_1_0() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let (body, _) = connection.wire.request_body(&head).await.unwrap();
            let kept = "Connection: keep-alive\r\nContent-Length:";
            let answer = format!("HTTP/1.0 200 OK\r\n{kept} {}\r\n\r\n", body.len());
            connection.wire.send(answer).await;
            connection.wire.send(body).await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        let head = request("POST", "/", &[("Transfer-Encoding", "chunked")]);
        let answer = client.ask(head + "4\r\nbody\r\n0\r\n\r\n").await;
        assert_eq!(answer.expect(200).text(), "body");
    }
    let seen = upstream.requests();
    let lines: Vec<_> = seen.iter().map(|seen| &*seen.head.line).collect();
    assert_eq!(lines, ["POST / HTTP/1.1"; 3]);
}

#[tokio::test]
async fn one_that_is_answered_early_arrives_whole() {
    // The buffers of the systems between the client and a server that does not read are certainly as large.
    const LARGE: usize = 1_000_000;
    let read = Arc::new(Notify::new());
    let reading = Arc::clone(&read);
    let (whole, mut arrived) = mpsc::channel(1);
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let (read, whole) = (Arc::clone(&reading), whole.clone());
        async move {
            connection.request().await.unwrap();
            connection.wire.send(EARLY).await;
            read.notified().await;
            connection.wire.exactly_ignored(LARGE).await;
            whole.send(()).await.unwrap();
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(head(LARGE)).await;
    client.send(vec![b'x'; LARGE]).await;
    client.answer().await.expect(202);
    // The client has its answer, and the gateway holds the bytes that the server has not taken yet.
    drop(client);
    read.notify_one();
    let all = timeout(PATIENCE, arrived.recv()).await;
    assert_eq!(all.expect("the upload was cut off"), Some(()));
}

/// In the middle of its upload the client ends its sending side, and reads on.
#[tokio::test]
async fn half_of_one_is_a_bad_request_to_its_client_and_a_client_gone_in_the_log() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for (path, (name, value), part) in [
        ("/length", ("Content-Length", "10"), "half"),
        ("/chunks", ("Transfer-Encoding", "chunked"), "9\r\nhalf"),
    ] {
        let mut client = gateway.connect().await;
        client
            .send(request("POST", path, &[(name, value)]) + part)
            .await;
        client.finish_sending().await;
        client.answer().await.expect(400);
        assert_ne!(client.ended(PATIENCE).await, End::Open);
        let line = gateway.line_where("path", path).await;
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&499.into(), &"client_gone".into())
        );
    }
}

#[tokio::test]
async fn one_that_its_client_gives_up_is_not_the_servers_failure() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            .await;
        connection.wire.ended(PATIENCE).await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for resets in [false, true] {
        let mut client = gateway.connect().await;
        let path = format!("/{resets}");
        let length = [("Content-Length", "10")];
        client.send(request("POST", &path, &length) + "half").await;
        client.head().await;
        assert_eq!(client.exactly(4).await.unwrap(), "half");
        match resets {
            false => drop(client),
            true => client.reset(),
        }
        let line = gateway.line_where("path", &path).await;
        assert_eq!(line["reason"], "client_gone", "{line}");
    }
    let metrics = gateway.metrics().await;
    let mut failures = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_upstream_failures_total"))
        .peekable();
    assert!(failures.peek().is_some(), "{metrics}");
    assert!(failures.all(|line| line.ends_with(" 0")), "{metrics}");
}

#[tokio::test]
async fn one_that_its_client_gives_up_is_let_go_though_the_server_reads_nothing() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection.wire.send(EARLY).await;
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(head(100 * LARGE)).await;
    client.answer().await.expect(202);
    let piece = vec![b'x'; 64 * 1024];
    // Sends until no more bytes are taken.
    while let Ok(sent) = timeout(PATIENCE / 60, client.try_send(&piece)).await {
        sent.unwrap();
    }
    let during = process::open_files(gateway.pid());
    client.reset();
    // The server takes no bytes.
    eventually(PATIENCE, "both its connections are closed", async || {
        process::open_files(gateway.pid()) <= during - 2
    })
    .await;
}
