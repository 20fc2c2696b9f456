//! If a client leaves in any way, its request ends at the upstream at once.

use crate::support::{
    Connection, End, Feed, File, Gateway, H2, PATIENCE, Upstream, Wire, get, h2, request,
};
use bytes::Bytes;
use http::Request;
use hyper::body::Frame;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// An upstream that reports the end of the gateway's connection, and a gateway in front of it.
struct Deserted {
    upstream: Upstream,
    gateway: Gateway,
    left: mpsc::Receiver<Instant>,
}

impl Deserted {
    /// After a request the upstream sends `answer`, and then nothing.
    async fn after(answer: &'static str) -> Self {
        let (leaving, left) = mpsc::channel(1);
        let upstream = Upstream::playing(move |mut connection: Connection| {
            let leaving = leaving.clone();
            async move {
                if connection.request().await.is_ok() {
                    connection.wire.send(answer).await;
                    if connection.wire.ended(PATIENCE).await != End::Open {
                        let _ = leaving.send(Instant::now()).await;
                    }
                }
            }
        })
        .await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        Self {
            upstream,
            gateway,
            left,
        }
    }

    async fn client(&self) -> Wire {
        self.gateway.connect().await
    }

    async fn h2(&self) -> H2 {
        self.gateway.h2().await
    }

    async fn assert_left_since(&mut self, gone: Instant) {
        let at = timeout(PATIENCE, self.left.recv())
            .await
            .expect("the upstream request was never let go")
            .unwrap();
        let took = at.saturating_duration_since(gone);
        assert!(
            took < AT_ONCE,
            "the upstream request outlived its client by {took:?}"
        );
    }
}

/// A time that is long even for a busy machine, but shorter than any deadline of the gateway.
const AT_ONCE: Duration = Duration::from_secs(8);
const NOTHING: &str = "";
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";

#[tokio::test]
async fn by_closing() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/")).await;
    deserted.upstream.sees(1).await;
    drop(client);
    deserted.assert_left_since(Instant::now()).await;
    let line = deserted.gateway.line_where("reason", "client_gone").await;
    assert_eq!(line["path"], "/");
    // The log names the server, although the server has not answered.
    assert_eq!(line["upstream"], deserted.upstream.url(), "{line}");
    assert!(line["upstream_ms"].is_null(), "{line}");
}

#[tokio::test]
async fn by_closing_with_a_byte_behind_the_request() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/") + "G").await;
    deserted.upstream.sees(1).await;
    drop(client);
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn by_closing_with_a_whole_request_behind_the_request() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/") + &get("/next")).await;
    deserted.upstream.sees(1).await;
    drop(client);
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn by_closing_only_its_own_side() {
    for behind in ["", "G", "GET /next HTTP/1.1\r\nHost: gateway.test\r\n\r\n"] {
        let mut deserted = Deserted::after(NOTHING).await;
        let mut client = deserted.client().await;
        client.send(get("/") + behind).await;
        deserted.upstream.sees(1).await;
        client.finish_sending().await;
        deserted.assert_left_since(Instant::now()).await;
    }
}

#[tokio::test]
async fn by_closing_only_its_own_side_behind_a_byte_that_came_later() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/")).await;
    deserted.upstream.sees(1).await;
    client.send("G").await;
    client.finish_sending().await;
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn by_resetting() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/")).await;
    deserted.upstream.sees(1).await;
    client.reset();
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn by_resetting_with_a_byte_behind_the_request() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client.send(get("/") + "G").await;
    deserted.upstream.sees(1).await;
    client.reset();
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn in_the_middle_of_its_own_body() {
    let mut deserted = Deserted::after(NOTHING).await;
    let mut client = deserted.client().await;
    client
        .send(request("POST", "/", &[("Content-Length", "10")]))
        .await;
    client.send("half").await;
    deserted.upstream.sees(1).await;
    drop(client);
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn in_the_middle_of_the_answer() {
    let mut deserted = Deserted::after(HALF).await;
    let mut client = deserted.client().await;
    client.send(get("/")).await;
    client.head().await;
    drop(client);
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn in_the_middle_of_the_answer_with_a_byte_behind_the_request() {
    let mut deserted = Deserted::after(HALF).await;
    let mut client = deserted.client().await;
    client.send(get("/") + "G").await;
    client.head().await;
    client.reset();
    deserted.assert_left_since(Instant::now()).await;
}

#[tokio::test]
async fn by_cancelling_an_http2_stream() {
    let mut deserted = Deserted::after(NOTHING).await;
    let client = deserted.h2().await;
    let staying = client.clone();
    let asking = tokio::spawn(async move { client.send(h2::get("/")).await });
    deserted.upstream.sees(1).await;
    asking.abort();
    deserted.assert_left_since(Instant::now()).await;
    assert!(!staying.closed(), "only the stream was cancelled");
}

#[tokio::test]
async fn by_cancelling_an_http2_upload() {
    let mut deserted = Deserted::after(NOTHING).await;
    let client = deserted.h2().await;
    let (feeding, body) = Feed::open();
    feeding
        .send(Frame::data(Bytes::from_static(b"half")))
        .await
        .unwrap();
    let request = Request::post("http://gateway.test/").body(body).unwrap();
    let asking = tokio::spawn(async move { client.send(request).await });
    deserted.upstream.sees(1).await;
    asking.abort();
    deserted.assert_left_since(Instant::now()).await;
}
