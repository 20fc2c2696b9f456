//! A full gateway: the connections that are closed for new ones, and the share of one client.

use crate::support::{
    End, File, Gateway, H2, PATIENCE, Upstream, Wire, eventually, get, h2, request,
};
use std::net::{IpAddr, Ipv4Addr};

/// The time for which an event must not happen.
const A_WHILE: std::time::Duration = std::time::Duration::from_millis(150);

async fn housing(server: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(server)).await;
    (upstream, gateway)
}

/// One of this machine's addresses.
fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 7, last))
}

/// Opens a connection from this address.
async fn from(gateway: &Gateway, last: u8) -> Wire {
    Wire::from(address(last), gateway.address()).await
}

/// Waits until the metrics contain this line.
async fn counted(gateway: &Gateway, line: &str) {
    eventually(PATIENCE, line, async || {
        gateway.metrics().await.lines().any(|found| found == line)
    })
    .await;
}

/// Waits until this number of connections is accepted and registered.
async fn accepted(gateway: &Gateway, count: usize) {
    counted(
        gateway,
        &format!("tollgate_connections_accepted_total {count}"),
    )
    .await;
    tokio::time::sleep(A_WHILE).await;
}

/// Checks that the connection is still open a while later.
async fn assert_open(wire: &mut Wire, who: &str) {
    assert_eq!(wire.ended(A_WHILE).await, End::Open, "{who} was closed");
}

async fn assert_closed(wire: &mut Wire, who: &str) {
    assert_ne!(wire.ended(PATIENCE).await, End::Open, "{who} is open");
}

#[tokio::test]
async fn room_is_made_by_the_longest_idle_then_the_silent_then_half_heads_and_never_by_a_request() {
    for workers in [1, 2] {
        let upstream = Upstream::silent().await;
        let lines =
            format!("workers = {workers}\nmax_connections = 5\nmax_connections_per_client = 5");
        let file = File::to(&upstream, &[])
            .server(&lines)
            .with("[routes.own]\npath = \"/own\"\nrespond = { status = 200, body = \"here\" }");
        let gateway = Gateway::start(&file).await;
        let mut half = from(&gateway, 1).await;
        half.send("GET / HTTP/1.1\r\nHo").await;
        let mut silent = from(&gateway, 2).await;
        let mut busy = from(&gateway, 3).await;
        busy.send(get("/")).await;
        upstream.sees(1).await;
        let mut late = from(&gateway, 4).await;
        let mut early = from(&gateway, 5).await;
        early.ask(get("/own")).await.expect(200);
        late.ask(get("/own")).await.expect(200);
        accepted(&gateway, 5).await;

        let mut guests = Vec::new();
        for (who, wire, kind) in [
            ("the longest idle", &mut early, "idle\"} 1"),
            ("the other idle one", &mut late, "idle\"} 2"),
            ("the silent one", &mut silent, "silent\"} 1"),
            ("half a head", &mut half, "half_head\"} 1"),
        ] {
            assert_open(wire, who).await;
            let mut new = from(&gateway, 10).await;
            new.send(get("/")).await;
            upstream.sees(2 + guests.len()).await;
            guests.push(new);
            assert_closed(wire, who).await;
            counted(
                &gateway,
                &format!("tollgate_connections_gave_way_total{{kind=\"{kind}"),
            )
            .await;
        }
        // Five requests are under way, so no connection is closed for a new one.
        let mut none = from(&gateway, 11).await;
        assert_closed(&mut none, "one too many").await;
        counted(
            &gateway,
            "tollgate_connections_turned_away_total{reason=\"full\"} 1",
        )
        .await;
        assert_open(&mut busy, "a request under way").await;
        for guest in &mut guests {
            assert_open(guest, "a request under way").await;
        }
        gateway
            .said
            .line(0, "who was turned away", |line| {
                line.contains("none can be closed for a new one: the new connection was closed")
            })
            .await;
    }
}

#[tokio::test]
async fn a_house_full_of_idle_clients_serves_everybody_who_comes() {
    let (_upstream, gateway) = housing("max_connections = 50").await;
    let mut idle = Vec::new();
    for last in 0..50 {
        let mut wire = from(&gateway, last).await;
        wire.ask(get("/")).await.expect(200);
        idle.push(wire);
    }
    let mut more = Vec::new();
    for last in 0..200 {
        let mut wire = from(&gateway, 50 + last).await;
        wire.ask(get("/")).await.expect(200);
        more.push(wire);
    }
    // The latest connections have replaced all the others.
    for wire in &mut idle {
        assert_closed(wire, "one that was idle longest").await;
    }
}

#[tokio::test]
async fn an_http2_connection_without_a_stream_is_idle_and_is_told_to_go() {
    let (upstream, gateway) = housing("max_connections = 2\nworkers = 1").await;
    let client = H2::to(gateway.address()).await;
    client.get("/").await.expect(200);
    let mut raw = from(&gateway, 2).await;
    raw.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await;
    accepted(&gateway, 2).await;
    let mut third = from(&gateway, 3).await;
    third.ask(get("/")).await.expect(200);
    eventually(PATIENCE, "the longer idle one ends", async || {
        client.closed()
    })
    .await;
    let mut fourth = from(&gateway, 4).await;
    fourth.ask(get("/")).await.expect(200);
    let frames = raw.everything().await;
    // The last frame has type 7 (GOAWAY), on stream 0.
    assert!(
        frames.windows(6).any(|bytes| bytes == [7, 0, 0, 0, 0, 0]),
        "{frames:?}"
    );
    assert_eq!(upstream.seen(), 3);
}

#[tokio::test]
async fn an_http2_connection_with_a_stream_never_gives_way() {
    let upstream = Upstream::silent().await;
    let lines = "max_connections = 1\nmax_connections_per_client = 1";
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(lines)).await;
    let client = H2::to(gateway.address()).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.try_ask(h2::get("/")).await }
    });
    upstream.sees(1).await;
    let mut none = from(&gateway, 2).await;
    assert_closed(&mut none, "one too many").await;
    assert!(!client.closed() && !asking.is_finished());
    asking.abort();
}

#[tokio::test]
async fn one_client_s_share_is_made_room_for_by_its_own_and_by_no_other() {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &[])
        .server("max_connections_per_client = 2\nworkers = 2")
        .with("[routes.own]\npath = \"/own\"\nrespond = { status = 200, body = \"here\" }");
    let gateway = Gateway::start(&file).await;
    let mut other = from(&gateway, 9).await;
    other.ask(get("/own")).await.expect(200);
    let mut idle = from(&gateway, 1).await;
    idle.ask(get("/own")).await.expect(200);
    let mut busy = from(&gateway, 1).await;
    busy.send(get("/")).await;
    upstream.sees(1).await;
    // The client's own idle connection is closed.
    let mut third = from(&gateway, 1).await;
    third.send(get("/")).await;
    upstream.sees(2).await;
    assert_closed(&mut idle, "its own idle one").await;
    // None of the client's connections is idle, so the new one is closed.
    let mut fourth = from(&gateway, 1).await;
    assert_closed(&mut fourth, "the one too many").await;
    for (wire, who) in [
        (&mut other, "another"),
        (&mut busy, "a request"),
        (&mut third, "a request"),
    ] {
        assert_open(wire, who).await;
    }
    counted(
        &gateway,
        "tollgate_connections_gave_way_total{kind=\"own\"} 1",
    )
    .await;
    counted(
        &gateway,
        "tollgate_connections_turned_away_total{reason=\"per_client\"} 1",
    )
    .await;
    gateway
        .said
        .line(0, "whose share is used up", |line| {
            line.contains("127.0.7.1 has 2 connections")
        })
        .await;
}

#[tokio::test]
async fn the_share_that_nobody_wrote_holds_only_in_a_house_more_than_half_full() {
    let (_upstream, gateway) = housing("max_connections = 20").await;
    let mut greedy = Vec::new();
    // Connections with half a head: none of them is closed for another one of its own client.
    for _ in 0..11 {
        let mut wire = from(&gateway, 1).await;
        wire.send("GET / HT").await;
        greedy.push(wire);
    }
    accepted(&gateway, 11).await;
    for wire in &mut greedy {
        assert_open(wire, "one of the first half").await;
    }
    let mut beyond = from(&gateway, 1).await;
    assert_closed(&mut beyond, "the one beyond half of the house").await;
    from(&gateway, 2).await.ask(get("/")).await.expect(200);
}

#[tokio::test]
async fn a_trusted_peer_stands_for_many_clients() {
    let upstream = Upstream::echo().await;
    let lines = "max_connections_per_client = 1\ntrust = [\"127.0.7.1\"]";
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(lines)).await;
    let mut trusted = Vec::new();
    for _ in 0..5 {
        let mut wire = from(&gateway, 1).await;
        wire.ask(get("/")).await.expect(200);
        trusted.push(wire);
    }
    for wire in &mut trusted {
        assert_open(wire, "a trusted peer's").await;
    }
    let mut first = from(&gateway, 2).await;
    first.ask(get("/")).await.expect(200);
    from(&gateway, 2).await.ask(get("/")).await.expect(200);
    assert_closed(&mut first, "a stranger's first").await;
}

#[tokio::test]
async fn a_body_on_its_way_never_gives_way() {
    let (_upstream, gateway) = housing("max_connections = 1").await;
    let mut slow = from(&gateway, 1).await;
    let length = [("Content-Length", "2")];
    slow.send(request("POST", "/", &length)).await;
    slow.send("x").await;
    counted(&gateway, "tollgate_http_requests_in_flight 1").await;
    let mut none = from(&gateway, 2).await;
    assert_closed(&mut none, "one too many").await;
    slow.send("y").await;
    slow.answer().await.expect(200);
    eventually(PATIENCE, "it is idle, and gives way", async || {
        let mut new = from(&gateway, 2).await;
        new.try_send(get("/")).await.is_ok() && new.try_answer().await.is_ok()
    })
    .await;
    assert_closed(&mut slow, "the idle one").await;
}

#[tokio::test]
async fn a_tunnel_never_gives_way() {
    let upstream = Upstream::playing(async move |mut connection| {
        connection.request().await.unwrap();
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        connection.wire.send(switch).await;
        while let Ok(bytes) = connection.wire.exactly(1).await {
            connection.wire.send(bytes).await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("max_connections = 1")).await;
    let mut tunnel = from(&gateway, 1).await;
    let fields = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    tunnel.send(request("GET", "/", &fields)).await;
    assert_eq!(tunnel.head().await.status(), 101);
    for byte in ["a", "b"] {
        tunnel.send(byte).await;
        assert_eq!(tunnel.exactly(1).await.unwrap(), byte);
        let mut none = from(&gateway, 2).await;
        assert_closed(&mut none, "one too many").await;
    }
}

#[tokio::test]
async fn the_bound_on_open_files_is_raised_to_what_the_system_allows() {
    let upstream = Upstream::echo().await;
    let before = "ulimit -Sn 256; ulimit -Hn 1024";
    let gateway = Gateway::start_after(before, &File::to(&upstream, &[])).await;
    counted(&gateway, "process_max_fds 1024").await;
    gateway
        .said
        .line(0, "what fits", |line| {
            line.contains("at most 448 connections")
        })
        .await;
}

#[tokio::test]
async fn a_request_without_an_open_file_for_its_upstream_is_told_before_it_is_charged() {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &["all"]).limit("all", "by = \"everyone\"\nrate = \"1000/h\"");
    // Of these open files, 128 are for other uses, 36 for clients, and 36 for upstreams.
    let gateway = Gateway::start_after("ulimit -n 200", &file).await;
    let client = H2::to(gateway.address()).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        asking.spawn(async move { client.try_ask(h2::get("/")).await });
    }
    let mut forwarded = 0;
    eventually(PATIENCE, "all are forwarded or told", async || {
        forwarded = upstream.seen();
        let busy = format!("tollgate_http_requests_busy_total {}", 100 - forwarded);
        gateway.metrics().await.lines().any(|line| line == busy)
    })
    .await;
    assert!((1..=36).contains(&forwarded), "{forwarded}");
    // Only forwarded requests were decided.
    let decided = "tollgate_limit_decisions_total{limit=\"all\",route=\"all\",decision=\"allow\",decided_by=\"store\"}";
    counted(&gateway, &format!("{decided} {forwarded}")).await;
    for _ in forwarded..100 {
        let answer = asking
            .join_next()
            .await
            .unwrap()
            .unwrap()
            .unwrap()
            .expect(503);
        assert_eq!(answer.field("retry-after"), "1");
        assert_eq!(gateway.line_of(&answer).await["reason"], "busy");
    }
    // Another connection is accepted, and its request gets the same answer.
    from(&gateway, 2).await.ask(get("/")).await.expect(503);
    asking.abort_all();
    drop(client);
    // The descriptors of the closed connections are free for others.
    eventually(PATIENCE, "room for one more", async || {
        let mut wire = from(&gateway, 3).await;
        wire.send(get("/")).await;
        wire.ended(A_WHILE).await == End::Open && upstream.seen() > forwarded
    })
    .await;
}
