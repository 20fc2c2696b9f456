//! The door of the admin listener: who may read and who may change, how large and how late a body may be, how often
//! somebody may ask, and what is recorded.

mod calls;
mod commands;
mod record;

use crate::support::{Answer, File, Gateway, Upstream, Wire, request};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A token with which everything may be changed.
const TOKEN: &str = "7f6c1d0b6f6d4c1e8d0a5b3c2e1f4a69";
/// A token with which everything may be read.
const READER: &str = "0123456789abcdef0123456789abcdef";
/// The lines of `[admin]` with both.
const TOKENS: &str = "tokens = { anna = { token = \"7f6c1d0b6f6d4c1e8d0a5b3c2e1f4a69\", role = \"operate\" }, ben = { token = \"0123456789abcdef0123456789abcdef\" } }";

/// A pause between two questions, so that a test asks no more often than a gateway answers.
const PACE: Duration = Duration::from_millis(50);

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A gateway with a limit, and with further lines of `[admin]`.
async fn started(lines: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let file = file(&upstream, lines);
    let gateway = Gateway::start(&file).await;
    (upstream, gateway)
}

fn file(upstream: &Upstream, lines: &str) -> File {
    File::to(upstream, &["per-ip"])
        .limit("per-ip", "by = \"ip\"\nrate = \"10/s\"\nburst = 20")
        .admin(&format!(
            "listen = \"127.0.0.1:0\"\nname = \"edge-1\"\n{lines}"
        ))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// The answer to a request with these fields, `Host` among them if another is meant, and this body.
async fn ask(
    gateway: &Gateway,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let admin = gateway.admin().await;
    let (host, length) = (admin.to_string(), body.len().to_string());
    let mut all = fields.to_vec();
    if !fields.iter().any(|(name, _)| *name == "Host") {
        all.push(("Host", &host));
    }
    if method == "POST" {
        all.push(("Content-Length", &length));
    }
    let asked = format!("{}{body}", request(method, target, &all));
    Wire::to(admin).await.ask(asked).await
}

/// The code of a refusal.
fn code(answer: &Answer) -> String {
    assert_eq!(answer.field("content-type"), "application/problem+json");
    let body: Value = answer.json();
    assert_eq!(body["status"], answer.status);
    body["code"].as_str().unwrap().to_owned()
}

/// A reload with these fields.
async fn reload(gateway: &Gateway, fields: &[(&str, &str)]) -> Answer {
    ask(gateway, "POST", "/v1/reload", fields, "{}").await
}

#[tokio::test]
async fn pages_of_other_sites_and_other_names_get_no_answer() {
    let (_upstream, gateway) = started(&format!("hosts = \"tollgate.internal\"\n{TOKENS}")).await;
    let authorization = bearer(TOKEN);
    let token = ("Authorization", authorization.as_str());
    for (field, status) in [
        (("Host", "evil.example.com"), 421),
        (("Origin", "https://evil.example.com"), 403),
        (("Origin", "null"), 403),
        (("Sec-Fetch-Site", "cross-site"), 403),
        (("Sec-Fetch-Site", "same-site"), 403),
        (("Host", "tollgate.internal"), 200),
        (("Origin", "http://tollgate.internal"), 200),
        (("Sec-Fetch-Site", "none"), 200),
    ] {
        // A cached password of the browser changes nothing.
        for path in [
            "/v1/status",
            "/v1/limits",
            "/v1/limits/per-ip",
            "/v1/config",
            "/v1/store",
        ] {
            let answer = ask(&gateway, "GET", path, &[field, token], "").await;
            assert_eq!(answer.status, status, "{path} {field:?}");
        }
        let answer = reload(&gateway, &[field, token, JSON]).await;
        assert_eq!(answer.status, status, "{field:?}");
        for path in ["/metrics", "/healthz", "/readyz"] {
            ask(&gateway, "GET", path, &[field], "").await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_change_needs_a_token_that_may() {
    let (_upstream, gateway) = started(TOKENS).await;
    let (operator, reader) = (bearer(TOKEN), bearer(READER));
    let wrong = bearer(&"x".repeat(32));
    // anna:TOKEN
    let basic = "Basic YW5uYTo3ZjZjMWQwYjZmNmQ0YzFlOGQwYTViM2MyZTFmNGE2OQ==";
    for (authorization, status, said) in [
        ("", 401, "no_token"),
        (wrong.as_str(), 401, "bad_token"),
        ("Digest x", 401, "bad_token"),
        (basic, 403, "bearer_needed"),
        (reader.as_str(), 403, "role"),
    ] {
        let fields = [("Authorization", authorization), JSON];
        let answer = reload(
            &gateway,
            if authorization.is_empty() {
                &fields[1..]
            } else {
                &fields
            },
        )
        .await;
        assert_eq!((answer.status, code(&answer).as_str()), (status, said));
        if status == 401 {
            assert!(answer.fields.has("www-authenticate"));
        }
    }
    let token = ("Authorization", operator.as_str());
    for kinds in [
        &[][..],
        &[("Content-Type", "text/plain")],
        &[("Content-Type", "application/x-www-form-urlencoded")],
        &[JSON, JSON],
        &[JSON, ("Content-Type", "text/plain")],
    ] {
        let fields: Vec<_> = kinds.iter().copied().chain([token]).collect();
        let answer = reload(&gateway, &fields).await;
        assert_eq!(
            (answer.status, code(&answer).as_str()),
            (415, "content_type")
        );
    }
    for method in ["GET", "PUT", "DELETE"] {
        let answer = ask(&gateway, method, "/v1/reload", &[token], "").await;
        assert_eq!((answer.status, answer.field("allow")), (405, "POST"));
    }
    let answer = reload(&gateway, &[token, JSON]).await.expect(200);
    assert_eq!(answer.json()["unchanged"], true);
    // The password of a browser is enough to read.
    let read = [("Authorization", basic)];
    ask(&gateway, "GET", "/v1/status", &read, "")
        .await
        .expect(200);
    let wrong = [("Authorization", wrong.as_str())];
    ask(&gateway, "GET", "/v1/status", &wrong, "")
        .await
        .expect(401);
}

#[tokio::test]
async fn without_a_token_nothing_can_be_changed_and_neighbours_read() {
    let (_upstream, gateway) = started("").await;
    let answer = reload(&gateway, &[JSON]).await;
    assert_eq!((answer.status, code(&answer).as_str()), (403, "no_tokens"));
    ask(&gateway, "GET", "/v1/status", &[], "")
        .await
        .expect(200);
}

#[tokio::test]
async fn reading_can_need_a_token_on_loopback_too() {
    let (_upstream, gateway) = started(&format!("read = \"token\"\n{TOKENS}")).await;
    for path in ["/v1/status", "/v1/nowhere"] {
        let answer = ask(&gateway, "GET", path, &[], "").await;
        assert_eq!((answer.status, code(&answer).as_str()), (401, "no_token"));
        assert_eq!(answer.fields.all("www-authenticate").len(), 2);
    }
    ask(&gateway, "GET", "/metrics", &[], "").await.expect(200);
    let reader = bearer(READER);
    let fields = [("Authorization", reader.as_str())];
    ask(&gateway, "GET", "/v1/status", &fields, "")
        .await
        .expect(200);
}

#[tokio::test]
async fn bodies_are_small_and_come_soon() {
    let (_upstream, gateway) = started(TOKENS).await;
    let admin = gateway.admin().await;
    let (host, token) = (admin.to_string(), bearer(TOKEN));
    let fields = [("Host", host.as_str()), ("Authorization", &token), JSON];
    for path in ["/v1/reload", "/v1/peek"] {
        let large = [&fields[..], &[("Content-Length", "10485760")]].concat();
        let answer = Wire::to(admin)
            .await
            .ask(request("POST", path, &large))
            .await;
        assert_eq!(
            (answer.status, code(&answer).as_str()),
            (413, "body_too_large")
        );
        let chunked = [&fields[..], &[("Transfer-Encoding", "chunked")]].concat();
        let mut wire = Wire::to(admin).await;
        wire.send(request("POST", path, &chunked)).await;
        wire.send_chunk(&" ".repeat(70_000)).await;
        assert_eq!(wire.answer().await.status, 413);
        let began = Instant::now();
        let late = [&fields[..], &[("Content-Length", "100")]].concat();
        let mut wire = Wire::to(admin).await;
        wire.send(request("POST", path, &late)).await;
        wire.send("{").await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, code(&answer).as_str()), (408, "body_late"));
        let took = began.elapsed();
        assert!((2..8).contains(&took.as_secs()), "{took:?}");
    }
    for (body, said) in [
        ("{\"wait\":true}", "unknown_member"),
        ("[]", "bad_body"),
        ("{", "bad_body"),
    ] {
        let authorization = ("Authorization", token.as_str());
        let answer = ask(&gateway, "POST", "/v1/reload", &[authorization, JSON], body).await;
        assert_eq!((answer.status, code(&answer).as_str()), (400, said));
    }
}

#[tokio::test]
async fn guesses_are_bounded_and_a_right_token_passes() {
    let (_upstream, mut gateway) = started(TOKENS).await;
    let right = bearer(TOKEN);
    let guess = |nth: u32| format!("Bearer guess-{nth}-{}", "g".repeat(32));
    let mut texts = String::new();
    let mut codes = Vec::new();
    for nth in 0..13 {
        let guess = guess(nth);
        let answer = reload(&gateway, &[("Authorization", &guess), JSON]).await;
        codes.push(code(&answer));
        texts.push_str(&answer.text());
    }
    assert!(
        codes[..10].iter().all(|code| code == "bad_token"),
        "{codes:?}"
    );
    assert!(
        codes[10..].iter().all(|code| code == "too_many_guesses"),
        "{codes:?}"
    );
    let answer = reload(&gateway, &[("Authorization", &right), JSON]).await;
    texts.push_str(&answer.expect(200).text());
    for path in ["/v1/status", "/v1/config", "/v1/limits", "/metrics"] {
        let answer = ask(&gateway, "GET", path, &[("Authorization", &right)], "").await;
        texts.push_str(&answer.expect(200).text());
    }
    gateway.stop().await;
    for text in [&texts, &gateway.said.text(), &gateway.access.text()] {
        for secret in [TOKEN, READER, "guess-"] {
            assert!(!text.contains(secret), "{secret} in:\n{text}");
        }
    }
}

#[tokio::test]
async fn a_gateway_answers_so_many_and_its_probes_always() {
    let (_upstream, gateway) = started(TOKENS).await;
    let admin = gateway.admin().await;
    let host = admin.to_string();
    let mut wire = Wire::to(admin).await;
    let mut refused = 0;
    for _ in 0..400 {
        let asked = request("GET", "/v1/store", &[("Host", &host)]);
        let answer = wire.ask(asked).await;
        if answer.status == 429 {
            assert_eq!(code(&answer), "too_fast");
            assert_eq!(answer.field("retry-after"), "1");
            refused += 1;
        }
        ask(&gateway, "GET", "/healthz", &[], "").await.expect(200);
    }
    // A slow machine sends fewer in a second than are answered.
    let token = bearer(TOKEN);
    let mut changes = Wire::to(admin).await;
    let began = Instant::now();
    let mut many = 0;
    for _ in 0..100 {
        let fields = [
            ("Host", host.as_str()),
            ("Authorization", &token),
            JSON,
            ("Content-Length", "2"),
        ];
        let answer = changes
            .ask(format!("{}[]", request("POST", "/v1/reload", &fields)))
            .await;
        many += usize::from(answer.status == 429);
    }
    let slow = began.elapsed() > Duration::from_secs(2);
    assert!(slow || refused > 0 || many > 0, "{refused} {many}");
    assert!(slow || many > 0, "{many}");
}
