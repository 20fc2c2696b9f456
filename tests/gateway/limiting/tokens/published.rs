//! Keys that an issuer publishes at a URL: the gateway reads them while it serves, keeps them while the issuer is away,
//! and asks for them again when a token names a new key.

use super::{asked, signed};
use crate::support::tls::Authority;
use crate::support::{
    Connection, File, Gateway, Manner, ModernServer, PATIENCE, Upstream, eventually, tollgate,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A key of the issuer.
struct IssuerKey {
    id: &'static str,
    pair: KeyPair,
}

impl IssuerKey {
    fn new(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.pair.der_bytes());
        json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": self.id, "x": x })
    }

    fn token(&self, sub: &str) -> String {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.id.into());
        let key = EncodingKey::from_ed_pem(self.pair.serialize_pem().as_bytes()).unwrap();
        signed(&header, &key, &json!({ "sub": sub }))
    }
}

fn document(keys: &[&IssuerKey]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// A server that answers as the test tells it.
struct Issuer {
    server: Upstream,
    says: Arc<Mutex<String>>,
}

impl Issuer {
    async fn new(answer: String) -> Self {
        let says = Arc::new(Mutex::new(answer));
        let saying = Arc::clone(&says);
        let server = Upstream::playing(move |mut connection: Connection| {
            let saying = Arc::clone(&saying);
            async move {
                if connection.request().await.is_ok() {
                    let says = saying.lock().unwrap().clone();
                    // The gateway may close the connection if an answer is too long.
                    let _ = connection.wire.try_send(says).await;
                }
            }
        })
        .await;
        Self { server, says }
    }

    fn say(&self, answer: String) {
        *self.says.lock().unwrap() = answer;
    }

    fn url(&self) -> String {
        format!("{}/keys?tenant=secret", self.server.url())
    }

    fn file(&self, upstream: &Upstream, more: &str) -> File {
        let url = self.url();
        let jwt = format!("[jwt]\njwks = \"{url}\"\nalgorithms = [\"EdDSA\"]");
        File::to(upstream, &["user"])
            .admin("listen = \"127.0.0.1:0\"")
            .with(&jwt)
            .limit(
                "user",
                &format!("by = \"jwt:sub\"\nrate = \"1000/h\"\n{more}"),
            )
    }
}

async fn becomes(gateway: &Gateway, token: &str, status: u16) {
    eventually(PATIENCE, "the keys are read", async || {
        asked(gateway, token).await.status == status
    })
    .await;
}

#[tokio::test]
async fn keys_are_there_when_the_gateway_serves_and_a_new_one_is_asked_for_once_a_minute() {
    let upstream = Upstream::echo().await;
    let (old, new, third) = (
        IssuerKey::new("old"),
        IssuerKey::new("new"),
        IssuerKey::new("third"),
    );
    let issuer = Issuer::new(answer("200 OK", &document(&[&old]))).await;
    let gateway = Gateway::start(&issuer.file(&upstream, "missing = \"skip\"")).await;
    asked(&gateway, &old.token("ann")).await.expect(200);
    let head = issuer.server.requests()[0].head.clone();
    assert_eq!(head.target(), "/keys?tenant=secret");
    assert!(head.fields.get("accept").unwrap().contains("jwk-set"));

    // The key is new, so the token is refused, and the gateway asks for the key.
    issuer.say(answer("200 OK", &document(&[&new])));
    let refused = asked(&gateway, &new.token("ann")).await.expect(401);
    assert_eq!(gateway.line_of(&refused).await["reason"], "bad_token");
    becomes(&gateway, &new.token("ann"), 200).await;
    // A key that the issuer no longer publishes is no longer trusted.
    asked(&gateway, &old.token("ann")).await.expect(401);
    for _ in 0..50 {
        asked(&gateway, &third.token("eve")).await.expect(401);
    }
    // Tokens cause a question once a minute at most. So far the server got one question at the start, and one for the
    // first of these tokens.
    assert_eq!(issuer.server.seen(), 2);

    // A reload keeps the keys that were read, although the issuer is away.
    issuer.say(answer("500 Internal Server Error", "no"));
    let file = issuer.file(&upstream, "missing = \"refuse\"");
    gateway.rename_over(&file.text());
    gateway
        .said
        .line(0, "the reload", |line| {
            line.contains("generation 2 is in force")
        })
        .await;
    asked(&gateway, &new.token("ann")).await.expect(200);
    gateway.get("/").await.expect(401);
    assert_eq!(issuer.server.seen(), 2);
    let metrics = gateway.metrics().await;
    assert!(
        metrics.contains("tollgate_jwks_fetches_total{result=\"changed\"} 2"),
        "{metrics}"
    );
    assert!(
        metrics.contains("/keys\"} 1") && !metrics.contains("secret"),
        "{metrics}"
    );
    assert!(!gateway.said.text().contains("tenant=secret"));
}

#[tokio::test]
async fn what_needs_a_token_is_503_until_keys_were_read_and_no_longer() {
    let upstream = Upstream::echo().await;
    let key = IssuerKey::new("one");
    let issuer = Issuer::new(answer("503 Service Unavailable", "later")).await;
    let file = issuer
        .file(&upstream, "missing = \"skip\"")
        .limit(
            "strict",
            "by = \"jwt:sub\"\nmissing = \"refuse\"\nrate = \"1000/h\"",
        )
        .route("strict", "/strict", "main", &["strict"])
        .route("free", "/free", "main", &[])
        .with("[groups.gold]\nby = \"jwt:plan\"\nmembers = [\"gold\"]")
        .route("gold", "/for", "main", &[])
        .with("groups = [\"gold\"]")
        .route("others", "/for", "main", &[])
        .route("told", "/told", "main", &[])
        .with("forward_identity = { x-consumer = \"{jwt:sub}\" }");
    let gateway = Gateway::start(&file).await;
    let token = key.token("ann");
    let refused = asked(&gateway, &token).await.expect(503);
    assert_eq!(refused.field("retry-after"), "1");
    assert_eq!(gateway.line_of(&refused).await["reason"], "keys_unread");
    // Without a token there is nothing to verify.
    gateway.get("/").await.expect(200);
    gateway.get("/strict").await.expect(401);
    let free = [("Authorization", token.as_str())];
    gateway.get_with("/free", &free).await.expect(200);
    for target in ["/for", "/told"] {
        let unknown = gateway.get_with(target, &free).await.expect(503);
        assert_eq!(gateway.line_of(&unknown).await["reason"], "keys_unread");
        gateway.get(target).await.expect(200);
    }
    let counted = "tollgate_http_requests_keys_unread_total 3";
    let metrics = gateway.metrics().await;
    assert!(metrics.contains(counted), "{metrics}");
    let ready = gateway.admin_get("/readyz").await.expect(200).text();
    assert!(
        ready.starts_with("ready\njwks: no keys read yet from http://127.0.0.1"),
        "{ready}"
    );
    // A value that is not a token is refused whatever the keys are.
    asked(&gateway, "Bearer x").await.expect(401);
    // A token that no key of this file may sign is refused, too.
    let other = super::shared(super::SECRET, &json!({ "sub": "eve" }));
    asked(&gateway, &other).await.expect(401);
    for (what, bad) in [
        ("no JWKS", answer("200 OK", "{}")),
        ("no key of use", answer("200 OK", "{\"keys\":[]}")),
        (
            "elsewhere",
            "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".into(),
        ),
        ("too long", answer("200 OK", &"x".repeat(2_000_000))),
        ("no HTTP", "hello\r\n\r\n".into()),
    ] {
        let before = issuer.server.seen();
        issuer.say(bad);
        issuer.server.sees(before + 1).await;
        assert_eq!(asked(&gateway, &token).await.status, 503, "{what}");
    }
    issuer.say(answer("200 OK", &document(&[&key])));
    becomes(&gateway, &token, 200).await;
    let lines = gateway.said.text();
    assert_eq!(
        lines.matches("cannot read the keys of tokens").count(),
        1,
        "{lines}"
    );
    assert!(lines.contains("keys of tokens were read from") && lines.contains("/keys?***: 1"));
}

#[tokio::test]
async fn a_silent_issuer_delays_no_start_for_long() {
    let upstream = Upstream::echo().await;
    let silent = Upstream::silent().await;
    let jwt = format!(
        "[jwt]\njwks = \"{}\"\nalgorithms = [\"EdDSA\"]",
        silent.url()
    );
    let file = File::to(&upstream, &["user"])
        .with(&jwt)
        .limit("user", "by = \"jwt:sub\"\nrate = \"9/h\"\nmissing = \"ip\"");
    let start = std::time::Instant::now();
    let gateway = Gateway::start(&file).await;
    assert!(start.elapsed() < Duration::from_secs(15));
    asked(&gateway, &IssuerKey::new("one").token("ann"))
        .await
        .expect(503);
}

#[tokio::test]
async fn an_issuer_is_believed_by_its_authority_alone() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let server = ModernServer::start(Manner {
        pair: Some(ca.server(&["127.0.0.1"])),
        ..Manner::default()
    })
    .await;
    // The server's answers contain no keys: the check reads them, and names the fault.
    for (ca_line, says) in [
        (format!("ca = {:?}", ca.path("ca.pem")), "not a JWKS"),
        (String::new(), "authority is not trusted"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let url = format!("https://127.0.0.1:{}/keys", server.address.port());
        let jwt = format!("[jwt]\njwks = \"{url}\"\nalgorithms = [\"EdDSA\"]\n{ca_line}");
        let file = File::to(&upstream, &["user"])
            .with(&jwt)
            .limit("user", "by = \"jwt:sub\"\nrate = \"9/h\"\nmissing = \"ip\"");
        std::fs::write(&path, file.text()).unwrap();
        let checked = tollgate(folder.path(), &["check", "gateway.toml"]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let checked = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
        assert_eq!(checked.code, Some(3), "{checked:?}");
        let line = checked
            .stdout
            .lines()
            .find(|line| line.contains("jwks"))
            .unwrap()
            .to_owned();
        assert!(
            line.contains("NOT REACHABLE") && line.contains(says),
            "{line}"
        );
    }
}

#[tokio::test]
async fn check_reads_keys_and_shows_their_ids() {
    let upstream = Upstream::echo().await;
    let (one, two) = (IssuerKey::new("one"), IssuerKey::new("two"));
    let issuer = Issuer::new(answer("200 OK", &document(&[&one, &two]))).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, issuer.file(&upstream, "missing = \"ip\"").text()).unwrap();
    let checked = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("2 keys: one, two"), "{checked:?}");
}

/// Only keys that could not be read could show whether the token is good, so no answer is derived from it.
#[tokio::test]
async fn explain_does_not_know_what_it_cannot_verify_unless_it_reads_the_keys() {
    let (upstream, key) = (Upstream::echo().await, IssuerKey::new("one"));
    let issuer = Issuer::new(answer("200 OK", &document(&[&key]))).await;
    let folder = tempfile::tempdir().unwrap();
    let text = issuer.file(&upstream, "missing = \"refuse\"").text();
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let token = format!("authorization: {}", key.token("anna"));
    let ask = async |more: &[&str]| {
        let asked = ["explain", "GET", "/", "-H", &token];
        let done = tollgate(folder.path(), &[&asked[..], more].concat()).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let said = ask(&[]).await;
    assert!(!said.contains("answer  503"), "{said}");
    for line in [
        "unknown the keys of the token's issuer, which are at a URL; --connect reads them",
        "answer  not known, since it depends on what is unknown above",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let json = |said: &str| serde_json::from_str::<Value>(said).unwrap();
    let said = json(&ask(&["--json"]).await);
    assert_eq!(said["unknown"], json!(["keys_by_url"]));
    assert_eq!(said["answer"]["by"], "unknown");
    assert_eq!(said["answer"]["status"], Value::Null);
    assert_eq!(said["limits"][0]["keys_unread"], "jwt:sub");
    assert_eq!(issuer.server.seen(), 0);
    let said = json(&ask(&["--connect", "--json"]).await);
    assert_eq!(said["unknown"], json!([]));
    assert_eq!(said["answer"]["by"], "upstream");
    assert_eq!(said["limits"][0]["key"], "anna");
    issuer.say(answer("500 No", ""));
    let asked = ["explain", "GET", "/", "--connect"];
    let failed = tollgate(folder.path(), &asked).await;
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(
        failed.stderr.contains("cannot be read: it answers 500"),
        "{failed:?}"
    );
    assert!(!failed.stderr.contains("secret"), "{failed:?}");
}

/// A limit that refuses the client may exempt it, or count it with other numbers. This is unknown while the keys are
/// not read.
#[tokio::test]
async fn no_refusal_is_expected_of_a_limit_that_the_token_may_change() {
    let (upstream, key) = (Upstream::echo().await, IssuerKey::new("one"));
    let issuer = Issuer::new(answer("200 OK", &document(&[&key]))).await;
    let token = format!("authorization: {}", key.token("anna"));
    for (by_token, expected) in [
        ("exempt = { groups = [\"staff\"] }", "unknown"),
        ("tiers = { staff = { rate = \"1000/s\" } }", "unknown"),
        ("", "gateway"),
    ] {
        let file = issuer
            .file(&upstream, "missing = \"skip\"")
            .with("[groups.staff]\nby = \"jwt:sub\"\nmembers = [\"anna\"]\n")
            .limit(
                "tight",
                &format!(
                    "by = \"ip\"\nrate = \"10/s\"\nburst = 2\ncost = {{ header = \"x-cost\", max = 50 }}\n{by_token}"
                ),
            )
            .with("[defaults]\nlimits = [\"tight\"]\n");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let asked = [
            "explain",
            "GET",
            "/",
            "-H",
            &token,
            "-H",
            "x-cost: 5",
            "--json",
        ];
        let done = tollgate(folder.path(), &asked).await;
        let said: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
        assert_eq!(said["answer"]["by"], expected, "{by_token}: {said}");
    }
}

/// One limit refuses for a cookie that is not there, and the numbers of the other depend on the token.
#[tokio::test]
async fn a_tier_that_the_token_decides_is_unknown_where_another_limit_refuses() {
    let (upstream, key) = (Upstream::echo().await, IssuerKey::new("one"));
    let issuer = Issuer::new(answer("200 OK", &document(&[&key]))).await;
    let token = format!("authorization: {}", key.token("anna"));
    let jwt = format!(
        "[jwt]\njwks = \"{}\"\nalgorithms = [\"EdDSA\"]",
        issuer.url()
    );
    for groups in [
        "[groups.staff]\nby = \"jwt:sub\"\nmembers = [\"anna\"]",
        "[groups.staff]\nby = \"header:x-api-key\"\ncustomers = { acme = \"key-1\" }\n\
         [groups.users]\nby = \"jwt:sub\"\ncustomers = { acme = \"anna\" }",
    ] {
        let file = File::to(&upstream, &["session", "all"])
            .with(&jwt)
            .with(groups)
            .limit(
                "session",
                "by = \"cookie:sid\"\nmissing = \"refuse\"\nrate = \"9/s\"",
            )
            .limit(
                "all",
                "by = \"ip\"\nrate = \"9/s\"\ntiers.staff = { rate = \"99/s\" }",
            );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let asked = ["explain", "GET", "/", "-H", &token, "--json"];
        let done = tollgate(folder.path(), &asked).await;
        let said: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
        assert_eq!(said["answer"]["status"], 401, "{said}");
        assert_eq!(said["limits"][0]["absent"], "cookie:sid", "{said}");
        assert_eq!(said["limits"][1]["keys_unread"], "jwt:sub", "{said}");
    }
}
