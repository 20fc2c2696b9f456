//! HTTP/2 connections that take no further request: because of their age, after many resets by the gateway, and because
//! a server wants another certificate.

use super::tls::lines;
use super::{gateway, h2c};
use crate::support::tls::Authority;
use crate::support::{Manner, ModernServer, PATIENCE, eventually, tollgate};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn a_connection_of_age_takes_no_further_stream_and_ends_those_that_it_has() {
    let server = ModernServer::start(Manner::default()).await;
    let lines = format!(
        "servers = \"h2c://{}\"\nmax_age = \"200ms\"",
        server.address
    );
    let gateway = gateway(&lines).await;
    let client = gateway.h2().await;
    let early = {
        let client = client.clone();
        tokio::spawn(async move { client.get("/wait").await.status })
    };
    eventually(PATIENCE, "it waits", async || {
        server.seen.waiting.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(server.connections(), 1);
    sleep(Duration::from_millis(210)).await;
    client.get("/").await.expect(200);
    assert_eq!(server.connections(), 2);
    server.seen.gate.add_permits(1);
    assert_eq!(early.await.unwrap(), 200, "the stream ends as it began");
}

#[tokio::test]
async fn after_a_hundred_resets_another_connection_is_used() {
    let (server, gateway) = h2c(Manner::default()).await;
    let client = gateway.h2().await;
    let early = {
        let client = client.clone();
        tokio::spawn(async move { client.get("/wait").await.status })
    };
    let count = |cell: &std::sync::atomic::AtomicUsize| cell.load(Ordering::SeqCst);
    eventually(PATIENCE, "it waits", async || {
        count(&server.seen.waiting) == 1
    })
    .await;
    for number in 1..=100 {
        let leaving = {
            let client = client.clone();
            tokio::spawn(async move { client.get("/wait").await.status })
        };
        eventually(PATIENCE, "another waits", async || {
            count(&server.seen.waiting) == 2
        })
        .await;
        assert_eq!(server.connections(), 1, "{number}");
        leaving.abort();
        eventually(PATIENCE, "it is reset", async || {
            count(&server.seen.broken) == number
        })
        .await;
    }
    client.get("/").await.expect(200);
    assert_eq!(server.connections(), 2);
    server.seen.gate.add_permits(1);
    assert_eq!(early.await.unwrap(), 200, "the stream ends as it began");
}

/// In TLS 1.3 a server refuses a client without a certificate only when the handshake is over for the client.
#[tokio::test]
async fn a_server_that_wants_our_certificate_is_told_in_words() {
    let ca = Authority::new();
    let pem = std::fs::read_to_string(ca.path("ca.pem")).unwrap();
    for alpn in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let manner = Manner {
            pair: Some(ca.server(&["127.0.0.1"])),
            alpn: alpn.to_vec(),
            clients: Some(pem.clone()),
            ..Manner::default()
        };
        refused(&ca, manner, "does it demand a client's certificate?").await;
    }
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_told_in_words() {
    let ca = Authority::new();
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let manner = Manner {
            pair: Some(ca.server_until(&["127.0.0.1"], 2021)),
            alpn: alpn.to_vec(),
            ..Manner::default()
        };
        refused(&ca, manner, "the certificate has expired").await;
    }
}

/// Checks that requests to a server with this manner fail, and that the log and `check --connect` give the cause in
/// these words.
async fn refused(ca: &Authority, manner: Manner, words: &'static str) {
    let server = ModernServer::start(manner).await;
    let gateway = gateway(&lines(&server, ca, "")).await;
    let answer = gateway.get("/").await.expect(502);
    assert_eq!(gateway.line_of(&answer).await["reason"], "upstream_tls");
    gateway.get("/").await.expect(502);
    let said = gateway.said.line(0, words, |line| line.contains(words));
    said.await;
    let lines = gateway.said.lines();
    let count = lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count, 1, "{lines:?}");
    let checked = tollgate(gateway.folder(), &["check", "--connect"]).await;
    assert_eq!(checked.code, Some(3), "{}", checked.stdout);
    let told = checked.stdout.lines().find(|line| line.contains(words));
    let told = told.unwrap_or_else(|| panic!("{}", checked.stdout));
    assert!(told.contains("NOT REACHABLE"), "{told}");
}
