//! One test for each bug that was found from outside. Each test has the name of the right behaviour.

use crate::support::{File, Gateway, Upstream, get, request};
use std::time::{Duration, Instant};

const WITH_TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                             4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n";

/// Earlier, such an answer was logged as if the client had left, and its upstream connection was closed.
#[tokio::test]
async fn an_answer_with_trailers_is_an_answer_to_its_end() {
    let upstream = Upstream::answering(WITH_TRAILERS).await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let answer = gateway
        .get_with("/", &[("TE", "trailers"), ("Connection", "TE")])
        .await
        .expect(200);
    assert_eq!(gateway.line_of(&answer).await["reason"], "ok");
}

/// Earlier, such a request was sent as HTTP/1.1 without a Host, and servers refused it.
#[tokio::test]
async fn http_1_0_without_a_host_is_forwarded_with_one() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    client.answer().await.expect(200);
    let seen = upstream.requests();
    assert!(seen[0].head.line.ends_with("HTTP/1.1"));
    let host = seen[0].head.fields.get("host").expect("a host");
    assert!(host.starts_with("127.0.0.1:"), "{host}");
}

/// Earlier, such a chunk was answered as if the client had been too slow.
#[tokio::test]
async fn a_malformed_chunk_is_a_bad_request() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let chunked = request("POST", "/", &[("Transfer-Encoding", "chunked")]);
    let answer = client.ask(chunked + "ZZ\r\n").await.expect(400);
    assert_eq!(gateway.line_of(&answer).await["reason"], "bad_request");
}

/// Earlier, the gateway's own time stayed at zero whatever was forwarded.
#[tokio::test]
async fn the_gateways_own_time_is_measured() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    let text = gateway.metrics().await;
    let counted = text
        .lines()
        .find(|line| line.starts_with("tollgate_overhead_seconds_count"))
        .expect("the metric is there");
    assert!(counted.ends_with(" 1"), "{counted}");
}

/// Earlier, a place in the middle of a queue stayed taken: no request was held, and new requests were refused.
#[tokio::test]
async fn those_behind_a_leaver_move_up_and_its_place_is_free() {
    let upstream = Upstream::echo().await;
    let limit = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/2s\"\nqueue = 3\nmax_wait = \"20s\"";
    let file = File::to(&upstream, &["smooth"]).limit("smooth", limit);
    let gateway = Gateway::start(&file.server("workers = 1")).await;
    let start = Instant::now();
    gateway.get("/first").await.expect(200);
    let (mut ahead, mut leaver, mut behind) = (
        gateway.connect().await,
        gateway.connect().await,
        gateway.connect().await,
    );
    for (held, client) in [&mut ahead, &mut leaver, &mut behind]
        .into_iter()
        .enumerate()
    {
        client.send(get("/held")).await;
        gateway.holds(held + 1).await;
    }
    gateway.get("/no-room").await.expect(429);
    drop(leaver);
    gateway.holds(2).await;
    let mut late = gateway.connect().await;
    late.send(get("/late")).await;
    ahead.answer().await.expect(200);
    behind.answer().await.expect(200);
    let moved_up = start.elapsed();
    assert!(
        moved_up < Duration::from_secs(6),
        "{moved_up:?} instead of four seconds"
    );
    late.answer().await.expect(200);
}

/// Earlier, a comma in a quoted string divided the element in two, and the client's address was lost.
#[tokio::test]
async fn separators_in_quoted_strings_of_forwarded_separate_nothing() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("trust = [\"127.0.0.0/8\"]");
    let gateway = Gateway::start(&file).await;
    for (said, client, chain) in [
        (
            "for=1.2.3.4;secret=\"a,b\"",
            "1.2.3.4",
            "1.2.3.4, 127.0.0.1",
        ),
        (
            "by=\"x;for=6.6.6.6, for=7.7.7.7\";for=1.2.3.4",
            "1.2.3.4",
            "1.2.3.4, 127.0.0.1",
        ),
        (
            "for=6.6.6.6, for=\"7.7.7.7",
            "127.0.0.1",
            "unknown, 127.0.0.1",
        ),
        (
            "for=\"6.6.6.6, for=1.2.3.4",
            "1.2.3.4",
            "unknown, 1.2.3.4, 127.0.0.1",
        ),
    ] {
        let answer = gateway
            .get_with("/", &[("Forwarded", said)])
            .await
            .expect(200);
        let echoed = answer.echoed();
        assert_eq!(echoed.fields.get("x-forwarded-for"), Some(chain), "{said}");
        assert_eq!(echoed.fields.get("x-real-ip"), Some(client), "{said}");
        assert_eq!(gateway.line_of(&answer).await["client"], client, "{said}");
    }
}
