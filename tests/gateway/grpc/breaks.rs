//! A server that breaks off in the middle of a call: the client learns it from trailers, as gRPC requires.

use super::leading_to;
use crate::support::grpc::call;
use crate::support::{Connection, Feed, File, Gateway, Upstream, Wire};
use std::time::Duration;
use tokio::time::sleep;

/// A server of HTTP/2 that sends a head and a piece of a message, and ends the connection, or says nothing more.
async fn beginning(breaks: bool) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        let wire = &mut connection.wire;
        // Has the request ended?
        let ends = |kind: u8, flags: u8| kind <= 1 && flags & 1 == 1;
        if !greet(wire).await {
            return;
        }
        while let Some(id) = stream_where(wire, ends).await {
            let id = &id[..];
            let answer = [
                &[0, 0, 1, 1, 4][..],
                id,
                &[0x88, 0, 0, 6, 0, 0],
                id,
                &[0, 0, 0, 0, 9, b'x'],
            ];
            wire.send(answer.concat()).await;
            if breaks {
                return;
            }
        }
    })
    .await
}

/// Reads the client's preface, and sends settings. Returns false if the client has left.
async fn greet(wire: &mut Wire) -> bool {
    let has_come = wire.exactly(24).await.is_ok();
    if has_come {
        wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    }
    has_come
}

/// The stream of the next frame with this kind and these flags, or nothing if the client has left.
async fn stream_where(wire: &mut Wire, is_it: impl Fn(u8, u8) -> bool) -> Option<Vec<u8>> {
    loop {
        let head = wire.exactly(9).await.ok()?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        wire.exactly(length).await.ok()?;
        if is_it(head[3], head[4]) {
            return Some(head[5..9].to_vec());
        }
    }
}

async fn ask(gateway: &Gateway) -> (String, Option<String>) {
    let call = call("Server", &[], Feed::of("x"));
    let answer = gateway.h2().await.ask(call).await.expect(200);
    assert_eq!(
        answer.text(),
        "\0\0\0\0\tx",
        "what came before is passed on"
    );
    let status = answer.trailers.get("grpc-status").map(str::to_owned);
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        line["grpc_status"].to_string(),
        status.clone().unwrap_or_default()
    );
    (line["reason"].as_str().unwrap().to_owned(), status)
}

#[tokio::test]
async fn a_server_that_is_gone_in_the_middle_is_unavailable() {
    let server = beginning(true).await;
    let url = format!("h2c://127.0.0.1:{}", server.port());
    let limit = "by = \"everyone\"\nrate = \"1/h\"\nrefund = [\"5xx\"]";
    let file = leading_to(&url, &["l"]).limit("l", limit);
    let gateway = Gateway::start(&file).await;
    // The charge is given back each time.
    for _ in 0..3 {
        let told = ask(&gateway).await;
        assert_eq!(told, ("upstream_reset".to_owned(), Some("14".to_owned())));
    }
    let row = "tollgate_grpc_calls_total{route=\"all\",grpc_status=\"14\"} 3";
    let metrics = gateway.metrics().await;
    assert!(metrics.contains(row), "{metrics}");
}

#[tokio::test]
async fn what_the_gateway_says_for_a_server_ejects_none() {
    let servers = [beginning(true).await, beginning(true).await];
    let urls = servers
        .each_ref()
        .map(|one| format!("h2c://127.0.0.1:{}", one.port()));
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = {urls:?}\neject = {{ after = 2 }}"
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    for _ in 0..8 {
        ask(&gateway).await;
    }
    assert!(!gateway.said.text().contains("gets no requests"));
}

/// A server of HTTP/2 that sends a head and then one piece after another, whatever the client does.
async fn talking() -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        let wire = &mut connection.wire;
        if !greet(wire).await {
            return;
        }
        let Some(id) = stream_where(wire, |kind, _| kind == 1).await else {
            return;
        };
        wire.send([&[0, 0, 1, 1, 4], &id[..], &[0x88]].concat())
            .await;
        let piece = [&[0, 0, 6, 0, 0], &id[..], &[0, 0, 0, 0, 1, b'x']].concat();
        while wire.try_send(&piece[..]).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_client_that_falls_silent_in_the_middle_is_told_in_trailers() {
    let server = talking().await;
    let url = format!("h2c://127.0.0.1:{}", server.port());
    let limit = "by = \"everyone\"\nrate = \"1/h\"\nrefund = [\"5xx\"]";
    let file = leading_to(&url, &["l"]).with("idle = \"300ms\"");
    let gateway = Gateway::start(&file.limit("l", limit)).await;
    let client = gateway.h2().await;
    let (_feed, body) = Feed::open();
    let answer = client.ask(call("Echo", &[], body)).await.expect(200);
    assert_eq!(answer.trailers.get("grpc-status"), Some("4"));
    let line = gateway.line_of(&answer).await;
    assert_eq!(line["reason"], "client_timeout");
    assert_eq!(line["grpc_status"], 4);
    // The server has not failed, so the charge stays.
    let (_feed, body) = Feed::open();
    let refused = client.ask(call("Echo", &[], body)).await.expect(200);
    assert_eq!(refused.fields.get("grpc-status"), Some("8"));
}

#[tokio::test]
async fn a_server_that_falls_silent_in_the_middle_has_exceeded_the_time() {
    let server = beginning(false).await;
    let url = format!("h2c://127.0.0.1:{}", server.port());
    let file = leading_to(&url, &[]).with("idle = \"200ms\"");
    let gateway = Gateway::start(&file).await;
    let told = ask(&gateway).await;
    assert_eq!(told, ("upstream_timeout".to_owned(), Some("4".to_owned())));
}
