//! A request that cannot be sent again goes out only on a connection that its server has not closed.

use crate::support::{Connection, File, Gateway, Upstream, request};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const OK: &str = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok";
/// The keep-alive time that the upstream announces.
const KEPT: Duration = Duration::from_secs(1);

/// An upstream that keeps its connections for exactly the second that it announces.
async fn punctual() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(Ok(head)) = timeout(KEPT, connection.request()).await {
            let body = connection.wire.request_body(&head).await;
            if body.is_err() || connection.wire.try_send(OK).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn posts_at_any_moment_meet_no_connection_that_ends_when_it_was_said_to() {
    const CLIENTS: u64 = 60;
    const EACH: u64 = 5;
    let upstream = punctual().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut asking = JoinSet::new();
    for nth in 0..CLIENTS {
        let mut client = gateway.connect().await;
        asking.spawn(async move {
            for turn in 0..EACH {
                let post = request("POST", "/", &[("Content-Length", "4")]) + "body";
                client.ask(post).await.expect(200);
                // The requests come at all times around the moment at which the server closes.
                let phase = (nth * EACH + turn) * 400 / (CLIENTS * EACH);
                sleep(KEPT - Duration::from_millis(200) + Duration::from_millis(phase)).await;
            }
        });
    }
    asking.join_all().await;
    assert_eq!(upstream.seen() as u64, CLIENTS * EACH);
}

#[tokio::test]
async fn a_connection_rests_for_less_than_its_server_announces() {
    let upstream = punctual().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut client = gateway.connect().await;
    for connections in 1..=3 {
        client.ask(request("POST", "/", &[])).await.expect(200);
        assert_eq!(upstream.connections(), connections);
        // The server has not closed the connection yet.
        sleep(KEPT * 6 / 10).await;
    }
}

/// A server that keeps a connection after each answer except an answer to HEAD. After that answer it reads on, and ends
/// the connection when the next request has come, as if the end and the request had crossed.
async fn closing_behind_head() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            if connection.wire.request_body(&head).await.is_err() {
                return;
            }
            let is_head = head.method() == "HEAD";
            let answer = if is_head {
                "HTTP/1.1 200 OK\r\n\r\n"
            } else {
                OK
            };
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
            if is_head {
                let _ = connection.wire.read_some().await;
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_behind_head_without_a_length_is_for_what_can_be_repeated() {
    let upstream = closing_behind_head().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut client = gateway.connect().await;
    for turn in 0..5 {
        client.send(request("HEAD", "/", &[])).await;
        client.answer_to_head().await.expect(200);
        let post = request("POST", "/", &[("Content-Length", "4")]) + "body";
        let answer = client.ask(post).await;
        assert_eq!(answer.status, 200, "turn {turn}");
    }
    client.ask(request("GET", "/", &[])).await.expect(200);
}

/// If such a connection has answered a GET, this shows that its server keeps it.
#[tokio::test]
async fn a_connection_that_answered_again_is_for_all() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let body = connection.wire.request_body(&head).await;
            let answer = if head.method() == "HEAD" {
                "HTTP/1.1 200 OK\r\n\r\n"
            } else {
                OK
            };
            if body.is_err() || connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut client = gateway.connect().await;
    client.send(request("HEAD", "/", &[])).await;
    client.answer_to_head().await.expect(200);
    client.ask(request("GET", "/", &[])).await.expect(200);
    client.ask(request("POST", "/", &[])).await.expect(200);
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn servers_that_answer_without_a_body_keep_their_connections() {
    for answer in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
    ] {
        let upstream = Upstream::answering(answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
        let mut client = gateway.connect().await;
        for method in ["GET", "HEAD", "POST", "GET", "POST"] {
            client.send(request(method, "/", &[])).await;
            client.answer_to_head().await;
        }
        assert_eq!(upstream.connections(), 1, "{answer}");
    }
}
