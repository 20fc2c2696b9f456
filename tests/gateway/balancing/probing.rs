//! Probes: a server that fails them gets no requests, and gets requests again when it passes them.

use super::{file, metric};
use crate::support::{Connection, Gateway, PATIENCE, Upstream, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// A server that echoes requests, and answers probes with the status in `status`.
async fn probed(status: &Arc<AtomicU16>) -> Upstream {
    let status = Arc::clone(status);
    Upstream::playing(move |mut connection: Connection| {
        let status = Arc::clone(&status);
        async move {
            while let Ok(head) = connection.request().await {
                let sent = if head.target() == "/healthz" {
                    let status = status.load(Ordering::SeqCst);
                    let answer = format!("HTTP/1.1 {status} Probed\r\nContent-Length: 0\r\n\r\n");
                    connection.wire.try_send(answer).await
                } else {
                    let nothing = Default::default();
                    connection
                        .send_echo(&head, &Default::default(), &nothing)
                        .await
                };
                if sent.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

fn asked(server: &Upstream) -> usize {
    let seen = server.requests();
    seen.iter()
        .filter(|seen| seen.head.target() != "/healthz")
        .count()
}

#[tokio::test]
async fn a_server_falls_and_rises_by_its_probes() {
    let status = Arc::new(AtomicU16::new(200));
    let (good, other) = (
        probed(&Arc::new(AtomicU16::new(204))).await,
        probed(&status).await,
    );
    let lines = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"100ms\", fall = 2, rise = 2 }";
    let gateway =
        Gateway::start(&file(&[good.url(), other.url()], lines).server("workers = 1")).await;
    for _ in 0..4 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!((asked(&good), asked(&other)), (2, 2));
    status.store(503, Ordering::SeqCst);
    let line = gateway
        .said
        .line(0, "the fall", |line| line.contains("its probes failed"))
        .await;
    assert!(
        line.contains(&other.url()) && line.contains("status 503"),
        "{line}"
    );
    for _ in 0..6 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(asked(&other), 2);
    let labels = format!("{{upstream=\"main\",server=\"{}\"", other.url());
    eventually(PATIENCE, "the metrics say so", async || {
        let text = gateway.metrics().await;
        text.contains(&format!("tollgate_upstream_server_state{labels}}} 0"))
            && metric(
                &text,
                &format!("tollgate_upstream_probes_total{labels},result=\"bad\"}}"),
            ) >= 2
    })
    .await;
    status.store(200, Ordering::SeqCst);
    gateway
        .said
        .line(0, "the rise", |line| {
            line.contains("2 probes in a row succeeded")
        })
        .await;
    for _ in 0..4 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(asked(&other), 4);
    let probe = other
        .requests()
        .into_iter()
        .find(|seen| seen.head.target() == "/healthz");
    let host = other.url().replace("http://", "");
    assert_eq!(probe.unwrap().head.fields.get("host"), Some(&*host));
    // Probes do not count as requests of clients.
    assert!(
        gateway
            .access
            .lines()
            .iter()
            .all(|line| !line.contains("healthz"))
    );
}

#[tokio::test]
async fn the_first_failure_of_a_new_server_counts_as_all() {
    let status = Arc::new(AtomicU16::new(500));
    let (good, other) = (Upstream::echo().await, probed(&status).await);
    let lines = "health = { path = \"/healthz\", interval = \"30s\", fall = 3 }";
    let gateway = Gateway::start(&file(&[good.url(), other.url()], lines)).await;
    gateway
        .said
        .line(0, "the fall", |line| line.contains("its probes failed"))
        .await;
    for _ in 0..4 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(asked(&other), 0);
}

#[tokio::test]
async fn good_probes_end_an_ejection_early() {
    let status = Arc::new(AtomicU16::new(200));
    let (good, other) = (probed(&status).await, probed(&status).await);
    let lines = "health = { path = \"/healthz\", interval = \"100ms\", rise = 2 }\neject = { after = 1, for = \"1m\" }\nretry = false";
    let gateway =
        Gateway::start(&file(&[good.url(), other.url()], lines).server("workers = 1")).await;
    // A path at which the server is silent: the request times out, and the server is ejected.
    let silent = Upstream::silent().await;
    drop(silent);
    let dead = Upstream::playing(async |connection: Connection| drop(connection)).await;
    drop((gateway, dead));

    let flaky = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            if head.target() != "/healthz" {
                return;
            }
            let _ = connection
                .wire
                .try_send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    let gateway =
        Gateway::start(&file(&[good.url(), flaky.url()], lines).server("workers = 1")).await;
    for _ in 0..2 {
        gateway.get("/").await;
    }
    gateway
        .said
        .line(0, "the ejection", |line| line.contains("gets no requests"))
        .await;
    gateway
        .said
        .line(0, "the return", |line| line.contains("its probes are good"))
        .await;
}
