//! Connections are kept and shared: many requests on few connections, two protocols on one port, and servers in turn.

use crate::support::{Connection, Feed, File, Gateway, Upstream, get, h2, long, process, request};
use http::Request;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

#[tokio::test]
async fn many_requests_share_one_connection_on_either_side() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for _ in 0..30 {
        client.ask(get("/")).await.expect(200);
    }
    client
        .send(request("POST", "/", &[("Content-Length", "4")]))
        .await;
    client.ask("body").await.expect(200);
    assert_eq!((upstream.seen(), upstream.connections()), (31, 1));
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send((0..5).map(|n| get(&format!("/{n}"))).collect::<String>())
        .await;
    for n in 0..5 {
        let echoed = client.answer().await.expect(200).echoed();
        assert_eq!(echoed.line, format!("GET /{n} HTTP/1.1"));
    }
}

#[tokio::test]
async fn a_client_that_wants_to_close_is_closed() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .ask(request("GET", "/", &[("Connection", "close")]))
        .await
        .expect(200);
    assert_ne!(
        client.ended(crate::support::PATIENCE).await,
        crate::support::End::Open
    );
    // The connection to the upstream is not affected.
    gateway.get("/").await.expect(200);
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[tokio::test]
async fn an_upstream_that_wants_to_close_does_not_close_the_client() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            .await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        assert_eq!(client.ask(get("/")).await.expect(200).text(), "ok");
    }
    assert_eq!(upstream.connections(), 3);
}

#[tokio::test]
async fn an_upstream_of_http_1_0_does_not_make_the_client_one() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        let head = connection.request().await.unwrap();
        let length = match head.target() {
            "/length" => "Content-Length: 5\r\n",
            _ => "",
        };
        let answer = format!("HTTP/1.0 200 OK\r\n{length}\r\nhello");
        connection.wire.send(answer).await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for target in ["/length", "/end", "/length"] {
        client.send(get(target)).await;
        let head = client.head().await;
        assert_eq!(head.line, "HTTP/1.1 200 OK");
        assert_eq!(head.chunked(), target == "/end");
        assert_eq!(client.rest_of(head).await.unwrap().text(), "hello");
    }
    client
        .send("GET /end HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
        .await;
    let head = client.head().await;
    assert_eq!(head.line, "HTTP/1.0 200 OK");
    assert_eq!(client.rest_of(head).await.unwrap().text(), "hello");
}

#[tokio::test]
async fn http1_and_http2_are_spoken_on_one_port() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let (http2, mut http1) = (gateway.h2().await, gateway.connect().await);
    for target in ["/1", "/2"] {
        assert_eq!(
            http2.get(target).await.expect(200).echoed().line,
            format!("GET {target} HTTP/1.1")
        );
        assert_eq!(
            http1.ask(get(target)).await.expect(200).echoed().line,
            format!("GET {target} HTTP/1.1")
        );
    }
    let post = Request::post("http://gateway.test/")
        .body(Feed::of("body"))
        .unwrap();
    assert_eq!(http2.ask(post).await.expect(200).echoed().body, "body");
}

#[tokio::test]
async fn streams_of_one_http2_connection_do_not_wait_for_each_other() {
    const MANY: usize = 20;
    let together = Arc::new(Barrier::new(MANY));
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let together = Arc::clone(&together);
        async move {
            while connection.request().await.is_ok() {
                together.wait().await;
                connection
                    .wire
                    .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client = gateway.h2().await;
    let mut asking = JoinSet::new();
    for _ in 0..MANY {
        let client = client.clone();
        asking.spawn(async move { client.ask(h2::get("/")).await.expect(200) });
    }
    assert_eq!(asking.join_all().await.len(), MANY);
    assert_eq!(upstream.connections(), MANY);
}

#[tokio::test]
async fn connections_to_the_upstream_are_reused_across_clients() {
    let upstream = Upstream::echo().await;
    // With one worker it is certain which request reuses which connection.
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    for _ in 0..10 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn two_servers_take_turns() {
    let (one, two) = (Upstream::echo().await, Upstream::echo().await);
    let file =
        File::default()
            .upstream("main", &[&one, &two])
            .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let mut counts = BTreeMap::new();
    for _ in 0..10 {
        let port = client.ask(get("/")).await.expect(200).echoed().port;
        *counts.entry(port).or_insert(0) += 1;
    }
    assert_eq!(
        counts,
        BTreeMap::from([(u64::from(one.port()), 5), (u64::from(two.port()), 5)])
    );
}

#[tokio::test]
async fn an_upstream_may_be_named_by_host_name() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = [\"http://localhost:{}\"]",
            upstream.port()
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn clients_are_spread_over_all_workers() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 4")).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = gateway.connect().await;
        client.ask(get("/")).await.expect(200);
        clients.push(client);
    }
    // Each worker has its own upstream connections, so four busy workers have four connections.
    assert_eq!(upstream.connections(), 4);
}

#[tokio::test]
async fn idle_connections_cost_little() {
    // Both ends of each connection are open files. The long form needs `ulimit -n` above 10,000.
    let many = if long() { 10_000 } else { 800 };
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"10min\"")).await;
    let mut clients = Vec::with_capacity(many);
    let mut before = 0;
    for n in 0..many + 100 {
        // The first hundred requests fill all buffers.
        if n == 100 {
            before = process::resident(gateway.pid());
        }
        let mut client = gateway.connect().await;
        client.ask(get("/")).await.expect(200);
        clients.push(client);
    }
    let each = process::resident(gateway.pid()).saturating_sub(before) / many as u64;
    assert!(
        each <= 15 * 1024,
        "{each} bytes for each of {many} idle connections"
    );
}
