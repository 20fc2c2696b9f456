//! The gateway must find, answer and log a fault of a head, however the head arrives. A head that only looks faulty
//! must pass.

use crate::support::{End, File, Gateway, PATIENCE, Upstream, Wire, eventually, get, h2, request};

const LENGTH: (&str, &str) = ("Content-Length", "4");
const CHUNKS: (&str, &str) = ("Transfer-Encoding", "chunked");
/// A text that would be refused if it were a head. Here it is part of a body.
const LURE: &str = "GET /#lure HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n";

async fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    (upstream, gateway)
}

/// Checks that the next answer is a complete 400, and the last answer on its connection.
async fn assert_refused(gateway: &Gateway, client: &mut Wire, detail: &str) {
    let answer = client.answer().await.expect(400);
    assert_eq!(answer.field("content-type"), "application/problem+json");
    assert_eq!(answer.field("connection"), "close");
    assert!(answer.text().contains(detail), "{}", answer.text());
    assert_eq!(gateway.line_of(&answer).await["reason"], "bad_request");
    assert_ne!(client.ended(PATIENCE).await, End::Open);
}

const BOTH: &str = "exclude each other";
const FRAGMENT: &str = "fragment";

#[tokio::test]
async fn a_length_beside_chunks_is_refused() {
    let (upstream, gateway) = gateway().await;
    for fields in [
        [LENGTH, CHUNKS],
        [CHUNKS, LENGTH],
        [("CONTENT-LENGTH", "4"), ("transfer-encoding", "Chunked")],
        [("tRANSFER-eNCODING", "chunked"), ("content-length", "0")],
    ] {
        let mut client = gateway.connect().await;
        let post = request("POST", "/", &fields);
        client
            .send(format!("{post}0\r\n\r\n{}", get("/next")))
            .await;
        assert_refused(&gateway, &mut client, BOTH).await;
    }
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn it_is_refused_wherever_it_is_cut() {
    let (upstream, gateway) = gateway().await;
    for fields in [[LENGTH, CHUNKS], [CHUNKS, LENGTH]] {
        let post = request("POST", "/", &fields);
        for cut in 1..post.len() {
            let mut client = gateway.connect().await;
            client.send(&post[..cut]).await;
            tokio::task::yield_now().await;
            client.send(&post[cut..]).await;
            assert_eq!(client.answer().await.status, 400, "cut at {cut}");
        }
    }
    let mut client = gateway.connect().await;
    for byte in request("POST", "/", &[CHUNKS, LENGTH]).bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_refused(&gateway, &mut client, BOTH).await;
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn it_is_refused_behind_other_requests() {
    let (upstream, gateway) = gateway().await;
    let bad = request("POST", "/bad", &[LENGTH, CHUNKS]) + "0\r\n\r\n";
    for (before, answers) in [
        (get("/good"), 1),
        (get("/good").repeat(3), 3),
        (request("POST", "/good", &[LENGTH]) + "body", 1),
        (
            request("POST", "/good", &[CHUNKS]) + "4\r\nbody\r\n0\r\nSum: 1\r\n\r\n",
            1,
        ),
        (format!("\r\n{}", get("/good")), 1),
    ] {
        let mut client = gateway.connect().await;
        client
            .send(format!("{before}{bad}{}", get("/behind")))
            .await;
        for _ in 0..answers {
            client.answer().await.expect(200);
        }
        assert_refused(&gateway, &mut client, BOTH).await;
    }
    let passed = upstream.requests();
    assert!(passed.iter().all(|seen| seen.head.target() == "/good"));
}

#[tokio::test]
async fn what_only_looks_like_a_head_passes() {
    let (_upstream, gateway) = gateway().await;
    let mut client = gateway.connect().await;
    let length = LURE.len();
    let sized = request("POST", "/", &[("Content-Length", &length.to_string())]);
    let chunked = request("POST", "/", &[CHUNKS]);
    let bodies = [
        format!("{sized}{LURE}"),
        format!("{chunked}{length:x}\r\n{LURE}\r\n0\r\n\r\n"),
    ];
    for whole in &bodies {
        let echoed = client.ask(whole).await.expect(200).echoed();
        assert_eq!(echoed.body, LURE);
    }
    for whole in &bodies {
        let body = whole.len() - LURE.len() - 8;
        for cut in (body..whole.len()).step_by(7) {
            client.send(&whole[..cut]).await;
            tokio::task::yield_now().await;
            let echoed = client.ask(&whole[cut..]).await.expect(200).echoed();
            assert_eq!(echoed.body, LURE, "cut at {cut}");
        }
    }
    client.ask(get("/")).await.expect(200);
}

#[tokio::test]
async fn a_fragment_is_refused() {
    let (upstream, gateway) = gateway().await;
    for target in ["/a#b", "/#", "/a?b#c", "http://gateway.test/a#b"] {
        let mut client = gateway.connect().await;
        client.send(get(target) + &get("/behind")).await;
        assert_refused(&gateway, &mut client, FRAGMENT).await;
    }
    let mut client = gateway.connect().await;
    client.send(get("/good") + &get("/bad#b")).await;
    client.answer().await.expect(200);
    assert_refused(&gateway, &mut client, FRAGMENT).await;
    assert_eq!(upstream.seen(), 1);
    gateway.get("/a%23b").await.expect(200);
    gateway
        .get_with("/", &[("Cookie", "#"), ("X-Sign", "a #b")])
        .await
        .expect(200);
}

#[tokio::test]
async fn chunks_in_http_1_0_are_refused() {
    let (upstream, gateway) = gateway().await;
    let mut client = gateway.connect().await;
    client
        .send("POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        .await;
    client.answer().await.expect(400);
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn a_tunnel_is_not_looked_into() {
    let upstream = Upstream::playing(|mut connection| async move {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        let sent = connection.wire.exactly(LURE.len()).await.unwrap();
        connection.wire.send(sent).await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request(
            "GET",
            "/",
            &[("Connection", "upgrade"), ("Upgrade", "websocket")],
        ))
        .await;
    assert_eq!(client.head().await.status(), 101);
    client.send(LURE).await;
    assert_eq!(client.exactly(LURE.len()).await.unwrap(), LURE);
}

/// A head that never becomes a request, with its status and cause, and with the method and path in the log.
type Unread = (
    String,
    u16,
    &'static str,
    Option<(&'static str, &'static str)>,
);

#[tokio::test]
async fn what_cannot_be_read_is_told_too() {
    let (upstream, gateway) = gateway().await;
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    let field = |field: &str| format!("GET /a?secret HTTP/1.1\r\nHost: a.test\r\n{field}\r\n\r\n");
    let named = Some(("GET", "/a"));
    let cases: Vec<Unread> = vec![
        (field("X-One: 1\r\n folded"), 400, "bad_request", named),
        (field("no colon"), 400, "bad_request", named),
        (field("Content-Length: -1"), 400, "bad_request", named),
        (field("Transfer-Encoding: gzip"), 400, "bad_request", named),
        (field(&many), 431, "too_large", named),
        (
            field(&format!("X: {}", "x".repeat(70_000))),
            431,
            "too_large",
            named,
        ),
        ("nonsense\r\n\r\n".into(), 400, "bad_request", None),
        ("GET / HTTP/3.0\r\n\r\n".into(), 400, "bad_request", None),
    ];
    for (number, (bytes, status, reason, named)) in cases.iter().enumerate() {
        let mut client = gateway.connect().await;
        // The faulty head is the second one on its connection, so that the log could wrongly show the line of the first
        // one.
        client.ask(get("/first")).await.expect(200);
        let _ = client.try_send(bytes).await;
        if let Ok(answer) = client.try_answer().await {
            assert_eq!(answer.status, *status, "{bytes:.80}");
        }
        let line = gateway
            .access
            .line(2 * number + 1, "the line", |_| true)
            .await;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["status"], *status, "{line}");
        assert_eq!(line["reason"], *reason, "{line}");
        assert_eq!(line["client"], "127.0.0.1", "{line}");
        assert_eq!(
            line["method"].as_str(),
            named.map(|(method, _)| method),
            "{line}"
        );
        assert_eq!(line["path"].as_str(), named.map(|(_, path)| path), "{line}");
        assert!(line["request_id"].is_string(), "{line}");
    }
    assert_eq!(upstream.seen(), cases.len());
    eventually(PATIENCE, "all are counted", async || {
        let metrics = gateway.metrics().await;
        let counted = |code: &str| -> u32 {
            let samples = metrics.lines().filter(|line| {
                line.starts_with("tollgate_http_requests_total")
                    && line.contains("route=\"none\"")
                    && line.contains(&format!("code=\"{code}\""))
            });
            samples
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok())
                .sum()
        };
        counted("400") == 6 && counted("431") == 2
    })
    .await;
}

/// h2 answers heads beyond its own bound without a report to the gateway. So the gateway has a lower bound.
#[tokio::test]
async fn a_head_of_http2_that_is_too_large_is_told() {
    let (upstream, gateway) = gateway().await;
    let client = gateway.h2().await;
    for (length, status) in [(60_000, 200), (66_000, 431), (120_000, 431)] {
        let mut request = h2::get(&format!("/{length}"));
        let fields = request.headers_mut();
        for _ in 0..length / 1_000 {
            fields.append("x", "x".repeat(967).parse().unwrap());
        }
        let answer = client.ask(request).await.expect(status);
        let line = gateway.line_where("path", &format!("/{length}")).await;
        assert_eq!(line["status"], status, "{line}");
        let reason = if status == 431 { "too_large" } else { "ok" };
        assert_eq!(line["reason"], reason, "{line}");
        assert_eq!(
            answer.fields.get("x-request-id"),
            line["request_id"].as_str(),
            "{line}"
        );
    }
    assert_eq!(upstream.seen(), 1);
    eventually(PATIENCE, "both are counted", async || {
        let metrics = gateway.metrics().await;
        metrics.lines().any(|line| {
            line.starts_with("tollgate_http_requests_total")
                && line.contains("code=\"431\"")
                && line.ends_with(" 2")
        })
    })
    .await;
}

/// h2 counts 32 bytes for each piece of a cookie. The gateway counts these pieces as one field.
#[tokio::test]
async fn many_pieces_of_cookies_are_counted_as_one_field_and_refused_by_us() {
    let (upstream, gateway) = gateway().await;
    let client = gateway.h2().await;
    for (pieces, status) in [(1_500, 200), (2_500, 431), (3_000, 431)] {
        let mut request = h2::get(&format!("/{pieces}"));
        let fields = request.headers_mut();
        fields.insert("user-agent", "Browser/1".parse().unwrap());
        for number in 0..pieces {
            let piece = format!("c{number:04}={}", "x".repeat(20));
            fields.append("cookie", piece.parse().unwrap());
        }
        client.ask(request).await.expect(status);
        let line = gateway.line_where("path", &format!("/{pieces}")).await;
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["user_agent"], "Browser/1", "{line}");
        assert!(line["host"].is_string(), "{line}");
    }
    assert_eq!(upstream.seen(), 1);
}

/// hyper counts the fields of an HTTP/1.1 head.
#[tokio::test]
async fn a_hundred_fields_are_enough_in_either_version() {
    let (upstream, gateway) = gateway().await;
    let client = gateway.h2().await;
    for (many, status) in [(100, 200), (101, 431)] {
        let mut request = h2::get(&format!("/h2-{many}"));
        let mut fields = String::from("Host: gateway.test\r\n");
        for number in 0..many {
            let value = number.to_string().parse().unwrap();
            request.headers_mut().append("x", value);
            if number > 0 {
                fields.push_str("X: y\r\n");
            }
        }
        client.ask(request).await.expect(status);
        let mut wire = gateway.connect().await;
        wire.send(format!("GET /h1-{many} HTTP/1.1\r\n{fields}\r\n"))
            .await;
        wire.answer().await.expect(status);
        for path in ["h1", "h2"] {
            let line = gateway.line_where("path", &format!("/{path}-{many}")).await;
            assert_eq!(line["status"], status, "{line}");
            let reason = if status == 431 { "too_large" } else { "ok" };
            assert_eq!(line["reason"], reason, "{line}");
        }
    }
    assert_eq!(upstream.seen(), 2);
}
