//! Clients' certificates as keys of limits, as members of groups, in the field for servers, and in the log.

use super::client_certificates::asking;
use super::{LISTEN, asked, gateway, seen_field};
use crate::support::tls::{Authority, Pair};
use crate::support::{File, Gateway, Upstream, get};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()
}

fn fingerprint(pair: &Pair) -> String {
    let facts = tollgate::tls::CertificateFacts::read(&der(pair)).unwrap();
    let digits = facts.fingerprint.iter();
    digits.map(|byte| format!("{byte:02x}")).collect()
}

async fn limited(upstream: &Upstream, identities: &[String], limit: &str) -> Gateway {
    let file = File::to(upstream, &["l"]).server(LISTEN).limit("l", limit);
    Gateway::start(&file.with(&identities.concat())).await
}

async fn status(ca: &Authority, shown: &Pair, gateway: &Gateway, host: &str) -> u16 {
    let tls = gateway.tls().await;
    let mut wire = ca.showing(shown).wire(tls, host).await;
    wire.ask(asked(host)).await.status
}

#[tokio::test]
async fn a_subject_counts_across_renewals_and_apart_from_other_authorities() {
    let upstream = Upstream::echo().await;
    let (ca, theirs) = (Authority::new(), Authority::new());
    let identities = [
        ca.identity("ours", &["ours.test"]) + &asking(&ca, "required"),
        ca.identity("again", &["again.test"]) + &asking(&ca, "required"),
        ca.identity("theirs", &["theirs.test"]) + &asking(&theirs, "required"),
    ];
    let limit = "by = \"tls:subject\"\nmissing = \"refuse\"\nrate = \"2/h\"";
    let gateway = limited(&upstream, &identities, limit).await;
    let (old, new) = (ca.client("anna"), ca.client("anna"));
    assert_eq!(status(&ca, &old, &gateway, "ours.test").await, 200);
    // A renewed certificate, shown to another table with the same authority.
    assert_eq!(status(&ca, &new, &gateway, "again.test").await, 200);
    assert_eq!(status(&ca, &new, &gateway, "ours.test").await, 429);
    assert_eq!(
        status(&ca, &ca.client("bert"), &gateway, "ours.test").await,
        200
    );
    // Another authority could issue a certificate with the same subject.
    let same = theirs.client("anna");
    assert_eq!(status(&ca, &same, &gateway, "theirs.test").await, 200);
    // Without TLS the key is missing, and no field can replace it.
    let claims = [
        ("Client-Cert", ":MA==:"),
        ("X-Forwarded-Client-Cert", "Subject=\"CN=anna\""),
    ];
    let answer = gateway.get_with("/", &claims).await.expect(401);
    assert_eq!(answer.field("www-authenticate"), "Certificate");
    let line = gateway.line_of(&answer).await;
    assert_eq!(line["reason"], "missing_key");
}

#[tokio::test]
async fn a_fingerprint_counts_one_certificate() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [ca.identity("ours", &["ours.test"]) + &asking(&ca, "optional")];
    let limit = "by = \"tls:fingerprint\"\nmissing = \"shared\"\nrate = \"1/h\"";
    let gateway = limited(&upstream, &identities, limit).await;
    let (old, new) = (ca.client("anna"), ca.client("anna"));
    assert_eq!(status(&ca, &old, &gateway, "ours.test").await, 200);
    assert_eq!(status(&ca, &old, &gateway, "ours.test").await, 429);
    let tls = gateway.tls().await;
    let mut wire = ca.showing(&new).wire(tls, "ours.test").await;
    let answer = wire.ask(asked("ours.test")).await.expect(200);
    let line = gateway.line_of(&answer).await;
    assert_eq!(line["keys"]["l"], fingerprint(&new));
    // Clients without a certificate count together, with TLS or without.
    let mut wire = ca.trusting().wire(tls, "ours.test").await;
    wire.ask(asked("ours.test")).await.expect(200);
    gateway.get("/").await.expect(429);
}

#[tokio::test]
async fn groups_know_clients_by_their_certificates() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let named = ca.client_with("anna, of us", |params| {
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, "House");
    });
    let printed = ca.client("bert");
    let colons: Vec<String> = fingerprint(&printed)
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
        .collect();
    let limit = "by = \"tls:subject\"\nmissing = \"ip\"\nrate = \"1/h\"\nexempt = { groups = [\"named\", \"printed\"] }";
    let groups = format!(
        "[groups.named]\nby = \"tls:subject\"\nmembers = [{:?}]\n[groups.printed]\nby = \"tls:fingerprint\"\nmembers = [\"{}\"]\n",
        "O=House,CN=anna\\, of us",
        colons.join(":"),
    );
    let identities = [
        ca.identity("ours", &["ours.test"]) + &asking(&ca, "required"),
        groups,
    ];
    let gateway = limited(&upstream, &identities, limit).await;
    for _ in 0..3 {
        for shown in [&named, &printed] {
            assert_eq!(status(&ca, shown, &gateway, "ours.test").await, 200);
        }
    }
    let other = ca.client("carl");
    assert_eq!(status(&ca, &other, &gateway, "ours.test").await, 200);
    assert_eq!(status(&ca, &other, &gateway, "ours.test").await, 429);
}

#[tokio::test]
async fn known_subjects_alone_may_be_demanded() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let groups = "[groups.known]\nby = \"tls:subject\"\nmembers = [\"CN=anna\"]\n".to_owned();
    let identities = [
        ca.identity("ours", &["ours.test"]) + &asking(&ca, "required"),
        groups,
    ];
    let limit = "by = \"tls:subject\"\nmissing = \"refuse\"\nunknown = \"refuse\"\nrate = \"9/h\"";
    let gateway = limited(&upstream, &identities, limit).await;
    assert_eq!(
        status(&ca, &ca.client("anna"), &gateway, "ours.test").await,
        200
    );
    assert_eq!(
        status(&ca, &ca.client("bert"), &gateway, "ours.test").await,
        401
    );
}

#[tokio::test]
async fn a_server_gets_the_certificate_where_the_file_says_so() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    for trust in ["", "trust = [\"127.0.0.0/8\"]"] {
        let file = File::default()
            .server(&format!("{LISTEN}\n{trust}"))
            .upstream("told", &[&upstream])
            .with("forward_client_cert = true")
            .upstream("untold", &[&upstream])
            .route("told", "/told", "told", &[])
            .route("untold", "/{*rest}", "untold", &[])
            .with(&(ca.identity("ours", &["ours.test"]) + &asking(&ca, "optional")));
        let gateway = Gateway::start(&file).await;
        let tls = gateway.tls().await;
        let claims = "Client-Cert: :AAAA:\r\nClient-Cert-Chain: :AAAA:\r\nX-Forwarded-Client-Cert: By=me\r\n";
        let request = |path: &str, claims: &str| {
            get(path).replacen("\r\n\r\n", &format!("\r\n{claims}\r\n"), 1)
        };
        let believed = |claim: &str| (!trust.is_empty()).then(|| claim.to_owned());
        let anna = ca.client("anna");
        let mut shown = ca.showing(&anna).wire(tls, "ours.test").await;
        let expected = format!(":{}:", STANDARD.encode(der(&anna)));
        for claims in ["", claims] {
            let echo = shown.ask(request("/told", claims)).await.expect(200).json();
            assert_eq!(seen_field(&echo, "client-cert").as_ref(), Some(&expected));
            assert_eq!(seen_field(&echo, "client-cert-chain"), None);
        }
        let mut none = ca.trusting().wire(tls, "ours.test").await;
        for path in ["/told", "/untold"] {
            let echo = none.ask(request(path, claims)).await.expect(200).json();
            assert_eq!(seen_field(&echo, "client-cert"), believed(":AAAA:"));
            assert_eq!(seen_field(&echo, "client-cert-chain"), believed(":AAAA:"));
            assert_eq!(
                seen_field(&echo, "x-forwarded-client-cert"),
                believed("By=me")
            );
        }
        let echo = shown.ask(request("/untold", "")).await.expect(200).json();
        assert_eq!(seen_field(&echo, "client-cert"), None);
    }
}

#[tokio::test]
async fn the_log_tells_of_the_handshake() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identities = [
        ca.identity("open", &["open.test"]) + "default = true\n",
        ca.identity("inner", &["inner.test"]) + &asking(&ca, "optional"),
    ];
    let gateway = gateway(&upstream, &identities).await;
    let tls = gateway.tls().await;
    let plain = gateway.get("/").await.expect(200);
    let line = gateway.line_of(&plain).await;
    assert!(line.get("tls").is_none() && line.get("client_subject").is_none());

    let client = ca.client_of(&[&TLS13], None);
    for is_resumed in [false, true] {
        let mut wire = client.wire(tls, "open.test").await;
        let answer = wire.ask(asked("OPEN.test:443")).await.expect(200);
        let line = gateway.line_of(&answer).await;
        let expected =
            serde_json::json!({"version": "1.3", "identity": "open", "resumed": is_resumed});
        assert_eq!(line["tls"], expected);
        assert!(line.get("client_subject").is_none());
    }
    let mut wire = client.wire(tls, "open.test").await;
    let answer = wire.ask(asked("else.test")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["tls"]["sni"], "open.test");
    let mut wire = ca.showing(&ca.client("anna")).wire(tls, "inner.test").await;
    let answer = wire.ask(asked("inner.test")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client_subject"], "CN=anna");
    let mut wire = client.wire(tls, "inner.test").await;
    let answer = wire.ask(asked("inner.test")).await.expect(200);
    let line = gateway.line_of(&answer).await;
    assert_eq!(line.get("client_subject"), Some(&serde_json::Value::Null));
    wire.ask("\u{1}\r\n\r\n").await.expect(400);
    let line = gateway.line_where("reason", "bad_request").await;
    assert_eq!(line["tls"]["identity"], "inner");
}

#[tokio::test]
async fn without_an_identity_that_asks_check_says_so() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let limit = "[limits.l]\nby = \"tls:fingerprint\"\nmissing = \"ip\"\nrate = \"1/h\"\n";
    let file = |client: &str| {
        let file = File::to(&upstream, &["l"]).server(LISTEN);
        let identity = ca.identity("ours", &["ours.test"]) + client;
        file.with(limit).with(&identity).text()
    };
    let path = ca.path("gateway.toml");
    let path = path.to_str().unwrap();
    for (client, note) in [
        (String::new(), "no request has a certificate"),
        (asking(&ca, "optional"), "starts afresh"),
    ] {
        std::fs::write(path, file(&client)).unwrap();
        let said = super::run(env!("CARGO_BIN_EXE_tollgate"), &["check", "--config", path]).await;
        let said = said.unwrap();
        assert!(said.contains(note), "{said}");
    }
}
