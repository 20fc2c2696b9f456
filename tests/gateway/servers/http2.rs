//! Servers of HTTP/2: many streams share few connections, and a request that a server has not processed is never lost.

use super::{gateway, h2c};
use crate::support::{
    Connection, End, Feed, Gateway, Line, Manner, ModernServer, PATIENCE, Relay, Upstream,
    eventually, get, request,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn requests_and_answers_pass_whole() {
    let (server, gateway) = h2c(Manner::default()).await;
    let client = gateway.h2().await;
    let (frames, body) = Feed::open();
    let asked = Request::post("http://shop.test/orders?a=1")
        .header("te", "trailers")
        .header("x-own", "yes")
        .body(body)
        .unwrap();
    for piece in ["one ", "two ", "three"] {
        frames
            .send(Frame::data(Bytes::from_static(piece.as_bytes())))
            .await
            .unwrap();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("13"));
    frames.send(Frame::trailers(trailers)).await.unwrap();
    drop(frames);
    let answer = client.ask(asked).await.expect(200);
    let echo = answer.json();
    assert_eq!(echo["version"], "2");
    assert_eq!(echo["method"], "POST");
    assert_eq!(echo["authority"], "shop.test");
    assert_eq!(echo["scheme"], "http");
    assert_eq!(echo["path"], "/orders?a=1");
    assert_eq!(echo["length"], 13);
    assert_eq!(echo["trailers"][0][0], "x-sum");
    assert_eq!(answer.trailers.get("x-check"), Some("done"));
    let fields = echo["fields"].as_array().unwrap();
    let all = |name: &str| -> Vec<&str> {
        let named = fields.iter().filter(|field| field[0] == name);
        named.map(|field| field[1].as_str().unwrap()).collect()
    };
    assert_eq!(all("te"), ["trailers"]);
    assert_eq!(all("x-own"), ["yes"]);
    assert_eq!(all("x-request-id").len(), 1);
    assert_eq!(all("via").len(), 1);
    for gone in ["connection", "host", "transfer-encoding"] {
        assert!(all(gone).is_empty(), "{gone}");
    }
    // The same connection serves a client of HTTP/1.1.
    let mut old = gateway.connect().await;
    let echo = old
        .ask(request("GET", "/plain", &[]))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&echo["version"], &echo["length"]),
        (&"2".into(), &0.into())
    );
    old.send(request("HEAD", "/head", &[])).await;
    old.answer_to_head().await.expect(200);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_body_larger_than_all_windows_passes() {
    let (_server, gateway) = h2c(Manner::default()).await;
    let mut client = gateway.connect().await;
    let length = 3_000_000;
    client
        .send(format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    client.send(vec![b'x'; length]).await;
    assert_eq!(client.answer().await.expect(200).json()["length"], length);
}

#[tokio::test]
async fn another_connection_is_opened_when_streams_run_out() {
    let (server, gateway) = h2c(Manner {
        streams: Some(4),
        ..Manner::default()
    })
    .await;
    let client = gateway.h2().await;
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/wait").await.status })
        })
        .collect();
    eventually(PATIENCE, "all are at the server at once", async || {
        server.seen.waiting.load(Ordering::SeqCst) == 20
    })
    .await;
    assert_eq!(server.connections(), 5);
    server.seen.gate.add_permits(20);
    for one in asking {
        assert_eq!(one.await.unwrap(), 200);
    }
}

/// The last of ten requests waits until ten connections have opened, each for more than 0.3 s.
#[tokio::test]
async fn who_waits_for_a_stream_has_the_time_of_one_opening_after_each() {
    let server = ModernServer::start(Manner {
        streams: Some(1),
        ..Manner::default()
    })
    .await;
    let relay = Relay::to(server.port()).await;
    relay.turn(Line::Slow(Duration::from_millis(300)));
    let lines = format!(
        "servers = \"h2c://{}\"\nconnect_timeout = \"2s\"\nretry = false",
        relay.address()
    );
    let gateway = gateway(&lines).await;
    let client = gateway.h2().await;
    let asking: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/wait").await.status })
        })
        .collect();
    eventually(PATIENCE, "all are at the server at once", async || {
        server.seen.waiting.load(Ordering::SeqCst) == 10
    })
    .await;
    server.seen.gate.add_permits(10);
    for one in asking {
        assert_eq!(one.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn a_client_that_leaves_resets_its_stream() {
    let (server, gateway) = h2c(Manner::default()).await;
    let mut client = gateway.connect().await;
    client.send(get("/wait")).await;
    eventually(PATIENCE, "it waits", async || {
        server.seen.waiting.load(Ordering::SeqCst) == 1
    })
    .await;
    drop(client);
    eventually(PATIENCE, "the server hears of it", async || {
        server.seen.broken.load(Ordering::SeqCst) == 1
    })
    .await;
    gateway.get("/").await.expect(200);
    assert_eq!(server.connections(), 1, "the connection is kept");
}

/// The reaction of a server in this test to a stream of a connection, counted from 1.
type Rule = fn(stream: usize) -> Reply;

#[derive(Clone, Copy, PartialEq)]
enum Reply {
    Answer,
    /// Answers, and ends the connection for later streams.
    AnswerAndGoAway,
    /// Does nothing: the server has said that it takes no such stream.
    Ignore,
    Refuse,
    /// Refuses the stream as soon as its head has come. The refusal is counted with the answers.
    RefuseOpen,
    /// Ends the connection because of too many requests.
    Calm,
}

const ANSWER: [u8; 21] = [
    0, 0, 1, 1, 4, 0, 0, 0, 0, 0x88, 0, 0, 2, 0, 1, 0, 0, 0, 0, b'o', b'k',
];

/// A server of HTTP/2 that sends frames one by one. It counts the requests that it has answered.
async fn by_hand(rule: Rule) -> (Upstream, Arc<AtomicUsize>) {
    let answered = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&answered);
    let server = Upstream::playing(move |connection: Connection| {
        let counting = Arc::clone(&counting);
        async move {
            let _ = play(connection, rule, &counting).await;
        }
    })
    .await;
    (server, answered)
}

async fn play(mut connection: Connection, rule: Rule, answered: &AtomicUsize) -> Result<(), End> {
    let wire = &mut connection.wire;
    wire.exactly(24).await?;
    wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let mut streams = 0;
    loop {
        let head = wire.exactly(9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = wire.exactly(length).await?;
        let (kind, flags, id) = (head[3], head[4], &head[5..9]);
        match kind {
            4 if flags & 1 == 0 => wire.send([0, 0, 0, 4, 1, 0, 0, 0, 0]).await,
            6 if flags & 1 == 0 => {
                let mut pong = vec![0, 0, 8, 6, 1, 0, 0, 0, 0];
                pong.extend_from_slice(&payload);
                wire.send(pong).await;
            }
            1 if flags & 1 == 0 && rule(streams + 1) == Reply::RefuseOpen => {
                streams += 1;
                wire.send([&[0, 0, 4, 3, 0], id, &[0, 0, 0, 7]].concat())
                    .await;
                answered.fetch_add(1, Ordering::SeqCst);
            }
            0 | 1 if flags & 1 == 1 => {
                streams += 1;
                let reply = rule(streams);
                let mut bytes = Vec::new();
                if matches!(reply, Reply::Answer | Reply::AnswerAndGoAway) {
                    answered.fetch_add(1, Ordering::SeqCst);
                    let mut answer = ANSWER;
                    answer[5..9].copy_from_slice(id);
                    answer[15..19].copy_from_slice(id);
                    bytes.extend_from_slice(&answer);
                }
                if reply == Reply::AnswerAndGoAway {
                    bytes.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0]);
                    bytes.extend_from_slice(id);
                    bytes.extend_from_slice(&[0, 0, 0, 0]);
                }
                if reply == Reply::Refuse {
                    bytes.extend_from_slice(&[0, 0, 4, 3, 0]);
                    bytes.extend_from_slice(id);
                    bytes.extend_from_slice(&[0, 0, 0, 7]);
                }
                if reply == Reply::Calm {
                    bytes.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
                }
                wire.send(bytes).await;
                if reply == Reply::Calm {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// A server that refuses every stream.
pub(super) async fn refusing() -> Upstream {
    by_hand(|_| Reply::Refuse).await.0
}

async fn before(server: &Upstream) -> Gateway {
    gateway(&format!("servers = \"h2c://127.0.0.1:{}\"", server.port())).await
}

fn each_tenth(stream: usize) -> Reply {
    match stream {
        1..10 => Reply::Answer,
        10 => Reply::AnswerAndGoAway,
        _ => Reply::Ignore,
    }
}

#[tokio::test]
async fn one_after_another_no_request_is_lost_to_goaway() {
    let (server, answered) = by_hand(each_tenth).await;
    let gateway = before(&server).await;
    let mut client = gateway.connect().await;
    for number in 0..200 {
        let asked = if number % 3 == 0 {
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody".to_owned()
        } else {
            get("/")
        };
        let answer = client.ask(asked).await;
        assert_eq!(answer.status, 200, "request {number}");
    }
    assert_eq!(answered.load(Ordering::SeqCst), 200);
    assert!(server.connections() >= 20);
}

#[tokio::test]
async fn eight_at_a_time_no_bodiless_request_is_lost_to_goaway() {
    let (server, answered) = by_hand(each_tenth).await;
    let gateway = Arc::new(before(&server).await);
    let lanes: Vec<_> = (0..8)
        .map(|_| {
            let gateway = Arc::clone(&gateway);
            tokio::spawn(async move {
                let mut client = gateway.connect().await;
                for number in 0..25 {
                    let method = if number % 2 == 0 { "GET" } else { "POST" };
                    let asked = request(method, "/", &[("content-length", "0")]);
                    assert_eq!(client.ask(asked).await.status, 200);
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.unwrap();
    }
    assert_eq!(
        answered.load(Ordering::SeqCst),
        200,
        "each is answered once"
    );
}

#[tokio::test]
async fn a_refused_stream_is_repeated_whatever_its_method() {
    fn first_refused(stream: usize) -> Reply {
        if stream % 2 == 1 {
            Reply::Refuse
        } else {
            Reply::Answer
        }
    }
    let (server, answered) = by_hand(first_refused).await;
    let gateway = before(&server).await;
    let mut client = gateway.connect().await;
    for method in ["GET", "POST", "PATCH"] {
        let asked = request(method, "/", &[("content-length", "0")]);
        client.ask(asked).await.expect(200);
    }
    assert_eq!(
        (server.connections(), answered.load(Ordering::SeqCst)),
        (1, 3)
    );
}

#[tokio::test]
async fn an_open_stream_that_has_said_nothing_is_repeated() {
    fn first_refused(stream: usize) -> Reply {
        if stream == 1 {
            Reply::RefuseOpen
        } else {
            Reply::Answer
        }
    }
    let (server, answered) = by_hand(first_refused).await;
    let gateway = before(&server).await;
    let mut client = gateway.connect().await;
    let length = [("content-length", "4")];
    client.send(request("POST", "/", &length)).await;
    eventually(PATIENCE, "the stream is refused", async || {
        answered.load(Ordering::SeqCst) == 1
    })
    .await;
    client.send("body").await;
    client.answer().await.expect(200);
    assert_eq!(answered.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_that_asks_for_calm_gets_no_connection_for_a_second() {
    fn third_is_too_much(stream: usize) -> Reply {
        if stream < 3 {
            Reply::Answer
        } else {
            Reply::Calm
        }
    }
    let (server, _) = by_hand(third_is_too_much).await;
    let gateway = before(&server).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.ask(get("/")).await.expect(200);
    }
    let begun = std::time::Instant::now();
    client.ask(get("/")).await.expect(200);
    let took = begun.elapsed();
    assert!(took.as_millis() >= 900, "it waits: {took:?}");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_reload_keeps_the_connection() {
    let (server, gateway) = h2c(Manner::default()).await;
    gateway.get("/").await.expect(200);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&format!(
        "{text}\n[limits.new]\nby = \"ip\"\nrate = \"1000/s\"\n"
    ));
    eventually(PATIENCE, "the new file is in force", async || {
        gateway
            .metrics()
            .await
            .contains("tollgate_config_generation 2")
    })
    .await;
    gateway.get("/").await.expect(200);
    assert_eq!(server.connections(), 1);
}
