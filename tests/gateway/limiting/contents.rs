//! The query and the body are part of a repeat: an id that was charged once lets no other requests go free.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Feed, File, Gateway, Upstream, Wire, request};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;

on_both_stores! {
    an_id_is_no_ticket_for_other_queries_and_bodies
    an_id_of_paths_is_one_whatever_query_and_body_say
    what_is_framed_otherwise_is_the_same_body
    guesses_and_other_hosts_are_no_repeats
}

const ID: (&str, &str) = ("idempotency-key", "x");

fn file(upstream: &Upstream, of: &str) -> File {
    let once = format!("dedupe = {{ header = \"Idempotency-Key\"{of} }}");
    let calls = format!("by = \"everyone\"\nrate = \"100/h\"\n{once}");
    File::to(upstream, &["calls"]).limit("calls", &calls)
}

fn post(target: &str, body: &str) -> String {
    let length = body.len().to_string();
    request("POST", target, &[ID, ("Content-Length", &length)]) + body
}

fn chunked(target: &str, chunks: &[&str], trailers: &str) -> String {
    let coded = ("Transfer-Encoding", "chunked");
    let mut text = request("POST", target, &[ID, coded, ("Trailer", "X-Sum")]);
    for chunk in chunks {
        text += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    text + "0\r\n" + trailers + "\r\n"
}

/// Sends a request, checks that it arrives as it was sent, and returns the number of charges so far.
async fn charged(client: &mut Wire, asked: &str, body: &str) -> u64 {
    let answer = client.ask(asked).await.expect(200);
    assert_eq!(answer.echoed().body, body);
    100 - answer.remaining("calls")
}

async fn an_id_is_no_ticket_for_other_queries_and_bodies(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, "")).await;
    let mut client = gateway.connect().await;
    // A body of a megabyte. Only its first 16 KiB are compared.
    let long = |first: char, last: char| {
        let mut text = first.to_string();
        text.extend(std::iter::repeat_n('.', 1 << 20));
        text + &last.to_string()
    };
    let (large, other_end, other_start) = (long('a', 'z'), long('a', 'y'), long('b', 'z'));
    let requests = [
        ("/pay", "to=ann", 1),
        ("/pay", "to=ben", 2),
        ("/pay?amount=1", "to=ann", 3),
        ("/pay?amount=1000", "to=ann", 4),
        ("/pay?", "to=ann", 5),
        ("/pay", "", 6),
        // These requests were charged before.
        ("/pay", "to=ann", 6),
        ("/pay?amount=1", "to=ann", 6),
        ("/./pay", "to=ben", 6),
        ("/pay", "", 6),
        ("/pay", &large, 7),
        ("/pay", &large, 7),
        ("/pay", &other_end, 7),
        ("/pay", &other_start, 8),
    ];
    for (target, body, expected) in requests {
        let asked = post(target, body);
        let count = charged(&mut client, &asked, body).await;
        assert_eq!(count, expected, "{target} {:.9}", body);
    }
    // Three repeats of each request go free, and the next is charged.
    for (nth, expected) in [8, 8, 9].into_iter().enumerate() {
        let asked = post("/pay", "to=ann");
        assert_eq!(
            charged(&mut client, &asked, "to=ann").await,
            expected,
            "{nth}"
        );
    }
}

async fn an_id_of_paths_is_one_whatever_query_and_body_say(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, ", of = \"path\"")).await;
    let mut client = gateway.connect().await;
    for (target, body) in [
        ("/pay", "a"),
        ("/pay?b", "b"),
        ("/pay", ""),
        ("/pay?a", "a"),
    ] {
        assert_eq!(charged(&mut client, &post(target, body), body).await, 1);
    }
    assert_eq!(charged(&mut client, &post("/other", "a"), "a").await, 2);
}

async fn what_is_framed_otherwise_is_the_same_body(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, "")).await;
    let mut client = gateway.connect().await;
    assert_eq!(charged(&mut client, &post("/", "abc"), "abc").await, 1);
    let pieces = chunked("/", &["a", "b", "c"], "X-Sum: 1\r\n");
    let answer = client.ask(pieces).await.expect(200);
    let echoed = answer.echoed();
    assert_eq!(
        (answer.remaining("calls"), echoed.body.as_str()),
        (99, "abc")
    );
    // A body that was read to its end is forwarded unchanged, together with the bytes behind it.
    assert_eq!(echoed.fields.all("transfer-encoding"), ["chunked"]);
    assert_eq!(echoed.trailers.get("x-sum"), Some("1"));

    let http2 = gateway.h2().await;
    for trailers in [false, true] {
        let (sender, body) = Feed::open();
        for piece in ["ab", "c"] {
            let frame = Frame::data(Bytes::from_static(piece.as_bytes()));
            sender.try_send(frame).unwrap();
        }
        if trailers {
            let mut fields = HeaderMap::new();
            fields.insert("x-sum", "2".parse().unwrap());
            sender.try_send(Frame::trailers(fields)).unwrap();
        }
        drop(sender);
        let asked = Request::post("http://gateway.test/").header(ID.0, ID.1);
        let asked = asked.header("trailer", "x-sum");
        let answer = http2.ask(asked.body(body).unwrap()).await.expect(200);
        let echoed = answer.echoed();
        assert_eq!(answer.remaining("calls"), 99);
        assert_eq!(echoed.body, "abc");
        assert_eq!(echoed.trailers.get("x-sum"), trailers.then_some("2"));
    }
    // Chunks without any bytes are no body.
    assert_eq!(charged(&mut client, &post("/empty", ""), "").await, 2);
    let nothing = chunked("/empty", &[], "");
    assert_eq!(charged(&mut client, &nothing, "").await, 2);
}

async fn guesses_and_other_hosts_are_no_repeats(place: Place) {
    let upstream = Upstream::echo().await;
    let once = "by = \"ip\"\nrate = \"6/h\"\ndedupe = { header = \"Idempotency-Key\" }";
    let known = "by = \"header:x-api-key\"\nrate = \"100/h\"\nmissing = \"refuse\"\nunknown = \"refuse\"\ntiers.keys = { rate = \"9/h\" }";
    let file = File::to(&upstream, &["calls", "keys"])
        .limit("calls", once)
        .limit("keys", known)
        .with("[groups.keys]\nby = \"header:x-api-key\"\nmembers = [\"right\"]");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for guess in 0..3 {
        let key = guess.to_string();
        let asked = request("GET", "/", &[ID, ("X-Api-Key", &key)]);
        client.ask(asked).await.expect(401);
    }
    let mut left = Vec::new();
    for host in ["a.test", "b.test", "a.test"] {
        let fields = [ID, ("X-Api-Key", "right"), ("Host", host)];
        let answer = client.ask(request("GET", "/", &fields)).await.expect(200);
        left.push(answer.remaining("calls"));
    }
    assert_eq!(left, [2, 1, 1]);
}

#[tokio::test]
async fn a_shadow_waits_for_no_body() {
    let upstream = Upstream::echo().await;
    let shadow = "by = \"everyone\"\nrate = \"100/h\"\nmode = \"shadow\"\ndedupe = { header = \"Idempotency-Key\" }";
    let file = File::to(&upstream, &["calls"]).limit("calls", shadow);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let start = std::time::Instant::now();
    let head = request("POST", "/", &[ID, ("Content-Length", "4")]);
    client.send(head + "ab").await;
    upstream.sees(1).await;
    // With a limit that decides, this would take five seconds.
    assert!(start.elapsed() < std::time::Duration::from_secs(4));
    assert_eq!(client.ask("cd").await.expect(200).echoed().body, "abcd");
}

#[tokio::test]
async fn a_body_that_does_not_come_costs_its_id_and_nothing_else() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&file(&upstream, "")).await;
    for nth in 1..=2 {
        let mut client = gateway.connect().await;
        let head = request("POST", "/", &[ID, ("Content-Length", "4")]);
        client.send(head + "ab").await;
        // The request is forwarded all the same, with the part of the body that has come.
        upstream.sees(nth).await;
        let answer = client.ask("cd").await.expect(200);
        assert_eq!(answer.echoed().body, "abcd");
        assert_eq!(answer.remaining("calls"), 100 - nth as u64);
    }
    let warned = "the body of 127.0.0.1 did not come within 5s; limit calls charges the request";
    let said = |line: &str| line.contains(warned);
    gateway.said.line(0, "a warning", said).await;
}

#[tokio::test]
async fn a_body_that_breaks_is_not_charged_for() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&file(&upstream, "")).await;
    let mut client = gateway.connect().await;
    let head = request("POST", "/", &[ID, ("Transfer-Encoding", "chunked")]);
    let answer = client.ask(head.clone() + "4\r\nabcd\r\nnonsense\r\n").await;
    assert_eq!(answer.expect(400).field("connection"), "close");
    let mut client = gateway.connect().await;
    client.send(head + "4\r\nabcd\r\n").await;
    client.reset();
    gateway.line_where("reason", "client_gone").await;
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(answer.remaining("calls"), 99);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_body_that_was_read_is_not_kept_for_a_refusal() {
    let upstream = Upstream::echo().await;
    let limit =
        "by = \"everyone\"\nrate = \"1/h\"\ndedupe = { header = \"Idempotency-Key\", repeats = 1 }";
    let file = File::to(&upstream, &["calls"]).limit("calls", limit);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client.ask(post("/", "a")).await.expect(200);
    // The connection stays in step, however the body ends.
    client.ask(post("/", "b")).await.expect(429);
    client.ask(post("/", "a")).await.expect(200);
    client.ask(post("/", "a")).await.expect(429);
    // A client that waits for a 100 gets it if the body decides which request this is.
    let expecting = [ID, ("Content-Length", "1"), ("Expect", "100-continue")];
    client.send(request("POST", "/", &expecting)).await;
    assert_eq!(client.head().await.status(), 100);
    client.ask("c").await.expect(429);
    assert_eq!(upstream.seen(), 2);
}
