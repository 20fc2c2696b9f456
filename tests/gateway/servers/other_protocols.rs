//! A server that answers in another protocol than the gateway's: the log says so once, in words.

use super::gateway;
use crate::support::tls::Authority;
use crate::support::{Connection, Gateway, Manner, ModernServer, Upstream};

async fn tells(gateway: &Gateway, words: &'static str, reason: &str) {
    for _ in 0..3 {
        let answer = gateway.get("/").await.expect(502);
        assert_eq!(gateway.line_of(&answer).await["reason"], reason, "{words}");
    }
    let line = gateway
        .said
        .line(0, words, move |line| line.contains(words))
        .await;
    assert!(line.contains("127.0.0.1"), "{line}");
    let count = gateway
        .said
        .lines()
        .iter()
        .filter(|line| line.contains(words))
        .count();
    assert_eq!(count, 1, "{words}");
}

#[tokio::test]
async fn http_to_a_port_of_tls() {
    let ca = Authority::new();
    let manner = Manner {
        pair: Some(ca.server(&["localhost"])),
        ..Manner::default()
    };
    let server = ModernServer::start(manner).await;
    let http = gateway(&format!("servers = \"http://{}\"", server.address)).await;
    tells(
        &http,
        "speaks TLS on this port, write `https://`",
        "upstream_invalid",
    )
    .await;
    let h2c = gateway(&format!("servers = \"h2c://{}\"", server.address)).await;
    tells(
        &h2c,
        "speaks TLS on this port, write `https://`",
        "upstream_invalid",
    )
    .await;
}

#[tokio::test]
async fn http_to_a_server_of_http2() {
    let server = ModernServer::start(Manner::default()).await;
    let first = gateway(&format!("servers = \"http://{}\"", server.address)).await;
    tells(&first, "speaks HTTP/2, write `h2c://`", "upstream_invalid").await;
    // A server that sends before it is asked.
    let eager = Upstream::playing(async |mut connection: Connection| {
        connection.wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let _ = connection.request().await;
    })
    .await;
    let second = gateway(&format!("servers = \"{}\"", eager.url())).await;
    tells(&second, "speaks HTTP/2, write `h2c://`", "upstream_invalid").await;
}

#[tokio::test]
async fn http2_to_a_server_of_http1() {
    let server = Upstream::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let gateway = gateway(&format!("servers = \"h2c://127.0.0.1:{}\"", server.port())).await;
    tells(
        &gateway,
        "speaks HTTP/1.1, write `http://`",
        "upstream_invalid",
    )
    .await;
}

#[tokio::test]
async fn https_to_a_server_without_tls() {
    let server = Upstream::playing(async |mut connection: Connection| {
        let bad = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        connection.wire.send(bad).await;
        let _ = connection.wire.everything().await;
    })
    .await;
    let ca = Authority::new();
    let gateway = gateway(&format!(
        "servers = \"https://127.0.0.1:{}\"\ntls = {{ ca = {:?} }}",
        server.port(),
        ca.path("ca.pem")
    ))
    .await;
    tells(&gateway, "does not speak TLS on this port", "upstream_tls").await;
}
