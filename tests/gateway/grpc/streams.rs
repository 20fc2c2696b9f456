//! Streams in one or both directions, and many streams over servers that end their connections.

use super::gateway;
use crate::support::grpc::call;
use crate::support::{Feed, Gateway, GrpcServer, PATIENCE, long};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

#[tokio::test]
async fn streams_pass_both_ways_while_they_are_open() {
    let server = GrpcServer::start().await;
    let gateway = gateway(&server).await;
    let client = gateway.h2().await;
    let whole = client
        .ask(call("Unary", &[], Feed::of("\0\0\0\0\x01a")))
        .await;
    assert_eq!(whole.text(), "\0\0\0\0\x01a");
    assert_eq!(whole.trailers.get("grpc-status"), Some("0"));
    converse(&client, 20).await;
    assert_eq!(server.connections(), 1);
}

/// A conversation with this number of turns.
async fn converse(client: &crate::support::H2, turns: usize) {
    let (feed, body) = Feed::open();
    let answer = client.send(call("Echo", &[], body)).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let mut answer = answer.into_body();
    for turn in 0..turns {
        let message = Bytes::from(format!("\0\0\0\0\x04{turn:04}"));
        feed.send(Frame::data(message.clone())).await.unwrap();
        let frame = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
        assert_eq!(frame.unwrap().into_data().unwrap(), message);
    }
    drop(feed);
    let last = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
    let trailers = last.unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}

/// The number of streams that open at the same time. Streams that open at once wait for each other's connections, and
/// the tests' own server is no faster than the gateway.
const OPENING: usize = 200;

/// The server ends each of its connections every second: streams under way go on, and new streams use another
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_lost_when_connections_are_asked_to_end() {
    let server = GrpcServer::going_away(Some(Duration::from_secs(1))).await;
    let gateway = gateway(&server).await;
    let (clients, streams) = if long() { (100, 100) } else { (5, 60) };
    let (mut all, opening) = (JoinSet::new(), Arc::new(Semaphore::new(OPENING)));
    for _ in 0..clients {
        let client = gateway.h2().await;
        all.spawn(many(client, streams, Arc::clone(&opening)));
    }
    all.join_all().await;
    assert!(server.connections() > 1);
    assert_eq!(server.calls(), clients * streams);
    answers_still(&gateway).await;
}

/// Opens this number of streams on one connection. All of them stay open for longer than the server keeps its own
/// connections.
async fn many(client: crate::support::H2, count: usize, opening: Arc<Semaphore>) {
    let mut all = JoinSet::new();
    for number in 0..count {
        let (client, opening) = (client.clone(), Arc::clone(&opening));
        all.spawn(async move {
            let (feed, body) = Feed::open();
            let turn = opening.acquire().await.unwrap();
            let answer = client.send(call("Echo", &[], body)).await.unwrap();
            drop(turn);
            let mut answer = answer.into_body();
            for _ in 0..4 {
                let message = Bytes::from(format!("\0\0\0\0\x04{number:04}"));
                feed.send(Frame::data(message.clone())).await.unwrap();
                let frame = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
                assert_eq!(frame.unwrap().into_data().unwrap(), message);
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            drop(feed);
            let last = timeout(PATIENCE, answer.frame()).await.unwrap().unwrap();
            assert_eq!(last.unwrap().into_trailers().unwrap()["grpc-status"], "0");
        });
    }
    all.join_all().await;
}

async fn answers_still(gateway: &Gateway) {
    let answer = gateway
        .h2()
        .await
        .ask(call("Unary", &[], Feed::of("x")))
        .await;
    assert_eq!(answer.trailers.get("grpc-status"), Some("0"), "{answer:?}");
}
