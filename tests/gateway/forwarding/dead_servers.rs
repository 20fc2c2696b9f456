//! Servers that accept no connections: each has one line in the log and its own count, and the log lines of failed
//! requests name it.

use crate::support::{Connection, File, Gateway, PATIENCE, Upstream, eventually, free_port, get};

/// A file with one upstream that has these servers.
fn to(servers: &[String], workers: u8) -> File {
    let servers: Vec<_> = servers.iter().map(|url| format!("\"{url}\"")).collect();
    File::default()
        .with(&format!(
            "[upstreams.main]\nservers = [{}]",
            servers.join(", ")
        ))
        .route("all", "/{*rest}", "main", &[])
        .server(&format!("workers = {workers}"))
}

/// The number of connections that a server did not accept, over all causes.
async fn unreached(gateway: &Gateway, server: &str) -> Option<u64> {
    let metrics = gateway.metrics().await;
    let series = format!(
        "tollgate_upstream_connect_failures_total{{upstream=\"main\",server=\"{server}\"}} "
    );
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.map(|count| count.parse().unwrap())
}

/// The gateway's log lines about a server.
fn said(gateway: &Gateway, server: &str) -> Vec<String> {
    let mut lines = gateway.said.lines();
    lines.retain(|line| line.contains(server) && !line.contains("[no limit]"));
    lines
}

#[tokio::test]
async fn its_first_failure_and_its_return_are_said_once_by_all_workers() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let gateway = Gateway::start(&to(std::slice::from_ref(&url), 2)).await;
    // The workers get connections in turn, so both meet the server.
    for _ in 0..6 {
        gateway.get("/").await.expect(502);
    }
    assert_eq!(
        unreached(&gateway, &url).await,
        Some(12),
        "each is tried twice"
    );
    let upstream = Upstream::echo_on(port).await;
    for _ in 0..6 {
        gateway.get("/").await.expect(200);
    }
    gateway
        .said
        .line(0, "the return", |line| line.contains("again"))
        .await;
    assert_eq!(
        unreached(&gateway, &url).await,
        Some(12),
        "each is tried twice"
    );
    let lines = said(&gateway, &url);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("refused"),
        "{lines:#?}"
    );
    assert!(
        lines[1].contains("INFO") && lines[1].contains("takes connections again"),
        "{lines:#?}"
    );
    drop(upstream);
}

#[tokio::test]
async fn a_bad_gateway_names_the_server_that_was_tried_last() {
    let servers = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let gateway = Gateway::start(&to(&servers, 1)).await;
    let mut client = gateway.connect().await;
    let mut last = Vec::new();
    for _ in 0..2 {
        let answer = client.ask(get("/")).await.expect(502);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "connect_failed", "{line}");
        assert!(line["upstream_ms"].is_null(), "{line}");
        last.push(line["upstream"].as_str().expect("a server").to_owned());
    }
    // The turn moves on, so the server that is tried last changes.
    last.sort();
    let mut both = servers.to_vec();
    both.sort();
    assert_eq!(last, both);
    for server in &servers {
        assert_eq!(unreached(&gateway, server).await, Some(2));
        assert_eq!(said(&gateway, server).len(), 1);
    }
}

#[tokio::test]
async fn a_dead_server_beside_one_that_lives_is_seen_although_nobody_suffers() {
    let upstream = Upstream::echo().await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let gateway = Gateway::start(&to(&[upstream.url(), dead.clone()], 2)).await;
    for _ in 0..8 {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["upstream"], upstream.url());
    }
    eventually(PATIENCE, "the dead one is said", async || {
        said(&gateway, &dead).len() == 1
    })
    .await;
    assert!(unreached(&gateway, &dead).await.unwrap() > 0);
    assert_eq!(unreached(&gateway, &upstream.url()).await, Some(0));
    assert_eq!(said(&gateway, &upstream.url()).len(), 0);
}

#[tokio::test]
async fn one_that_breaks_off_or_answers_too_late_is_named_too() {
    let (silent, breaking) = (
        Upstream::silent().await,
        Upstream::playing(async |mut connection: Connection| {
            let _ = connection.request().await;
        })
        .await,
    );
    for (upstream, status) in [(&silent, 504), (&breaking, 502)] {
        let file = to(&[upstream.url()], 1).with("timeout = \"300ms\"");
        let gateway = Gateway::start(&file).await;
        let answer = gateway.get("/").await.expect(status);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["upstream"], upstream.url(), "{line}");
        assert!(line["upstream_ms"].is_null(), "{line}");
    }
}
