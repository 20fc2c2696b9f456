//! Upgrades, such as WebSocket: a connection stops being HTTP and passes bytes in both directions, if both sides agree.

use crate::support::{Connection, End, File, Gateway, PATIENCE, Upstream, request};

const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// An upstream that agrees to the upgrade, greets at once, and then sends back every line.
async fn line_echo() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send(format!("{SWITCHING}welcome\r\n"))
            .await;
        while let Ok(line) = connection.wire.line().await {
            if line == "bye" {
                return;
            }
            connection.wire.send(format!("echo {line}\r\n")).await;
        }
    })
    .await
}

#[tokio::test]
async fn bytes_pass_both_ways_after_an_upgrade() {
    let upstream = line_echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/chat", &UPGRADE)).await;
    let head = client.head().await;
    assert_eq!(head.status(), 101);
    assert_eq!(head.fields.get("upgrade"), Some("websocket"));
    assert_eq!(
        head.fields.get("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(client.line().await.unwrap(), "welcome");
    for word in ["one", "two"] {
        client.send(format!("{word}\r\n")).await;
        assert_eq!(client.line().await.unwrap(), format!("echo {word}"));
    }
    let asked = &upstream.requests()[0].head.fields;
    assert_eq!(asked.get("upgrade"), Some("websocket"));
    assert_eq!(
        asked
            .get("connection")
            .map(str::to_ascii_lowercase)
            .as_deref(),
        Some("upgrade")
    );
    assert_eq!(
        asked.get("sec-websocket-key"),
        Some("dGhlIHNhbXBsZSBub25jZQ==")
    );
}

#[tokio::test]
async fn the_end_of_an_upgraded_connection_reaches_the_client() {
    let upstream = line_echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/chat", &UPGRADE)).await;
    client.head().await;
    client.send("bye\r\n").await;
    assert_ne!(client.ended(PATIENCE).await, End::Open);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_upgraded_connection_at_the_upstream() {
    let (ending, ended) = tokio::sync::oneshot::channel();
    let ending = std::sync::Mutex::new(Some(ending));
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let ending = ending.lock().unwrap().take();
        async move {
            connection.request().await.unwrap();
            connection.wire.send(SWITCHING).await;
            let end = connection.wire.ended(PATIENCE).await;
            ending.expect("one connection").send(end).unwrap();
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/chat", &UPGRADE)).await;
    client.head().await;
    drop(client);
    assert_ne!(ended.await.unwrap(), End::Open);
}

#[tokio::test]
async fn an_upgrade_that_the_upstream_declines_is_an_ordinary_answer() {
    let upstream =
        Upstream::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        let answer = client
            .ask(request("GET", "/chat", &UPGRADE))
            .await
            .expect(403);
        assert_eq!(answer.text(), "no");
    }
}

#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_a_bad_gateway() {
    let upstream = line_echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    gateway.get("/").await.expect(502);
    gateway.h2().await.get("/").await.expect(502);
}

#[tokio::test]
async fn a_switch_to_another_protocol_than_asked_for_is_a_bad_gateway() {
    let upstream = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tunnel\r\n\r\n",
    )
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    gateway
        .connect()
        .await
        .ask(request("GET", "/", &UPGRADE))
        .await
        .expect(502);
}

#[tokio::test]
async fn cleartext_http2_is_no_upgrade_that_passes() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let fields = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ];
    let echoed = gateway.get_with("/", &fields).await.expect(200).echoed();
    for gone in ["upgrade", "http2-settings"] {
        assert!(!echoed.fields.has(gone), "{echoed:?}");
    }
}

#[tokio::test]
async fn an_upgrade_counts_in_its_limits() {
    let upstream = line_echo().await;
    let file = File::to(&upstream, &["all"]).limit("all", "by = \"everyone\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client.send(request("GET", "/chat", &UPGRADE)).await;
    assert_eq!(client.head().await.status(), 101);
    gateway
        .connect()
        .await
        .ask(request("GET", "/chat", &UPGRADE))
        .await
        .expect(429);
}
