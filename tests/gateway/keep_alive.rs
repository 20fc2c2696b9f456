//! The time for which a connection is kept for the next request: `keep_alive`. A reload changes it for connections at
//! rest.

use crate::support::{End, File, Gateway, PATIENCE, Upstream, get, tollgate};
use std::time::{Duration, Instant};

/// The time for which an event must not happen.
const A_WHILE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn connections_are_kept_for_a_time_of_their_own() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("keep_alive = \"2s\"\nidle = \"60s\"");
    let gateway = Gateway::start(&file).await;
    let (mut client, since) = (gateway.connect().await, Instant::now());
    client.ask(get("/")).await.expect(200);
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    assert!(since.elapsed() >= Duration::from_secs(2));
    let (client, since) = (gateway.h2().await, Instant::now());
    client.get("/").await.expect(200);
    crate::support::eventually(PATIENCE, "the end of HTTP/2", async || client.closed()).await;
    // Over HTTP/2 the client has a moment to close the connection itself.
    assert!(since.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_short_idle_time_inside_requests_keeps_connections() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("keep_alive = \"60s\"\nidle = \"1s\"");
    let gateway = Gateway::start(&file).await;
    let (mut client, other) = (gateway.connect().await, gateway.h2().await);
    client.ask(get("/")).await.expect(200);
    other.get("/").await.expect(200);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(client.ended(A_WHILE).await, End::Open);
    client.ask(get("/")).await.expect(200);
    assert!(!other.closed());
    other.get("/").await.expect(200);
}

#[tokio::test]
async fn a_reload_takes_it_over_under_connections_that_rest() {
    let upstream = Upstream::echo().await;
    let file = |time: &str| File::to(&upstream, &[]).server(&format!("keep_alive = \"{time}\""));
    let gateway = Gateway::start(&file("1h")).await;
    let (mut client, other) = (gateway.connect().await, gateway.h2().await);
    client.ask(get("/")).await.expect(200);
    other.get("/").await.expect(200);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(client.ended(A_WHILE).await, End::Open);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace("\"1h\"", "\"2s\""));
    let told = |line: &str| line.contains("server.keep_alive") && line.contains("2s");
    gateway.said.line(0, "the change", told).await;
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    crate::support::eventually(PATIENCE, "the end of HTTP/2", async || other.closed()).await;
}

#[tokio::test]
async fn check_tells_what_a_balancer_must_do() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::echo().await;
    for (lines, told) in [
        ("trust = [\"10.0.0.0/8\"]", Some("75s")),
        ("idle = \"20s\"", Some("20s")),
        ("keep_alive = \"75s\"", Some("75s")),
        ("", None),
    ] {
        let text = File::to(&upstream, &[]).server(lines).text();
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let checked = tollgate(folder.path(), &["check", "gateway.toml"]).await;
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        let line = checked
            .stdout
            .lines()
            .find(|line| line.contains("a balancer in front"));
        assert_eq!(line.is_some(), told.is_some(), "{}", checked.stdout);
        assert!(
            line.is_none_or(|line| line.contains(told.unwrap())),
            "{line:?}"
        );
    }
}
