//! Servers that send interim answers (1xx) before their answer, or instead of one.

use super::gateway;
use crate::support::{Connection, Gateway, PATIENCE, Upstream, get, request};
use http::Response;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that sends `count` interim answers, each of this length and more, before each answer.
async fn hinting(count: usize, length: usize) -> Upstream {
    let long = format!("Link: {}\r\n\r\n", "a".repeat(length));
    let interim = INTERIM.replace("Link: </a>\r\n\r\n", &long);
    Upstream::playing(move |mut connection: Connection| {
        let sent = interim.repeat(count) + ANSWER;
        async move {
            while connection.request().await.is_ok() {
                if connection.wire.try_send(&sent).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

/// A server that sends interim answers without end.
async fn flooding() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        let many = INTERIM.repeat(1000);
        let _ = connection.request().await;
        while connection.wire.try_send(&many).await.is_ok() {}
    })
    .await
}

/// The same over HTTP/2: a server that sends this number of interim answers before each answer.
async fn hinting_http2(count: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await?;
                while let Some(asked) = connection.accept().await {
                    let (_, mut answer) = asked?;
                    for _ in 0..count {
                        let interim = Response::builder().status(103).header("link", "</a>");
                        answer.send_informational(interim.body(()).unwrap())?;
                    }
                    answer.send_response(Response::new(()), true)?;
                }
                Ok::<_, h2::Error>(())
            });
        }
    });
    port
}

#[tokio::test]
async fn a_hundred_interim_answers_are_heard_and_no_more() {
    for (count, length, status) in [
        (100, 4, 200),
        (101, 4, 502),
        (8, 50_000, 200),
        (9, 50_000, 502),
    ] {
        let server = hinting(count, length).await;
        let gateway = gateway(&format!("servers = \"{}\"", server.url())).await;
        let answer = gateway.get("/").await.expect(status);
        let line = gateway.line_of(&answer).await;
        if status == 502 {
            assert_eq!(line["reason"], "upstream_invalid", "{line}");
            assert_eq!(server.seen(), 1, "it is not asked again");
        }
        let fields = [("Connection", "upgrade"), ("Upgrade", "websocket")];
        let mut client = gateway.connect().await;
        client
            .ask(request("GET", "/", &fields))
            .await
            .expect(status);
    }
}

#[tokio::test]
async fn over_http2_too() {
    for (count, status) in [(100, 200), (101, 502)] {
        let port = hinting_http2(count).await;
        let gateway = gateway(&format!("servers = \"h2c://127.0.0.1:{port}\"")).await;
        let answer = gateway.get("/").await.expect(status);
        let line = gateway.line_of(&answer).await;
        let reason = if status == 200 {
            "ok"
        } else {
            "upstream_invalid"
        };
        assert_eq!(line["reason"], reason, "{line}");
    }
}

#[tokio::test]
async fn a_flood_of_interim_answers_ends_its_request_and_delays_no_other() {
    let (server, other) = (flooding().await, Upstream::echo().await);
    let lines = format!(
        "servers = \"{}\"\nretry = false\n[upstreams.other]\nservers = \"{}\"\n[routes.other]\npath = \"/other\"\nupstream = \"other\"",
        server.url(),
        other.url()
    );
    let gateway: Gateway = gateway(&lines).await;
    let mut flooded = Vec::new();
    for _ in 0..4 {
        let mut client = gateway.connect().await;
        client.send(get("/")).await;
        flooded.push(client);
    }
    let mut client = gateway.connect().await;
    let began = Instant::now();
    client.ask(get("/other")).await.expect(200);
    for mut client in flooded {
        client.answer().await.expect(502);
    }
    // The server would flood as long as the gateway reads.
    assert!(began.elapsed() < PATIENCE / 2);
    server.closes(4).await;
}

#[tokio::test]
async fn probes_hear_as_many() {
    let (good, bad) = (hinting(100, 4).await, hinting(101, 4).await);
    let (good2, bad2) = (hinting_http2(100).await, hinting_http2(101).await);
    let lines = format!(
        "servers = [\"{}\", \"{}\", \"h2c://127.0.0.1:{good2}\", \"h2c://127.0.0.1:{bad2}\"]\nhealth = {{ path = \"/\", interval = \"200ms\", timeout = \"10s\" }}",
        good.url(),
        bad.url()
    );
    let gateway = gateway(&lines).await;
    for address in [bad.url(), format!("h2c://127.0.0.1:{bad2}")] {
        let line = gateway
            .said
            .line(0, "the fall", |line| {
                line.contains("its probes failed") && line.contains(&address)
            })
            .await;
        assert!(line.contains("interim answers"), "{line}");
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lines = gateway.said.lines();
    for address in [good.url(), format!("h2c://127.0.0.1:{good2}")] {
        let falls = |line: &String| line.contains("probes failed") && line.contains(&address);
        assert!(!lines.iter().any(falls), "{lines:?}");
    }
}
