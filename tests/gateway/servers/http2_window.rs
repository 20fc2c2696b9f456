//! An upload that an HTTP/2 server does not read uses up the bytes that its connection may send. Other clients are not
//! held up.

use super::gateway;
use crate::support::h2_frames::{DATA, HEADERS, PING, SETTINGS, frame};
use crate::support::{
    Connection, End, Gateway, Line, PATIENCE, Relay, Upstream, Wire, eventually, request,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WINDOW_UPDATE: u8 = 8;
const END: u8 = 1;
/// The path `/unread`, whose requests have bodies that are not read, in the code of HPACK (RFC 7541, appendix B).
const UNREAD: &[u8] = &[0x62, 0xda, 0xac, 0x28, 0xe4];

/// A server that reads all bodies except those for one path, and whose connections keep their initial windows. It
/// counts the bytes of the unread bodies.
async fn server() -> (Upstream, Arc<AtomicUsize>) {
    let unread = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&unread);
    let upstream = Upstream::playing(move |connection: Connection| {
        let counting = Arc::clone(&counting);
        async move {
            let _ = play(connection.wire, &counting).await;
        }
    })
    .await;
    (upstream, unread)
}

async fn play(mut wire: Wire, counting: &AtomicUsize) -> Result<(), End> {
    wire.exactly(24).await?;
    wire.send(frame(SETTINGS, 0, 0, &[])).await;
    let mut unread = HashSet::new();
    let mut lengths: HashMap<u32, usize> = HashMap::new();
    loop {
        let head = wire.exactly(9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = wire.exactly(length).await?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            SETTINGS if flags & 1 == 0 => wire.send(frame(SETTINGS, 1, 0, &[])).await,
            PING if flags & 1 == 0 => wire.send(frame(PING, 1, 0, &payload)).await,
            HEADERS if payload.windows(UNREAD.len()).any(|part| part == UNREAD) => {
                unread.insert(stream);
            }
            DATA if unread.contains(&stream) => {
                counting.fetch_add(length, Ordering::SeqCst);
                continue;
            }
            DATA => {
                *lengths.entry(stream).or_default() += length;
                if length > 0 {
                    let more = u32::try_from(length).unwrap().to_be_bytes();
                    let both = [
                        frame(WINDOW_UPDATE, 0, 0, &more),
                        frame(WINDOW_UPDATE, 0, stream, &more),
                    ];
                    wire.send(both.concat()).await;
                }
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END != 0 {
            let body = lengths.remove(&stream).unwrap_or(0).to_string();
            let answer = [
                frame(HEADERS, 4, stream, &[0x88]),
                frame(DATA, END, stream, body.as_bytes()),
            ];
            wire.send(answer.concat()).await;
        }
    }
}

async fn before(server: &Upstream, lines: &str) -> Gateway {
    let port = server.port();
    gateway(&format!("servers = \"h2c://127.0.0.1:{port}\"\n{lines}")).await
}

/// An unread upload that uses up all bytes that its connection may send.
async fn unread_upload(gateway: &Gateway, unread: &AtomicUsize, nth: usize) -> Wire {
    let mut client = gateway.connect().await;
    let head = request("POST", "/unread", &[("content-length", "1000000")]);
    client.send(head).await;
    client.send(vec![b'x'; 100_000]).await;
    eventually(PATIENCE, "the window is used up", async || {
        unread.load(Ordering::SeqCst) == nth * 65_535
    })
    .await;
    client
}

async fn post(gateway: &Gateway, length: usize) -> (String, Duration) {
    let mut client = gateway.connect().await;
    let announced = length.to_string();
    let begun = Instant::now();
    let head = request("POST", "/read", &[("content-length", &announced)]);
    client.send(head).await;
    client.send(vec![b'y'; length]).await;
    let answer = client.answer().await.expect(200);
    (answer.text(), begun.elapsed())
}

#[tokio::test]
async fn other_clients_uploads_go_to_another_connection() {
    let (server, unread) = server().await;
    let gateway = before(&server, "").await;
    let mut held = vec![unread_upload(&gateway, &unread, 1).await];
    for length in [5_000, 1, 60_000, 300_000] {
        let (echo, took) = post(&gateway, length).await;
        assert_eq!(echo, length.to_string());
        assert!(
            took < Duration::from_secs(5),
            "{took:?} is not the route's timeout"
        );
    }
    assert_eq!(server.connections(), 2);
    gateway.get("/plain").await.expect(200);
    assert_eq!(server.connections(), 2, "without a body the first one does");
    // A second such upload, and an upload of unknown length.
    held.push(unread_upload(&gateway, &unread, 2).await);
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/read",
            &[("transfer-encoding", "chunked")],
        ))
        .await;
    client.send_chunk("some bytes").await;
    client.send("0\r\n\r\n").await;
    assert_eq!(client.answer().await.expect(200).text(), "10");
    assert_eq!(server.connections(), 3);
}

/// Uploads that look for room at the same time all find it: room that was promised to one upload is not given to the
/// next.
#[tokio::test]
async fn uploads_that_come_together_do_not_hang_behind_each_other() {
    let (server, unread) = server().await;
    let gateway = before(&server, "").await;
    let _first = unread_upload(&gateway, &unread, 1).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = gateway.connect().await;
        let head = request("POST", "/unread", &[("content-length", "1000000")]);
        client
            .send([head.as_bytes(), &[b'x'; 90_000]].concat())
            .await;
        held.push(client);
    }
    let gateway = Arc::new(gateway);
    let mut posts = JoinSet::new();
    for _ in 0..20 {
        let gateway = Arc::clone(&gateway);
        posts.spawn(async move { post(&gateway, 5_000).await });
    }
    for (echo, took) in posts.join_all().await {
        assert_eq!(echo, "5000");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

/// The bound on connections is kept: at the bound an upload waits, and a request without a body does not.
#[tokio::test]
async fn a_bound_on_connections_holds() {
    let (server, unread) = server().await;
    let port = server.port();
    let entry = format!("servers = {{ url = \"h2c://127.0.0.1:{port}\", max_connections = 1 }}");
    let gateway = gateway(&entry).await;
    let _held = unread_upload(&gateway, &unread, 1).await;
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/read", &[("content-length", "5")]))
        .await;
    client.send("12345").await;
    gateway.get("/plain").await.expect(200);
    assert_eq!(server.connections(), 1);
}

/// A window whose updates come slowly is no reason for another connection.
#[tokio::test]
async fn a_lone_upload_to_a_far_server_keeps_its_connection() {
    let (server, _) = server().await;
    let relay = Relay::to(server.port()).await;
    relay.turn(Line::Slow(Duration::from_millis(30)));
    let gateway = gateway(&format!("servers = \"h2c://{}\"", relay.address())).await;
    let (echo, _) = post(&gateway, 400_000).await;
    assert_eq!(echo, "400000");
    assert_eq!(server.connections(), 1);
}
