//! A request that follows one of the gateway's own answers is answered as well, unless that answer has said that the
//! connection ends. The rule also holds where the body of the first request was still to come.

use crate::support::{
    Answer, Connection, End, File, Gateway, PATIENCE, Upstream, Wire, free_port, get, request,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

/// A pause longer than the time that refusals in earlier versions had for the rest of a body.
const LATE: Duration = Duration::from_millis(1300);

/// A request that the gateway answers by itself: the reason in its log, its path, and its fields.
type Way = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const WAYS: [Way; 16] = [
    ("ok", "/respond", &[]),
    ("ok", "/redirect", &[]),
    ("bad_request", "/a\\b", &[]),
    ("no_route", "/nowhere", &[]),
    ("limit_refused", "/limited", &[]),
    ("limit_blocked", "/blocked", &[]),
    ("missing_key", "/keyed", &[]),
    ("unknown_key", "/keyed", &[("X-Api-Key", "strange")]),
    ("too_many_held", "/held", &[]),
    ("server_busy", "/busy", &[]),
    ("none_left", "/drained", &[]),
    ("connect_failed", "/dead", &[]),
    ("upstream_tls", "/secret", &[]),
    ("upstream_reset", "/reset", &[]),
    ("upstream_invalid", "/garbage", &[]),
    ("client_timeout", "/slow", &[]),
];

/// Further reasons, whose answers are sent in the same way.
const BESIDE: [(&str, &str); 20] = [
    ("repeat", "a server's answer"),
    ("limit_delayed", "a server's answer"),
    ("upgraded", "a tunnel"),
    ("to_https", "listeners of their own"),
    (
        "acme_challenge",
        "a certification authority, which sends no body",
    ),
    ("keys_unread", "as missing_key"),
    ("bad_token", "as missing_key"),
    ("store_down", "below"),
    ("draining", "the connection ends anyway"),
    ("drain_cut", "no answer"),
    ("misdirected", "listeners with TLS"),
    ("certificate_required", "as no_route"),
    ("busy", "as server_busy"),
    ("no_server", "as server_busy"),
    ("deadline_exceeded", "HTTP/2"),
    ("upstream_timeout", "below"),
    ("client_gone", "no reader"),
    ("client_stalled", "no reader"),
    ("too_large", "below"),
    ("internal", "none known"),
];

/// A gateway that can be made to answer with each of the reasons.
struct Place {
    gateway: Gateway,
    _upstreams: Vec<Upstream>,
    _waiting: Vec<Wire>,
}

fn upstream(name: &str, server: &str, lines: &str) -> String {
    format!(
        "[upstreams.{name}]\nservers = {server}\n{lines}\n[routes.{name}]\npath = \"/{name}\"\nupstream = \"{name}\""
    )
}

/// An upstream that reads a request's head, answers with `bytes`, and closes.
async fn closing_with(bytes: &'static str) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        if connection.request().await.is_ok() {
            let _ = connection.wire.try_send(bytes).await;
        }
    })
    .await
}

impl Place {
    async fn open() -> Self {
        let (echo, silent) = (Upstream::echo().await, Upstream::silent().await);
        let (reset, garbage) = (
            closing_with("").await,
            closing_with("no HTTP at all\r\n\r\n").await,
        );
        let clear = Upstream::playing(async |mut connection: Connection| {
            let _ = connection
                .wire
                .try_send("HTTP/1.1 400 Bad Request\r\n\r\n")
                .await;
            let _ = connection.wire.ended(PATIENCE).await;
        })
        .await;
        let quoted = |server: &Upstream| format!("\"{}\"", server.url());
        let keyed = "by = \"header:x-api-key\"\nmissing = \"refuse\"\nunknown = \"refuse\"\nrate = \"999/h\"\ntiers.gold = { burst = 4 }";
        let smooth = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 5\nmax_wait = \"9h\"";
        let own = |name: &str, line: &str| format!("[routes.{name}]\npath = \"/{name}\"\n{line}");
        let dead = format!("\"http://127.0.0.1:{}\"", free_port());
        let bounded = format!("[{{ url = {}, max_requests = 1 }}]", quoted(&silent));
        let drained = format!("[{{ url = {}, weight = 0 }}]", quoted(&echo));
        let tls = format!("\"https://127.0.0.1:{}\"", clear.port());
        let file = File::default()
            .server("max_held = 1")
            .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = [\"known\"]")
            .limit("once", "by = \"everyone\"\nrate = \"1/h\"")
            .limit(
                "blocks",
                "by = \"everyone\"\nrate = \"1/h\"\nblock = \"2h\"",
            )
            .limit("keyed", keyed)
            .limit("smooth", smooth)
            .upstream("echo", &[&echo])
            .route("here", "/here", "echo", &[])
            .route("limited", "/limited", "echo", &["once"])
            .route("blocked", "/blocked", "echo", &["blocks"])
            .route("keyed", "/keyed", "echo", &["keyed"])
            .route("held", "/held", "echo", &["smooth"])
            .route("slow", "/slow", "echo", &[])
            .with("idle = \"500ms\"")
            .with(&own("respond", "respond = { status = 403 }"))
            .with(&own("redirect", "redirect = { to = \"/here\" }"))
            .with(&upstream(
                "busy",
                &bounded,
                "queue = { max = 1, wait = \"10ms\" }",
            ))
            .with("timeout = \"10min\"")
            .with(&upstream("drained", &drained, "none_left = \"503\""))
            .with(&upstream("dead", &dead, ""))
            .with(&upstream("secret", &tls, ""))
            .with(&upstream("reset", &quoted(&reset), ""))
            .with(&upstream("garbage", &quoted(&garbage), ""));
        let gateway = Gateway::start(&file).await;
        gateway.get("/limited").await.expect(200);
        gateway.get("/blocked").await.expect(200);
        gateway.get("/held").await.expect(200);
        let mut waiting = Vec::new();
        for path in ["/held", "/busy"] {
            let mut wire = gateway.connect().await;
            wire.send(get(path)).await;
            waiting.push(wire);
        }
        gateway.holds(1).await;
        silent.sees(1).await;
        Self {
            gateway,
            _upstreams: vec![echo, silent, reset, garbage, clear],
            _waiting: waiting,
        }
    }

    async fn assert_reason(&self, answer: &Answer, reason: &str) {
        let line = self.gateway.line_of(answer).await;
        assert_eq!(line["reason"], reason, "{line}");
    }
}

fn says_close(answer: &Answer) -> bool {
    answer.fields.get("connection") == Some("close")
}

#[test]
fn every_reason_has_a_way() {
    let page = include_str!("../../docs/observability.md");
    let rows = page.split("### Reasons").nth(1).unwrap();
    let rows = rows.split("\n1. ").next().unwrap();
    let reasons: BTreeSet<&str> = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|word| *word != "reason")
        .collect();
    let ours = WAYS.iter().map(|way| way.0);
    let known: BTreeSet<&str> = ours.chain(BESIDE.iter().map(|one| one.0)).collect();
    let lacking: Vec<_> = reasons.difference(&known).collect();
    assert!(reasons.len() > 20 && lacking.is_empty(), "{lacking:?}");
}

/// The answer is sent before the body comes, and the body comes late.
#[tokio::test]
async fn a_request_behind_a_body_that_came_late_is_answered() {
    let place = Place::open().await;
    let framings = [
        ("Content-Length", "10", "0123456789"),
        (
            "Transfer-Encoding",
            "chunked",
            "a\r\n0123456789\r\n0\r\n\r\n",
        ),
    ];
    let mut open = Vec::new();
    for (reason, path, fields) in WAYS {
        for (name, value, body) in framings {
            let mut client = place.gateway.connect().await;
            let fields = [fields, &[(name, value)]].concat();
            client.send(request("POST", path, &fields)).await;
            let answer = client.answer().await;
            place.assert_reason(&answer, reason).await;
            if reason == "client_timeout" {
                assert!(says_close(&answer), "{answer:?}");
                assert_eq!(client.ended(PATIENCE).await, End::Closed);
            } else {
                assert!(!says_close(&answer), "{path} {name}: {answer:?}");
                open.push((client, path, body));
            }
        }
    }
    sleep(LATE).await;
    for (mut client, path, body) in open {
        client.send(body).await;
        let next = client.ask(get("/here")).await;
        assert_eq!(next.status, 200, "behind {path}");
    }
}

/// A client that sends everything before it reads still gets the answer, and learns that the connection ends.
#[tokio::test]
async fn a_long_body_ends_the_connection_behind_the_answer() {
    let place = Place::open().await;
    for (reason, path, fields) in WAYS {
        if reason == "client_timeout" {
            continue;
        }
        let mut client = place.gateway.connect().await;
        let fields = [fields, &[("Content-Length", "2000000")]].concat();
        client.send(request("POST", path, &fields)).await;
        for _ in 0..100 {
            client.send(vec![b'x'; 20_000]).await;
        }
        client.send(get("/here")).await;
        let answer = client.answer().await;
        assert!(says_close(&answer), "{path}: {answer:?}");
        assert_eq!(client.ended(PATIENCE).await, End::Closed, "{path}");
        if reason != "upstream_reset" && reason != "upstream_invalid" {
            place.assert_reason(&answer, reason).await;
        }
    }
}

/// A body in chunks has no stated length, and its answer has not said that the connection ends.
#[tokio::test]
async fn a_request_behind_a_long_body_in_chunks_is_answered() {
    let place = Place::open().await;
    let mut client = place.gateway.connect().await;
    let fields = [("Transfer-Encoding", "chunked")];
    client.send(request("POST", "/nowhere", &fields)).await;
    let answer = client.answer().await.expect(404);
    assert!(!answer.fields.has("connection"), "{answer:?}");
    let chunk = "x".repeat(1 << 20);
    for _ in 0..18 {
        client.send_chunk(&chunk).await;
    }
    client.send("0\r\n\r\n").await;
    client.ask(get("/respond")).await.expect(403);
}

/// An HTTP/1.0 client that asks to keep its connection gets one consistent answer.
#[tokio::test]
async fn an_old_client_is_told_that_its_connection_ends() {
    let place = Place::open().await;
    let mut client = place.gateway.connect().await;
    let head =
        "POST /nowhere HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 10\r\n\r\n";
    client.send(head).await;
    let answer = client.answer().await.expect(404);
    assert_eq!(answer.field("connection"), "close");
}

/// A client that stops sending its body gets no more time than `idle`.
#[tokio::test]
async fn a_silent_body_holds_its_connection_for_the_idle_time() {
    let file = File::default().server("idle = \"1s\"");
    let gateway = Gateway::start(&file.with("[routes.own]\npath = \"/\"\nrespond = {}")).await;
    let mut client = gateway.connect().await;
    let began = std::time::Instant::now();
    client
        .send(request("POST", "/", &[("Content-Length", "10")]))
        .await;
    client.answer().await.expect(200);
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn a_server_that_takes_no_more_ends_the_connection_behind_the_answer() {
    let stuck = Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    let text = upstream("stuck", &format!("\"{}\"", stuck.url()), "");
    let gateway = Gateway::start(&File::default().with(&text).with("timeout = \"500ms\"")).await;
    let mut client = gateway.connect().await;
    let length = [("Content-Length", "50000000")];
    client.send(request("POST", "/stuck", &length)).await;
    let sending = sleep(Duration::from_millis(400));
    tokio::pin!(sending);
    loop {
        let piece = vec![b'x'; 500_000];
        tokio::select! {
            () = &mut sending => break,
            sent = client.try_send(piece) => sent.unwrap(),
        }
    }
    let answer = client.answer().await.expect(504);
    assert!(says_close(&answer), "{answer:?}");
    assert_eq!(gateway.line_of(&answer).await["reason"], "upstream_timeout");
}

#[tokio::test]
async fn a_request_behind_an_absent_store_is_answered() {
    let echo = Upstream::echo().await;
    let file = File::to(&echo, &[])
        .store(&format!("url = \"redis://127.0.0.1:{}\"", free_port()))
        .limit(
            "closed",
            "by = \"ip\"\nrate = \"9/h\"\non_down = \"closed\"",
        )
        .route("closed", "/closed", "main", &["closed"]);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/closed", &[("Content-Length", "4")]))
        .await;
    let answer = client.answer().await.expect(503);
    assert_eq!(gateway.line_of(&answer).await["reason"], "store_down");
    assert!(!says_close(&answer), "{answer:?}");
    client.send("late").await;
    client.ask(get("/")).await.expect(200);
}

/// A head is refused while more bytes come: no reset overtakes the answer.
#[tokio::test]
async fn an_answer_to_a_malformed_head_is_read() {
    let gateway = Gateway::start(&File::to(&Upstream::echo().await, &[])).await;
    let both = [
        ("Content-Length", "2000000"),
        ("Transfer-Encoding", "chunked"),
    ];
    let large = "x".repeat(70_000);
    for (fields, status) in [(&both[..], 400), (&[("X-Large", &*large)], 431)] {
        let mut client = gateway.connect().await;
        client.send(request("POST", "/", fields)).await;
        let mut sent = 0;
        while sent < 100 && client.try_send(vec![b'x'; 20_000]).await.is_ok() {
            sent += 1;
        }
        let answer = client.answer().await.expect(status);
        assert!(says_close(&answer), "{answer:?}");
        assert_eq!(sent, 100, "{status}");
    }
}

/// A client that ends the connection by itself, or that cannot keep it, reads the end of the connection after the
/// answer.
#[tokio::test]
async fn a_connection_that_ends_anyway_ends_behind_the_answer() {
    let gateway = Gateway::start(&File::to(&Upstream::echo().await, &[])).await;
    let heads = [
        "POST /a%5Cb HTTP/1.1\r\nHost: a.test\r\nConnection: Close\r\nContent-Length: 9\r\n\r\n",
        "POST /a%5Cb HTTP/1.0\r\nHost: a.test\r\nContent-Length: 9\r\n\r\n",
    ];
    for head in heads {
        let mut client = gateway.connect().await;
        client.send(head).await;
        client.answer().await.expect(400);
        assert_eq!(client.ended(PATIENCE).await, End::Closed, "{head:?}");
    }
}
