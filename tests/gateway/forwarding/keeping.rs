//! A request that cannot be sent again goes out only on a connection that its server still keeps.

use crate::support::{Connection, File, Gateway, Upstream, request};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const OK: &str = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok";
/// The time that the upstream announces.
const KEPT: Duration = Duration::from_secs(1);

/// An upstream that keeps its connections for the second that it announces, and no longer.
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
                // All around the time at which the server closes.
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
        // Its server has not closed it yet.
        sleep(KEPT * 6 / 10).await;
    }
}
