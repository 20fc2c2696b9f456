//! The gateway's own answers to calls: one head with the status in it, whatever the cause.

use super::{file, leading_to};
use crate::support::grpc::call;
use crate::support::{
    Feed, File, Gateway, GrpcServer, PATIENCE, Redis, Upstream, free_port, request,
};
use h2::Reason;
use http::Request;
use http_body::Body as _;
use std::future::poll_fn;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The head of an answer that consists of a head alone.
async fn trailers_only(gateway: &Gateway, call: Request<Feed>) -> http::HeaderMap {
    let (head, body) = gateway.h2().await.send(call).await.unwrap().into_parts();
    assert!(body.is_end_stream(), "{head:?}");
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(head.headers["content-type"], "application/grpc");
    head.headers
}

async fn status_of(gateway: &Gateway, call: Request<Feed>) -> String {
    let fields = trailers_only(gateway, call).await;
    fields["grpc-status"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_limit_refuses_with_the_time_to_come_back() {
    let server = GrpcServer::start().await;
    for (rate, is_told) in [("1/30s", true), ("1/h", false)] {
        let limit = format!("by = \"everyone\"\nrate = \"{rate}\"");
        let gateway = Gateway::start(&file(&server, &["few"]).limit("few", &limit)).await;
        let first = gateway
            .h2()
            .await
            .ask(call("Unary", &[], Feed::of("x")))
            .await;
        assert_eq!(first.trailers.get("grpc-status"), Some("0"), "{first:?}");
        let fields = trailers_only(&gateway, call("Unary", &[], Feed::of("x"))).await;
        assert_eq!(fields["grpc-status"], "8");
        assert!(fields["grpc-message"].to_str().unwrap().contains("few"));
        assert!(fields.contains_key("ratelimit") && fields.contains_key("retry-after"));
        let pushback = fields.get("grpc-retry-pushback-ms");
        let pushback: Option<u64> = pushback.map(|wait| wait.to_str().unwrap().parse().unwrap());
        assert_eq!(pushback.is_some(), is_told);
        assert!(pushback.is_none_or(|wait| (1..=30_000).contains(&wait)));
    }
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn each_cause_has_its_status() {
    let server = GrpcServer::start().await;
    let file = File::default()
        .with("[response]\nbody = \"html\"")
        .limit("keyed", "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"9/h\"")
        .with(&format!("[upstreams.main]\nservers = \"{}\"", server.url()))
        .with(&format!("[upstreams.gone]\nservers = \"h2c://127.0.0.1:{}\"", free_port()))
        .route("keyed", "/shop.Orders/Keyed", "main", &["keyed"])
        .route("gone", "/shop.Orders/Gone", "gone", &[])
        .route("slow", "/shop.Orders/Hang", "main", &[])
        .with("timeout = \"200ms\"")
        .with("[routes.closed]\npath = \"/shop.Orders/Closed\"\nrespond = { status = 503, body = \"back at 6 – sorry\" }")
        .with("[routes.moved]\npath = \"/shop.Orders/Moved\"\nredirect = { to = \"/b\" }");
    let gateway = Gateway::start(&file).await;
    for (method, status, reason) in [
        ("Keyed", "16", "missing_key"),
        ("Nothing", "12", "no_route"),
        ("Gone", "14", "connect_failed"),
        ("Hang", "4", "upstream_timeout"),
        ("a%2fb", "13", "bad_request"),
        ("Closed", "14", "ok"),
        ("Moved", "2", "ok"),
    ] {
        let answered = status_of(&gateway, call(method, &[], Feed::of("x"))).await;
        assert_eq!(answered, status, "{method}");
        let line = gateway
            .line_where("path", &format!("/shop.Orders/{method}"))
            .await;
        assert_eq!(line["reason"], reason, "{line}");
        assert_eq!(line["grpc_status"].to_string(), status, "{line}");
    }
    let closed = trailers_only(&gateway, call("Closed", &[], Feed::empty())).await;
    assert_eq!(closed["grpc-message"], "back at 6 %E2%80%93 sorry");
    let metrics = gateway.metrics().await;
    let count = r#"tollgate_grpc_calls_total{route="closed",grpc_status="14"} 2"#;
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn a_store_that_is_away_is_unavailable() {
    let (redis, server) = (Redis::absent(), GrpcServer::start().await);
    let file = file(&server, &["few"]).redis(&redis, "").limit(
        "few",
        "by = \"everyone\"\nrate = \"9/h\"\non_down = \"closed\"",
    );
    let gateway = Gateway::start(&file).await;
    assert_eq!(
        status_of(&gateway, call("Unary", &[], Feed::empty())).await,
        "14"
    );
}

#[tokio::test]
async fn others_are_told_in_http() {
    let upstream = Upstream::echo().await;
    let limit = "by = \"everyone\"\nrate = \"1/h\"";
    let gateway = Gateway::start(&File::to(&upstream, &["few"]).limit("few", limit)).await;
    gateway.get("/").await.expect(200);
    let field = [("content-type", "application/grpc")];
    let mut wire = gateway.connect().await;
    wire.ask(request("GET", "/", &field)).await.expect(429);
    let web = Request::post("http://gateway.test/shop.Orders/Unary")
        .header("content-type", "application/grpc-web+proto")
        .body(Feed::empty());
    gateway.h2().await.ask(web.unwrap()).await.expect(429);
}

#[tokio::test]
async fn servers_of_http1_answer_no_call() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&leading_to(&upstream.url(), &[])).await;
    for _ in 0..2 {
        let fields = trailers_only(&gateway, call("Unary", &[], Feed::of("x"))).await;
        assert_eq!(fields["grpc-status"], "14");
        assert!(fields["grpc-message"].to_str().unwrap().contains("h2c://"));
        gateway.h2().await.get("/").await.expect(200);
    }
    // The refused calls were not forwarded, and their connections have served the other calls.
    assert_eq!(upstream.seen(), 2);
}

/// The client gets the refusal at once, and then a reset without an error, so that it sends nothing more.
#[tokio::test]
async fn an_open_stream_is_refused_at_once() {
    let server = GrpcServer::start().await;
    let limit = "by = \"everyone\"\nrate = \"1/h\"";
    let gateway = Gateway::start(&file(&server, &["few"]).limit("few", limit)).await;
    gateway
        .h2()
        .await
        .ask(call("Unary", &[], Feed::of("x")))
        .await;
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let head = call("Echo", &[], Feed::empty()).map(|_| ());
    let (answer, mut sending) = client.send_request(head, false).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.headers()["grpc-status"], "8");
    assert!(answer.body().is_end_stream());
    let reset = timeout(PATIENCE / 20, poll_fn(|cx| sending.poll_reset(cx))).await;
    assert_eq!(reset.unwrap().unwrap(), Reason::NO_ERROR);
}
