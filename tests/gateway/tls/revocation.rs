//! Certificates that are no longer trusted: because of a list that revokes them, the end of their time or of a list's
//! time, or another authority. This applies to open connections as it does to new ones.

use super::client_certificates::asking;
use super::{LISTEN, asked, gateway, gateway_with};
use crate::support::tls::{Authority, Pair, TlsClient};
use crate::support::{
    Connection, End, Feed, File, Gateway, PATIENCE, Upstream, Wire, eventually, request,
};
use http::Request;
use http_body_util::BodyExt as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

const HOST: &str = "inner.test";
/// The close frame `going away`, as a client gets it.
const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xE9];
/// The time within which everything of a client ends whose certificate is no longer trusted.
const A_MINUTE: Duration = Duration::from_secs(60);

/// A server that serves WebSockets, an endless stream of events, and short answers.
async fn server() -> Upstream {
    Upstream::playing(|mut connection: Connection| async move {
        while let Ok(head) = connection.request().await {
            let (answer, is_short) = match head.target() {
                "/ws" => (
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                    false,
                ),
                "/events" => (
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
                    false,
                ),
                _ => ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true),
            };
            connection.wire.send(answer).await;
            if !is_short {
                std::future::pending::<()>().await;
            }
        }
    })
    .await
}

/// A gateway that demands certificates of `ca` from clients, with these lists.
async fn house(ca: &Authority, upstream: &Upstream, list: Option<&str>) -> Gateway {
    let client = match list {
        None => asking(ca, "required"),
        Some(file) => {
            let (ca, crl) = (ca.path("ca.pem"), ca.path(file));
            format!("client = {{ ca = {ca:?}, crl = {crl:?} }}\n")
        }
    };
    gateway(upstream, &[ca.identity("inner", &[HOST]) + &client]).await
}

fn numbered(ca: &Authority, number: u64) -> Pair {
    ca.client_with("anna", |params| params.serial_number = Some(number.into()))
}

async fn is_served(wire: &mut Wire) -> bool {
    let asks = wire.try_send(asked(HOST)).await.is_ok();
    match (asks, wire.try_answer().await) {
        (true, Ok(answer)) if answer.status == 200 => true,
        (_, Ok(answer)) => {
            let answer = answer.expect(421);
            assert_eq!(answer.field("connection"), "close");
            false
        }
        // The connection had already ended.
        (_, Err(_)) => false,
    }
}

/// Opens a WebSocket, which stays open.
async fn begin_socket(wire: &mut Wire) {
    let upgrade = [
        ("Host", HOST),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
    ];
    wire.send(&request("GET", "/ws", &upgrade)).await;
    assert_eq!(wire.head().await.status(), 101);
}

/// Begins a stream, which stays open.
async fn begin_events(wire: &mut Wire, host: &str) {
    wire.send(asked(host).replacen("GET /", "GET /events", 1))
        .await;
    assert_eq!(wire.head().await.status(), 200);
    assert_eq!(wire.chunk().await.unwrap(), "hi");
}

/// Checks that new handshakes of `client` are refused, and that its open connection serves nothing.
async fn loses(client: &TlsClient, tls: SocketAddr, wire: &mut Wire) {
    // There is no pause, so that a request comes at the moment of the change.
    let asking = async { while is_served(wire).await {} };
    timeout(PATIENCE, asking).await.expect("no answer any more");
    assert_ne!(wire.ended(PATIENCE).await, End::Open);
    assert!(client.connect_and_ask(tls, HOST).await.is_err());
}

#[tokio::test]
async fn a_list_that_revokes_reaches_all_that_is_open() {
    let upstream = server().await;
    let ca = Authority::new();
    ca.revoke("crl.pem", &[], 2100);
    let gateway = house(&ca, &upstream, Some("crl.pem")).await;
    let tls = gateway.tls().await;
    let anna = ca.showing(&numbered(&ca, 7));
    let others = ca.showing(&numbered(&ca, 8));
    let mut wire = anna.wire(tls, HOST).await;
    let mut resting = anna.wire(tls, HOST).await;
    let mut socket = anna.wire(tls, HOST).await;
    let mut events = anna.wire(tls, HOST).await;
    let mut other = others.wire(tls, HOST).await;
    for wire in [&mut wire, &mut resting, &mut other] {
        assert!(is_served(wire).await);
    }
    begin_socket(&mut socket).await;
    begin_events(&mut events, HOST).await;
    let h2 = anna.h2(tls, HOST).await;
    let to = |path: &str| Request::get(format!("https://{HOST}{path}")).body(Feed::empty());
    h2.ask(to("/").unwrap()).await.expect(200);
    let mut stream = h2.send(to("/events").unwrap()).await.unwrap().into_body();
    assert_eq!(
        stream.frame().await.unwrap().unwrap().into_data().unwrap(),
        "hi"
    );

    ca.revoke("crl.pem", &[7], 2100);
    loses(&anna, tls, &mut wire).await;
    assert_eq!(resting.ended(PATIENCE).await, End::Closed);
    assert_eq!(socket.exactly(4).await.unwrap()[..], GOING_AWAY);
    // The gateway has asked the client to go elsewhere, or does so with the next request.
    if let Ok(answer) = h2.try_ask(to("/").unwrap()).await {
        answer.expect(421);
    }
    eventually(PATIENCE, "GOAWAY", async || h2.closed()).await;
    // Streams and tunnels that do not end by themselves are cut.
    assert_ne!(socket.ended(A_MINUTE).await, End::Open);
    assert_ne!(events.ended(A_MINUTE).await, End::Open);
    let rest = timeout(A_MINUTE, stream.frame()).await.unwrap();
    assert!(rest.is_none_or(|rest| rest.is_err()));
    let line = gateway.line_where("ended_by", "certificate").await;
    assert_eq!(line["client_subject"], "CN=anna");
    let said = gateway.said.line(0, "the cause", |line| {
        line.contains("the certificate of 127.0.0.1 is no longer trusted")
            && line.contains("evoked")
    });
    said.await;
    // Other clients are still served.
    assert!(is_served(&mut other).await);
}

#[tokio::test]
async fn a_certificate_that_ends_ends_its_connections() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = house(&ca, &upstream, None).await;
    let tls = gateway.tls().await;
    let brief = ca.client_with("anna", |params| {
        params.not_after = (SystemTime::now() + Duration::from_secs(3)).into();
    });
    let (brief, lasting) = (ca.showing(&brief), ca.showing(&ca.client("bob")));
    let mut wires = [brief.wire(tls, HOST).await, lasting.wire(tls, HOST).await];
    for wire in &mut wires {
        assert!(is_served(wire).await);
    }
    let [ends, stays] = &mut wires;
    loses(&brief, tls, ends).await;
    assert!(is_served(stays).await);
}

#[tokio::test]
async fn a_list_that_ends_ends_the_connections_that_it_was_asked_for() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    ca.revoke_until("crl.pem", &[], SystemTime::now() + Duration::from_secs(3));
    let gateway = house(&ca, &upstream, Some("crl.pem")).await;
    let tls = gateway.tls().await;
    let anna = ca.showing(&numbered(&ca, 7));
    let mut wire = anna.wire(tls, HOST).await;
    assert!(is_served(&mut wire).await);
    loses(&anna, tls, &mut wire).await;
}

#[tokio::test]
async fn another_authority_ends_the_connections_of_the_old_ones_clients() {
    let upstream = Upstream::echo().await;
    let (ca, new) = (Authority::new(), Authority::new());
    let gateway = house(&ca, &upstream, None).await;
    let tls = gateway.tls().await;
    let anna = ca.showing(&ca.client("anna"));
    let mut wire = anna.wire(tls, HOST).await;
    assert!(is_served(&mut wire).await);
    std::fs::copy(new.path("ca.pem"), ca.path("new.pem")).unwrap();
    std::fs::rename(ca.path("new.pem"), ca.path("ca.pem")).unwrap();
    loses(&anna, tls, &mut wire).await;
}

/// A reload that changes nothing for a client's certificate does not affect the client's connections.
#[tokio::test]
async fn a_list_that_revokes_others_ends_nothing() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    ca.revoke("crl.pem", &[], 2100);
    let gateway = house(&ca, &upstream, Some("crl.pem")).await;
    let tls = gateway.tls().await;
    let [anna, bob] = [7, 8].map(|number| ca.showing(&numbered(&ca, number)));
    let (mut ends, mut stays) = (anna.wire(tls, HOST).await, bob.wire(tls, HOST).await);
    assert!(is_served(&mut ends).await && is_served(&mut stays).await);
    let h2 = bob.h2(tls, HOST).await;
    ca.revoke("crl.pem", &[7], 2100);
    loses(&anna, tls, &mut ends).await;
    assert!(is_served(&mut stays).await);
    let asks = Request::get(format!("https://{HOST}/"));
    let asks = asks.body(Feed::empty()).unwrap();
    h2.ask(asks).await.expect(200);
}

/// A new demand applies to the connections of clients without a certificate, for the hosts of the demand and for no
/// others.
#[tokio::test]
async fn a_new_demand_reaches_all_that_is_open_without_a_certificate() {
    let upstream = server().await;
    let ca = Authority::new();
    let file = |identities: &str| File::to(&upstream, &[]).server(LISTEN).with(identities);
    let (inner, open) = (
        ca.identity("inner", &[HOST]),
        ca.identity("open", &["open.test"]),
    );
    let gateway = Gateway::start(&file(&format!("{inner}{open}"))).await;
    let tls = gateway.tls().await;
    let nobody = ca.trusting();
    let mut resting = nobody.wire(tls, HOST).await;
    assert!(is_served(&mut resting).await);
    let mut socket = nobody.wire(tls, HOST).await;
    begin_socket(&mut socket).await;
    let mut events = nobody.wire(tls, HOST).await;
    begin_events(&mut events, HOST).await;
    let mut others = nobody.wire(tls, "open.test").await;
    begin_events(&mut others, "open.test").await;
    let h2 = nobody.h2(tls, HOST).await;
    let to = |path: &str| Request::get(format!("https://{HOST}{path}")).body(Feed::empty());
    let mut stream = h2.send(to("/events").unwrap()).await.unwrap().into_body();
    assert_eq!(
        stream.frame().await.unwrap().unwrap().into_data().unwrap(),
        "hi"
    );

    let demand = asking(&ca, "required");
    gateway.rename_over(&file(&format!("{inner}{demand}{open}")).text());
    assert_eq!(socket.exactly(4).await.unwrap()[..], GOING_AWAY);
    assert_ne!(resting.ended(PATIENCE).await, End::Open);
    eventually(PATIENCE, "GOAWAY", async || h2.closed()).await;
    assert_ne!(socket.ended(A_MINUTE).await, End::Open);
    assert_ne!(events.ended(A_MINUTE).await, End::Open);
    let rest = timeout(A_MINUTE, stream.frame()).await.unwrap();
    assert!(rest.is_none_or(|rest| rest.is_err()));
    gateway.line_where("ended_by", "certificate").await;
    let said = gateway.said.line(0, "the cause", |line| {
        line.contains(
            "127.0.0.1 has shown no certificate, which `client` now demands (identity `inner`)",
        )
    });
    said.await;
    assert_eq!(others.ended(Duration::from_millis(100)).await, End::Open);
}

/// The attack: a mistake in any file prevents the configuration from being read, and so the list that revokes.
#[tokio::test]
async fn a_list_that_revokes_holds_beside_a_file_that_is_refused() {
    let upstream = server().await;
    let ca = Authority::new();
    ca.revoke("crl.pem", &[], 2100);
    let gateway = house(&ca, &upstream, Some("crl.pem")).await;
    let tls = gateway.tls().await;
    let [anna, bob] = [7, 8].map(|number| ca.showing(&numbered(&ca, number)));
    let (mut ends, mut stays) = (anna.wire(tls, HOST).await, bob.wire(tls, HOST).await);
    assert!(is_served(&mut ends).await && is_served(&mut stays).await);
    let good = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&format!("{good}\n[[["));
    let refused = |line: &str| line.contains("the earlier configuration stays in force");
    gateway.said.line(0, "the mistake", refused).await;
    ca.revoke("crl.pem", &[7], 2100);
    eventually(A_MINUTE, "the client is revoked", async || {
        !is_served(&mut ends).await
    })
    .await;
    assert!(is_served(&mut stays).await);
    // Later the file is read again, with its lists.
    ca.revoke("crl.pem", &[], 2100);
    gateway.rename_over(&good);
    let reloaded = |line: &str| line.contains("reloaded: generation");
    gateway.said.line(0, "the good file", reloaded).await;
    assert!(is_served(&mut anna.wire(tls, HOST).await).await);
}

/// A demand is added while a handshake is under way, and the handshake ends when all other connections have been
/// checked. Nothing is served on its connection, not even hosts that no handshake names.
#[tokio::test]
async fn a_new_demand_reaches_a_handshake_that_is_under_way() {
    let upstream = server().await;
    let ca = Authority::new();
    let server = format!("{LISTEN}\nworkers = 1\nhandshake = \"1min\"");
    let file = |identities: &str| File::to(&upstream, &[]).server(&server).with(identities);
    let [inner, other] =
        [("inner", HOST), ("other", "other.test")].map(|(name, host)| ca.identity(name, &[host]));
    let gateway = Gateway::start(&file(&format!("{inner}{other}"))).await;
    let tls = gateway.tls().await;
    let nobody = ca.trusting();
    let mut resting = nobody.wire(tls, HOST).await;
    assert!(is_served(&mut resting).await);
    let half = async || nobody.half_shake(Ipv4Addr::LOCALHOST, tls, HOST).await;
    let halves = [half().await, half().await];

    let demand = asking(&ca, "required");
    gateway.rename_over(&file(&format!("{inner}{demand}{other}{demand}")).text());
    assert_ne!(resting.ended(PATIENCE).await, End::Open);
    for (half, host) in halves.into_iter().zip([HOST, "nowhere.test"]) {
        let status = half.status(&asked(host)).await;
        assert!(matches!(status, None | Some(421)), "{host}: {status:?}");
    }
}

/// The identity of an open connection is gone, and each remaining identity demands a certificate. A new client cannot
/// connect without a certificate, so the open connection may not go on either.
#[tokio::test]
async fn a_new_demand_reaches_connections_whose_identity_is_gone() {
    let upstream = server().await;
    let ca = Authority::new();
    let file = |identities: &str| File::to(&upstream, &[]).server(LISTEN).with(identities);
    let [inner, other, third] =
        ["inner", "other", "third"].map(|name| ca.identity(name, &[&format!("{name}.test")]));
    let gateway = Gateway::start(&file(&format!("{inner}{other}{third}"))).await;
    let tls = gateway.tls().await;
    let nobody = ca.trusting();
    let mut wire = nobody.wire(tls, HOST).await;
    wire.ask(asked("nowhere.test")).await.expect(200);
    let mut resting = nobody.wire(tls, HOST).await;

    let demand = asking(&ca, "required");
    gateway.rename_over(&file(&format!("{other}{demand}{third}{demand}")).text());
    assert_ne!(resting.ended(PATIENCE).await, End::Open);
    assert_ne!(wire.ended(PATIENCE).await, End::Open);
}

/// A gateway that has handed over its sockets, and finishes requests under way, still reads the lists of its
/// identities.
#[tokio::test]
async fn a_list_that_revokes_reaches_a_gateway_that_drains() {
    let upstream = server().await;
    let ca = Authority::new();
    ca.revoke("crl.pem", &[], 2100);
    let (authorities, crl) = (ca.path("ca.pem"), ca.path("crl.pem"));
    let client = format!("client = {{ ca = {authorities:?}, crl = {crl:?} }}\n");
    let server = "drain = \"10min\"\n";
    let identity = ca.identity("inner", &[HOST]) + &client;
    let mut gateway = gateway_with(&upstream, server, &[identity]).await;
    let tls = gateway.tls().await;
    let [anna, bob] = [7, 8].map(|number| ca.showing(&numbered(&ca, number)));
    let (mut ends, mut stays) = (anna.wire(tls, HOST).await, bob.wire(tls, HOST).await);
    begin_socket(&mut ends).await;
    begin_socket(&mut stays).await;
    gateway.hand_over().await;
    // A list that is only half written is ignored.
    std::fs::write(ca.path("half.pem"), "-----BEGIN X509 CRL-----\n").unwrap();
    std::fs::rename(ca.path("half.pem"), ca.path("crl.pem")).unwrap();
    let said = gateway.said.line(0, "the broken list", |line| {
        line.contains("identity inner") && line.contains("the earlier files stay in use")
    });
    said.await;
    ca.revoke("crl.pem", &[7], 2100);
    assert_eq!(ends.exactly(4).await.unwrap()[..], GOING_AWAY);
    assert_ne!(ends.ended(A_MINUTE).await, End::Open);
    assert_eq!(stays.ended(Duration::from_millis(100)).await, End::Open);
}
