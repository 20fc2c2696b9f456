//! `redirect` and `respond`: answers without an upstream, under the same limits.

use crate::support::{File, Gateway, Upstream, request};

fn file() -> File {
    File::default()
        .limit("two", "by = \"path:rest\"\nrate = \"2/h\"")
        .with("[routes.moved]\npath = \"/old/{id}/{*rest}\"\nredirect = { to = \"https://new.test/v2/{id}/{*rest}\" }")
        .with("[routes.here]\npath = \"/here/{*rest}\"\nlimits = \"two\"\nredirect = { to = \"/{*rest}\", status = 302 }")
        .with("[routes.text]\npath = \"/text/{*rest}\"\nlimits = \"two\"\nrespond = { status = 418, body = \"short\\nand stout\\n\", content_type = \"text/x\" }\nresponse_headers = { set = { x-a = \"1\", content-type = \"text/y\" } }")
        .with("[routes.bare]\npath = \"/bare\"\nrespond = { status = 204 }")
        .with("[routes.plain]\npath = \"/plain\"\nrespond = { body = \"hello\" }")
}

#[tokio::test]
async fn a_redirect_leads_to_the_same_place_elsewhere() {
    let gateway = Gateway::start(&file()).await;
    for (sent, status, location) in [
        ("/old/7/a/b/?c=d", 308, "https://new.test/v2/7/a/b/?c=d"),
        ("/old//x/../7", 308, "https://new.test/v2/7"),
        ("/old/@evil.test/x", 308, "https://new.test/v2/@evil.test/x"),
        ("/here", 302, "/"),
        ("/here//evil.test/%2e/y", 302, "/evil.test/y"),
        (
            "/here/x%0d%0aset-cookie:%20a=b?%0a",
            302,
            "/x%0D%0Aset-cookie:%20a=b?%0a",
        ),
    ] {
        let answer = gateway.get(sent).await.expect(status);
        assert_eq!(answer.field("location"), location, "{sent}");
        assert!(answer.body.is_empty() && !answer.fields.has("set-cookie"));
    }
    gateway.get("/here/..%5cevil.test").await.expect(400);
    let over_h2 = gateway.h2().await.get("/old/7").await.expect(308);
    assert_eq!(over_h2.field("location"), "https://new.test/v2/7");
}

#[tokio::test]
async fn a_text_is_answered_under_the_routes_limits() {
    let gateway = Gateway::start(&file()).await;
    let answer = gateway.get("/text/a").await.expect(418);
    assert_eq!(answer.text(), "short\nand stout\n");
    assert_eq!(answer.fields.all("content-type"), ["text/y"]);
    assert_eq!(answer.field("x-a"), "1");
    assert_eq!(answer.remaining("two"), 1);
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["reason"], &line["route"], &line["status"]),
        (&"ok".into(), &"text".into(), &418.into())
    );
    let mut wire = gateway.connect().await;
    wire.send(request("HEAD", "/text/a", &[])).await;
    let head = wire.answer_to_head().await.expect(418);
    assert_eq!(head.field("content-length"), "16");
    // The connection goes on after the answer, since the request had no body.
    wire.ask(request("GET", "/text/a", &[])).await.expect(429);
    gateway.get("/bare").await.expect(204);
    let plain = gateway.get("/plain").await.expect(200);
    assert_eq!(plain.field("content-type"), "text/plain; charset=utf-8");
    let metrics = gateway.metrics().await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("tollgate_http_requests_total") && line.contains("route=\"plain\"")
    });
    assert!(
        counted.is_some_and(|line| line.contains("source=\"gateway\"")),
        "{metrics}"
    );
}

#[tokio::test]
async fn an_upload_that_nobody_reads_is_answered() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&file().upstream("main", &[&upstream]).route(
        "all",
        "/{*rest}",
        "main",
        &[],
    ))
    .await;
    let mut wire = gateway.connect().await;
    wire.send("POST /plain HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
        .await;
    let answer = wire.answer().await.expect(200);
    assert_eq!(answer.text(), "hello");
    assert_eq!(upstream.seen(), 0);
}
