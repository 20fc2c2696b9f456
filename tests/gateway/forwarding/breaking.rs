//! Answers that break off, and answers that are not HTTP: the client, the metrics and the log show the fault.

use crate::support::{Connection, End, File, Gateway, PATIENCE, Upstream, get};
use std::sync::Arc;
use tokio::sync::Notify;

/// An upstream that answers every request with these bytes and closes the connection at the same moment.
async fn leaving_with(bytes: &'static str) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        if connection.request().await.is_ok() {
            connection.wire.send_and_leave(bytes).await;
        }
    })
    .await
}

/// Checks the record of the one request: the cause in the log, and the failure in the metrics.
async fn assert_told(gateway: &Gateway, status: u16, reason: &str, failure: &str) {
    let line = gateway.line_where("path", "/").await;
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&status.into(), &reason.into())
    );
    let metrics = gateway.metrics().await;
    let failures: Vec<_> = metrics
        .lines()
        .filter(|line| {
            line.starts_with("tollgate_upstream_failures_total") && !line.ends_with(" 0")
        })
        .collect();
    let wanted =
        format!("tollgate_upstream_failures_total{{upstream=\"main\",reason=\"{failure}\"}} 1");
    assert_eq!(failures, [wanted], "{metrics}");
}

#[tokio::test]
async fn a_body_that_breaks_before_anything_of_it_came_is_a_bad_gateway() {
    for (answer, reason, failure) in [
        ("Content-Length: 10\r\n\r\n", "upstream_reset", "reset"),
        (
            "Transfer-Encoding: chunked\r\n\r\n",
            "upstream_reset",
            "reset",
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "upstream_invalid",
            "protocol",
        ),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{answer}").leak();
        let upstream = leaving_with(answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let told = gateway.get("/").await.expect(502);
        assert_eq!(told.field("content-type"), "application/problem+json");
        assert_told(&gateway, 502, reason, failure).await;
    }
}

#[tokio::test]
async fn what_came_before_a_body_broke_reaches_the_client() {
    for (answer, reason, failure) in [
        ("Content-Length: 10\r\n\r\nhello", "upstream_reset", "reset"),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "upstream_reset",
            "reset",
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
            "upstream_invalid",
            "protocol",
        ),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{answer}").leak();
        let upstream = leaving_with(answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let mut client = gateway.connect().await;
        client.send(get("/")).await;
        let head = client.head().await;
        assert_eq!(head.status(), 200);
        let came = match head.chunked() {
            true => client.chunk().await.unwrap(),
            false => client.exactly(5).await.unwrap(),
        };
        assert_eq!(came, "hello");
        client
            .line()
            .await
            .expect_err("no end of the body is made up");
        assert_ne!(client.ended(PATIENCE).await, End::Open);
        assert_told(&gateway, 200, reason, failure).await;
    }
}

/// An upstream that sends `head` and `hello`. It resets the connection after the notice that `hello` has arrived.
async fn resetting_after(head: &'static str, came: &Arc<Notify>) -> Upstream {
    let came = Arc::clone(came);
    Upstream::playing(move |mut connection: Connection| {
        let came = Arc::clone(&came);
        async move {
            connection.request().await.unwrap();
            connection.wire.send(format!("{head}\r\nhello")).await;
            came.notified().await;
            connection.wire.reset();
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_of_http_1_0_that_was_reset_is_not_whole() {
    let came = Arc::<Notify>::default();
    let upstream = resetting_after("HTTP/1.0 200 OK\r\n", &came).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    let head = client.head().await;
    assert_eq!(head.line, "HTTP/1.1 200 OK");
    assert_eq!(client.chunk().await.unwrap(), "hello");
    came.notify_one();
    let next = client.line().await;
    next.expect_err("no end of the body is made up");
    assert_told(&gateway, 200, "upstream_reset", "reset").await;
}

#[tokio::test]
async fn a_client_of_http_1_0_is_told_by_a_reset() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
    ] {
        let came = Arc::<Notify>::default();
        let upstream = resetting_after(head, &came).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let mut client = gateway.connect().await;
        client
            .send("GET / HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
            .await;
        assert_eq!(client.head().await.line, "HTTP/1.0 200 OK");
        assert_eq!(client.exactly(5).await.unwrap(), "hello", "{head}");
        came.notify_one();
        assert_eq!(client.ended(PATIENCE).await, End::Reset, "{head}");
        assert_told(&gateway, 200, "upstream_reset", "reset").await;
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_is_told_of_a_cut_at_the_end_of_draining() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"300ms\"")).await;
    let mut client = gateway.connect().await;
    client
        .send("GET / HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
        .await;
    client.head().await;
    assert_eq!(client.exactly(5).await.unwrap(), "hello");
    gateway.stop().await;
    assert_eq!(client.ended(PATIENCE).await, End::Reset);
    let line = gateway.line_where("path", "/").await;
    assert_eq!(line["reason"], "drain_cut", "{line}");
}

#[tokio::test]
async fn a_body_that_stops_counts_against_its_upstream() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"300ms\"")).await;
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    assert_told(&gateway, 200, "upstream_timeout", "timeout").await;
}

#[tokio::test]
async fn a_whole_body_that_came_with_its_end_is_passed_on() {
    for answer in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{answer}").leak();
        let upstream = leaving_with(answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        assert_eq!(gateway.get("/").await.expect(200).text(), "hello");
        let answer = gateway.h2().await.get("/").await.expect(200);
        assert_eq!(answer.text(), "hello");
    }
}

#[tokio::test]
async fn a_transfer_coding_that_nobody_asked_for_is_a_bad_gateway() {
    for coding in ["gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked"] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let upstream = leaving_with(answer.leak()).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        gateway.get("/").await.expect(502);
        assert_told(&gateway, 502, "upstream_invalid", "protocol").await;
    }
}
