//! TLS to servers: the certificates that are trusted, the gateway's own certificate, and the ways in which handshakes
//! fail.

use super::{file, gateway};
use crate::support::tls::Authority;
use crate::support::{
    Connection, Gateway, Manner, ModernServer, PATIENCE, Upstream, eventually, get,
};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// A server with a certificate for these names.
async fn server(ca: &Authority, names: &[&str], alpn: &[&'static str]) -> ModernServer {
    ModernServer::start(Manner {
        pair: Some(ca.server(names)),
        alpn: alpn.to_vec(),
        ..Manner::default()
    })
    .await
}

/// The lines of an upstream for this server, with this authority as `ca`.
pub(super) fn lines(server: &ModernServer, ca: &Authority, more: &str) -> String {
    format!(
        "connect_timeout = \"20s\"\nservers = \"https://127.0.0.1:{}\"\ntls = {{ ca = {:?}{more} }}",
        server.port(),
        ca.path("ca.pem")
    )
}

/// The log's reason for a refused request, and the cause in words.
async fn refused(gateway: &Gateway, words: &'static str) {
    let answer = gateway.get("/").await.expect(502);
    assert_eq!(gateway.line_of(&answer).await["reason"], "upstream_tls");
    let line = gateway
        .said
        .line(0, words, move |line| line.contains(words));
    line.await;
}

#[tokio::test]
async fn a_server_of_the_authority_is_believed_and_asked_in_what_it_knows() {
    let ca = Authority::new();
    for (alpn, http, version) in [
        (&["h2", "http/1.1"][..], "auto", "2"),
        (&["http/1.1"], "auto", "1.1"),
        (&[], "auto", "1.1"),
        (&["h2", "http/1.1"], "1.1", "1.1"),
        (&["h2"], "2", "2"),
    ] {
        let server = server(&ca, &["127.0.0.1"], alpn).await;
        let lines = lines(&server, &ca, "");
        let gateway = gateway(&format!("{lines}\nhttp = \"{http}\"")).await;
        for _ in 0..3 {
            let echo = gateway.get("/a?b=c").await.expect(200).json();
            assert_eq!(echo["version"], version, "{alpn:?} {http}");
            assert_eq!(echo["length"], 0);
        }
        let mut client = gateway.connect().await;
        let posting = "POST /p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 200000\r\n\r\n";
        let echo = client
            .ask(format!("{posting}{}", "x".repeat(200_000)))
            .await;
        assert_eq!(echo.expect(200).json()["length"], 200_000);
        assert_eq!(server.connections(), 1, "{alpn:?} {http}");
    }
}

#[tokio::test]
async fn a_server_that_learns_http2_later_is_asked_in_it() {
    let ca = Authority::new();
    let server = ModernServer::start(Manner {
        pair: Some(ca.server(&["127.0.0.1"])),
        alpn: vec!["http/1.1"],
        later: Some(vec!["h2", "http/1.1"]),
        ..Manner::default()
    })
    .await;
    // With this setting no connection is used for long.
    let gateway = gateway(&format!("{}\nmax_age = \"1ms\"", lines(&server, &ca, ""))).await;
    for version in ["1.1", "2", "2"] {
        let echo = gateway.get("/").await.expect(200).json();
        assert_eq!(echo["version"], version);
        sleep(Duration::from_millis(5)).await;
    }
}

/// A server of TLS 1.3 that closes each connection without an alert, when it has read the gateway's end of the
/// handshake.
async fn abandoning(server: &ModernServer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (listener.local_addr().unwrap().port(), server.address);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = abandon(client, behind).await;
            });
        }
    });
    port
}

async fn abandon(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let mut bytes = [0; 8192];
    let hello = client.read(&mut bytes).await?;
    server.write_all(&bytes[..hello]).await?;
    let (mut from_server, _) = server.split();
    let (mut from_client, mut to_client) = client.split();
    tokio::select! {
        copied = tokio::io::copy(&mut from_server, &mut to_client) => copied.map(drop),
        // A record of six bytes may come alone, before the handshake is over for the client.
        read = from_client.read_exact(&mut bytes[..7]) => read.map(drop),
    }
}

#[tokio::test]
async fn a_server_that_ends_the_handshake_without_a_word_has_failed_in_tls() {
    let ca = Authority::new();
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let server = server(&ca, &["127.0.0.1"], alpn).await;
        let port = abandoning(&server).await;
        let lines = format!(
            "connect_timeout = \"20s\"\nservers = \"https://127.0.0.1:{port}\"\ntls = {{ ca = {:?} }}",
            ca.path("ca.pem")
        );
        let words = "the server ended the connection silently after the handshake";
        refused(&gateway(&lines).await, words).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_believed_gets_nothing() {
    let (ca, other) = (Authority::new(), Authority::new());
    let stranger = server(&other, &["127.0.0.1"], &[]).await;
    refused(
        &gateway(&lines(&stranger, &ca, "")).await,
        "the certificate's authority is not trusted",
    )
    .await;
    let misnamed = server(&ca, &["orders.test"], &[]).await;
    refused(
        &gateway(&lines(&misnamed, &ca, "")).await,
        "write the name that it has as `name` in `tls` of the upstream",
    )
    .await;
    assert_eq!(
        stranger
            .seen
            .requests
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    // The handshake also asks for this name.
    let named = gateway(&lines(&misnamed, &ca, ", name = \"orders.test\"")).await;
    named.get("/").await.expect(200);
    assert!(
        misnamed
            .seen
            .names
            .lock()
            .unwrap()
            .contains(&"orders.test".to_owned())
    );
    // With this setting the gateway trusts any certificate.
    let insecure = format!(
        "connect_timeout = \"20s\"\nservers = \"https://{}\"\ntls = {{ insecure = true }}",
        stranger.address
    );
    let insecure = gateway(&insecure).await;
    insecure.get("/").await.expect(200);
    let warned = insecure.said.line(0, "the warning", |line| {
        line.contains("trusts any certificate")
    });
    warned.await;
    // Without `ca` the system's authorities are trusted, and this authority is not one of them.
    let system = gateway(&format!(
        "connect_timeout = \"20s\"\nservers = \"https://{}\"",
        stranger.address
    ))
    .await;
    refused(&system, "the certificate's authority is not trusted").await;
}

#[tokio::test]
async fn probes_over_http2_name_the_scheme() {
    let ca = Authority::new();
    let server = server(&ca, &["127.0.0.1"], &["h2"]).await;
    let health = "health = { path = \"/healthz\", status = \"200\" }";
    let gateway = gateway(&format!("{}\n{health}", lines(&server, &ca, ""))).await;
    eventually(PATIENCE, "it is probed", async || {
        !server.seen.schemes.lock().unwrap().is_empty()
    })
    .await;
    gateway.get("/").await.expect(200);
    let schemes = server.seen.schemes.lock().unwrap().clone();
    assert!(
        schemes.iter().all(|scheme| scheme == "https"),
        "{schemes:?}"
    );
}

#[tokio::test]
async fn a_server_may_ask_for_our_certificate() {
    let ca = Authority::new();
    let pem = std::fs::read_to_string(ca.path("ca.pem")).unwrap();
    let server = ModernServer::start(Manner {
        pair: Some(ca.server(&["127.0.0.1"])),
        clients: Some(pem),
        ..Manner::default()
    })
    .await;
    ca.write("gateway", &ca.client("gateway"));
    let own = format!(
        ", cert = {:?}, key = {:?}",
        ca.path("gateway.pem"),
        ca.path("gateway.key")
    );
    let with = gateway(&lines(&server, &ca, &own)).await;
    with.get("/").await.expect(200);
    let without = gateway(&lines(&server, &ca, "")).await;
    assert_eq!(without.get("/").await.status, 502);
}

#[tokio::test]
async fn a_new_authority_is_taken_over() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = server(&new, &["127.0.0.1"], &["h2"]).await;
    let path = old.path("ca.pem");
    let gateway = gateway(&lines(&server, &old, "")).await;
    assert_eq!(gateway.get("/").await.status, 502);
    std::fs::copy(new.path("ca.pem"), path).unwrap();
    eventually(PATIENCE, "the new authority is believed", async || {
        gateway.get("/").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_websocket_goes_over_http1() {
    let ca = Authority::new();
    let server = server(&ca, &["127.0.0.1"], &["h2", "http/1.1"]).await;
    let gateway = gateway(&lines(&server, &ca, "")).await;
    let echo = gateway.get("/").await.expect(200).json();
    assert_eq!(echo["version"], "2");
    let mut client = gateway.connect().await;
    client
        .send(
            "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    assert_eq!(client.head().await.status(), 101);
    client.send("hello\r\n").await;
    assert_eq!(client.line().await.unwrap(), "hello");
    assert_eq!(server.connections(), 2);
}

/// Checks a WebSocket at two servers that only have HTTP/2, given by their URLs and by the upstream's lines for their
/// certificates.
async fn asked_for_a_websocket(urls: &[String; 2], trust: &str) {
    let [one, other] = urls;
    let lines = format!("servers = [\"{one}\", \"{other}\"]\n{trust}eject = {{ after = 1 }}");
    let gateway = gateway(&format!("connect_timeout = \"20s\"\n{lines}")).await;
    for _ in 0..4 {
        let asked = "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let answer = gateway.connect().await.ask(asked).await.expect(502);
        let reason = gateway.line_of(&answer).await["reason"].clone();
        assert_ne!(reason, "upstream_tls", "the handshake has no fault");
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn clients_cannot_eject_servers_of_http2_alone_by_asking_for_websockets() {
    let ca = Authority::new();
    let one = server(&ca, &["127.0.0.1"], &["h2"]).await;
    let other = server(&ca, &["127.0.0.1"], &["h2"]).await;
    let trust = format!("tls = {{ ca = {:?} }}\n", ca.path("ca.pem"));
    let urls = [&one, &other].map(|server| format!("https://127.0.0.1:{}", server.port()));
    asked_for_a_websocket(&urls, &trust).await;

    // A server without TLS that closes the connection because it reads no preface.
    let bare = async || {
        let manner = Manner {
            alpn: vec!["h2"],
            ..Manner::default()
        };
        ModernServer::start(manner).await
    };
    let (one, other) = (bare().await, bare().await);
    let urls = [&one, &other].map(|server| format!("h2c://127.0.0.1:{}", server.port()));
    asked_for_a_websocket(&urls, "").await;
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_an_error() {
    // The end of the connection alone marks the end of this server's answer.
    let ca = Authority::new();
    let acceptor = crate::support::modern_acceptor(&ca.server(&["127.0.0.1"]));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for is_whole in [true, false] {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes).await;
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhalf";
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            if is_whole {
                let _ = stream.shutdown().await;
            } else {
                // The connection ends without the alert that announces its end.
                drop(stream.into_inner());
            }
        }
    });
    let file = file(&format!(
        "servers = \"https://{address}\"\ntls = {{ ca = {:?} }}",
        ca.path("ca.pem")
    ));
    let gateway = Gateway::start(&file).await;
    assert_eq!(gateway.get("/").await.expect(200).text(), "half");
    let mut client = gateway.connect().await;
    client.send(get("/")).await;
    assert!(client.try_answer().await.is_err(), "half an answer is none");
}

/// A server without TLS, and one that closes connections during handshakes, delay a request for `connect_timeout` at
/// most.
#[tokio::test]
async fn a_handshake_has_the_time_of_a_connection() {
    let silent = Upstream::playing(async |mut connection: Connection| {
        let _ = connection.wire.everything().await;
    })
    .await;
    let ca = Authority::new();
    let gateway = gateway(&format!(
        "servers = \"https://127.0.0.1:{}\"\nconnect_timeout = \"200ms\"\ntls = {{ ca = {:?} }}",
        silent.port(),
        ca.path("ca.pem")
    ))
    .await;
    let answer = gateway.get("/").await.expect(504);
    let line: Value = gateway.line_of(&answer).await;
    assert_eq!(line["reason"], "connect_failed");
    let words = "does it speak TLS on this port?";
    let said = gateway.said.line(0, words, |line| line.contains(words));
    said.await;
}
