//! Uploads to servers that do not read: the gateway buffers little of each, however much the client sends.

use crate::support::{Connection, Feed, File, Gateway, H2, Upstream, Wire, request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::future::pending;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The number of uploads at a time.
const MANY: usize = 40;
/// The most memory that the gateway uses for each upload, in addition to its connection, in bytes.
const MOST: usize = 128 * 1024;

async fn resident(gateway: &Gateway) -> usize {
    let metrics = gateway.metrics().await;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    value.unwrap().trim().parse::<f64>().unwrap() as usize
}

/// A server that reads the beginning of a request and no more.
async fn deaf() -> Upstream {
    Upstream::playing(|mut connection: Connection| async move {
        let _ = connection.wire.exactly(16).await;
        pending::<()>().await;
    })
    .await
}

/// A client whose connection has already carried a request.
enum Uploader {
    Http1(Wire),
    Http2(H2),
}

impl Uploader {
    async fn to(gateway: &Gateway, is_http2: bool) -> Self {
        if is_http2 {
            let client = H2::to(gateway.address()).await;
            client.get("/own").await.expect(200);
            return Self::Http2(client);
        }
        let mut client = Wire::to(gateway.address()).await;
        client.ask(request("GET", "/own", &[])).await.expect(200);
        Self::Http1(client)
    }

    /// Sends until the gateway takes no more bytes, and reports this.
    async fn upload(self, told: UnboundedSender<()>) {
        let piece = Bytes::from(vec![b'x'; 64 * 1024]);
        // Of these bytes the server's system takes as many as its buffers hold.
        let taken = Duration::from_secs(4);
        match self {
            Self::Http1(mut client) => {
                let head = request("POST", "/", &[("Content-Length", "1000000000")]);
                client.send(head).await;
                let feeding = async { while client.try_send(&piece).await.is_ok() {} };
                let _ = timeout(taken, feeding).await;
                told.send(()).unwrap();
                pending::<()>().await;
            }
            Self::Http2(client) => {
                let (sending, body) = Feed::open();
                let request = http::Request::post("http://a.test/").body(body).unwrap();
                let upload = async {
                    let feeding =
                        async { while sending.send(Frame::data(piece.clone())).await.is_ok() {} };
                    let _ = timeout(taken, feeding).await;
                    told.send(()).unwrap();
                    pending::<()>().await;
                };
                let (_, answer) = tokio::join!(upload, client.send(request));
                let _ = answer.unwrap().collect().await;
            }
        }
    }
}

/// Many uploads at a time, until the gateway takes no more bytes of any. Returns the memory of each, in addition to its
/// connection.
async fn for_each(gateway: &Gateway, is_http2: bool) -> usize {
    let mut clients = Vec::new();
    for _ in 0..MANY {
        clients.push(Uploader::to(gateway, is_http2).await);
    }
    let before = resident(gateway).await;
    let (told, mut stalled) = unbounded_channel();
    let mut kept = JoinSet::new();
    for client in clients {
        kept.spawn(client.upload(told.clone()));
    }
    for _ in 0..MANY {
        stalled.recv().await.unwrap();
    }
    resident(gateway).await.saturating_sub(before) / MANY
}

#[tokio::test]
async fn an_upload_that_its_server_does_not_read_holds_little_memory() {
    for is_http2 in [false, true] {
        let upstream = deaf().await;
        let file = File::to(&upstream, &[])
            .server("workers = 1")
            .with("timeout = \"10min\"")
            .with("[routes.own]\npath = \"/own\"\nrespond = { status = 200 }");
        let gateway = Gateway::start(&file).await;
        let each = for_each(&gateway, is_http2).await;
        assert!(each <= MOST, "client of HTTP/2, {is_http2}: {each} bytes");
    }
}
