//! A peer that sends or takes a little now and then is ended like a peer that does nothing. A peer that waits for
//! others is never ended.

use crate::support::{
    Connection, End, Feed, File, Gateway, H2, Manner, ModernServer, PATIENCE, Upstream, Wire, get,
    h2, long, request,
};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// With these settings no pause is too long, and the minimum rate is far above the rate of every dripping peer.
const PACED: &str = "idle = \"1s\"\nmin_rate = \"1MiB/s\"";
/// A pause well within the idle time.
const BEAT: Duration = Duration::from_millis(100);

async fn paced(upstream: &Upstream) -> Gateway {
    Gateway::start(&File::to(upstream, &[]).server(PACED)).await
}

async fn paced_to(url: &str) -> Gateway {
    let file = File::default()
        .server(PACED)
        .with(&format!("[upstreams.main]\nservers = \"{url}\""))
        .route("all", "/{*rest}", "main", &[]);
    Gateway::start(&file).await
}

/// An upstream that answers the head of a request whose body may still come, and keeps the connection.
async fn answering_early() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        connection
            .wire
            .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        connection.wire.ended(PATIENCE * 100).await;
    })
    .await
}

/// An upstream whose answer never ends and is sent as fast as the gateway takes it.
async fn endless() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
        connection.wire.send(head).await;
        let piece = vec![b'x'; 64 * 1024];
        while connection.wire.try_send(&piece).await.is_ok() {}
    })
    .await
}

/// An upstream that sends eight bytes at each beat, `count` times.
async fn events(beat: Duration, count: u32) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        connection.request().await.unwrap();
        let length = 8 * count;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        connection.wire.send(head).await;
        for _ in 0..count {
            sleep(beat).await;
            connection.wire.send("data: x\n").await;
        }
    })
    .await
}

/// Sends a byte of a body at each beat until the connection ends.
async fn drip(client: &mut Wire, beat: Duration, within: Duration) {
    let (mut beat, start) = (interval(beat), Instant::now());
    while client.try_send("x").await.is_ok() {
        assert!(
            start.elapsed() < within,
            "a byte now and then is taken for ever"
        );
        beat.tick().await;
    }
}

/// The field that every gRPC call has. Any other client can send it, too.
const GRPC: (&str, &str) = ("Content-Type", "application/grpc");

#[tokio::test]
async fn an_upload_that_drips_is_ended() {
    // gRPC does not exist over HTTP/1.1, whatever the field says.
    for (fields, status) in [(&[][..], 408), (&[GRPC], 408)] {
        let upstream = Upstream::silent().await;
        let gateway = paced(&upstream).await;
        let mut client = gateway.connect().await;
        let fields = [fields, &[("Content-Length", "1000000")]].concat();
        client.send(request("POST", "/", &fields)).await;
        drip(&mut client, BEAT, PATIENCE).await;
        upstream.closes(1).await;
        let line = gateway.line_where("path", "/").await;
        assert_eq!(line["reason"], "client_timeout", "{line}");
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["ended_by"], "min_rate", "{line}");
        let told = client.everything().await;
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("slower than `min_rate` demands"), "{told}");
    }
}

#[tokio::test]
async fn an_upload_that_drips_behind_its_answer_is_ended() {
    let upstream = answering_early().await;
    let gateway = paced(&upstream).await;
    let mut client = gateway.connect().await;
    let post = request("POST", "/", &[("Content-Length", "1000000")]);
    client.send(post).await;
    drip(&mut client, BEAT, PATIENCE).await;
    upstream.closes(1).await;
    let line = gateway.line_where("path", "/").await;
    // By now both sides have kept the gateway waiting, and it may check either of them first.
    let either = ["client_timeout", "upstream_timeout"];
    assert!(
        either.iter().any(|reason| line["reason"] == *reason),
        "{line}"
    );
}

#[tokio::test]
async fn an_http2_upload_that_drips_is_ended_beside_another_stream() {
    let upstream = Upstream::echo().await;
    let gateway = paced(&upstream).await;
    let client = gateway.h2().await;
    let (feed, body) = Feed::open();
    let post = Request::post("http://gateway.test/drips").body(body);
    let dripping = tokio::spawn(async move {
        let mut beat = interval(BEAT);
        while feed
            .send(Frame::data(Bytes::from_static(b"x")))
            .await
            .is_ok()
        {
            beat.tick().await;
        }
    });
    client.ask(post.unwrap()).await.expect(408);
    let line = gateway.line_where("path", "/drips").await;
    assert_eq!(line["reason"], "client_timeout", "{line}");
    client.get("/other").await.expect(200);
    dripping.abort();
}

#[tokio::test]
async fn who_takes_an_answer_in_sips_is_ended() {
    for fields in [&[][..], &[GRPC]] {
        let upstream = endless().await;
        let gateway = paced(&upstream).await;
        let mut client = gateway.connect().await;
        client.shrink_receive_buffer(4096);
        client.send(request("GET", "/", fields)).await;
        let sipping = async {
            let mut beat = interval(BEAT);
            // The data in the system's buffers may last for long.
            while client.read_some().await.is_ok() {
                beat.tick().await;
            }
            std::future::pending().await
        };
        tokio::select! {
            () = upstream.closes(1) => {}
            () = sipping => {}
        }
        let line = gateway.line_where("path", "/").await;
        assert_eq!(line["reason"], "client_stalled", "{line}");
        assert_eq!(line["ended_by"], "min_rate", "{line}");
        let ended = "tollgate_http_streams_ended_total{kind=\"stream\",ended_by=\"min_rate\"} 1";
        let metrics = gateway.metrics().await;
        assert!(metrics.lines().any(|line| line == ended), "{metrics}");
    }
}

#[tokio::test]
async fn who_takes_an_answer_of_http2_in_sips_is_ended() {
    let upstream = endless().await;
    let gateway = paced(&upstream).await;
    let client = H2::with_window(gateway.address(), 100).await;
    let mut body = client.send(h2::get("/")).await.unwrap().into_body();
    let (mut beat, start) = (interval(BEAT), Instant::now());
    while let Some(Ok(_)) = timeout(PATIENCE, body.frame()).await.unwrap() {
        assert!(start.elapsed() < PATIENCE, "sips are served for ever");
        beat.tick().await;
    }
    upstream.closes(1).await;
    let line = gateway.line_where("path", "/").await;
    assert_eq!(line["reason"], "client_stalled", "{line}");
    assert_eq!(line["ended_by"], "min_rate", "{line}");
}

#[tokio::test]
async fn a_server_that_writes_slowly_is_not_the_clients_fault() {
    let upstream = events(BEAT * 3, 12).await;
    let gateway = paced(&upstream).await;
    let http2 = gateway.h2().await;
    // In all this takes longer than the idle time, and the rate is far below the minimum.
    let (one, two) = tokio::join!(gateway.get("/1"), http2.get("/2"));
    for (path, answer) in [("/1", one), ("/2", two)] {
        assert_eq!(answer.expect(200).body.len(), 8 * 12);
        assert_eq!(gateway.line_where("path", path).await["reason"], "ok");
    }
}

#[tokio::test]
async fn a_server_that_reads_slowly_is_not_the_clients_fault() {
    const LENGTH: usize = 20_000_000;
    let upstream = Upstream::playing(async |mut connection: Connection| {
        connection.request().await.unwrap();
        for _ in 0..30 {
            sleep(BEAT).await;
            connection.wire.exactly_ignored(LENGTH / 1000).await;
        }
        connection
            .wire
            .exactly_ignored(LENGTH - LENGTH / 1000 * 30)
            .await;
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        connection.wire.send(answer).await;
    })
    .await;
    let gateway = paced(&upstream).await;
    let mut client = gateway.connect().await;
    let length = LENGTH.to_string();
    client
        .send(request("POST", "/", &[("Content-Length", &length)]))
        .await;
    client.send(vec![b'x'; LENGTH]).await;
    client.answer().await.expect(200);
}

#[tokio::test]
async fn grpc_may_drip() {
    let server = ModernServer::start(Manner::default()).await;
    let gateway = paced_to(&format!("h2c://{}", server.address)).await;
    let client = gateway.h2().await;
    let (feed, body) = Feed::open();
    let call = Request::post("http://gateway.test/")
        .header("content-type", "application/grpc+proto")
        .body(body)
        .unwrap();
    let dripping = async move {
        for _ in 0..30 {
            sleep(BEAT).await;
            let piece = Frame::data(Bytes::from_static(b"x"));
            feed.send(piece).await.unwrap();
        }
    };
    let (answer, ()) = tokio::join!(client.ask(call), dripping);
    answer.expect(200);
}

#[tokio::test]
async fn no_rate_asks_for_none() {
    const LENGTH: usize = 45;
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("idle = \"4s\"\nmin_rate = 0");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let length = LENGTH.to_string();
    client
        .send(request("POST", "/", &[("Content-Length", &length)]))
        .await;
    for _ in 0..LENGTH {
        sleep(BEAT).await;
        client.send("x").await;
    }
    client.answer().await.expect(200);
}

/// With default settings, every kind of lazy peer is ended within this time after it becomes lazy.
const ENDED: Duration = Duration::from_secs(75);

/// Starts the lazy peers. Each lives until the gateway ends it, and returns its kind.
fn lazy_peers(gateway: &Gateway, peers: &mut JoinSet<(&'static str, Duration)>) {
    let address = gateway.address();
    let head = request("POST", "/early", &[("Content-Length", "1000000")]);
    for (what, first, every) in [
        (
            "half a head",
            "GET / HTTP/1.1\r\nHost: a.test\r\n".to_owned(),
            None,
        ),
        (
            "a dripping head",
            "GET / HTTP/1.1\r\nX: ".to_owned(),
            Some(5),
        ),
        ("half a body", head.clone(), None),
        ("a dripping body", head, Some(5)),
    ] {
        peers.spawn(async move {
            let mut client = Wire::to(address).await;
            client.send(first).await;
            let start = Instant::now();
            match every {
                None => assert_ne!(client.ended(ENDED * 2).await, End::Open),
                Some(every) => drip(&mut client, Duration::from_secs(every), ENDED * 2).await,
            }
            (what, start.elapsed())
        });
    }
    for (what, sips) in [("never reads", false), ("reads in sips", true)] {
        peers.spawn(async move {
            let mut client = Wire::to(address).await;
            client.shrink_receive_buffer(2048);
            client.send(get("/endless")).await;
            let start = Instant::now();
            loop {
                // The peer does not read, so it notices the end only when it writes.
                sleep(Duration::from_secs(1)).await;
                if client.try_send("\r\n").await.is_err() {
                    return (what, start.elapsed());
                }
                if sips && client.exactly(100).await.is_err() {
                    return (what, start.elapsed());
                }
                assert!(start.elapsed() < ENDED * 2, "{what} is served for ever");
            }
        });
    }
    for (what, window, sips) in [
        ("never opens its window", 0, false),
        ("opens its window in sips", 10, true),
    ] {
        peers.spawn(async move {
            let client = H2::with_window(address, window).await;
            let start = Instant::now();
            let mut body = client.send(h2::get("/endless")).await.unwrap().into_body();
            loop {
                let frame = timeout(ENDED * 2, body.frame()).await.expect("an end");
                if !matches!(frame, Some(Ok(_))) {
                    return (what, start.elapsed());
                }
                assert!(sips && start.elapsed() < ENDED * 2, "{what}");
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    peers.spawn(async move {
        let client = H2::to(address).await;
        let (feed, body) = Feed::open();
        let post = Request::post("http://gateway.test/early").body(body);
        let start = Instant::now();
        let mut answer = client.send(post.unwrap()).await.unwrap().into_body();
        tokio::spawn(async move {
            while feed
                .send(Frame::data(Bytes::from_static(b"x")))
                .await
                .is_ok()
            {
                sleep(Duration::from_secs(5)).await;
            }
        });
        let end = timeout(ENDED * 2, answer.frame()).await.expect("an end");
        assert!(!matches!(end, Some(Ok(_))));
        ("dribbles DATA", start.elapsed())
    });
}

/// This test takes two minutes, and runs only in the long form.
#[tokio::test]
async fn every_kind_of_lazy_peer_is_ended_by_the_settings_as_they_are() {
    if !long() {
        return;
    }
    let (early, endless) = (answering_early().await, endless().await);
    let file = File::default()
        .upstream("early", &[&early])
        .upstream("endless", &[&endless])
        .route("early", "/early", "early", &[])
        .route("endless", "/endless", "endless", &[]);
    let gateway = Gateway::start(&file).await;
    let mut peers = JoinSet::new();
    lazy_peers(&gateway, &mut peers);
    while let Some(ended) = peers.join_next().await {
        let (what, after) = ended.unwrap();
        println!("{what}: {after:?}");
        assert!(after < ENDED, "{what}: {after:?}");
    }
}

/// This test takes ten minutes, and runs only in the long form.
#[tokio::test]
async fn a_stream_of_rare_events_lives() {
    if !long() {
        return;
    }
    let upstream = events(Duration::from_secs(15), 40).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await.patient();
    let http2 = gateway.h2().await;
    let start = Instant::now();
    let second = tokio::spawn(async move {
        let mut body = http2.send(h2::get("/")).await.unwrap().into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len();
        }
        read
    });
    client.send(get("/")).await;
    client.head().await;
    let body = client.exactly(8 * 40).await;
    assert!(body.is_ok(), "{body:?} after {:?}", start.elapsed());
    assert_eq!(second.await.unwrap(), 8 * 40);
    assert!(start.elapsed() > Duration::from_secs(595));
}
