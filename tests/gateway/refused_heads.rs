//! Heads that the HTTP libraries refuse before they are requests: over HTTP/1.1 such a head is answered like all
//! others, and over HTTP/2 a log line reports it. A target that a client sends raw is passed to servers encoded.

use crate::support::h2_frames::{HEADERS, RST_STREAM, frame, greeted, read_frame};
use crate::support::{End, File, Gateway, PATIENCE, Upstream, Wire, eventually, get, h2, request};
use http::Request;

async fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    (upstream, gateway)
}

fn line(line: &str, fields: &str) -> String {
    format!("{line}\r\nHost: a.test\r\nUser-Agent: tester\r\n{fields}\r\n")
}

#[tokio::test]
async fn raw_bytes_of_a_target_pass_encoded() {
    let (_upstream, gateway) = gateway().await;
    for (sent, passed) in [
        (
            r#"/api/v1/query?query=up{job="x"}"#,
            "/api/v1/query?query=up{job=%22x%22}",
        ),
        ("/a<b>`c?d=<e>`", "/a%3Cb%3E%60c?d=%3Ce%3E`"),
        (r#"/a"{}|^?b=`{}|^"#, r#"/a"{}|^?b=`{}|^"#),
        (r#"http://a.test/x<y?z="w""#, "/x%3Cy?z=%22w%22"),
    ] {
        // The head arrives whole, byte by byte, and behind another request.
        let mut client = gateway.connect().await;
        let answer = client.ask(get(sent)).await.expect(200);
        assert_eq!(answer.echoed().line, format!("GET {passed} HTTP/1.1"));
        let logged = gateway.line_of(&answer).await;
        let path = passed.split('?').next().unwrap();
        assert_eq!(logged["path"], path, "{sent}");
        for byte in get(sent).bytes() {
            client.send([byte]).await;
            tokio::task::yield_now().await;
        }
        let answer = client.answer().await.expect(200);
        assert_eq!(answer.echoed().line, format!("GET {passed} HTTP/1.1"));
        client
            .send(get("/first") + &get(sent) + &get("/last"))
            .await;
        client.answer().await.expect(200);
        let answer = client.answer().await.expect(200);
        assert_eq!(answer.echoed().line, format!("GET {passed} HTTP/1.1"));
        client.answer().await.expect(200);
    }
}

/// The encoded target is longer than the bytes that were read: many raw bytes fill every buffer on the way.
#[tokio::test]
async fn many_raw_bytes_pass() {
    let (_upstream, gateway) = gateway().await;
    let body = "b".repeat(20_000);
    let target = format!("/a?b={}", "\"".repeat(5_000));
    let length = body.len().to_string();
    let post = request("POST", &target, &[("Content-Length", &length)]) + &body;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        let echoed = client.ask(&post).await.expect(200).echoed();
        assert!(echoed.line.contains(&"%22".repeat(5_000)));
        assert_eq!(echoed.body, body);
    }
}

#[tokio::test]
async fn limits_and_routes_see_the_encoded_form() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["by-q"]).limit(
        "by-q",
        "rate = \"1/h\"\nby = \"query:q\"\nmissing = \"skip\"",
    );
    let gateway = Gateway::start(&file).await;
    gateway.get(r#"/?q="x""#).await.expect(200);
    gateway.get("/?q=%22x%22").await.expect(429);
}

/// The answer to a refused head has the form of all others, and is the last one on its connection, whatever bytes
/// follow.
async fn assert_refused(gateway: &Gateway, sent: &str, status: u16, detail: &str) {
    for before in ["", "GET /first HTTP/1.1\r\nHost: a.test\r\n\r\n"] {
        let mut client = gateway.connect().await;
        // The bytes behind the head must not cause a reset that overtakes the answer.
        client
            .send(format!("{before}{sent}{}", "x".repeat(50_000)))
            .await;
        if !before.is_empty() {
            client.answer().await.expect(200);
        }
        let answer = client.answer().await.expect(status);
        assert_eq!(
            answer.field("content-type"),
            "application/problem+json",
            "{sent}"
        );
        assert_eq!(answer.field("connection"), "close");
        assert!(answer.field("date").ends_with(" GMT"));
        let problem = answer.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], answer.field("x-request-id"));
        let told = problem["detail"].as_str().unwrap();
        assert!(told.contains(detail), "{sent}: {told}");
        let logged = gateway.line_of(&answer).await;
        assert_eq!(logged["status"], status);
        let reason = if status == 431 {
            "too_large"
        } else {
            "bad_request"
        };
        assert_eq!(logged["reason"], reason);
        assert_ne!(client.ended(PATIENCE).await, End::Open);
    }
}

#[tokio::test]
async fn a_head_that_the_library_refuses_gets_an_answer_like_others() {
    let (_upstream, gateway) = gateway().await;
    let many = "X-A: b\r\n".repeat(101);
    let large = format!("X-A: {}\r\n", "b".repeat(70_000));
    for (sent, status, detail) in [
        (line("GET /a b HTTP/1.1", ""), 400, "percent-encoded"),
        (line("GET /a\x01 HTTP/1.1", ""), 400, "0x01"),
        (line("GET / HTTP/3.7", ""), 400, "METHOD TARGET"),
        (line("GE(T / HTTP/1.1", ""), 400, "METHOD TARGET"),
        (line("GET http://a\"b/ HTTP/1.1", ""), 400, "0x22"),
        (line("GET / HTTP/1.1", "X A: b\r\n"), 400, "name or value"),
        (
            line("GET / HTTP/1.1", "X-A: b\r\n folded\r\n"),
            400,
            "name or value",
        ),
        (
            line("GET / HTTP/1.1", "Content-Length: x\r\n"),
            400,
            "Content-Length",
        ),
        (
            line(
                "GET / HTTP/1.1",
                "Content-Length: 1\r\nContent-Length: 2\r\n",
            ),
            400,
            "Content-Length",
        ),
        (
            line("POST / HTTP/1.1", "Transfer-Encoding: chunked, gzip\r\n"),
            400,
            "Transfer-Encoding",
        ),
        (line("GET / HTTP/1.1", &many), 431, "too large"),
        (line("GET / HTTP/1.1", &large), 431, "too large"),
    ] {
        assert_refused(&gateway, &sent, status, detail).await;
    }
    let metrics = gateway.metrics().await;
    for cause in ["line", "target", "fields", "length", "too_large"] {
        let counted = format!("tollgate_http_heads_refused_total{{cause=\"{cause}\"}} ");
        let line = metrics.lines().find(|line| line.starts_with(&counted));
        assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{cause}");
    }
}

#[tokio::test]
async fn the_line_of_a_head_that_is_too_large_names_host_and_client() {
    let (_upstream, gateway) = gateway().await;
    let many = "X-A: b\r\n".repeat(101);
    let mut client = gateway.connect().await;
    let answer = client
        .ask(line("GET /many?x HTTP/1.1", &many))
        .await
        .expect(431);
    let mut logged = vec![gateway.line_of(&answer).await];
    let mut asking = Request::get("http://a.test/many?x").header("user-agent", "tester");
    for number in 0..101 {
        asking = asking.header(format!("x-{number}"), "b");
    }
    let client = gateway.h2().await;
    let answer = client
        .ask(asking.body(h2::Feed::empty()).unwrap())
        .await
        .expect(431);
    logged.push(gateway.line_of(&answer).await);
    for line in logged {
        assert_eq!(line["host"], "a.test", "{line}");
        assert_eq!(line["user_agent"], "tester", "{line}");
        assert_eq!(line["path"], "/many", "{line}");
    }
}

/// A text that looks like the library's answer is passed on where it is part of a body, even in front of a pipelined
/// head.
#[tokio::test]
async fn a_body_that_looks_like_the_librarys_answer_passes() {
    const LURE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Thu, 26 Nov 2026 23:47:19 GMT\r\n\r\n";
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 103\r\n\r\nHTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Thu, 26 Nov 2026 23:47:19 GMT\r\n\r\n",
    )
    .await;
    assert_eq!(LURE.len(), 103);
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for behind in ["\r\n", "GET /half HTTP/1.1\r\nHost: a"] {
        client.send(get("/") + behind).await;
        assert_eq!(client.answer().await.expect(200).text(), LURE);
        if behind == "\r\n" {
            continue;
        }
        client.send(".test\r\n\r\n").await;
        assert_eq!(client.answer().await.expect(200).text(), LURE);
    }
}

#[tokio::test]
async fn to_head_the_refusal_has_no_body() {
    let (_upstream, gateway) = gateway().await;
    let mut client = gateway.connect().await;
    client.send(line("HEAD / HTTP/1.1", "X A: b\r\n")).await;
    let answer = client.answer_to_head().await.expect(400);
    assert_ne!(answer.field("content-length"), "0");
    assert_eq!(client.everything().await, "");
}

/// A head in HPACK that consists of literals without an index.
fn head_of(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, 5, 1, &block)
}

async fn assert_reset(client: &mut Wire) {
    loop {
        let (kind, _, payload) = read_frame(client).await.unwrap();
        if kind == RST_STREAM {
            assert_eq!(payload, [0, 0, 0, 1], "PROTOCOL_ERROR");
            return;
        }
    }
}

#[tokio::test]
async fn a_stream_that_the_library_resets_is_told_by_its_cause() {
    let (upstream, gateway) = gateway().await;
    let usual = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a.test"),
        (":path", "/"),
    ];
    let with = |name: &'static str, value: &'static str| {
        let mut fields: Vec<_> = usual
            .iter()
            .filter(|(known, _)| *known != name)
            .copied()
            .collect();
        let at = fields.iter().position(|(known, _)| !known.starts_with(':'));
        let at = if name.starts_with(':') {
            at.unwrap_or(fields.len())
        } else {
            fields.len()
        };
        if !value.is_empty() {
            fields.insert(at, (name, value));
        }
        fields
    };
    let mut tunnel = with(":method", "CONNECT");
    tunnel.push((":protocol", "websocket"));
    for (fields, cause, told) in [
        (with(":path", "/q?secret=\"x\""), "target", "path \"/q\""),
        (with(":path", ""), "pseudo_fields", "pseudo_fields"),
        (with("Upper", "x"), "encoding", "encoding"),
        (with("connection", "close"), "fields", "fields"),
        (with("content-length", "x"), "length", "length"),
        (tunnel, "extended_connect", "extended CONNECT"),
    ] {
        let before = gateway.said.lines().len();
        let mut client = greeted(&gateway).await;
        client.send(head_of(&fields)).await;
        if cause == "encoding" {
            assert_ne!(client.ended(PATIENCE).await, End::Open);
        } else {
            assert_reset(&mut client).await;
        }
        let counted = format!("tollgate_http_heads_refused_total{{cause=\"{cause}\"}} ");
        eventually(PATIENCE, cause, async || {
            let metrics = gateway.metrics().await;
            let line = metrics.lines().find(|line| line.starts_with(&counted));
            line.is_some_and(|line| !line.ends_with(" 0"))
        })
        .await;
        let logged = gateway.line_where("proto", "HTTP/2.0").await;
        assert_eq!(logged["reason"], "bad_request");
        // Each cause is logged once a minute. Too many fields and too long a head are one cause there.
        if !["fields", "length"].contains(&cause) {
            gateway
                .said
                .line(before, told, |line| line.contains(told))
                .await;
        }
    }
    assert_eq!(gateway.line_where("path", "/q").await["status"], 400);
    assert!(!gateway.said.text().contains("secret"));
    assert_eq!(upstream.seen(), 0);
    // Answers of servers that the library refuses are not reported as heads of clients.
    gateway.h2().await.get("/").await.expect(200);
}

#[tokio::test]
async fn cookies_of_http2_are_one_field() {
    let (upstream, gateway) = gateway().await;
    let client = gateway.h2().await;
    let asking = |cookies: usize, others: usize| {
        let mut asking = Request::get("http://a.test/");
        for number in 0..cookies {
            asking = asking.header("cookie", format!("c{number}=1"));
        }
        for number in 0..others {
            asking = asking.header(format!("x-{number}"), "1");
        }
        asking.body(h2::Feed::empty()).unwrap()
    };
    client.ask(asking(180, 90)).await.expect(200);
    let seen = upstream.requests().pop().unwrap();
    let cookies = seen.head.fields.all("cookie");
    assert_eq!(cookies.len(), 1);
    assert_eq!(cookies[0].split("; ").count(), 180);
    client.ask(asking(2, 101)).await.expect(431);
    // The bound on bytes still applies.
    client.ask(asking(9_000, 0)).await.expect(431);
}
