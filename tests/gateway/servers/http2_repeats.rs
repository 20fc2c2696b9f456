//! If an HTTP/2 server has certainly not begun with a request, the same server or another gets its body again from the
//! first byte on.

use super::gateway;
use crate::support::h2_frames::{
    DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame, read_frame,
};
use crate::support::{
    Connection, End, Feed, Gateway, PATIENCE, Upstream, eventually, grpc, request,
};
use bytes::Bytes;
use hyper::body::Frame;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const END: u8 = 1;

/// The fate of a request.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// The server answers when the body has ended.
    Answer,
    /// The server refuses the stream when the body has ended.
    Refuse,
    /// The server refuses the stream when the first piece of the body has come.
    RefuseEarly,
    /// The server ends the connection for this request when the body has ended.
    GoAway,
}

/// A server, frame by frame, that treats its requests by their numbers, counted from 1 over all connections.
struct Server {
    upstream: Upstream,
    seen: Arc<Requests>,
}

#[derive(Default)]
struct Requests {
    number: AtomicUsize,
    /// The number of received bytes of all bodies.
    bytes: AtomicUsize,
    /// The bodies of answered requests.
    bodies: Mutex<Vec<Vec<u8>>>,
}

impl Server {
    async fn start(rule: fn(usize) -> Turn) -> Self {
        let seen = Arc::<Requests>::default();
        let noting = Arc::clone(&seen);
        let upstream = Upstream::playing(move |connection: Connection| {
            let noting = Arc::clone(&noting);
            async move {
                let _ = play(connection, rule, &noting).await;
            }
        })
        .await;
        Self { upstream, seen }
    }

    async fn gateway(&self, lines: &str) -> Gateway {
        let port = self.upstream.port();
        gateway(&format!("servers = \"h2c://127.0.0.1:{port}\"\n{lines}")).await
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        self.seen.bodies.lock().unwrap().clone()
    }
}

async fn play(
    mut connection: Connection,
    rule: fn(usize) -> Turn,
    seen: &Requests,
) -> Result<(), End> {
    let wire = &mut connection.wire;
    wire.exactly(24).await?;
    wire.send(frame(SETTINGS, 0, 0, &[])).await;
    let mut open: HashMap<u32, (Turn, Vec<u8>)> = HashMap::new();
    let mut stream = 0;
    loop {
        let (kind, flags, payload) = read_frame(wire).await?;
        match kind {
            SETTINGS if flags & 1 == 0 => wire.send(frame(SETTINGS, 1, 0, &[])).await,
            PING if flags & 1 == 0 => wire.send(frame(PING, 1, 0, &payload)).await,
            HEADERS if flags & 4 != 0 && open.get(&stream).is_none_or(|_| flags & END == 0) => {
                stream = if stream == 0 { 1 } else { stream + 2 };
                let turn = rule(seen.number.fetch_add(1, Ordering::SeqCst) + 1);
                open.insert(stream, (turn, Vec::new()));
            }
            _ => {}
        }
        let Some((turn, body)) = open.get_mut(&stream) else {
            continue;
        };
        if kind == DATA {
            body.extend_from_slice(&payload);
            seen.bytes.fetch_add(payload.len(), Ordering::SeqCst);
        }
        let is_due = matches!(kind, DATA | HEADERS) && flags & END != 0;
        match *turn {
            Turn::RefuseEarly if kind == DATA => {
                wire.send(frame(RST_STREAM, 0, stream, &REFUSED_STREAM))
                    .await;
                open.remove(&stream);
            }
            Turn::Refuse if is_due => {
                wire.send(frame(RST_STREAM, 0, stream, &REFUSED_STREAM))
                    .await;
                open.remove(&stream);
            }
            Turn::GoAway if is_due => {
                wire.send(frame(GOAWAY, 0, 0, &[0; 8])).await;
                open.remove(&stream);
            }
            Turn::Answer if is_due => {
                seen.bodies.lock().unwrap().push(body.clone());
                let answer = [
                    frame(HEADERS, 4, stream, &[0x88]),
                    frame(DATA, END, stream, b"ok"),
                ];
                wire.send(answer.concat()).await;
                open.remove(&stream);
            }
            _ => {}
        }
    }
}

fn body(length: usize) -> String {
    ('a'..='z').cycle().take(length).collect()
}

fn post(length: usize) -> String {
    let announced = length.to_string();
    request("POST", "/orders", &[("content-length", &announced)]) + &body(length)
}

#[tokio::test]
async fn a_body_of_which_all_is_at_hand_is_sent_again() {
    let rules: [fn(usize) -> Turn; 3] = [
        |number| [Turn::Answer, Turn::Refuse][number % 2],
        |number| [Turn::Answer, Turn::RefuseEarly][number % 2],
        |number| [Turn::Answer, Turn::GoAway][number % 2],
    ];
    for (which, rule) in rules.into_iter().enumerate() {
        let server = Server::start(rule).await;
        let gateway = server.gateway("").await;
        for length in [1, 5, 2_000, 16 * 1024] {
            let mut client = gateway.connect().await;
            let answer = client.ask(post(length)).await;
            assert_eq!(answer.status, 200, "{length} bytes, manner {which}");
            let line = gateway.line_of(&answer).await;
            assert_eq!(
                (&line["attempts"], &line["retry"]),
                (&2.into(), &"refused".into())
            );
            assert_eq!(line["bytes_in"], length, "they came once");
        }
        let bodies = server.bodies();
        let expected = [1, 5, 2_000, 16 * 1024].map(|length| body(length).into_bytes());
        assert!(bodies == expected, "each whole, and once; manner {which}");
    }
}

#[tokio::test]
async fn a_body_that_has_not_ended_goes_on_behind_what_is_sent_again() {
    let server = Server::start(|number| [Turn::Answer, Turn::RefuseEarly][number % 2]).await;
    let gateway = server.gateway("").await;
    let mut client = gateway.connect().await;
    let chunked = [("transfer-encoding", "chunked")];
    client.send(request("POST", "/", &chunked)).await;
    client.send_chunk("first ").await;
    eventually(PATIENCE, "it is sent again", async || {
        server.seen.number.load(Ordering::SeqCst) == 2
            && server.seen.bytes.load(Ordering::SeqCst) == 2 * "first ".len()
    })
    .await;
    client.send_chunk("second").await;
    client.send("0\r\n\r\n").await;
    client.answer().await.expect(200);
    assert_eq!(server.bodies(), [b"first second"]);
}

/// The announced length of a body does not show how much of it has come.
#[tokio::test]
async fn the_beginning_of_a_long_body_is_sent_again() {
    let server = Server::start(|number| [Turn::Answer, Turn::RefuseEarly][number % 2]).await;
    let gateway = server.gateway("").await;
    let whole = body(17_000);
    for (number, first) in [10, 4_000, 10_000].into_iter().enumerate() {
        let mut client = gateway.connect().await;
        let length = whole.len().to_string();
        let head = request("POST", "/", &[("content-length", &length)]);
        client.send(head + &whole[..first]).await;
        eventually(PATIENCE, "it is sent again", async || {
            server.seen.number.load(Ordering::SeqCst) == 2 * (number + 1)
        })
        .await;
        client.send(&whole[first..]).await;
        let answer = client.answer().await.expect(200);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["attempts"], 2, "{first} bytes first: {line}");
    }
    assert!(
        server.bodies() == [whole.as_bytes(); 3],
        "each whole, and once"
    );
}

#[tokio::test]
async fn a_unary_call_of_grpc_is_not_lost() {
    let server = Server::start(|number| [Turn::Answer, Turn::Refuse][number % 2]).await;
    let gateway = server.gateway("").await;
    let client = gateway.h2().await;
    let message = b"\0\0\0\0\x03abc";
    for _ in 0..3 {
        let (frames, feed) = Feed::open();
        frames
            .send(Frame::data(Bytes::from_static(message)))
            .await
            .unwrap();
        drop(frames);
        let answer = client.ask(grpc::call("Echo", &[], feed)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(gateway.line_of(&answer).await["attempts"], 2);
    }
    assert_eq!(server.bodies(), [message; 3]);
}

#[tokio::test]
async fn a_longer_body_is_not_sent_again() {
    let server = Server::start(|_| Turn::Refuse).await;
    let gateway = server.gateway("").await;
    let mut client = gateway.connect().await;
    client.ask(post(16 * 1024 + 1)).await.expect(502);
    assert_eq!(server.seen.number.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_body_is_sent_again_once_and_within_the_budget() {
    let server = Server::start(|_| Turn::Refuse).await;
    let gateway = server.gateway("").await;
    let mut client = gateway.connect().await;
    client.ask(post(5)).await.expect(502);
    assert_eq!(server.seen.number.load(Ordering::SeqCst), 2);
    // The upstream's budget must not be used up by a server that refuses everything.
    for _ in 0..100 {
        gateway.connect().await.ask(post(5)).await.expect(502);
    }
    let sent = server.seen.number.load(Ordering::SeqCst);
    assert!((101..160).contains(&sent), "{sent} times for 101 requests");
    let never = Server::start(|_| Turn::Refuse).await;
    let gateway = never.gateway("retry = false").await;
    gateway.connect().await.ask(post(5)).await.expect(502);
    assert_eq!(never.seen.number.load(Ordering::SeqCst), 1);
}
