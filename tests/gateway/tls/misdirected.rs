//! Requests for a host that needs its own connection (421), in every spelling.

use super::client_certificates::asking;
use super::{asked, gateway, gateway_with};
use crate::support::tls::Authority;
use crate::support::{Feed, Gateway, Upstream, Wire};
use http::Request;
use rustls::version::{TLS12, TLS13};

/// One open host, two hosts that demand certificates of one authority, and one that accepts any certificate.
async fn house(upstream: &Upstream, ca: &Authority) -> Gateway {
    let identities = [
        ca.identity("open", &["open.test", "also.test"]) + "default = true\n",
        ca.identity("inner", &["inner.test"]) + &asking(ca, "required"),
        ca.identity("other", &["other.test"]) + &asking(ca, "required"),
        ca.identity("free", &["free.test"]) + &asking(ca, "optional"),
    ];
    gateway(upstream, &identities).await
}

#[tokio::test]
async fn no_spelling_of_a_host_leads_past_the_check() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = house(&upstream, &ca).await;
    let tls = gateway.tls().await;
    for version in [&TLS12, &TLS13] {
        let mut wire = ca.client_of(&[version], None).wire(tls, "open.test").await;
        for host in [
            "inner.test",
            "INNER.test",
            "inner.test.",
            "inner.test:443",
            "Inner.Test.:8443",
        ] {
            let answer = wire.ask(asked(host)).await;
            let answer = answer.expect(421);
            assert!(!answer.fields.has("connection"), "{host}");
            let line = gateway.line_of(&answer).await;
            assert_eq!(line["reason"], "misdirected");
            assert!(line["route"].is_null() && line["limit"].is_null());
        }
        // The connection can still be used for its own hosts, and for hosts that demand nothing.
        for host in ["open.test", "also.test:443", "unknown.test"] {
            wire.ask(asked(host)).await.expect(200);
        }
        let absolute = "GET https://inner.test/ HTTP/1.1\r\nHost: open.test\r\n\r\n";
        wire.ask(absolute).await.expect(421);
        let body = "POST / HTTP/1.1\r\nHost: inner.test\r\nContent-Length: 3\r\n\r\nabc";
        wire.ask(body).await.expect(421);
        wire.ask(asked("open.test")).await.expect(200);
        wire.ask(asked("free.test")).await.expect(421);
    }
    assert_eq!(upstream.seen(), 8);
}

#[tokio::test]
async fn a_name_in_the_handshake_is_compared_by_its_identity() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = house(&upstream, &ca).await;
    let tls = gateway.tls().await;
    let anna = ca.showing(&ca.client("anna"));
    // A certificate of the right authority, shown to another identity.
    let mut wire = anna.wire(tls, "other.test").await;
    wire.ask(asked("inner.test")).await.expect(421);
    wire.ask(asked("open.test")).await.expect(421);
    wire.ask(asked("other.test")).await.expect(200);
    // The handshake has no name at all.
    let mut nameless = ca.trusting();
    nameless.0.enable_sni = false;
    let mut wire = nameless.wire(tls, "open.test").await;
    wire.ask(asked("inner.test")).await.expect(421);
    wire.ask(asked("open.test")).await.expect(200);
    // A request without a host belongs to the default identity.
    let mut wire = anna.wire(tls, "inner.test").await;
    wire.ask("GET / HTTP/1.0\r\n\r\n").await.expect(421);
    let mut wire = ca.trusting().wire(tls, "open.test").await;
    wire.ask("GET / HTTP/1.0\r\n\r\n").await.expect(200);
}

#[tokio::test]
async fn a_connection_of_http2_that_is_shared_between_hosts_goes_on() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = house(&upstream, &ca).await;
    let h2 = ca.trusting().h2(gateway.tls().await, "open.test").await;
    let to = |url: &str| Request::get(url).body(Feed::empty()).unwrap();
    h2.ask(to("https://inner.test/")).await.expect(421);
    h2.ask(to("https://INNER.test:443/")).await.expect(421);
    let call = Request::post("https://inner.test/a.B/C")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Feed::of("x"));
    h2.ask(call.unwrap()).await.expect(421);
    h2.ask(to("https://also.test/")).await.expect(200);
    h2.ask(to("https://open.test/")).await.expect(200);
}

#[tokio::test]
async fn nothing_is_charged_and_no_limit_is_asked() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("open", &["open.test"]) + "default = true\n",
        ca.identity("inner", &["inner.test"]) + &asking(&ca, "required"),
        "[limits.few]\nby = \"everyone\"\nrate = \"2/h\"\n[defaults]\nlimits = [\"few\"]\n".into(),
    ];
    let gateway = gateway_with(&upstream, "", &identities).await;
    let mut wire = ca.trusting().wire(gateway.tls().await, "open.test").await;
    for _ in 0..5 {
        wire.ask(asked("inner.test")).await.expect(421);
    }
    for _ in 0..2 {
        wire.ask(asked("open.test")).await.expect(200);
    }
    wire.ask(asked("open.test")).await.expect(429);
    wire.ask(asked("inner.test")).await.expect(421);
}

/// A reload demands more of clients. A request on a kept connection from before is sent to a new connection.
#[tokio::test]
async fn a_kept_connection_is_held_to_what_a_reload_asks() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let open = ca.identity("inner", &["inner.test"]);
    let gateway = gateway(&upstream, std::slice::from_ref(&open)).await;
    let tls = gateway.tls().await;
    let mut wire = Wire::over_tls(ca.trusting().connect(tls, "inner.test").await.unwrap());
    wire.ask(asked("inner.test")).await.expect(200);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace(&open, &(open.clone() + &asking(&ca, "required"))));
    let is_taken = |line: &str| line.contains("generation 2");
    gateway.said.line(0, "the reload", is_taken).await;
    wire.ask(asked("inner.test")).await.expect(421);
}
