//! Requests without a body: the fields that a server of HTTP/1.1 gets, for clients of each protocol.

use crate::support::h2_frames::{DATA, HEADERS, frame, greeted, read_frame};
use crate::support::{Feed, File, Gateway, Upstream, request};
use http::Request;

#[tokio::test]
async fn methods_that_may_have_a_body_say_that_there_is_none() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let (mut old, modern) = (gateway.connect().await, gateway.h2().await);
    for method in ["POST", "PUT", "PATCH", "GET", "DELETE", "OPTIONS"] {
        let expected = matches!(method, "POST" | "PUT" | "PATCH").then_some("0");
        let asking = Request::builder().method(method).uri("http://a.test/");
        let over_2 = modern.ask(asking.body(Feed::empty()).unwrap()).await;
        let over_1 = old.ask(request(method, "/", &[])).await;
        for answer in [over_2, over_1] {
            let echoed = answer.expect(200).echoed();
            assert_eq!(echoed.fields.get("content-length"), expected, "{method}");
            assert!(!echoed.fields.has("transfer-encoding"), "{method}");
        }
    }
    let zero = [("Content-Length", "0")];
    let echoed = old
        .ask(request("POST", "/", &zero))
        .await
        .expect(200)
        .echoed();
    assert_eq!(echoed.fields.all("content-length"), ["0"]);
}

/// The head of a request with this method. The head does not end the stream.
fn open_head(method: &[u8]) -> Vec<u8> {
    let mut block = vec![0x02, u8::try_from(method.len()).unwrap()];
    block.extend(method);
    // The fields `http`, `/` and `:authority: a`.
    block.extend([0x86, 0x84, 0x41, 1, b'a']);
    frame(HEADERS, 4, 1, &block)
}

#[tokio::test]
async fn an_empty_frame_that_ends_a_stream_is_no_body() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let end = frame(DATA, 1, 1, &[]);
    let empty = frame(DATA, 0, 1, &[]);
    for (number, frames) in [
        [open_head(b"GET"), end.clone()].concat(),
        [open_head(b"GET"), empty.clone(), end.clone()].concat(),
        [open_head(b"POST"), end.clone()].concat(),
        [open_head(b"DELETE"), end.clone()].concat(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = greeted(&gateway).await;
        client.send(&frames).await;
        upstream.sees(number + 1).await;
        let seen = upstream.requests().pop().unwrap();
        assert!(
            !seen.head.fields.has("transfer-encoding"),
            "{number}: {seen:?}"
        );
        while read_frame(&mut client).await.unwrap().0 != HEADERS {}
    }
    // The end of the stream may come later than the head.
    let mut client = greeted(&gateway).await;
    client.send(open_head(b"GET")).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    client.send(&end).await;
    upstream.sees(5).await;
    let seen = upstream.requests().pop().unwrap();
    assert!(!seen.head.fields.has("transfer-encoding"), "{seen:?}");
    // A request with a body is forwarded as before.
    let mut client = greeted(&gateway).await;
    client.send(open_head(b"GET")).await;
    client.send(frame(DATA, 1, 1, b"body")).await;
    upstream.sees(6).await;
    let seen = upstream.requests().pop().unwrap();
    assert!(seen.head.fields.has("transfer-encoding"), "{seen:?}");
    let mut answer = Vec::new();
    loop {
        let (kind, flags, payload) = read_frame(&mut client).await.unwrap();
        if kind == DATA {
            answer.extend(payload);
            if flags & 1 != 0 {
                break;
            }
        }
    }
    assert!(
        answer.escape_ascii().to_string().contains("body"),
        "it came whole"
    );
}

/// HTTP/2 clients reset the stream if an answer to HEAD has a body.
#[tokio::test]
async fn an_answer_to_head_has_no_body_over_http2() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("few", "by = \"everyone\"\nrate = \"1/h\"")
        .route("few", "/few", "main", &["few"]);
    let gateway = Gateway::start(&file).await;
    gateway.get("/few").await.expect(200);
    let (mut old, modern) = (gateway.connect().await, gateway.h2().await);
    for (path, status) in [("/none", 404), ("/few", 429), ("/a/%00", 400)] {
        let whole = old.ask(request("GET", path, &[])).await.expect(status);
        let asking = Request::head(format!("http://gateway.test{path}"));
        let answer = modern.ask(asking.body(Feed::empty()).unwrap()).await;
        let answer = answer.expect(status);
        assert_eq!(answer.body.len(), 0, "{answer:?}");
        let (told, length) = (
            answer.number("content-length"),
            whole.number("content-length"),
        );
        assert!(
            told.abs_diff(length) < 4,
            "but for digits of a wait: {answer:?}"
        );
    }
}
