//! `grpc-timeout`: the value that a server gets, and calls that end at their deadline.

use super::{file, gateway};
use crate::support::grpc::call;
use crate::support::{Answer, Feed, Gateway, GrpcServer};
use std::time::{Duration, Instant};

async fn ask(gateway: &Gateway, method: &str, timeout: &str) -> Answer {
    let call = call(method, &[("grpc-timeout", timeout)], Feed::of("x"));
    gateway.h2().await.ask(call).await.expect(200)
}

/// The `grpc-timeout` that the server got, in microseconds.
fn told(answer: &Answer) -> u64 {
    let text = answer.field("x-saw-timeout");
    text.strip_suffix('u').unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_server_is_told_what_is_left() {
    let server = GrpcServer::start().await;
    let gateway = gateway(&server).await;
    let answer = ask(&gateway, "Unary", "20S").await;
    assert_eq!(answer.field("x-saw-timeout"), "20S");
    assert_eq!(answer.field("x-saw-te"), "trailers");
    // The route has no written `timeout`.
    let answer = ask(&gateway, "Unary", "1H").await;
    assert_eq!(answer.field("x-saw-timeout"), "1H");
    let call = call("Unary", &[], Feed::of("x"));
    let answer = gateway.h2().await.ask(call).await;
    assert!(!answer.fields.has("x-saw-timeout"), "{answer:?}");
}

#[tokio::test]
async fn a_server_is_told_no_more_than_the_route_has_written() {
    let server = GrpcServer::start().await;
    let servers = format!("[upstreams.main]\nservers = \"{}\"", server.url());
    let route = "[routes.all]\npath = \"/{*rest}\"\nupstream = \"main\"\ntimeout = \"30s\"";
    let file = crate::support::File::default().with(&servers).with(route);
    let gateway = Gateway::start(&file).await;
    let lowered = told(&ask(&gateway, "Unary", "1H").await);
    assert!((25_000_000..=30_000_000).contains(&lowered), "{lowered}");
}

#[tokio::test]
async fn a_malformed_time_is_refused() {
    let server = GrpcServer::start().await;
    let gateway = gateway(&server).await;
    for bad in ["1", "S", "1s", "123456789m", "-1S"] {
        let answer = ask(&gateway, "Unary", bad).await;
        assert_eq!(answer.field("grpc-status"), "13", "{bad}");
    }
    let twice = [("grpc-timeout", "1S"), ("grpc-timeout", "2S")];
    let answer = gateway
        .h2()
        .await
        .ask(call("Unary", &twice, Feed::of("x")))
        .await;
    assert_eq!(answer.field("grpc-status"), "13");
    assert_eq!(server.calls(), 0);
}

/// The client's deadline ends the call, and does not count as a failure of the server.
#[tokio::test]
async fn a_call_ends_with_its_time() {
    let server = GrpcServer::start().await;
    let beside = GrpcServer::start().await;
    let servers = format!("servers = [\"{}\", \"{}\"]", server.url(), beside.url());
    let file = crate::support::File::default()
        .limit(
            "back",
            "by = \"everyone\"\nrate = \"99/h\"\nrefund = [\"5xx\"]",
        )
        .with(&format!(
            "[upstreams.main]\n{servers}\neject = {{ after = 1 }}"
        ))
        .route("all", "/{*rest}", "main", &["back"]);
    let gateway = Gateway::start(&file).await;
    for _ in 0..4 {
        let start = Instant::now();
        let answer = ask(&gateway, "Hang", "300m").await;
        assert_eq!(answer.field("grpc-status"), "4");
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert!(!answer.fields.has("retry-after"));
    }
    let line = gateway.line_where("reason", "deadline_exceeded").await;
    assert_eq!(line["grpc_status"], 4, "{line}");
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
    // A client cannot avoid charges by short deadlines.
    let answer = ask(&gateway, "Unary", "9S").await;
    assert_eq!(answer.remaining("back"), 94);
    let none = ask(&gateway, "Unary", "0S").await;
    assert_eq!(none.field("grpc-status"), "4");
    assert_eq!(server.calls() + beside.calls(), 5);
}

#[tokio::test]
async fn a_hold_that_would_outlast_the_time_is_refused_at_once() {
    let server = GrpcServer::start().await;
    let lines =
        "algorithm = \"leaky-bucket\"\nby = \"everyone\"\nrate = \"1/2s\"\nmax_wait = \"1min\"";
    let beside = "by = \"everyone\"\nrate = \"9/h\"\nrefund = [\"cancel\"]";
    let file = file(&server, &["smooth", "beside"])
        .limit("smooth", lines)
        .limit("beside", beside);
    let gateway = Gateway::start(&file).await;
    ask(&gateway, "Unary", "20S").await;
    let start = Instant::now();
    for _ in 0..3 {
        let answer = ask(&gateway, "Unary", "500m").await;
        assert_eq!(answer.field("grpc-status"), "4");
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    // The places and charges of these calls were given back. The next call is held as if they had never come.
    let answer = ask(&gateway, "Unary", "20S").await;
    assert_eq!(answer.trailers.get("grpc-status"), Some("0"), "{answer:?}");
    assert!(told(&answer) < 20_000_000 - 500_000, "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(4));
    assert_eq!(answer.remaining("beside"), 7);
    assert_eq!(server.calls(), 2);
}
