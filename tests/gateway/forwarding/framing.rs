//! The bounds of messages: lengths, chunks, answers without a body, and the next request on the connection.

use crate::support::{Connection, End, Feed, File, Gateway, Upstream, Wire, get, request};
use http::Request;

/// Checks that the connection is in step: it answers a further request.
async fn assert_in_step(client: &mut Wire) {
    client.ask(get("/next")).await.expect(200);
}

/// An upstream that echoes requests, and answers without a body to HEAD and to targets that ask for 204 or 304.
async fn answers_without_body() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let answer = match head.target() {
                "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                "/empty" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/lying" => "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
                "/same" => {
                    "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 1234\r\n\r\n"
                }
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            };
            connection.wire.send(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn the_answer_to_head_tells_a_length_and_has_no_body() {
    let upstream = answers_without_body().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(request("HEAD", "/head", &[])).await;
    let answer = client.answer_to_head().await.expect(200);
    assert_eq!(answer.number("content-length"), 1234);
    assert_in_step(&mut client).await;
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn no_content_has_neither_body_nor_length() {
    let upstream = answers_without_body().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let answer = client.ask(get("/empty")).await.expect(204);
    assert!(
        !answer.fields.has("content-length") && !answer.fields.has("transfer-encoding"),
        "{answer:?}"
    );
    assert_in_step(&mut client).await;
}

#[tokio::test]
async fn no_content_has_no_length_in_the_answer_to_head_either() {
    let upstream = answers_without_body().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for method in ["HEAD", "GET"] {
        client.send(request(method, "/lying", &[])).await;
        let answer = client.answer_to_head().await.expect(204);
        assert!(!answer.fields.has("content-length"), "{answer:?}");
    }
    assert_in_step(&mut client).await;
}

#[tokio::test]
async fn not_modified_has_no_body() {
    let upstream = answers_without_body().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let answer = client
        .ask(request("GET", "/same", &[("If-None-Match", "\"a\"")]))
        .await
        .expect(304);
    assert_eq!(answer.field("etag"), "\"a\"");
    assert!(!answer.fields.has("transfer-encoding"), "{answer:?}");
    assert_in_step(&mut client).await;
}

#[tokio::test]
async fn answers_without_a_body_end_over_http2_too() {
    let upstream = answers_without_body().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client = gateway.h2().await;
    let head = Request::head("http://gateway.test/head")
        .body(Feed::empty())
        .unwrap();
    let answer = client.ask(head).await.expect(200);
    assert_eq!(answer.number("content-length"), 1234);
    assert!(answer.body.is_empty());
    client.get("/empty").await.expect(204);
    client.get("/same").await.expect(304);
    assert_eq!(client.get("/next").await.expect(200).text(), "ok");
}

#[tokio::test]
async fn a_body_of_known_length_stays_one() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "4")]))
        .await;
    let echoed = client.ask("body").await.expect(200).echoed();
    assert_eq!(echoed.fields.get("content-length"), Some("4"));
    assert!(!echoed.fields.has("transfer-encoding"), "{echoed:?}");
    assert_eq!(echoed.body, "body");
}

#[tokio::test]
async fn a_body_in_chunks_stays_one() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Transfer-Encoding", "chunked")]))
        .await;
    client
        .send("4;note=yes\r\nbody\r\n6\r\n, more\r\n0\r\n\r\n")
        .await;
    let echoed = client.answer().await.expect(200).echoed();
    assert_eq!(echoed.fields.all("transfer-encoding"), ["chunked"]);
    assert_eq!(echoed.body, "body, more");
    assert_in_step(&mut client).await;
}

#[tokio::test]
async fn a_get_with_a_body_keeps_it() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request("GET", "/", &[("Transfer-Encoding", "chunked")]))
        .await;
    client.send("4\r\nbody\r\n0\r\n\r\n").await;
    assert_eq!(client.answer().await.expect(200).echoed().body, "body");
    client
        .send(request("GET", "/", &[("Content-Length", "4")]))
        .await;
    assert_eq!(client.ask("body").await.expect(200).echoed().body, "body");
    let get = Request::get("http://gateway.test/")
        .body(Feed::of("body"))
        .unwrap();
    assert_eq!(
        gateway.h2().await.ask(get).await.expect(200).echoed().body,
        "body"
    );
}

#[tokio::test]
async fn an_http2_body_of_unknown_length_becomes_chunks() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let post = Request::post("http://gateway.test/")
        .body(Feed::of("body"))
        .unwrap();
    let echoed = gateway.h2().await.ask(post).await.expect(200).echoed();
    assert_eq!(echoed.fields.all("transfer-encoding"), ["chunked"]);
    assert_eq!(echoed.body, "body");
}

#[tokio::test]
async fn a_request_without_a_body_arrives_without_framing() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for echoed in [
        gateway.get("/").await.echoed(),
        gateway.h2().await.get("/").await.echoed(),
    ] {
        assert!(
            !echoed.fields.has("transfer-encoding") && !echoed.fields.has("content-length"),
            "{echoed:?}"
        );
        assert!(echoed.line.ends_with("HTTP/1.1"), "{echoed:?}");
    }
}

#[tokio::test]
async fn equal_lengths_are_one_length() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Content-Length", "4"), ("Content-Length", "4")],
        ))
        .await;
    let answer = client.ask("body").await;
    if answer.status == 200 {
        assert_eq!(answer.echoed().fields.all("content-length"), ["4"]);
    } else {
        assert_eq!(answer.status, 400);
    }
}

#[tokio::test]
async fn continue_is_said_once_the_body_is_wanted() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Expect", "100-continue"), ("Content-Length", "4")],
        ))
        .await;
    assert_eq!(client.head().await.status(), 100);
    assert_eq!(client.ask("body").await.expect(200).echoed().body, "body");
}

#[tokio::test]
async fn a_refused_request_is_not_told_to_continue() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["all"]).limit("all", "by = \"everyone\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Expect", "100-continue"), ("Content-Length", "4")],
        ))
        .await;
    // The first head is already the final one.
    assert_eq!(client.head().await.status(), 429);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_chunks() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    )
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let answer = client
        .ask("GET / HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
        .await
        .expect(200);
    assert!(!answer.fields.has("transfer-encoding"), "{answer:?}");
    assert_eq!(answer.text(), "body");
    assert!(upstream.requests()[0].head.line.ends_with("HTTP/1.1"));
}

#[tokio::test]
async fn a_response_until_the_end_of_its_connection_passes_whole() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\n\r\nuntil the end")
            .await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    assert_eq!(gateway.get("/").await.expect(200).text(), "until the end");
}

#[tokio::test]
async fn bytes_behind_a_response_do_not_become_the_next_one() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            let nth = connection.nth;
            let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
            connection
                .wire
                .send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{nth}{poison}"
                ))
                .await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        let answer = client.ask(get("/")).await;
        assert!(
            answer.status == 502 || answer.text().len() == 1,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_cut_and_not_completed() {
    for head in [
        "Content-Length: 10\r\n\r\nshort",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
    ] {
        let upstream = Upstream::playing(move |mut connection: Connection| async move {
            connection.request().await.unwrap();
            connection
                .wire
                .send(format!("HTTP/1.1 200 OK\r\n{head}"))
                .await;
        })
        .await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let mut client = gateway.connect().await;
        client.send(get("/")).await;
        match client.try_answer().await {
            Err(End::Closed | End::Reset) => {}
            other => panic!("{head:?} became {other:?}"),
        }
        gateway
            .h2()
            .await
            .try_ask(crate::support::h2::get("/"))
            .await
            .expect_err("the stream is reset");
    }
}

#[tokio::test]
async fn a_response_whose_end_is_in_doubt_is_a_bad_gateway() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5x\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length\r\n",
    ] {
        let upstream = Upstream::playing(move |mut connection: Connection| async move {
            while connection.request().await.is_ok() {
                if connection
                    .wire
                    .try_send(format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello!"))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        })
        .await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let answer = gateway.get("/").await;
        assert_eq!(answer.status, 502, "{fields:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_response_with_length_and_chunks_leaves_with_one_framing() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    )
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway.get("/").await;
    if answer.status == 200 {
        assert!(!answer.fields.has("content-length"), "{answer:?}");
        assert_eq!(answer.text(), "body");
    } else {
        assert_eq!(answer.status, 502);
    }
}
