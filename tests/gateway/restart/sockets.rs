//! Sockets at a hand-over: sockets with an unchanged address are taken over, others are opened or closed, and waiting
//! connections are served. The tests also show what counters, probes and kept connections notice.

use super::{WebSocket, gone, upstream};
use crate::support::{End, File, Gateway, PATIENCE, Redis, Wire, eventually, get, process};
use std::time::Duration;

/// Sends a request on each of several connections while the gateway stands still.
async fn waiting(gateway: &Gateway) -> Vec<Wire> {
    process::signal(gateway.pid(), "STOP");
    let mut wires = Vec::new();
    for _ in 0..30 {
        let mut wire = gateway.connect().await;
        wire.send(get("/")).await;
        wires.push(wire);
    }
    wires
}

#[tokio::test]
async fn connections_that_wait_to_be_accepted_are_served() {
    let upstream = upstream().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let wires = waiting(&gateway).await;
    process::signal(gateway.pid(), "USR2");
    process::signal(gateway.pid(), "CONT");
    for mut wire in wires {
        wire.answer().await.expect(200);
    }
    let handed = |line: &str| line.contains("handed over: process");
    gateway.said.line(0, "the hand-over", handed).await;
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    // Waiting connections are served at a stop too.
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let wires = waiting(&gateway).await;
    process::signal(gateway.pid(), "TERM");
    process::signal(gateway.pid(), "CONT");
    for mut wire in wires {
        wire.answer().await.expect(200);
    }
}

#[tokio::test]
async fn addresses_may_change_with_the_file() {
    let upstream = upstream().await;
    let both = "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\", \"unix:old.sock\", \"unix:kept.sock\"]";
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server(both)).await;
    let old_admin = gateway.admin().await;
    let second = |line: &str| line.contains("listening  http://127.0.0.2:");
    let line = gateway.said.line(0, "the second address", second).await;
    let leaving: std::net::SocketAddr = line.rsplit('/').next().unwrap().parse().unwrap();
    let at = |name: &str| gateway.folder().join(name);
    let (old, kept, new) = (at("old.sock"), at("kept.sock"), at("new.sock"));
    let listen = "listen = [\"127.0.0.1:0\", { address = \"unix:kept.sock\", mode = \"0600\" }, \"unix:new.sock\"]";
    let changed = File::to(&upstream, &[])
        .server(listen)
        .admin("listen = \"unix:admin.sock\"");
    gateway.write_in_place(&changed.text());
    let mut tunnel = WebSocket::open(&gateway).await;
    let before = gateway.hand_over().await;
    // The previous gateway lives as long as its requests, but its sockets do not.
    eventually(PATIENCE, "the addresses are closed", async || {
        Wire::try_to(leaving).await.is_err() && !old.exists()
    })
    .await;
    tunnel.lives().await;
    assert!(process::runs(before));
    drop(tunnel);
    gone(before).await;
    gateway.get("/").await.expect(200);
    for path in [&kept, &new] {
        let stream = tokio::net::UnixStream::connect(path).await.unwrap();
        Wire::over_unix(stream).ask(get("/")).await.expect(200);
    }
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!old.exists());
    for gone in [leaving, old_admin] {
        assert!(Wire::try_to(gone).await.is_err(), "{gone}");
    }
    let said = gateway.said.text();
    for gone in ["127.0.0.2:0", "unix:old.sock", "127.0.0.1:0"] {
        let line = format!("{gone} is no longer in the file");
        let line = line.replace(
            "unix:old.sock",
            &format!("{}", old.file_name().unwrap().display()),
        );
        assert!(said.contains(&line), "{line}: {said}");
    }
    // The same socket comes back two hand-overs later.
    for _ in 0..2 {
        let before = gateway.hand_over().await;
        gone(before).await;
    }
    gateway.get("/").await.expect(200);
    gateway.stop().await;
    assert!(!kept.exists() && !new.exists());
}

#[tokio::test]
async fn probes_see_the_successor_alone_and_kept_connections_get_a_last_answer() {
    let upstream = upstream().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"4s\"")).await;
    let mut tunnel = WebSocket::open(&gateway).await;
    let http2 = gateway.h2().await;
    http2.get("/").await.expect(200);
    let (mut kept, mut idle) = (gateway.connect().await, gateway.connect().await);
    kept.ask(get("/")).await.expect(200);
    idle.ask(get("/")).await.expect(200);
    let mut probe = Wire::to(gateway.admin().await).await;
    let readyz = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    probe.ask(readyz).await.expect(200);
    let before = gateway.hand_over().await;
    // The probe's kept connection ends, and the successor answers every new one.
    assert_ne!(probe.ended(PATIENCE).await, End::Open);
    for _ in 0..20 {
        gateway.admin_get("/readyz").await.expect(200);
    }
    let answer = kept.ask(get("/")).await.expect(200);
    assert_eq!(answer.field("connection"), "close");
    assert_ne!(kept.ended(PATIENCE).await, End::Open);
    eventually(PATIENCE, "GOAWAY", async || http2.closed()).await;
    let answer = gateway.get("/").await.expect(200);
    assert!(!answer.fields.has("connection"), "{answer:?}");
    tunnel.lives().await;
    assert!(process::runs(before));
    // Idle connections end before the time for requests under way is over.
    assert_ne!(idle.ended(PATIENCE).await, End::Open);
    tunnel.lives().await;
    assert_ne!(tunnel.0.ended(Duration::from_secs(10)).await, End::Open);
    gone(before).await;
}

#[tokio::test]
async fn counters_in_memory_start_afresh_and_those_in_redis_go_on() {
    let upstream = upstream().await;
    let redis = Redis::start().await;
    let limit = "by = \"everyone\"\nrate = \"10/h\"\nburst = 10";
    let file = File::to(&upstream, &["few"]).limit("few", limit);
    for (file, left) in [(file.clone(), 9), (file.redis(&redis, ""), 6)] {
        let mut gateway = Gateway::start(&file).await;
        for _ in 0..3 {
            gateway.get("/").await.expect(200);
        }
        let before = gateway.hand_over().await;
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(answer.remaining("few"), left);
        let said = gateway.said.text();
        assert!(said.contains("start afresh there"), "{said}");
        gone(before).await;
        gateway.stop().await;
    }
}
