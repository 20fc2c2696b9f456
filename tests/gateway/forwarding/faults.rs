//! The gateway's own answers: without a route, without a server, after a deadline, and after a malformed response.

use crate::support::{
    Answer, Connection, End, Feed, File, Gateway, PATIENCE, Upstream, eventually, free_port, get,
    request,
};
use http::Request;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Checks the body that all of the gateway's own answers have.
#[track_caller]
fn assert_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.field("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string(), "{problem}");
    assert_eq!(
        problem["request_id"],
        answer.field("x-request-id"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_path_without_a_route_is_not_found() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("one", "/here", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let answer = client.ask(get("/elsewhere")).await;
    assert_problem(&answer, 404);
    assert_eq!(gateway.line_of(&answer).await["reason"], "no_route");
    client.ask(get("/here")).await.expect(200);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn an_upstream_that_refuses_is_a_bad_gateway() {
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = [\"http://127.0.0.1:{}\"]",
            free_port()
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        let answer = client.ask(get("/")).await;
        assert_problem(&answer, 502);
        assert_eq!(gateway.line_of(&answer).await["reason"], "connect_failed");
    }
    let answer = gateway.h2().await.get("/").await;
    assert_problem(&answer, 502);
}

#[tokio::test]
async fn a_server_that_dies_with_idle_connections_fails_no_request() {
    let (dying, survivor) = (Arc::new(Notify::new()), Upstream::echo().await);
    let death = Arc::clone(&dying);
    let doomed = Upstream::playing(move |connection: Connection| {
        let death = Arc::clone(&death);
        async move {
            tokio::select! {
                () = connection.echo() => {}
                () = death.notified() => {}
            }
        }
    })
    .await;
    let file = File::default()
        .upstream("main", &[&doomed, &survivor])
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file.server("workers = 1")).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(gateway.connect().await);
    }
    // The requests are sent at once, so that several connections to each server are idle afterwards.
    for client in &mut clients {
        client.send(get("/").repeat(2)).await;
    }
    for client in &mut clients {
        client.answer().await.expect(200);
        client.answer().await.expect(200);
    }
    assert!(doomed.seen() > 0);
    // A server is dead once it has closed its connections and its port.
    let port = doomed.port();
    dying.notify_waiters();
    doomed.closes(doomed.connections()).await;
    drop(doomed);
    eventually(PATIENCE, "nobody listens there", async || {
        TcpStream::connect(("127.0.0.1", port)).await.is_err()
    })
    .await;
    for client in &mut clients {
        for body in ["", "content"] {
            let length = body.len().to_string();
            let head = request("POST", "/", &[("Content-Length", &length)]);
            let port = client.ask(head + body).await.expect(200).echoed().port;
            assert_eq!(port, u64::from(survivor.port()));
        }
    }
}

#[tokio::test]
async fn an_answer_that_starts_too_late_is_a_gateway_timeout() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            if head.target() != "/slow" {
                connection
                    .wire
                    .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
            }
        }
    })
    .await;
    let file = File::to(&upstream, &[]).with("timeout = \"300ms\"");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let start = Instant::now();
    let answer = client.ask(get("/slow")).await;
    let took = start.elapsed();
    assert_problem(&answer, 504);
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(9),
        "{took:?}"
    );
    assert_eq!(gateway.line_of(&answer).await["reason"], "upstream_timeout");
    // The late answer must not go to another client.
    assert_eq!(client.ask(get("/quick")).await.expect(200).text(), "ok");
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn a_timeout_holds_until_the_head_and_not_for_the_body() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            connection
                .wire
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let mut beat = tokio::time::interval(Duration::from_millis(100));
            for _ in 0..6 {
                beat.tick().await;
                connection.wire.send_chunk("beat").await;
            }
            connection.wire.send("0\r\n\r\n").await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).with("timeout = \"250ms\"")).await;
    assert_eq!(gateway.get("/").await.expect(200).text(), "beat".repeat(6));
}

#[tokio::test]
async fn an_upstream_that_talks_nonsense_is_a_bad_gateway() {
    for nonsense in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "",
    ] {
        let upstream = Upstream::playing(move |mut connection: Connection| async move {
            if connection.request().await.is_ok() {
                connection.wire.send(nonsense).await;
            }
        })
        .await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let answer = gateway.get("/").await;
        assert_problem(&answer, 502);
    }
}

#[tokio::test]
async fn an_upstream_that_stops_in_mid_body_is_given_up() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            .await;
        assert_ne!(
            connection.wire.ended(PATIENCE).await,
            End::Open,
            "the gateway lets go of it"
        );
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"500ms\"")).await;
    let mut client = gateway.connect().await;
    let start = Instant::now();
    client.send(get("/")).await;
    client.head().await;
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(450) && took < Duration::from_secs(9),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_client_that_stops_in_mid_body_is_given_up() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"500ms\"")).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "10")]))
        .await;
    client.send("half").await;
    upstream.sees(1).await;
    // The client may or may not get a 408. Its connection ends, and the upstream never got a whole request.
    assert_ne!(client.ended(Duration::from_secs(9)).await, End::Open);
}

#[tokio::test]
async fn a_get_meets_a_stale_connection_and_is_sent_once_more() {
    let upstream = closes_after_the_first_answer().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    assert_eq!(client.ask(get("/first")).await.expect(200).text(), "1");
    assert_eq!(client.ask(get("/second")).await.expect(200).text(), "2");
    let targets: Vec<String> = upstream
        .requests()
        .iter()
        .map(|seen| seen.head.target().to_owned())
        .collect();
    assert_eq!(targets, ["/first", "/second", "/second"]);
}

#[tokio::test]
async fn what_is_not_idempotent_is_not_sent_again_once_it_was_read() {
    for (method, again) in [
        ("HEAD", true),
        ("OPTIONS", true),
        ("TRACE", true),
        ("PUT", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
        ("LOCK", false),
    ] {
        let upstream = closes_after_the_first_answer().await;
        let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
        let mut client = gateway.connect().await;
        assert_eq!(client.ask(get("/first")).await.expect(200).text(), "1");
        client.send(request(method, "/second", &[])).await;
        let answer = client.head().await;
        let seen = if again { (200, 3) } else { (502, 2) };
        assert_eq!((answer.status(), upstream.seen()), seen, "{method}");
    }
}

#[tokio::test]
async fn a_post_meets_a_connection_that_was_closed_while_it_rested_and_goes_out_on_another() {
    // The upstream closes right after its answer, without `Connection: close`.
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("workers = 1")).await;
    let mut client = gateway.connect().await;
    for nth in 1..=20 {
        client.ask(request("POST", "/", &[])).await.expect(200);
        // The end is on its way once the upstream has ended the script of the connection.
        upstream.closes(nth).await;
    }
    assert_eq!(upstream.seen(), 20);
}

#[tokio::test]
async fn a_request_whose_body_was_started_is_not_sent_again() {
    let upstream = closes_after_the_first_answer().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    assert_eq!(client.ask(get("/first")).await.expect(200).text(), "1");
    client
        .send(request("POST", "/second", &[("Content-Length", "4")]))
        .await;
    let answer = client.ask("body").await;
    assert_problem(&answer, 502);
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn a_fresh_connection_that_closes_is_tried_once_more_and_not_for_ever() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        let _ = connection.request().await;
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    assert_problem(&gateway.get("/").await, 502);
    assert_eq!(upstream.seen(), 2);
}

/// The answer of a gateway that refuses all but the first request. The refused request is a POST whose body never
/// comes.
async fn refused(fields: &[(&str, &str)]) -> Answer {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["one"]).limit("one", "by = \"everyone\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    client.ask(request("POST", "/", fields)).await.expect(429)
}

#[tokio::test]
async fn a_refusal_that_ends_its_connection_says_so() {
    for fields in [
        &[("Content-Length", "3000000")][..],
        &[("Content-Length", "5"), ("Expect", "100-continue")],
    ] {
        assert_eq!(refused(fields).await.field("connection"), "close");
    }
    // The bodies of refused requests are read if they come, so the connection goes on.
    for fields in [&[("Content-Length", "0")][..], &[("Content-Length", "5")]] {
        assert!(!refused(fields).await.fields.has("connection"));
    }
}

#[tokio::test]
async fn a_request_timeout_says_that_its_connection_ends() {
    let upstream = Upstream::silent().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"300ms\"")).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "10")]))
        .await;
    let answer = client.ask("half").await;
    assert_problem(&answer, 408);
    assert_eq!(answer.field("connection"), "close");
    assert_ne!(client.ended(PATIENCE).await, End::Open);
}

/// An upstream whose first connection answers one request and closes on the next; further connections work.
async fn closes_after_the_first_answer() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        let mut answered = 0;
        while let Ok(head) = connection.request().await {
            if connection.wire.request_body(&head).await.is_err()
                || (connection.nth == 1 && answered == 1)
            {
                return;
            }
            let nth = connection.nth;
            connection
                .wire
                .send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{nth}"))
                .await;
            answered += 1;
        }
    })
    .await
}

#[tokio::test]
async fn a_bad_answer_leaves_an_http2_connection_usable() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let answer = match head.target() {
                "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            };
            connection.wire.send(answer).await;
            if head.target() == "/short" {
                return;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client = gateway.h2().await;
    let short = Request::get("http://gateway.test/short")
        .body(Feed::empty())
        .unwrap();
    client
        .try_ask(short)
        .await
        .expect_err("the stream is reset");
    assert_eq!(client.get("/").await.expect(200).text(), "ok");
    assert!(!client.closed());
}
