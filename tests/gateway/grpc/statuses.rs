//! The status of a call, in its trailers or its head, as the log, metrics, ejection and refunds use it.

use super::{file, gateway};
use crate::support::grpc::call;
use crate::support::{Answer, Feed, File, Gateway, GrpcServer, PATIENCE, eventually};

async fn ask(gateway: &Gateway, method: &str) -> Answer {
    let call = call(method, &[], Feed::of("x"));
    gateway.h2().await.ask(call).await.expect(200)
}

#[tokio::test]
async fn the_log_and_the_metrics_have_it() {
    let server = GrpcServer::start().await;
    let gateway = gateway(&server).await;
    for (method, status) in [("Unary", 0), ("End-5", 5), ("Only-7", 7), ("End-99", 99)] {
        ask(&gateway, method).await;
        let path = format!("/shop.Orders/{method}");
        let line = gateway.line_where("path", &path).await;
        assert_eq!(line["grpc_status"], status, "{line}");
        assert_eq!(
            (&line["status"], &line["reason"]),
            (&200.into(), &"ok".into())
        );
    }
    // A client that leaves gets no status.
    let (feed, body) = Feed::open();
    let client = gateway.h2().await;
    let answer = client.send(call("Silent", &[], body)).await.unwrap();
    drop((answer, feed, client));
    let line = gateway.line_where("path", "/shop.Orders/Silent").await;
    assert!(line["grpc_status"].is_null(), "{line}");
    let plain = gateway.h2().await.get("/plain").await;
    let line = gateway.line_of(&plain).await;
    assert!(line.get("grpc_status").is_none(), "{line}");
    let metrics = gateway.metrics().await;
    for (status, count) in [("0", 1), ("5", 1), ("7", 1), ("other", 2)] {
        let row =
            format!("tollgate_grpc_calls_total{{route=\"all\",grpc_status=\"{status}\"}} {count}");
        assert!(metrics.contains(&row), "{row} in {metrics}");
    }
}

/// Only the status `unavailable`, in the head or in trailers, counts as a failure of a server.
#[tokio::test]
async fn unavailable_ejects() {
    for (method, is_ejected) in [
        ("Only-14", true),
        ("End-14", true),
        ("End-13", false),
        ("Unary", false),
    ] {
        let servers = [GrpcServer::start().await, GrpcServer::start().await];
        let [one, other] = [servers[0].url(), servers[1].url()];
        let lines =
            format!("servers = [\"{one}\", \"{other}\"]\neject = {{ after = 2, for = \"1m\" }}");
        let file = File::default()
            .with(&format!("[upstreams.main]\n{lines}"))
            .route("all", "/{*rest}", "main", &[]);
        let gateway = Gateway::start(&file).await;
        for _ in 0..8 {
            ask(&gateway, method).await;
        }
        let available = if is_ejected { 1 } else { 2 };
        eventually(PATIENCE, "as many servers are left", async || {
            let shown = gateway.admin_get("/v1/upstreams").await.json();
            shown["upstreams"][0]["available"] == available
        })
        .await;
    }
}

#[tokio::test]
async fn a_servers_errors_are_given_back() {
    let server = GrpcServer::start().await;
    let lines = "by = \"everyone\"\nrate = \"99/h\"\nrefund = [\"5xx\"]";
    let gateway = Gateway::start(&file(&server, &["back"]).limit("back", lines)).await;
    let mut left = 99;
    for (method, is_back) in [
        ("Unary", false),
        ("End-2", true),
        ("Only-4", true),
        ("End-5", false),
        ("End-8", false),
        ("Only-13", true),
        ("End-14", true),
        ("End-15", true),
        ("Only-16", false),
    ] {
        ask(&gateway, method).await;
        left -= u64::from(!is_back);
        eventually(PATIENCE, "what is left is right", async || {
            let asked = ask(&gateway, "End-2").await.remaining("back");
            asked == left - 1
        })
        .await;
    }
}

/// Any status of a call, known with its trailers, gives a charge back or is its cost.
#[tokio::test]
async fn a_status_of_a_call_decides_what_it_costs() {
    let server = GrpcServer::start().await;
    let status = "{ \"grpc-5\" = 1, \"5xx\" = 4, \"2xx\" = 2, else = 3 }";
    let costs = format!("by = \"everyone\"\nrate = \"99/h\"\ncost = {{ status = {status} }}");
    let back = "by = \"everyone\"\nrate = \"99/h\"\nrefund = [\"grpc-5\", \"grpc-7\", \"2xx\"]";
    let file = file(&server, &["costs", "back"]).limit("costs", &costs);
    let gateway = Gateway::start(&file.limit("back", back)).await;
    let mut left = 99;
    for (method, cost, is_back) in [
        ("Unary", 2, true),
        ("End-5", 1, true),
        ("Only-7", 3, true),
        ("End-14", 4, false),
        ("Only-16", 3, false),
        // Statuses that are none count as all others do.
        ("End-99", 3, false),
    ] {
        let path = format!("/shop.Orders/{method}");
        ask(&gateway, method).await;
        let line = gateway.line_where("path", &path).await;
        assert_eq!(line["costs"]["costs"], cost, "{line}");
        left -= u64::from(!is_back);
        eventually(PATIENCE, "what is left is right", async || {
            ask(&gateway, "Only-7").await.remaining("back") == left - 1
        })
        .await;
    }
}

#[tokio::test]
async fn the_health_service_is_asked_through_and_through() {
    let server = GrpcServer::start().await;
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = \"{}\"\nhealth = {{ grpc = \"shop.Orders\", interval = \"100ms\", timeout = \"90ms\" }}",
            server.url()
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    eventually(PATIENCE, "probes come", async || server.calls() > 2).await;
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 1, "{shown}");
    // A client's own health check is forwarded like any call.
    let answer = ask(&gateway, "Check").await;
    assert_eq!(&answer.body[..], b"\0\0\0\0\x02\x08\x01");
    assert_eq!(answer.trailers.get("grpc-status"), Some("0"));
}
