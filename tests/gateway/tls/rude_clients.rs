//! Clients that stop in the middle of a handshake, or do not speak TLS.

use super::{asked, counts, gateway, gateway_with};
use crate::support::tls::Authority;
use crate::support::{End, PATIENCE, Upstream, Wire, eventually, get, long};
use std::time::{Duration, Instant};

/// The beginning of a hello whose record would have 512 bytes.
const HALF_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

#[tokio::test]
async fn plain_http_is_answered_in_clear_text() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    let long = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{}",
        "x".repeat(9000)
    );
    for request in [get("/"), long, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()] {
        let mut wire = Wire::to(tls).await;
        let answer = wire.ask(request).await;
        let text = answer.expect(400).text();
        assert!(text.contains("https://"), "{text}");
        assert_eq!(wire.ended(PATIENCE).await, End::Closed);
    }
    assert_eq!(upstream.seen(), 0);
}

/// The log distinguishes a proxy that may not name its clients from a client without TLS: the remedy for the proxy is
/// in the file.
#[tokio::test]
async fn a_proxy_header_that_nobody_expects_is_named_in_the_log() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    let mut wire = Wire::to(tls).await;
    let header = "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n";
    wire.ask(header).await.expect(400);
    let is_told = |line: &str| line.contains("it begins with a header of the PROXY protocol");
    gateway.said.line(0, "the header", is_told).await;
}

/// A client with an old version learns that its version is the cause. Bytes that are no hello are answered, too.
#[tokio::test]
async fn what_is_no_hello_for_us_gets_an_alert() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    let hello = |version: [u8; 2]| {
        let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41];
        hello.extend(version);
        hello.extend([7; 32]);
        // The hello has no session, one cipher suite, and no compression.
        hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
        hello
    };
    for (bytes, alert) in [
        (hello([3, 1]), 70),
        (hello([3, 2]), 70),
        (hello([3, 3]), 40),
        (b"\x16\x03\x01\x00\x05hello".to_vec(), 50),
        (b"\x16\x03\x01\xff\xffhello".to_vec(), 50),
    ] {
        let mut wire = Wire::to(tls).await;
        wire.send(&bytes).await;
        let answer = wire.everything().await;
        assert_eq!(answer[..], [0x15, 3, 3, 0, 2, 2, alert], "{bytes:?}");
    }
    let is_told = |line: &str| line.contains("it speaks no version of TLS from `min` on");
    gateway.said.line(0, "the old version", is_told).await;
    counts(
        &gateway,
        "identity=\"none\",version=\"none\",result=\"protocol\"",
        5,
    )
    .await;
}

#[tokio::test]
async fn one_deadline_holds_over_the_whole_handshake() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [ca.identity("api", &["api.test"])];
    let gateway = gateway_with(&upstream, "handshake = \"600ms\"", &identities).await;
    let tls = gateway.tls().await;
    let start = Instant::now();
    let mut silent = Wire::to(tls).await;
    let mut half = Wire::to(tls).await;
    half.send(HALF_HELLO).await;
    let mut dripping = Wire::to(tls).await;
    let drip = async {
        for byte in HALF_HELLO.iter().chain(&[0; 200]) {
            if dripping.try_send([*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("each byte began the time anew");
    };
    drip.await;
    for wire in [&mut silent, &mut half] {
        assert_ne!(wire.ended(PATIENCE).await, End::Open);
    }
    assert!(start.elapsed() >= Duration::from_millis(600));
    counts(
        &gateway,
        "identity=\"none\",version=\"none\",result=\"timeout\"",
        3,
    )
    .await;
}

#[tokio::test]
async fn half_hellos_keep_no_one_waiting() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    // None of these handshakes ends by its deadline: if a request waited for one, it would never be answered.
    let identities = [ca.identity("api", &["api.test"])];
    let gateway = gateway_with(&upstream, "handshake = \"1h\"", &identities).await;
    let tls = gateway.tls().await;
    let mut wire = ca.trusting().wire(tls, "api.test").await;
    let mut halves = Vec::new();
    let is_long = long();
    for _ in 0..if is_long { 2000 } else { 200 } {
        let mut half = Wire::to(tls).await;
        half.send(HALF_HELLO).await;
        halves.push(half);
    }
    let connections = format!("tollgate_connections {}", halves.len() + 1);
    let all_are_open = async || {
        gateway
            .metrics()
            .await
            .lines()
            .any(|line| line == connections)
    };
    eventually(PATIENCE, "all half hellos are at a worker", all_are_open).await;
    let mut times = Vec::new();
    for _ in 0..if is_long { 2000 } else { 50 } {
        let start = Instant::now();
        wire.ask(asked("api.test")).await.expect(200);
        times.push(start.elapsed());
    }
    times.sort();
    let [median, p99] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at]);
    println!(
        "{} half hellos held: median {median:?}, p99 {p99:?}",
        halves.len()
    );
    assert_eq!(upstream.seen(), times.len());
    assert!(
        all_are_open().await,
        "a handshake ended while requests were answered"
    );
    // On a machine that also does other work, times prove nothing.
    assert!(!is_long || p99 < Duration::from_millis(20), "{p99:?}");
    let mut fresh = ca.trusting().wire(tls, "api.test").await;
    fresh.ask(asked("api.test")).await.expect(200);
    // A handshake that waits can still be completed.
    let mut last = halves.pop().unwrap();
    last.send([0; 300]).await;
    assert_eq!(last.ended(Duration::from_millis(50)).await, End::Open);
}

/// Handshakes count as connections, and are closed for new ones like silent connections.
#[tokio::test]
async fn a_handshake_makes_room_for_a_new_connection() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [ca.identity("api", &["api.test"])];
    let server = "max_connections = 3\nmax_connections_per_client = 100\nworkers = 1";
    let gateway = gateway_with(&upstream, server, &identities).await;
    let tls = gateway.tls().await;
    let mut halves = Vec::new();
    for _ in 0..3 {
        let mut half = Wire::to(tls).await;
        half.send(HALF_HELLO).await;
        halves.push(half);
    }
    eventually(PATIENCE, "all three are at a worker", async || {
        let metrics = gateway.metrics().await;
        metrics.lines().any(|line| line == "tollgate_connections 3")
    })
    .await;
    let mut wire = ca.trusting().wire(tls, "api.test").await;
    wire.ask(asked("api.test")).await.expect(200);
    assert_ne!(halves[0].ended(PATIENCE).await, End::Open);
}
