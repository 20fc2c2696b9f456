//! Floods over HTTP/2: frames that cost their sender next to nothing.

use crate::support::h2_frames::{
    CONTINUATION, DATA, GOAWAY, HEAD, HEADERS, PING, RST_STREAM, SETTINGS, frame, greeted,
    read_frame,
};
use crate::support::{Connection, End, File, Gateway, PATIENCE, Upstream, Wire};

const ENHANCE_YOUR_CALM: u8 = 0xb;
const PRIORITY: u8 = 2;
const WINDOW_UPDATE: u8 = 8;
const PRIORITY_UPDATE: u8 = 0x10;

/// The cause of the connection's end, from its last frame.
async fn last_word(client: &mut Wire) -> Result<u8, End> {
    loop {
        match read_frame(client).await? {
            (GOAWAY, _, payload) if payload[4..8] != [0; 4] => return Ok(payload[7]),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_flood_of_pings_or_settings_is_told_to_calm_down() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for demand in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut client = greeted(&gateway).await;
        // The gateway answers as long as no client sends too many frames.
        client.send(frame(PING, 0, 0, &[1; 8])).await;
        loop {
            let (kind, flags, payload) = read_frame(&mut client).await.unwrap();
            if (kind, flags) == (PING, 1) {
                assert_eq!(payload, [1; 8]);
                break;
            }
        }
        // The gateway answers each hundred before the next is sent, so that no reset destroys its last frame.
        let mut answered = 0;
        for hundred in 1..=9 {
            client.send(demand.repeat(100)).await;
            while answered < hundred * 100 {
                let (kind, flags, _) = read_frame(&mut client).await.unwrap();
                answered += u32::from(flags == 1 && kind == demand[3]);
            }
        }
        client.send(demand.repeat(200)).await;
        assert_eq!(last_word(&mut client).await, Ok(ENHANCE_YOUR_CALM));
        assert_ne!(client.ended(PATIENCE).await, End::Open);
    }
    let calm = |line: &str| line.contains("ENHANCE_YOUR_CALM");
    gateway.said.line(0, "a line of it", calm).await;
    // Other clients are not affected.
    gateway.h2().await.get("/").await.expect(200);
}

/// Answers to PINGs that the gateway never sent: hyper reports each of them.
#[tokio::test]
async fn unasked_answers_to_pings_fill_no_log() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = greeted(&gateway).await;
    for _ in 0..11 {
        client.send(frame(PING, 1, 0, &[7; 8]).repeat(100)).await;
    }
    assert_eq!(last_word(&mut client).await, Ok(ENHANCE_YOUR_CALM));
    let calm = |line: &str| line.contains("ENHANCE_YOUR_CALM");
    gateway.said.line(0, "a line of it", calm).await;
    assert!(!gateway.said.text().contains("never sent"));
}

/// gRPC measures its bandwidth in this way: after received data it sends a PING, as soon as the last PING was answered.
#[tokio::test]
async fn who_measures_a_line_of_small_messages_is_no_flood() {
    const MESSAGES: usize = 1_300;
    let upstream = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            connection.wire.send(head).await;
            // Each message waits until the previous one has been measured.
            while connection.wire.chunk().await.is_ok() {
                connection.wire.send("1\r\nx\r\n").await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = greeted(&gateway).await;
    // The fields `POST`, `http`, `/`, `a`. The body asks for one message after the other.
    let head = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    client.send(frame(HEADERS, 4, 1, &head)).await;
    let mut messages = 0;
    client.send(frame(DATA, 0, 1, b"x")).await;
    while messages < MESSAGES {
        match read_frame(&mut client).await.unwrap() {
            (DATA, _, payload) if !payload.is_empty() => {
                messages += 1;
                client.send(frame(PING, 0, 0, &[1; 8])).await;
            }
            (PING, 1, _) => client.send(frame(DATA, 0, 1, b"x")).await,
            (GOAWAY, _, payload) => panic!("{payload:?} after {messages}"),
            _ => {}
        }
    }
}

/// Frames without content: the gateway ends the connection after too many of each kind.
#[tokio::test]
async fn frames_that_move_nothing_are_told_to_calm_down() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for idle in [
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"),
        frame(0x21, 0, 0, &[]),
    ] {
        let mut client = greeted(&gateway).await;
        // The gateway reads each hundred before the next is sent, so that no reset destroys its last frame.
        let ping = frame(PING, 0, 0, &[1; 8]);
        let mut hundreds = 0;
        let word = loop {
            hundreds += 1;
            assert!(hundreds < 30, "{} goes on", idle[3]);
            client.send([&idle.repeat(100)[..], &ping].concat()).await;
            let (kind, _, payload) = loop {
                let read = read_frame(&mut client).await.unwrap();
                if matches!((read.0, read.1), (PING, 1) | (GOAWAY, _)) {
                    break read;
                }
            };
            if kind == GOAWAY {
                break payload[7];
            }
        };
        assert_eq!(word, ENHANCE_YOUR_CALM);
        assert!(hundreds > 5, "a few are nobody's business: {hundreds}");
    }
    let calm = |line: &str| line.contains("frames without data");
    gateway.said.line(0, "a line of it", calm).await;
}

/// The most eager client: after each small frame it opens both windows again.
#[tokio::test]
async fn who_opens_windows_for_what_it_gets_is_no_flood() {
    const MESSAGES: usize = 3_000;
    let upstream = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            connection.wire.send(head).await;
            while connection.wire.chunk().await.is_ok() {
                connection.wire.send("1\r\nx\r\n").await;
            }
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = greeted(&gateway).await;
    let head = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    client.send(frame(HEADERS, 4, 1, &head)).await;
    let window = |stream| frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]);
    let next = [frame(DATA, 0, 1, b"x"), window(0), window(1)].concat();
    client.send(frame(DATA, 0, 1, b"x")).await;
    let mut messages = 0;
    while messages < MESSAGES {
        match read_frame(&mut client).await.unwrap() {
            (DATA, _, payload) if !payload.is_empty() => {
                messages += payload.len();
                client.send(&next).await;
            }
            (GOAWAY, _, payload) => panic!("{payload:?} after {messages}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn requests_that_are_reset_at_once_are_told_to_calm_down() {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &["all"]).limit("all", "by = \"everyone\"\nrate = \"100/h\"");
    let gateway = Gateway::start(&file).await;
    let mut client = greeted(&gateway).await;
    let mut stream = 1;
    while stream < 200_000 {
        let mut many = Vec::new();
        for _ in 0..100 {
            many.extend(frame(HEADERS, 5, stream, &HEAD));
            many.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
            stream += 2;
        }
        if client.try_send(many).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(last_word(&mut client).await, Ok(ENHANCE_YOUR_CALM));
    // Each request that was begun has been charged: the upstream got no more requests than the limit admits.
    assert!(upstream.seen() <= 100, "{}", upstream.seen());
}

#[tokio::test]
async fn a_head_without_end_is_ended() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = greeted(&gateway).await;
    client.send(frame(HEADERS, 1, 1, &HEAD)).await;
    // A literal field of one kilobyte.
    let field = [&[0, 1, b'x', 0x7f, 0xfa, 6][..], &[b'y'; 1017]].concat();
    let more = frame(CONTINUATION, 0, 1, &field);
    let mut sent = 0;
    while sent < 100_000 && client.try_send(&more).await.is_ok() {
        sent += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(last_word(&mut client).await, Ok(ENHANCE_YOUR_CALM));
    assert_eq!(upstream.seen(), 0);
    gateway.h2().await.get("/").await.expect(200);
}
