//! `strip_prefix` and `rewrite`: the upstream gets the changed path, and limits and the log use the path of the client.

use crate::support::{File, Gateway, Upstream, get};

#[tokio::test]
async fn the_upstream_is_asked_for_another_path() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[])
        .route("strip", "/api/{*rest}", "main", &[])
        .with("strip_prefix = \"/api/\"")
        .route("rewrite", "/v1/{kind}/{id}/{*rest}", "main", &[])
        .with("rewrite = \"/v2/{id}/{kind}/{*rest}\"")
        .route("fixed", "/old", "main", &[])
        .with("rewrite = \"/caf\u{e9}/\"");
    let gateway = Gateway::start(&file).await;
    for (sent, forwarded) in [
        ("/api", "/"),
        ("/api?x=/api/y", "/?x=/api/y"),
        ("/api/a/b/?", "/a/b/?"),
        ("/%61pi//a/../b;v=1%2C?c", "/b;v=1%2C?c"),
        ("/api;x/a", "/a"),
        ("/api/..", "/"),
        ("/v1/orders/7", "/v2/7/orders"),
        ("/v1/orders/7/a/?b=c", "/v2/7/orders/a/?b=c"),
        ("/v1/%2e%2e/v1/o/%37", "/v2/7/o"),
        ("http://a.test/api/a", "/a"),
        ("/old/?a=1", "/caf%C3%A9/?a=1"),
        ("/else", "/else"),
    ] {
        let echoed = gateway.get(sent).await.expect(200).echoed();
        assert_eq!(echoed.line, format!("GET {forwarded} HTTP/1.1"), "{sent}");
    }
    for sent in [
        "/api/%2e%2e%2f",
        "/api/..;/x",
        "/api/../../x",
        "/v1/a/..%5cb",
    ] {
        gateway.get(sent).await.expect(400);
    }
}

#[tokio::test]
async fn limits_and_the_log_see_the_path_that_came() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("per-order", "by = \"path:id\"\nrate = \"1/h\"")
        .upstream("main", &[&upstream])
        .route("orders", "/v1/{kind}/{id}", "main", &["per-order"])
        .with("rewrite = \"/v2/{kind}\"");
    let gateway = Gateway::start(&file).await;
    let first = gateway.get("/v1/orders/7").await.expect(200);
    assert_eq!(first.echoed().line, "GET /v2/orders HTTP/1.1");
    let line = gateway.line_of(&first).await;
    assert_eq!(line["path"], "/v1/orders/7");
    assert_eq!(line["keys"]["per-order"], "7");
    for sent in ["/v1/orders/%37", "/v1/other/7;x", "//v1/./orders/7/"] {
        gateway.get(sent).await.expect(429);
    }
    gateway.get("/v1/orders/8").await.expect(200);
}

#[tokio::test]
async fn a_path_that_grows_too_long_is_refused() {
    let upstream = Upstream::echo().await;
    let long = "a".repeat(60_000);
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("long", "/{*rest}", "main", &[])
        .with(&format!("rewrite = \"/{long}/{{*rest}}\""));
    let gateway = Gateway::start(&file).await;
    let sent = get(&format!("/{}", "b".repeat(10_000)));
    let answer = gateway.connect().await.ask(sent).await.expect(414);
    assert_eq!(gateway.line_of(&answer).await["reason"], "bad_request");
    assert_eq!(upstream.seen(), 0);
}
