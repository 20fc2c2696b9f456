//! The host that a server is asked for: the client's host, the server's own, or a given text. Addresses in answers lead
//! back to the gateway.

use super::{File, Gateway, Manner, file, gateway, h2c};
use crate::support::{Connection, ModernServer, Upstream, free_port, request};

fn one(server: &Upstream, lines: &str) -> String {
    format!("servers = \"{}\"\n{lines}", server.url())
}

/// A server that answers each request with this address in `Location`, where `HERE` stands for the server itself.
async fn leading(to: &'static str) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        while let Ok(head) = connection.request().await {
            let here = head.fields.get("host").unwrap_or_default().to_owned();
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-location: {to}\r\ncontent-length: 0\r\n\r\n"
            );
            let answer = answer.replace("HERE", &here);
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn servers_are_asked_for_the_host_that_the_file_names() {
    let server = Upstream::echo().await;
    let own = format!("127.0.0.1:{}", server.port());
    for (lines, host) in [
        ("", "gateway.test"),
        ("host = \"client\"", "gateway.test"),
        ("host = \"upstream\"", own.as_str()),
        ("host = \"app.internal:81\"", "app.internal:81"),
    ] {
        let gateway = gateway(&one(&server, lines)).await;
        for answer in [
            gateway.get("/").await.expect(200),
            // The client sends a field that ours replaces, so the fields are written one by one.
            gateway
                .get_with("/", &[("x-forwarded-host", "evil")])
                .await
                .expect(200),
            gateway.h2().await.get("/").await.expect(200),
        ] {
            let fields = answer.echoed().fields;
            assert_eq!(fields.all("host"), [host], "{lines}");
            let client = fields
                .get("x-forwarded-host")
                .unwrap_or_default()
                .to_owned();
            assert!(client.starts_with("gateway.test"), "{lines}: {client}");
        }
        // The host in the target counts as the client's, whatever `Host` says. A request of HTTP/1.0 may name no host.
        let mut wire = gateway.connect().await;
        let absolute = "GET http://api.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n";
        let fields = wire.ask(absolute).await.expect(200).echoed().fields;
        let asked = if host == "gateway.test" {
            "api.test"
        } else {
            host
        };
        assert_eq!(fields.all("host"), [asked], "{lines}");
        assert_eq!(fields.all("x-forwarded-host"), ["api.test"], "{lines}");
        let mut wire = gateway.connect().await;
        let fields = wire
            .ask("GET / HTTP/1.0\r\n\r\n")
            .await
            .expect(200)
            .echoed()
            .fields;
        let asked = if host == "gateway.test" {
            own.as_str()
        } else {
            host
        };
        assert_eq!(fields.all("host"), [asked], "{lines}");
    }
}

#[tokio::test]
async fn over_http2_the_host_is_the_authority() {
    let (server, plain) = h2c(Manner::default()).await;
    let answer = plain.get("/").await.expect(200);
    assert_eq!(answer.json()["authority"], "gateway.test");
    let lines = |host: &str| format!("servers = \"h2c://{}\"\nhost = \"{host}\"", server.address);
    let own = gateway(&lines("upstream")).await;
    let answer = own.get("/").await.expect(200);
    assert_eq!(answer.json()["authority"], server.address.to_string());
    let named = gateway(&lines("app.internal")).await;
    let answer = named.h2().await.get("/").await.expect(200);
    assert_eq!(answer.json()["authority"], "app.internal");
}

#[tokio::test]
async fn a_route_may_set_the_host() {
    let server = Upstream::echo().await;
    let file = file(&one(&server, "host = \"upstream\""))
        .with("request_headers = { set = { Host = \"set.internal\" } }");
    let gateway = Gateway::start(&file).await;
    let fields = gateway.get("/").await.expect(200).echoed().fields;
    assert_eq!(fields.all("host"), ["set.internal"]);
    assert_eq!(fields.all("x-forwarded-host"), ["gateway.test"]);
}

#[tokio::test]
async fn the_next_server_is_asked_for_its_own_host() {
    // One server closes the connection at each request, one echoes, and one accepts no connections.
    let breaking = Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
    })
    .await;
    let echo = Upstream::echo().await;
    let lines = format!(
        "servers = [\"{}\", \"{}\", \"http://127.0.0.1:{}\"]\nhost = \"upstream\"\neject = false\n\
         retry = {{ attempts = 3, budget = \"100%\" }}",
        breaking.url(),
        echo.url(),
        free_port()
    );
    let gateway = gateway(&lines).await;
    for target in ["/a", "/b", "/c", "/d", "/e", "/f"] {
        let answer = gateway.get(target).await.expect(200);
        let fields = answer.echoed().fields;
        assert_eq!(fields.all("host"), [format!("127.0.0.1:{}", echo.port())]);
    }
    let tried = breaking.requests();
    assert!(!tried.is_empty(), "no request was sent twice");
    for seen in tried {
        let host = format!("127.0.0.1:{}", breaking.port());
        assert_eq!(seen.head.fields.all("host"), [host]);
    }
}

#[tokio::test]
async fn over_http2_the_next_server_is_asked_for_its_own_host() {
    // One server refuses each stream, and one accepts no connections.
    let refusing = super::http2::refusing().await;
    let other = ModernServer::start(Manner::default()).await;
    let lines = format!(
        "servers = [\"h2c://127.0.0.1:{}\", \"h2c://{}\", \"h2c://127.0.0.1:{}\"]\nhost = \"upstream\"\neject = false",
        refusing.port(),
        other.address,
        free_port()
    );
    let gateway = gateway(&lines).await;
    let mut client = gateway.connect().await;
    for number in 0..6 {
        let method = if number % 2 == 0 { "GET" } else { "POST" };
        let asked = request(method, "/", &[("content-length", "0")]);
        let answer = client.ask(asked).await.expect(200).json();
        assert_eq!(answer["authority"], other.address.to_string(), "{number}");
    }
    assert!(refusing.connections() > 0, "no request was sent twice");
}

#[tokio::test]
async fn a_websocket_has_the_host_too() {
    let server = Upstream::echo().await;
    let gateway = gateway(&one(&server, "host = \"upstream\"")).await;
    let fields = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    let mut wire = gateway.connect().await;
    let answer = wire.ask(request("GET", "/", &fields)).await.expect(200);
    let host = format!("127.0.0.1:{}", server.port());
    assert_eq!(answer.echoed().fields.all("host"), [host]);
}

#[tokio::test]
async fn addresses_of_servers_lead_clients_back() {
    for (host, location, restored) in [
        (
            "upstream",
            "http://HERE/a?b=c#d",
            "http://api.test:99/a?b=c#d",
        ),
        (
            "app.internal",
            "http://app.internal/a",
            "http://api.test:99/a",
        ),
        // A server without TLS that sends the client to https: the client is led to https.
        (
            "app.internal",
            "https://app.internal/a",
            "https://api.test/a",
        ),
        (
            "app.internal",
            "http://other.internal/a",
            "http://other.internal/a",
        ),
        ("app.internal", "/a", "/a"),
        ("client", "http://app.internal/a", "http://app.internal/a"),
    ] {
        let server = leading(location).await;
        let gateway = gateway(&one(&server, &format!("host = \"{host}\""))).await;
        let mut wire = gateway.connect().await;
        let asked = "GET / HTTP/1.1\r\nHost: api.test:99\r\n\r\n";
        let answer = wire.ask(asked).await.expect(302);
        assert_eq!(answer.field("location"), restored, "{host} {location}");
        assert_eq!(
            answer.field("content-location"),
            restored,
            "{host} {location}"
        );
    }
}

#[tokio::test]
async fn a_prefix_that_servers_do_not_see_is_in_front_again() {
    let server = leading("http://HERE/orders/7?v=1").await;
    let file = File::default()
        .server("workers = 1\ntrust = [\"127.0.0.1\"]")
        .with(&format!(
            "[upstreams.main]\n{}",
            one(&server, "host = \"upstream\"")
        ))
        .route("stripped", "/api/{*rest}", "main", &[])
        .with("strip_prefix = \"/api\"")
        .route("moved", "/v1/{*rest}", "main", &[])
        .with("rewrite = \"/orders/{*rest}\"")
        .route("one", "/one/{id}", "main", &[])
        .with("rewrite = \"/orders/{id}\"");
    let gateway = Gateway::start(&file).await;
    for (target, restored) in [
        ("/api/x", "https://gateway.test/api/orders/7?v=1"),
        ("/v1/x", "https://gateway.test/v1/7?v=1"),
        ("/one/x", "https://gateway.test/orders/7?v=1"),
    ] {
        // A trusted proxy states that its client came over TLS.
        let by_tls = [("x-forwarded-proto", "https")];
        let answer = gateway.get_with(target, &by_tls).await.expect(302);
        assert_eq!(answer.field("location"), restored, "{target}");
    }
}
