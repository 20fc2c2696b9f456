//! The reach of a demand for certificates: every host below a wildcard, and every request of a route with such a
//! demand.

use super::client_certificates::asking;
use super::{asked, gateway_with};
use crate::support::tls::Authority;
use crate::support::{Feed, Gateway, Upstream, tollgate};
use http::Request;
use rustls::{AlertDescription, Error};

/// An open host, and a host that demands certificates for itself and all hosts below it.
fn partners(ca: &Authority) -> [String; 3] {
    [
        ca.identity("open", &["open.test"]) + "default = true\n",
        ca.identity("partners", &["*.par.test"]) + &asking(ca, "required"),
        "[routes.partners]\nhost = \"*.par.test\"\nupstream = \"main\"\n".into(),
    ]
}

#[tokio::test]
async fn a_wildcard_covers_its_hosts_at_any_depth() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = gateway_with(&upstream, "", &partners(&ca)).await;
    let tls = gateway.tls().await;
    let none = Error::AlertReceived(AlertDescription::CertificateRequired);
    assert_eq!(ca.trusting().refused(tls, "x.par.test").await, none);
    // A host one level deeper belongs to the same identity, whose certificate covers one label only.
    for name in ["a.x.par.test", "a.b.c.par.test"] {
        let refused = format!("{:?}", ca.trusting().refused(tls, name).await);
        assert!(refused.contains("*.par.test"), "{name}: {refused}");
    }
    let mut nameless = ca.trusting();
    nameless.0.enable_sni = false;
    for client in [ca.trusting(), nameless] {
        let mut wire = client.wire(tls, "open.test").await;
        for host in [
            "x.par.test",
            "a.x.par.test",
            "A.B.C.PAR.test.:443",
            "a.b.c.d.e.f.g.par.test",
        ] {
            let answer = wire.ask(asked(host)).await.expect(421);
            assert_eq!(gateway.line_of(&answer).await["reason"], "misdirected");
        }
        wire.ask(asked("par.test")).await.expect(200);
        wire.ask(asked("open.test")).await.expect(200);
    }
    let h2 = ca.trusting().h2(tls, "open.test").await;
    let to = |url: &str| Request::get(url).body(Feed::empty()).unwrap();
    h2.ask(to("https://a.x.par.test/")).await.expect(421);
    h2.ask(to("https://open.test/")).await.expect(200);
    let seen = upstream.seen();
    // A client with a certificate reaches these hosts on the connections of the identity.
    let anna = ca.showing(&ca.client("anna"));
    let mut wire = anna.wire(tls, "x.par.test").await;
    wire.ask(asked("x.par.test")).await.expect(200);
    wire.ask(asked("a.x.par.test")).await.expect(200);
    assert_eq!(upstream.seen(), seen + 2);
}

/// The routes of `by_route`: some demand certificates whatever the host is, and one does not.
const ROUTES: &str = "[limits.few]\nby = \"everyone\"\nrate = \"3/h\"\n\
     [routes.admin]\npath = \"/admin/{*rest}\"\nclient_cert = \"required\"\nlimits = [\"few\"]\nupstream = \"main\"\n\
     [routes.probe]\npath = \"/healthz\"\nclient_cert = \"none\"\nrespond = { status = 204 }\n";

/// Hosts whose identities ask no client, some clients or all clients for a certificate.
async fn by_route(upstream: &Upstream, ca: &Authority) -> Gateway {
    let identities = [
        ca.identity("open", &["open.test"]) + "default = true\n",
        ca.identity("free", &["free.test"]) + &asking(ca, "optional"),
        ca.identity("inner", &["inner.test"]) + &asking(ca, "required"),
        ROUTES.into(),
    ];
    gateway_with(upstream, "", &identities).await
}

fn admin(host: &str) -> String {
    format!("GET /admin/users HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[tokio::test]
async fn a_route_demands_certificates_whatever_the_host_is() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let gateway = by_route(&upstream, &ca).await;
    let tls = gateway.tls().await;
    for name in ["open.test", "free.test"] {
        let mut wire = ca.trusting().wire(tls, name).await;
        let answer = wire.ask(admin(name)).await.expect(403);
        assert!(
            answer.text().contains("client certificate"),
            "{}",
            answer.text()
        );
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "certificate_required");
        assert_eq!(line["route"], "admin");
        // A field that the client writes does not replace a certificate.
        let claimed = admin(name).replace("\r\n\r\n", "\r\nClient-Cert: :MA==:\r\n\r\n");
        wire.ask(claimed).await.expect(403);
        wire.ask(format!("GET /healthz HTTP/1.1\r\nHost: {name}\r\n\r\n"))
            .await
            .expect(204);
    }
    // In clear text there is no certificate either.
    gateway.get("/admin/users").await.expect(403);
    let call = Request::post("https://open.test/admin/a.B/C")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Feed::of("x"));
    let h2 = ca.trusting().h2(tls, "open.test").await;
    let refused = h2.ask(call.unwrap()).await.expect(200);
    assert_eq!(refused.fields.get("grpc-status"), Some("7"));
    assert_eq!(upstream.seen(), 0);
    // The refused requests were not charged, and clients with a certificate are counted.
    let anna = ca.showing(&ca.client("anna"));
    for name in ["free.test", "inner.test", "inner.test"] {
        let mut wire = anna.wire(tls, name).await;
        wire.ask(admin(name)).await.expect(200);
    }
    let mut wire = anna.wire(tls, "free.test").await;
    wire.ask(admin("free.test")).await.expect(429);
}

#[tokio::test]
async fn the_commands_tell_what_a_demand_covers() {
    let ca = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let parts = partners(&ca);
    let file = |parts: &[String], routes: &str| {
        let file = format!(
            "server.listen = {{ address = \"127.0.0.1:0\", tls = true }}\nupstreams.main.servers = \"a:1\"\n{}{routes}",
            parts.concat()
        );
        std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
    };
    let explained = async |url: &str, sni: &str| {
        let said = tollgate(folder.path(), &["explain", "GET", url, "--sni", sni]).await;
        said.stdout
    };
    file(&parts, ROUTES);
    let said = explained("https://a.x.par.test/", "a.x.par.test").await;
    assert!(
        said.contains("it demands certificates for every host below *.par.test"),
        "{said}"
    );
    let said = explained("https://a.x.par.test/", "open.test").await;
    assert!(said.contains("421"), "{said}");
    let said = explained("https://open.test/admin/a", "open.test").await;
    assert!(
        said.contains("403") && said.contains("asks for a client certificate"),
        "{said}"
    );
    // A route for the partners' hosts and for others can be reached without a certificate.
    file(
        &parts[..2],
        "[routes.more]\nhost = \"*.test\"\npath = \"/more\"\nupstream = \"main\"\n[routes.any]\npath = \"/any\"\nupstream = \"main\"\n",
    );
    let checked = tollgate(folder.path(), &["check"]).await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let text = checked.stderr + &checked.stdout;
    for line in [
        "route `more` is reached without the certificate that identity `partners` demands",
        "client_cert = \"required\"",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
