//! The PROXY protocol on a listener: the peers that must send a header, the client of the connection, and the treatment
//! of bad, late and missing headers.

use crate::support::{
    Answer, End, File, Gateway, PATIENCE, Upstream, Wire, eventually, get, request,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The time for which an event must not happen.
const A_WHILE: Duration = Duration::from_millis(150);

/// A listener whose local peers are proxies.
const PROXIED: &str = "listen = { address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.1\"] }";

async fn start(lines: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(lines)).await;
    (upstream, gateway)
}

/// A header of version 1 for a client.
fn text(client: &str) -> String {
    format!("PROXY TCP4 {client} 192.0.2.80 51000 443\r\n")
}

/// A header of version 2 with this command, family and payload.
fn binary(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    header.extend(payload);
    header
}

/// A header of version 2 for a client over IPv4, with an unknown TLV.
fn binary_for(client: [u8; 4]) -> Vec<u8> {
    let addresses = [client, [192, 0, 2, 80]].concat();
    let ports = [51000_u16.to_be_bytes(), 443_u16.to_be_bytes()].concat();
    binary(
        1,
        0x11,
        &[&addresses[..], &ports, &[0xe5, 0, 1, 7]].concat(),
    )
}

async fn ask(gateway: &Gateway, header: impl AsRef<[u8]>) -> Answer {
    let mut wire = gateway.connect().await;
    wire.send(header).await;
    wire.ask(get("/")).await
}

/// Waits until the metrics contain this line.
async fn counted(gateway: &Gateway, line: &str) {
    eventually(PATIENCE, line, async || {
        gateway.metrics().await.lines().any(|found| found == line)
    })
    .await;
}

async fn turned_away(gateway: &Gateway, reason: &str, count: usize) {
    let line = format!("tollgate_connections_turned_away_total{{reason=\"{reason}\"}} {count}");
    counted(gateway, &line).await;
}

#[tokio::test]
async fn the_named_client_is_the_client_of_log_and_fields() {
    let (_upstream, gateway) = start(PROXIED).await;
    let headers = [
        (text("203.0.113.9").into_bytes(), "203.0.113.9"),
        (binary_for([203, 0, 113, 7]), "203.0.113.7"),
        (
            b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n".to_vec(),
            "2001:db8::1",
        ),
    ];
    for (header, client) in headers {
        let answer = ask(&gateway, header).await.expect(200);
        let fields = answer.echoed().fields;
        assert_eq!(fields.all("x-forwarded-for"), [client]);
        assert_eq!(fields.all("x-real-ip"), [client]);
        let line = gateway.line_of(&answer).await;
        assert_eq!(
            (&line["client"], &line["peer"]),
            (&client.into(), &client.into())
        );
    }
}

#[tokio::test]
async fn limits_count_the_named_client() {
    let upstream = Upstream::echo().await;
    let limit = "[limits.own]\nby = \"ip\"\nrate = \"1/h\"\nburst = 1\n";
    let file = File::to(&upstream, &["own"]).server(PROXIED).with(limit);
    let gateway = Gateway::start(&file).await;
    for client in ["203.0.113.1", "203.0.113.2"] {
        ask(&gateway, text(client)).await.expect(200);
        ask(&gateway, text(client)).await.expect(429);
    }
}

/// If a header names no client, the bytes after it come from a client all the same, and the client's fields are not
/// trusted.
#[tokio::test]
async fn behind_a_header_that_names_nobody_a_client_is_not_believed() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["own"])
        .limit("own", "by = \"ip\"\nrate = \"5/h\"")
        .server(PROXIED)
        .server("trust = [\"127.0.0.0/8\"]");
    let gateway = Gateway::start(&file).await;
    let forged = |n: usize| {
        let address = format!("203.0.113.{n}");
        request(
            "GET",
            "/",
            &[
                ("Host", "a"),
                ("X-Forwarded-For", &address),
                ("Forwarded", &format!("for={address};proto=https")),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "evil.test"),
                ("X-Real-IP", &address),
                ("True-Client-IP", &address),
                ("Client-Cert", ":MA==:"),
                ("X-Request-Id", "chosen-by-the-client"),
            ],
        )
    };
    let nobody = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
        binary(1, 0, &[]),
        binary(1, 0x31, &[0; 216]),
        binary(1, 0x12, &[9; 12]),
    ];
    for (n, header) in nobody.iter().enumerate() {
        let mut wire = gateway.connect().await;
        wire.send(header).await;
        let answer = wire.ask(forged(n)).await.expect(200);
        let fields = answer.echoed().fields;
        assert_eq!(fields.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(fields.all("x-real-ip"), ["127.0.0.1"]);
        assert_eq!(fields.all("x-forwarded-proto"), ["http"]);
        assert_eq!(fields.all("x-forwarded-host"), ["a"]);
        assert!(!fields.has("true-client-ip") && !fields.has("client-cert"));
        assert_ne!(fields.get("x-request-id"), Some("chosen-by-the-client"));
        assert_eq!(gateway.line_of(&answer).await["client"], "127.0.0.1");
    }
    // All these requests count as one client's, whatever addresses their fields name.
    let mut wire = gateway.connect().await;
    wire.send(&nobody[0]).await;
    wire.ask(forged(99)).await.expect(429);
    counted(
        &gateway,
        "tollgate_client_unnamed_total{cause=\"unknown\"} 6",
    )
    .await;
    let says = |line: &str| line.contains("PROXY protocol header of 127.0.0.1 names no client");
    gateway.said.line(0, "the warning", says).await;
    // The proxy itself is trusted.
    let mut wire = gateway.connect().await;
    wire.send(binary(0, 0, &[])).await;
    let answer = wire.ask(forged(7)).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "203.0.113.7");
}

#[tokio::test]
async fn connections_of_nobody_are_bounded_as_one_client() {
    let (_upstream, gateway) = start(&format!(
        "{PROXIED}\ntrust = [\"127.0.0.0/8\"]\nmax_connections_per_client = 2"
    ))
    .await;
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut wire = gateway.connect().await;
        wire.send("PROXY UNKNOWN\r\n").await;
        wire.ask(get("/")).await.expect(200);
        kept.push(wire);
    }
    // The first two connections were idle, and were closed for new ones.
    for (n, wire) in kept.iter_mut().enumerate() {
        if n < 2 {
            assert_eq!(wire.ended(PATIENCE).await, End::Closed, "{n}");
        } else {
            wire.ask(get("/")).await.expect(200);
        }
    }
}

/// The peer of a Unix socket is trusted. Fields behind a header from it that names no client are not.
#[tokio::test]
async fn nobody_behind_a_unix_socket_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let listen = format!(
        "listen = [\"127.0.0.1:0\", {{ address = \"unix:{}\", proxy_protocol = true }}]",
        path.display()
    );
    let (_upstream, gateway) = start(&listen).await;
    for (header, client) in [
        ("PROXY UNKNOWN\r\n", "unix"),
        (&*text("203.0.113.5"), "203.0.113.5"),
    ] {
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut wire = Wire::over_unix(stream);
        wire.send(header).await;
        let asked = request(
            "GET",
            "/",
            &[("Host", "a"), ("X-Forwarded-For", "203.0.113.66")],
        );
        let answer = wire.ask(asked).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["client"], client);
        let seen = answer.echoed().fields;
        assert!(
            !seen.all("x-forwarded-for").contains(&"203.0.113.66"),
            "{client}"
        );
    }
}

#[tokio::test]
async fn headers_without_a_client_keep_the_peer() {
    let (_upstream, gateway) = start(PROXIED).await;
    for header in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
        binary(0, 0, &[]),
        binary(0, 0x11, &[9; 12]),
        binary(1, 0, &[]),
        binary(1, 0x31, &[0; 216]),
    ] {
        let answer = ask(&gateway, header).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["client"], "127.0.0.1");
    }
}

#[tokio::test]
async fn pieces_are_waited_for_and_what_follows_is_not_lost() {
    let (_upstream, gateway) = start(PROXIED).await;
    for header in [
        text("203.0.113.9").into_bytes(),
        binary_for([203, 0, 113, 9]),
    ] {
        let mut wire = gateway.connect().await;
        for byte in &header {
            wire.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        wire.ask(get("/")).await.expect(200);
        // The header and the request arrive in one piece.
        let mut wire = gateway.connect().await;
        let whole = [&header[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        wire.send(whole).await;
        let answer = wire.answer().await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["client"], "203.0.113.9");
    }
}

#[tokio::test]
async fn http2_follows_a_header() {
    let (_upstream, gateway) = start(PROXIED).await;
    let mut stream = tokio::net::TcpStream::connect(gateway.address())
        .await
        .unwrap();
    let header = text("203.0.113.9");
    tokio::io::AsyncWriteExt::write_all(&mut stream, header.as_bytes())
        .await
        .unwrap();
    let client = crate::support::H2::over(stream).await;
    let answer = client.ask(crate::support::h2::get("/")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "203.0.113.9");
}

#[tokio::test]
async fn bad_and_missing_headers_end_the_connection() {
    let (_upstream, gateway) = start(PROXIED).await;
    let bad = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.9 192.0.2.80 70000 443\r\n".to_vec(),
        b"PROXY TCP4 example.com 192.0.2.80 1 2\r\n".to_vec(),
        [b"PROXY TCP4 ", &[b'1'; 100][..]].concat(),
        binary(7, 0x11, &[0; 12]),
        binary(1, 0x11, &[0; 4]),
    ];
    for (count, header) in bad.iter().enumerate() {
        let mut wire = gateway.connect().await;
        wire.send(header).await;
        assert_ne!(wire.ended(PATIENCE).await, End::Open);
        turned_away(&gateway, "proxy_header", count + 1).await;
    }
    assert!(
        gateway
            .said
            .text()
            .contains("its PROXY protocol header is missing")
    );
    // A peer that connects and leaves without a byte is no fault.
    gateway.connect().await.finish_sending().await;
    let mut cut = gateway.connect().await;
    cut.send("PROXY TC").await;
    cut.finish_sending().await;
    turned_away(&gateway, "proxy_header", bad.len() + 1).await;
}

#[tokio::test]
async fn a_second_header_is_a_bad_request() {
    let (_upstream, gateway) = start(PROXIED).await;
    for second in [
        text("203.0.113.2").into_bytes(),
        binary_for([203, 0, 113, 2]),
    ] {
        let mut wire = gateway.connect().await;
        wire.send([text("203.0.113.1").as_bytes(), &second].concat())
            .await;
        assert_eq!(wire.answer().await.status, 400);
    }
}

#[tokio::test]
async fn peers_that_are_not_listed_send_requests_alone() {
    let (_upstream, gateway) = start(PROXIED).await;
    let other = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 1));
    let mut wire = Wire::from(other, gateway.address()).await;
    wire.ask(get("/")).await.expect(200);
    let mut wire = Wire::from(other, gateway.address()).await;
    wire.send(text("203.0.113.1")).await;
    assert_eq!(wire.answer().await.status, 400);
}

#[tokio::test]
async fn a_header_has_one_deadline() {
    let (_upstream, gateway) = start(&format!("{PROXIED}\nhandshake = \"300ms\"")).await;
    let (mut silent, mut half) = (gateway.connect().await, gateway.connect().await);
    half.send("PROXY TCP4 ").await;
    tokio::time::sleep(A_WHILE).await;
    half.send("203").await;
    for wire in [&mut silent, &mut half] {
        assert_ne!(wire.ended(PATIENCE).await, End::Open);
    }
    turned_away(&gateway, "late", 2).await;
}

#[tokio::test]
async fn the_word_true_means_the_peers_of_trust_and_the_named_client_is_trusted_by_its_own_address()
{
    let lines = "listen = { address = \"127.0.0.1:0\", proxy_protocol = true }\n\
        trust = [\"127.0.0.1\", \"10.0.0.0/8\"]";
    let (_upstream, gateway) = start(lines).await;
    for (named, client) in [("10.0.0.1", "203.0.113.7"), ("203.0.113.9", "203.0.113.9")] {
        let mut wire = gateway.connect().await;
        wire.send(text(named)).await;
        let asked = request("GET", "/", &[("X-Forwarded-For", "203.0.113.7")]);
        let answer = wire.ask(asked).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["client"], client, "{named}");
    }
    let other = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 1));
    let mut wire = Wire::from(other, gateway.address()).await;
    wire.ask(get("/")).await.expect(200);
}

#[tokio::test]
async fn the_bound_of_a_client_is_for_the_one_that_is_named() {
    for workers in [1, 2] {
        let upstream = Upstream::silent().await;
        let lines = format!("{PROXIED}\nworkers = {workers}\nmax_connections_per_client = 2");
        let file = File::to(&upstream, &[])
            .server(&lines)
            .with("[routes.own]\npath = \"/own\"\nrespond = { status = 200, body = \"here\" }");
        let gateway = Gateway::start(&file).await;
        let named = async |client: &str| {
            let mut wire = gateway.connect().await;
            wire.send(text(client)).await;
            wire
        };
        // The proxy has more connections than one client may have.
        let mut others = Vec::new();
        for last in 1..=4 {
            let mut other = named(&format!("198.51.100.{last}")).await;
            other.ask(get("/own")).await.expect(200);
            others.push(other);
        }
        let mut first = named("203.0.113.9").await;
        first.ask(get("/own")).await.expect(200);
        let mut second = named("203.0.113.9").await;
        second.send(get("/")).await;
        upstream.sees(1).await;
        // A third connection replaces the idle one, at whichever worker that is.
        let mut third = named("203.0.113.9").await;
        third.send(get("/")).await;
        upstream.sees(2).await;
        assert_ne!(first.ended(PATIENCE).await, End::Open);
        counted(
            &gateway,
            "tollgate_connections_gave_way_total{kind=\"own\"} 1",
        )
        .await;
        // No connection is idle: a fourth one is closed.
        let mut fourth = named("203.0.113.9").await;
        assert_ne!(fourth.ended(PATIENCE).await, End::Open);
        turned_away(&gateway, "per_client", 1).await;
        for other in &mut others {
            assert_eq!(other.ended(A_WHILE).await, End::Open);
        }
        // The place of a client that left is free again.
        drop(second);
        eventually(PATIENCE, "there is room again", async || {
            let mut wire = named("203.0.113.9").await;
            wire.send(get("/own")).await;
            wire.try_answer().await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn connections_without_their_header_give_way_in_a_full_house() {
    let lines =
        format!("{PROXIED}\nworkers = 1\nmax_connections = 2\nmax_connections_per_client = 2");
    let upstream = Upstream::silent().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server(&lines)).await;
    let mut silent = gateway.connect().await;
    tokio::time::sleep(A_WHILE).await;
    let mut half = gateway.connect().await;
    half.send("PROXY ").await;
    tokio::time::sleep(A_WHILE).await;
    let busy = async |client: &str| {
        let mut wire = gateway.connect().await;
        wire.send(text(client)).await;
        wire.send(get("/")).await;
        wire
    };
    let _first = busy("203.0.113.1").await;
    upstream.sees(1).await;
    assert_ne!(silent.ended(PATIENCE).await, End::Open);
    counted(
        &gateway,
        "tollgate_connections_gave_way_total{kind=\"silent\"} 1",
    )
    .await;
    let _second = busy("203.0.113.2").await;
    upstream.sees(2).await;
    assert_ne!(half.ended(PATIENCE).await, End::Open);
    counted(
        &gateway,
        "tollgate_connections_gave_way_total{kind=\"half_head\"} 1",
    )
    .await;
}
