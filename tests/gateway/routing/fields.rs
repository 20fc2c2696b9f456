//! `request_headers` and `response_headers`: the fields of each side, and the fields that no route can remove.

use crate::support::{File, Gateway, Upstream};

#[tokio::test]
async fn fields_are_changed_on_both_ways() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: secret\r\nVary: accept\r\nX-Old: 1\r\nX-Old: 2\r\n\r\nok",
    )
    .await;
    let file = File::to(&upstream, &[]).with(
        "request_headers = { remove = [\"cookie\"], set = { X-Key = \"ours\" }, add = { x-tag = \"b\" } }\n\
         response_headers = { remove = [\"server\"], set = { x-old = \"3\", x-new = \"4\" }, add = { vary = \"origin\" } }",
    );
    let gateway = Gateway::start(&file).await;
    let sent = [
        ("Cookie", "a=b"),
        ("X-Key", "theirs"),
        ("x-key", "again"),
        ("X_Key", "dressed up"),
        ("X-Tag", "a"),
        // A client cannot remove our field by naming it.
        ("Connection", "x-key, x-tag, keep-alive"),
    ];
    let answer = gateway.get_with("/", &sent).await.expect(200);
    let seen = upstream.requests().remove(0).head.fields;
    assert!(!seen.has("cookie") && !seen.has("x_key"), "{seen:?}");
    assert_eq!(seen.all("x-key"), ["ours"]);
    assert_eq!(seen.all("x-tag"), ["b"]);
    assert!(!answer.fields.has("server"), "{answer:?}");
    assert_eq!(answer.fields.all("x-old"), ["3"]);
    assert_eq!(answer.fields.all("x-new"), ["4"]);
    assert_eq!(answer.fields.all("vary"), ["accept", "origin"]);
    let over_h2 = gateway.h2().await.get("/").await.expect(200);
    assert_eq!(over_h2.fields.all("x-old"), ["3"]);
}

#[tokio::test]
async fn the_answer_to_a_repeat_is_changed_like_the_first() {
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: secret\r\n\r\nok")
            .await;
    let file = File::to(&upstream, &["once"])
        .with("response_headers = { remove = [\"server\"], set = { x-new = \"1\" } }")
        .limit(
            "once",
            "by = \"ip\"\nrate = \"9/h\"\ndedupe = { header = \"idempotency-key\" }",
        );
    let gateway = Gateway::start(&file).await;
    for reason in ["ok", "repeat"] {
        let sent = [("Idempotency-Key", "a")];
        let answer = gateway.get_with("/", &sent).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["reason"], reason);
        assert!(!answer.fields.has("server"), "{reason}: {answer:?}");
        assert_eq!(answer.fields.all("x-new"), ["1"], "{reason}");
    }
}

#[tokio::test]
async fn limits_count_by_what_the_client_sent() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit(
            "per-key",
            "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"",
        )
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &["per-key"])
        .with("request_headers = { set = { x-key = \"ours\" } }");
    let gateway = Gateway::start(&file).await;
    for client in ["a", "b"] {
        let answer = gateway
            .get_with("/", &[("x-key", client)])
            .await
            .expect(200);
        assert_eq!(answer.echoed().fields.get("x-key"), Some("ours"));
    }
    gateway.get_with("/", &[("x-key", "a")]).await.expect(429);
    gateway.get("/").await.expect(401);
}

#[tokio::test]
async fn a_refusal_gets_what_it_lacks_and_keeps_what_it_says() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("one", "by = \"everyone\"\nrate = \"1/h\"")
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &["one"])
        .with(
            "response_headers = { set = { content-type = \"text/x\", access-control-allow-origin = \"*\" }, remove = [\"cache-control\"] }",
        );
    let gateway = Gateway::start(&file).await;
    let first = gateway.get("/").await.expect(200);
    assert_eq!(first.fields.all("content-type"), ["text/x"]);
    let refused = gateway.get("/").await.expect(429);
    assert_eq!(
        refused.fields.all("content-type"),
        ["application/problem+json"]
    );
    assert_eq!(refused.fields.all("access-control-allow-origin"), ["*"]);
    assert_eq!(refused.field("cache-control"), "no-store");
    assert!(refused.fields.has("retry-after") && refused.fields.has("ratelimit"));
}
