//! The log says why a WebSocket fails as it does for any other answer: in words, with the faulty line, and with the
//! remedy where it is known.

use crate::support::{File, Gateway, Manner, ModernServer, Upstream, get, request};

const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n";

/// Sends this request and expects a 502. The request's line and the log must state `cause`, and the log also `line`.
async fn tells(gateway: &Gateway, asked: String, cause: &str, line: &str) {
    let mut client = gateway.connect().await;
    client.send(asked).await;
    let answer = client.answer().await.expect(502);
    let told = gateway.line_of(&answer).await;
    let fault = told["upstream_fault"].as_str().unwrap_or_default();
    assert!(fault.contains(cause), "{cause}: {told}");
    let said = gateway
        .said
        .line(0, "the cause", |line| line.contains("no valid answer"))
        .await;
    assert!(said.contains(cause) && said.contains(line), "{said}");
}

#[tokio::test]
async fn a_switch_to_another_protocol_is_told_with_its_name() {
    let plain = get("/");
    let upgrade = request("GET", "/", &UPGRADE);
    for (asked, fields, cause, line) in [
        (
            &plain,
            "Connection: upgrade\r\nUpgrade: h2c\r\n",
            "had not asked for",
            "\"upgrade: h2c\"",
        ),
        (
            &upgrade,
            "Connection: upgrade\r\nUpgrade: tarpit/1\u{1}\r\n",
            "control character",
            "Upgrade: tarpit/1\\x01",
        ),
        (
            &upgrade,
            "Connection: upgrade\r\nUpgrade: tarpit/1\r\n",
            "another protocol (status 101) than the WebSocket",
            "\"upgrade: tarpit/1\"",
        ),
        (&upgrade, "", "does not say to which", ""),
        (
            &upgrade,
            "Upgrade: websocket\r\n",
            "without `Connection: Upgrade`",
            "\"upgrade: websocket\"",
        ),
    ] {
        let upstream = Upstream::saying(&format!("{SWITCHING}{fields}\r\n")).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        tells(&gateway, asked.clone(), cause, line).await;
    }
}

#[tokio::test]
async fn an_answer_to_a_websockets_request_is_told_with_its_line() {
    let first = "HTTP/1.1 200 OK\r\n";
    for (answer, cause, line) in [
        (
            "garbage\r\n\r\n".to_owned(),
            "the first line is not one of HTTP/1.1 or HTTP/1.0",
            "\"garbage\"",
        ),
        (
            format!("{first}bad name: 1\r\n\r\n"),
            "a field's name is not valid",
            "\"bad name: 1\"",
        ),
        (
            format!("{SWITCHING}x-a: a\u{1}b\r\n\r\n"),
            "a control character",
            "x-a: a\\x01b",
        ),
        (
            format!("{first}x-half: "),
            "inside the answer's head",
            "x-half",
        ),
        (String::new(), "ended before the answer", ""),
        (
            "\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{28}".to_owned(),
            "write `https://`",
            "",
        ),
    ] {
        let upstream = Upstream::saying(&answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        tells(&gateway, request("GET", "/", &UPGRADE), cause, line).await;
    }
}

/// A server of HTTP/2 alone has no WebSockets, in whichever way the file says that it has HTTP/2 alone.
#[tokio::test]
async fn a_websocket_to_a_server_of_http2_is_told_what_it_needs() {
    let server = ModernServer::start(Manner::default()).await;
    for scheme in ["h2c", "http"] {
        let file = File::default()
            .with(&format!(
                "[upstreams.main]\nservers = \"{scheme}://{}\"",
                server.address
            ))
            .route("all", "/{*rest}", "main", &[]);
        let gateway = Gateway::start(&file).await;
        let asked = request("GET", "/", &UPGRADE);
        tells(&gateway, asked, "WebSockets need HTTP/1.1", "").await;
    }
}
