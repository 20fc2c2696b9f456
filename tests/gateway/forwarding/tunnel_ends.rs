//! The ends of WebSockets: when one side leaves, everything that was held for it is freed, whatever the other side
//! does, and the log names the side that left.

use crate::support::{
    Connection, End, File, Gateway, PATIENCE, Upstream, Wire, eventually, request,
};
use std::time::{Duration, Instant};

const UPGRADE: [(&str, &str); 2] = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
/// Frames of a client: a text, and a close frame.
const TEXT: [u8; 8] = [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
const CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE8];
/// Frames of a server.
const BARE_TEXT: [u8; 4] = [0x81, 2, b'h', b'o'];
const BARE_CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xE8];
/// The close frame `going away`, as the client receives it.
const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xE9];

/// A server that agrees to the upgrade, sends `first`, and then neither reads nor ends.
async fn deaf(first: &'static [u8]) -> Upstream {
    Upstream::playing(move |mut connection: Connection| async move {
        connection.request().await.unwrap();
        connection.wire.send(SWITCHING).await;
        let _ = connection.wire.try_send(first).await;
        std::future::pending::<()>().await;
    })
    .await
}

/// A gateway with one place for WebSockets, before a server with one place.
async fn narrow(upstream: &Upstream) -> Gateway {
    let file = File::default()
        .server("idle = \"10min\"\nworkers = 1")
        .limit(
            "one",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 1",
        )
        .with(&format!(
            "[upstreams.main]\nservers = [{{ url = \"{}\", max_requests = 1 }}]",
            upstream.url()
        ))
        .route("all", "/{*rest}", "main", &["one"]);
    Gateway::start(&file).await
}

async fn open(gateway: &Gateway, target: &str) -> Wire {
    let mut client = gateway.connect().await;
    client.send(request("GET", target, &UPGRADE)).await;
    assert_eq!(client.head().await.status(), 101);
    client
}

/// Waits until another WebSocket gets the place. Returns the time that it took.
async fn is_free(gateway: &Gateway) -> Duration {
    let since = Instant::now();
    eventually(PATIENCE, "the place is free", async || {
        let mut client = gateway.connect().await;
        client.send(request("GET", "/next", &UPGRADE)).await;
        let status = client.head().await.status();
        client.reset();
        status == 101
    })
    .await;
    since.elapsed()
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place_whatever_its_server_does() {
    for way in ["fin", "reset", "close frame", "close frame and fin"] {
        let upstream = deaf(b"").await;
        let gateway = narrow(&upstream).await;
        let mut client = open(&gateway, "/left").await;
        client.send(TEXT).await;
        let mut kept = None;
        match way {
            "reset" => client.reset(),
            "fin" => {
                client.finish_sending().await;
                kept = Some(client);
            }
            "close frame" => {
                client.send(CLOSE).await;
                kept = Some(client);
            }
            _ => {
                client.send(CLOSE).await;
                drop(client);
            }
        }
        let took = is_free(&gateway).await;
        assert!(took < Duration::from_secs(30), "{way}: {took:?}");
        let line = gateway.line_where("path", "/left").await;
        assert_eq!(line["reason"], "upgraded", "{way}: {line}");
        assert_eq!(line["ended_by"], "client", "{way}: {line}");
        if let Some(mut client) = kept {
            assert_ne!(client.ended(PATIENCE).await, End::Open, "{way}");
        }
        let metrics = gateway.metrics().await;
        let ended = "tollgate_http_streams_ended_total{kind=\"tunnel\",ended_by=\"client\"}";
        let count = metrics.lines().find_map(|line| line.strip_prefix(ended));
        assert!(count.is_some_and(|count| count.trim() != "0"), "{metrics}");
    }
}

/// The gateway notices a reset although unread bytes are in front of it. It could not notice an end, which the client's
/// system sends after these bytes.
#[tokio::test]
async fn a_reset_behind_much_that_the_server_does_not_take_frees_the_place() {
    let upstream = deaf(b"").await;
    let gateway = narrow(&upstream).await;
    let mut client = open(&gateway, "/left").await;
    // One frame that never ends. The system's buffers take megabytes of it.
    let mut frame = vec![0x82, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
    frame.resize(64 * 1024, 7);
    let filling = async { while client.try_send(&frame).await.is_ok() {} };
    let _ = tokio::time::timeout(Duration::from_secs(2), filling).await;
    client.reset();
    let took = is_free(&gateway).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    let line = gateway.line_where("path", "/left").await;
    assert_eq!(line["ended_by"], "client", "{line}");
}

#[tokio::test]
async fn a_server_that_leaves_frees_the_place_whatever_its_client_does() {
    for way in ["fin", "reset", "close frame"] {
        let upstream = Upstream::playing(move |mut connection: Connection| async move {
            let head = connection.request().await.unwrap();
            connection.wire.send(SWITCHING).await;
            if head.target() != "/left" {
                return;
            }
            connection.wire.send(BARE_TEXT).await;
            match way {
                "fin" => connection.wire.finish_sending().await,
                "close frame" => connection.wire.send(BARE_CLOSE).await,
                _ => return connection.wire.reset(),
            }
            std::future::pending::<()>().await;
        })
        .await;
        let gateway = narrow(&upstream).await;
        let mut client = open(&gateway, "/left").await;
        let took = is_free(&gateway).await;
        assert!(took < Duration::from_secs(30), "{way}: {took:?}");
        let line = gateway.line_where("path", "/left").await;
        assert_eq!(line["ended_by"], "server", "{way}: {line}");
        let end = client.ended(PATIENCE).await;
        let expected = if way == "reset" {
            End::Reset
        } else {
            End::Closed
        };
        assert_eq!(end, expected, "{way}");
    }
}

#[tokio::test]
async fn a_silent_websocket_is_ended_by_idle() {
    let upstream = deaf(b"").await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"1s\"")).await;
    let mut client = open(&gateway, "/idle").await;
    assert_ne!(client.ended(PATIENCE).await, End::Open);
    let line = gateway.line_where("path", "/idle").await;
    assert_eq!(line["reason"], "upgraded", "{line}");
    assert_eq!(line["ended_by"], "idle", "{line}");
    let ended = "tollgate_http_streams_ended_total{kind=\"tunnel\",ended_by=\"idle\"} 1";
    let metrics = gateway.metrics().await;
    assert!(metrics.lines().any(|line| line == ended), "{metrics}");
}

/// At the end of the drain both sides get a close frame, and the tunnel is over when both have answered.
#[tokio::test]
async fn at_drain_both_sides_read_that_the_gateway_goes_away() {
    let (told, hears) = tokio::sync::oneshot::channel();
    let told = std::sync::Mutex::new(Some(told));
    let upstream = Upstream::playing(move |mut connection: Connection| {
        let told = told.lock().unwrap().take();
        async move {
            connection.request().await.unwrap();
            connection.wire.send(SWITCHING).await;
            connection.wire.exactly(TEXT.len()).await.unwrap();
            connection.wire.send(BARE_TEXT).await;
            let frame = connection.wire.exactly(8).await.unwrap();
            told.expect("one connection").send(frame).unwrap();
            connection.wire.send(BARE_CLOSE).await;
            connection.wire.ended(PATIENCE).await;
        }
    })
    .await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"20s\"")).await;
    let mut client = open(&gateway, "/drained").await;
    client.send(TEXT).await;
    assert_eq!(client.exactly(4).await.unwrap()[..], BARE_TEXT);
    gateway.signal("TERM");
    assert_eq!(client.exactly(4).await.unwrap()[..], GOING_AWAY);
    let frame = hears.await.unwrap();
    let content = [frame[6] ^ frame[2], frame[7] ^ frame[3]];
    assert_eq!((&frame[..2], content), (&[0x88, 0x82][..], [0x03, 0xE9]));
    client.send(CLOSE).await;
    assert_eq!(client.ended(PATIENCE).await, End::Closed);
    gateway.exit(PATIENCE).await;
    let line = gateway.line_where("path", "/drained").await;
    assert_eq!(
        (&line["reason"], &line["ended_by"]),
        (&"upgraded".into(), &"drain".into())
    );
}

/// The gateway sends nothing inside a frame, since the client would take it for content.
#[tokio::test]
async fn inside_a_frame_nothing_is_said_at_drain() {
    let upstream = deaf(&[0x81, 5, b'h', b'a', b'l']).await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"2s\"")).await;
    let mut client = open(&gateway, "/cut").await;
    assert_eq!(client.exactly(5).await.unwrap()[2..], *b"hal");
    gateway.signal("TERM");
    assert_eq!(client.everything().await, "");
    gateway.exit(PATIENCE).await;
    let line = gateway.line_where("path", "/cut").await;
    assert_eq!(
        (&line["reason"], &line["ended_by"]),
        (&"drain_cut".into(), &"drain".into())
    );
}

/// After a frame that ends in time the close frame follows, and the next frame does not begin.
#[tokio::test]
async fn the_farewell_comes_at_the_next_border() {
    let upstream = Upstream::playing(|mut connection: Connection| async move {
        connection.request().await.unwrap();
        connection.wire.send(SWITCHING).await;
        connection.wire.send([0x81, 5, b'h', b'a', b'l']).await;
        // On this side the gateway's own close frame comes first.
        connection.wire.exactly(8).await.unwrap();
        connection
            .wire
            .send([b'l', b'o', 0x81, 2, b'x', b'y'])
            .await;
        connection.wire.ended(PATIENCE).await;
    })
    .await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"8s\"")).await;
    let mut client = open(&gateway, "/drained").await;
    client.exactly(5).await.unwrap();
    gateway.signal("TERM");
    let rest = client.exactly(6).await.unwrap();
    assert_eq!(rest, [&b"lo"[..], &GOING_AWAY].concat());
    client.send(CLOSE).await;
    assert_eq!(client.everything().await, "");
    gateway.exit(PATIENCE).await;
}
