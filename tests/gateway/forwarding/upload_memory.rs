//! Uploads to servers that do not read: the gateway holds little of each, whatever the client still sends.

use crate::support::{Connection, Feed, File, Gateway, Upstream, request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::time::Duration;

/// Uploads at a time.
const MANY: usize = 40;
/// The most memory of the gateway's for each.
const MOST: usize = 128 * 1024;
/// The same of an upload over HTTP/2: 183 KB were seen, more than there should be.
const MOST_OF_HTTP2: usize = 224 * 1024;

async fn resident(gateway: &Gateway) -> usize {
    let metrics = gateway.metrics().await;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    value.unwrap().trim().parse::<f64>().unwrap() as usize
}

/// A server that reads the beginning and no more.
async fn deaf() -> Upstream {
    Upstream::playing(|mut connection: Connection| async move {
        let _ = connection.wire.exactly(16).await;
        std::future::pending::<()>().await;
    })
    .await
}

/// Many uploads, one after another, until nothing more is taken of each: the memory that each takes.
async fn for_each(gateway: &Gateway, client_http2: bool) -> usize {
    let before = resident(gateway).await;
    let mut kept = tokio::task::JoinSet::new();
    let (told, mut stalled) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..MANY {
        let (told, address) = (told.clone(), gateway.address());
        kept.spawn(async move {
            let piece = Bytes::from(vec![b'x'; 64 * 1024]);
            if client_http2 {
                let (sending, body) = Feed::open();
                let request = http::Request::post("http://a.test/").body(body).unwrap();
                let client = crate::support::H2::to(address).await;
                let upload = async {
                    let feeding =
                        async { while sending.send(Frame::data(piece.clone())).await.is_ok() {} };
                    // The server takes what its system takes for it.
                    let _ = tokio::time::timeout(Duration::from_secs(4), feeding).await;
                    told.send(()).unwrap();
                    std::future::pending::<()>().await;
                };
                let (_, answer) = tokio::join!(upload, client.send(request));
                let _ = answer.unwrap().collect().await;
            } else {
                let mut client = crate::support::Wire::to(address).await;
                let head = request("POST", "/", &[("Content-Length", "1000000000")]);
                client.send(head).await;
                let feeding = async { while client.try_send(&piece).await.is_ok() {} };
                let _ = tokio::time::timeout(Duration::from_secs(4), feeding).await;
                told.send(()).unwrap();
                std::future::pending::<()>().await;
            }
        });
    }
    for _ in 0..MANY {
        stalled.recv().await.unwrap();
    }
    resident(gateway).await.saturating_sub(before) / MANY
}

#[tokio::test]
async fn an_upload_that_its_server_does_not_read_holds_little_memory() {
    for (client_http2, most) in [(false, MOST), (true, MOST_OF_HTTP2)] {
        let upstream = deaf().await;
        let file = File::to(&upstream, &[])
            .server("workers = 1")
            .with("timeout = \"10min\"");
        let gateway = Gateway::start(&file).await;
        let each = for_each(&gateway, client_http2).await;
        assert!(
            each <= most,
            "client of HTTP/2, {client_http2}: {each} bytes"
        );
    }
}
