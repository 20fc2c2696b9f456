//! Servers that take only so many requests at once. The requests are counted over all workers, and the others wait in a
//! queue in the order of arrival.

use super::file;
use crate::support::{
    Connection, File, Gateway, Manner, ModernServer, PATIENCE, Upstream, Wire, eventually, get,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A server that answers a request when the test adds a permit. It counts the requests that it has at once.
struct Gated {
    upstream: Upstream,
    open: Arc<Semaphore>,
    most: Arc<AtomicUsize>,
}

async fn gated() -> Gated {
    let open = Arc::new(Semaphore::new(0));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let upstream = Upstream::playing({
        let (open, most) = (Arc::clone(&open), Arc::clone(&most));
        move |mut connection: Connection| {
            let (open, most, now) = (Arc::clone(&open), Arc::clone(&most), Arc::clone(&now));
            async move {
                while let Ok(head) = connection.request().await {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    open.acquire().await.unwrap().forget();
                    now.fetch_sub(1, Ordering::SeqCst);
                    let nothing = Default::default();
                    if connection
                        .send_echo(&head, &Default::default(), &nothing)
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            }
        }
    })
    .await;
    Gated {
        upstream,
        open,
        most,
    }
}

fn bounded(server: &Gated, bound: &str) -> String {
    format!("{{ url = \"{}\", {bound} }}", server.upstream.url())
}

async fn waiting(gateway: &Gateway, count: u64) {
    eventually(PATIENCE, "so many wait", async || {
        let shown = gateway.admin_get("/v1/upstreams").await.json();
        shown["upstreams"][0]["waiting"] == count
    })
    .await;
}

#[tokio::test]
async fn beyond_the_bound_requests_wait_in_order_and_beyond_the_queue_they_are_refused() {
    let server = gated().await;
    let lines = "queue = { max = 2, wait = \"10s\" }";
    let file = file(&[bounded(&server, "max_requests = 2")], lines)
        .with("")
        .server("workers = 2");
    let text = file
        .text()
        .replace("timeout = \"500ms\"", "timeout = \"20s\"");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let mut wires = Vec::new();
    for number in 0..4 {
        // One client may have half of the queue.
        let client = IpAddr::from([127, 0, 0, 10 + number]);
        let mut wire = Wire::from(client, gateway.address()).await;
        wire.send(get(&format!("/{number}"))).await;
        wires.push(wire);
        let upstream = u64::from(number.min(1)) + 1;
        server
            .upstream
            .sees(usize::try_from(upstream).unwrap())
            .await;
        waiting(&gateway, u64::from(number).saturating_sub(1)).await;
    }
    let refused = gateway.get("/beyond").await.expect(503);
    assert_eq!(refused.field("retry-after"), "1");
    let line = gateway.line_of(&refused).await;
    assert_eq!(
        (&line["reason"], &line["attempts"]),
        (&"server_busy".into(), &0.into()),
        "{line}"
    );
    // A client that leaves frees its place, and the clients behind it move up.
    wires.remove(2).reset();
    waiting(&gateway, 1).await;
    server.open.add_permits(1);
    server.upstream.sees(3).await;
    let third = server.upstream.requests()[2].head.target().to_owned();
    assert_eq!(third, "/3");
    server.open.add_permits(10);
    for wire in &mut wires {
        wire.answer().await.expect(200);
    }
    assert_eq!(server.most.load(Ordering::SeqCst), 2);
    let line = gateway.line_where("path", "/3").await;
    assert!(
        line["queued_ms"]
            .as_f64()
            .is_some_and(|waited| waited > 0.0),
        "{line}"
    );
    assert!(
        gateway
            .metrics()
            .await
            .contains("tollgate_upstream_queue_seconds_count{upstream=\"main\"} 1")
    );
}

/// The attack: one client asks so often that the queue is full of its requests.
#[tokio::test]
async fn one_client_leaves_half_of_the_queue_to_others() {
    let server = gated().await;
    let servers = bounded(&server, "max_requests = 2");
    let file = File::default()
        .server("workers = 2")
        .with(&format!(
            "[upstreams.main]\nservers = {servers}\nqueue = {{ max = 10, wait = \"20s\" }}"
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let [attacker, other] = [7, 8].map(|last| IpAddr::from([127, 0, 0, last]));
    let mut refused = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let address = gateway.address();
        refused.spawn(async move {
            let mut wire = Wire::from(attacker, address).await;
            wire.ask(get("/")).await.status
        });
    }
    for _ in 0..33 {
        assert_eq!(refused.join_next().await.expect("33 of 40").ok(), Some(503));
    }
    waiting(&gateway, 5).await;
    gateway
        .said
        .line(0, "who has how much", |line| {
            line.contains("client 127.0.0.7 has its half of the queue, 5 of 10 places")
        })
        .await;
    let mut wire = Wire::from(other, gateway.address()).await;
    wire.send(get("/")).await;
    waiting(&gateway, 6).await;
    server.open.add_permits(100);
    wire.answer().await.expect(200);
    assert!(refused.join_all().await.iter().all(|status| *status == 200));
    // Requests that were served leave no place taken.
    waiting(&gateway, 0).await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn the_bound_is_exact_over_all_workers() {
    let servers = [gated().await, gated().await];
    let entries = servers
        .each_ref()
        .map(|server| bounded(server, "max_requests = 3"));
    let gateway =
        Gateway::start(&file(&entries, "balance = \"random\"").server("workers = 4")).await;
    let opening = servers.each_ref().map(|server| Arc::clone(&server.open));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut wire = gateway.connect().await;
        clients.spawn(async move {
            for _ in 0..10 {
                wire.ask(get("/")).await.expect(200);
            }
        });
    }
    let turning = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            opening.iter().for_each(|open| open.add_permits(1));
        }
    });
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    turning.abort();
    for server in &servers {
        assert_eq!(server.most.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn without_a_queue_the_answer_is_503_at_once_and_waiting_has_an_end() {
    let server = gated().await;
    let entries = [bounded(&server, "max_requests = 1")];
    for (lines, least) in [
        ("queue = { max = 0 }", 0),
        ("queue = { max = 5, wait = \"100ms\" }", 100),
    ] {
        let gateway = Gateway::start(&file(&entries, lines)).await;
        let seen = server.upstream.seen();
        let mut first = gateway.connect().await;
        first.send(get("/")).await;
        server.upstream.sees(seen + 1).await;
        let began = std::time::Instant::now();
        gateway.get("/").await.expect(503);
        assert!(began.elapsed() >= Duration::from_millis(least));
        server.open.add_permits(1);
        first.answer().await.expect(200);
        server.open.add_permits(1);
        gateway.get("/").await.expect(200);
    }
}

/// Ended streams make room at a server that may have no further connection.
#[tokio::test]
async fn over_http2_a_request_waits_for_a_stream_where_no_connection_may_be_opened() {
    let server = ModernServer::start(Manner {
        streams: Some(2),
        ..Manner::default()
    })
    .await;
    let lines = format!(
        "[upstreams.main]\nservers = {{ url = \"h2c://{}\", max_connections = 1 }}\nconnect_timeout = \"15s\"",
        server.address
    );
    let file =
        File::default()
            .server("workers = 1")
            .with(&lines)
            .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let client = gateway.h2().await;
    let all: Vec<_> = (0..6)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/wait").await.status })
        })
        .collect();
    let waiting = || server.seen.waiting.load(Ordering::SeqCst);
    for _ in 0..3 {
        eventually(PATIENCE, "two are at the server", async || waiting() == 2).await;
        server.seen.gate.add_permits(2);
    }
    for one in all {
        assert_eq!(one.await.unwrap(), 200);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_resting_connection_of_one_worker_gives_way_to_a_request_of_another() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let text = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 0\r\n\r\n";
            if head.target().is_empty() || connection.wire.try_send(text).await.is_err() {
                return;
            }
        }
    })
    .await;
    let entry = format!("{{ url = \"{}\", max_connections = 1 }}", upstream.url());
    let gateway = Gateway::start(&file(&[entry], "").server("workers = 4")).await;
    let mut wires = Vec::new();
    for _ in 0..8 {
        wires.push(gateway.connect().await);
    }
    for _ in 0..3 {
        for wire in &mut wires {
            wire.ask(get("/")).await.expect(200);
        }
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(
        shown["upstreams"][0]["servers"][0]["connections"], 1,
        "{shown}"
    );
}
