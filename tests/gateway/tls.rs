//! TLS for clients: the certificates that they get, versions and protocols, and the ends of connections.

mod certificates_change;
mod certificates_count;
mod client_certificates;
mod demand;
mod ends;
mod misdirected;
mod refused_chains;
mod revocation;
mod rude_clients;

use crate::support::tls::{Authority, TlsClient};
use crate::support::{Feed, File, Gateway, PATIENCE, Upstream, Wire, eventually, get};
use http::Request;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error, ProtocolVersion};
use serde_json::Value;

/// Listeners in clear text, and with TLS for all identities.
pub(super) const LISTEN: &str =
    "listen = [\"127.0.0.1:0\", { address = \"127.0.0.2:0\", tls = true }]";

/// A gateway with these identities in front of `upstream`.
async fn gateway(upstream: &Upstream, identities: &[String]) -> Gateway {
    gateway_with(upstream, "", identities).await
}

async fn gateway_with(upstream: &Upstream, server: &str, identities: &[String]) -> Gateway {
    let file = File::to(upstream, &[]).server(&format!("{LISTEN}\n{server}"));
    Gateway::start(&file.with(&identities.concat())).await
}

pub(super) fn asked(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// The value of this field in the request that the upstream got.
pub(super) fn seen_field(echo: &Value, name: &str) -> Option<String> {
    let fields = echo["fields"].as_array().expect("the echo lists fields");
    let field = fields.iter().find(|field| field[0] == name)?;
    Some(field[1].as_str()?.to_owned())
}

#[tokio::test]
async fn the_named_host_chooses_the_certificate() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("exact", &["api.test"]),
        ca.identity("wild", &["*.api.test"]),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    for (name, shown) in [
        ("api.test", "api.test"),
        ("API.test", "api.test"),
        ("a.api.test", "*.api.test"),
    ] {
        let stream = ca.trusting().connect(tls, name).await.unwrap();
        let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let facts = tollgate::tls::CertificateFacts::read(&certificate).unwrap();
        assert_eq!(facts.names, [shown]);
        let mut wire = Wire::over_tls(stream);
        wire.ask(asked(name)).await.expect(200);
    }
    let refused = Error::AlertReceived(AlertDescription::UnrecognisedName);
    assert_eq!(ca.trusting().refused(tls, "b.test").await, refused);
    // The log has one line for all of them. The line is about the first, and the gateway may write it after the client
    // has the alert.
    let line = gateway.said.line(0, "the refusal", |line| {
        line.contains("no TLS with 127.0.0.1") && line.contains("`b.test`")
    });
    line.await;
    for name in ["a.b.api.test", "127.0.0.1"] {
        assert_eq!(ca.trusting().refused(tls, name).await, refused, "{name}");
    }
    counts(
        &gateway,
        "identity=\"none\",version=\"none\",result=\"no_name\"",
        3,
    )
    .await;
    counts(
        &gateway,
        "identity=\"exact\",version=\"1.3\",result=\"full\"",
        2,
    )
    .await;
    assert!(
        gateway
            .metrics()
            .await
            .contains("tollgate_tls_certificate_not_after_timestamp_seconds{identity=\"wild\"}")
    );
    // The other listener is unchanged.
    gateway.get("/").await.expect(200);
}

async fn counts(gateway: &Gateway, labels: &str, count: u64) {
    let line = format!("tollgate_tls_handshakes_total{{{labels}}} {count}");
    eventually(PATIENCE, &line, async || {
        gateway.metrics().await.contains(&line)
    })
    .await;
}

#[tokio::test]
async fn a_default_takes_the_clients_that_name_nobody_or_somebody_else() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let rest = ca.identity("rest", &["rest.test", "other.test"]);
    let identities = [
        ca.identity("api", &["api.test"]),
        rest + "default = true\nhosts = [\"rest.test\"]\n",
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    let mut wire = ca.trusting().wire(tls, "other.test").await;
    wire.ask(asked("other.test")).await.expect(200);
    let mut nameless = ca.trusting();
    nameless.0.enable_sni = false;
    let mut wire = nameless.wire(tls, "rest.test").await;
    wire.ask(asked("rest.test")).await.expect(200);
}

#[tokio::test]
async fn both_versions_and_both_protocols_are_spoken() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let tls = gateway.tls().await;
    for (version, number) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let client = ca.client_of(&[version], None);
        for protocols in [&[][..], &["http/1.1"], &["http/1.1", "h2"]] {
            let client = client.clone().speaking(protocols);
            let stream = client.connect(tls, "api.test").await.unwrap();
            let connection = stream.get_ref().1;
            assert_eq!(connection.protocol_version(), Some(number));
            // The gateway prefers HTTP/2.
            let agreed = protocols.last().map(|name| name.as_bytes());
            assert_eq!(connection.alpn_protocol(), agreed);
            if agreed != Some(b"h2") {
                let answer = Wire::over_tls(stream).ask(asked("api.test")).await;
                let echo = answer.expect(200).json();
                assert_eq!(
                    seen_field(&echo, "x-forwarded-proto").as_deref(),
                    Some("https")
                );
            }
        }
        let h2 = client.h2(tls, "api.test").await;
        let request = Request::get("https://api.test/").body(Feed::empty());
        h2.ask(request.unwrap()).await.expect(200);
    }
    let refused = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    let other = ca.trusting().speaking(&["spdy/3"]);
    assert_eq!(other.refused(tls, "api.test").await, refused);
}

#[tokio::test]
async fn an_identity_may_demand_the_newer_version() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identity = ca.identity("api", &["api.test"]) + "min = \"1.3\"\n";
    let gateway = gateway(&upstream, &[identity]).await;
    let tls = gateway.tls().await;
    let old = ca.client_of(&[&TLS12], None);
    let refused = Error::AlertReceived(AlertDescription::ProtocolVersion);
    assert_eq!(old.refused(tls, "api.test").await, refused);
    let mut wire = ca.trusting().wire(tls, "api.test").await;
    wire.ask(asked("api.test")).await.expect(200);
}

#[tokio::test]
async fn http2_in_a_connection_that_agreed_on_nothing_is_a_bad_request() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let mut wire = ca.trusting().wire(gateway.tls().await, "api.test").await;
    let answer = wire.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    answer.expect(400);
    assert_eq!(wire.ended(PATIENCE).await, crate::support::End::Closed);
    assert_eq!(upstream.seen(), 0);
}

async fn resumes(client: &TlsClient, gateway: &Gateway, name: &str) -> bool {
    let tls = gateway.tls().await;
    for _ in 0..2 {
        let mut wire = client.wire(tls, name).await;
        wire.ask(asked(name)).await.expect(200);
    }
    gateway.metrics().await.contains("result=\"resumed\"")
}

#[tokio::test]
async fn sessions_are_taken_up_again() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    for version in [&TLS12, &TLS13] {
        let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
        let client = ca.client_of(&[version], None);
        assert!(resumes(&client, &gateway, "api.test").await, "{version:?}");
    }
}

#[tokio::test]
async fn a_websocket_passes_over_tls() {
    let upstream = Upstream::playing(async |mut connection: crate::support::Connection| {
        connection.request().await.unwrap();
        let agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        connection.wire.send(agreed).await;
        while let Ok(byte) = connection.wire.exactly(1).await {
            connection.wire.send(byte).await;
        }
    })
    .await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let mut wire = ca.trusting().wire(gateway.tls().await, "api.test").await;
    wire.send("GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").await;
    assert_eq!(wire.head().await.status(), 101);
    for _ in 0..100 {
        wire.send("x").await;
        assert_eq!(wire.exactly(1).await.unwrap(), "x");
    }
    wire.finish_sending().await;
    assert_eq!(wire.ended(PATIENCE).await, crate::support::End::Closed);
}

/// Programs that users have on their machines. Each is tested only if this machine has it.
#[tokio::test]
async fn curl_and_openssl_are_served() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway(&upstream, &[ca.identity("api", &["api.test"])]).await;
    let port = gateway.tls().await.port();
    let trusted = ca.path("ca.pem");
    let trusted = trusted.to_str().unwrap();
    let resolve = format!("api.test:{port}:127.0.0.2");
    let url = format!("https://api.test:{port}/");
    for option in ["--http1.1", "--http2", "--tlsv1.3"] {
        let arguments = [
            "-sS",
            option,
            "--cacert",
            trusted,
            "--resolve",
            &resolve,
            &url,
        ];
        let Some(output) = run("curl", &arguments).await else {
            continue;
        };
        assert!(output.contains("\"fields\""), "{option}: {output}");
    }
    let connect = format!("127.0.0.2:{port}");
    let arguments = [
        "s_client",
        "-connect",
        &connect,
        "-servername",
        "api.test",
        "-CAfile",
        trusted,
        "-verify_return_error",
        "-tls1_2",
    ];
    if let Some(output) = run("openssl", &arguments).await {
        assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
        // Renegotiation is impossible, and so are old versions.
        assert!(
            output.contains("Secure Renegotiation IS supported"),
            "{output}"
        );
    }
}

/// The output of a program, or nothing if this machine does not have the program.
async fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .unwrap();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let both = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&both).into_owned())
}

#[tokio::test]
async fn a_route_knows_the_scheme() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let file = File::default()
        .server(LISTEN)
        .upstream("main", &[&upstream])
        .route("safe", "/{*rest}", "main", &[])
        .with("scheme = \"https\"")
        .with(&ca.identity("api", &["api.test"]));
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(404);
    let mut wire = ca.trusting().wire(gateway.tls().await, "api.test").await;
    wire.ask(get("/")).await.expect(200);
}
