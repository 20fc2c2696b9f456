//! Answers of HTTP/2 servers, frame by frame: heads without a body, and frames that are no answer.

use super::gateway;
use crate::support::{Connection, End, Gateway, Upstream, get, request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The frames of an answer: type, flags, payload.
type Frames = &'static [(u8, u8, &'static [u8])];

const NO_CONTENT: Frames = &[(1, 4, b"\x89"), (0, 1, b"")];
const NOT_MODIFIED: Frames = &[(1, 4, b"\x8b"), (0, 1, b"")];
const OK: Frames = &[(1, 4, b"\x88"), (0, 1, b"")];
/// A reset with INTERNAL_ERROR, of this stream only.
const RESET: Frames = &[(3, 0, &[0, 0, 0, 2])];
/// The end of the connection with the demand for fewer requests (ENHANCE_YOUR_CALM).
const CALM: Frames = &[(7, 0, &[0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 11])];
/// The end of the connection.
const END: Frames = &[];
/// A head with `connection: close`, which HTTP/2 does not have.
const MALFORMED: Frames = &[(1, 5, b"\x88\x00\x0aconnection\x05close")];

/// A server that answers each request with these frames, and counts streams and resets.
struct ByHand {
    server: Upstream,
    streams: Arc<AtomicUsize>,
    resets: Arc<AtomicUsize>,
}

impl ByHand {
    async fn answering(frames: Frames) -> Self {
        let (streams, resets) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counting = (Arc::clone(&streams), Arc::clone(&resets));
        let server = Upstream::playing(move |connection: Connection| {
            let (streams, resets) = counting.clone();
            async move {
                let _ = play(connection, frames, &streams, &resets).await;
            }
        })
        .await;
        Self {
            server,
            streams,
            resets,
        }
    }

    async fn gateway(&self) -> Gateway {
        self.gateway_with("").await
    }

    /// A gateway with these further lines for its upstream.
    async fn gateway_with(&self, lines: &str) -> Gateway {
        let server = format!("servers = \"h2c://127.0.0.1:{}\"", self.server.port());
        gateway(&format!("{server}\n{lines}")).await
    }
}

async fn play(
    mut connection: Connection,
    frames: Frames,
    streams: &AtomicUsize,
    resets: &AtomicUsize,
) -> Result<(), End> {
    let wire = &mut connection.wire;
    wire.exactly(24).await?;
    wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    loop {
        let head = wire.exactly(9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        wire.exactly(length).await?;
        let (kind, flags) = (head[3], head[4]);
        if kind == 3 {
            resets.fetch_add(1, Ordering::SeqCst);
        }
        // A reset is sent before the request ends.
        let is_all = flags & 1 == 1 || (frames == RESET && kind == 1);
        if matches!(kind, 0 | 1) && is_all {
            streams.fetch_add(1, Ordering::SeqCst);
            for (kind, flags, payload) in frames {
                let length = u8::try_from(payload.len()).unwrap();
                let id = if *kind == 7 { &[0; 4] } else { &head[5..9] };
                wire.send([&[0, 0, length, *kind, *flags], id, payload].concat())
                    .await;
                // The next frame is sent alone.
                sleep(Duration::from_millis(30)).await;
            }
            if frames == END || frames == CALM {
                return Ok(());
            }
        }
    }
}

#[tokio::test]
async fn the_end_of_an_answer_without_a_body_may_come_by_itself() {
    for (method, status, frames) in [
        ("GET", 204, NO_CONTENT),
        ("GET", 304, NOT_MODIFIED),
        ("HEAD", 200, OK),
    ] {
        let by_hand = ByHand::answering(frames).await;
        let gateway = by_hand.gateway().await;
        let mut client = gateway.connect().await;
        for _ in 0..3 {
            client.send(request(method, "/", &[])).await;
            let answer = client.answer_to_head().await.expect(status);
            let line = gateway.line_of(&answer).await;
            assert_eq!(line["reason"], "ok", "{method} {status}");
        }
        let modern = gateway.h2().await;
        let asked = http::Request::builder()
            .method(method)
            .uri("http://a.test/");
        let asked = asked.body(crate::support::Feed::empty()).unwrap();
        modern.ask(asked).await.expect(status);
        assert_eq!(by_hand.streams.load(Ordering::SeqCst), 4);
        assert_eq!(
            by_hand.resets.load(Ordering::SeqCst),
            0,
            "{method} {status}"
        );
        assert_eq!(by_hand.server.connections(), 1);
    }
}

/// If a server has sent an answer, however bad, its request is not sent again.
#[tokio::test]
async fn a_malformed_answer_is_not_asked_for_twice() {
    let by_hand = ByHand::answering(MALFORMED).await;
    let gateway = by_hand.gateway().await;
    let answer = gateway.get("/").await.expect(502);
    let line = gateway.line_of(&answer).await;
    assert_eq!(line["reason"], "upstream_invalid");
    assert_eq!(by_hand.streams.load(Ordering::SeqCst), 1);
}

/// A stream that breaks on a busy connection is a failed attempt, not the end of an idle connection. So the request is
/// repeated once, within the budget.
#[tokio::test]
async fn streams_that_break_are_repeated_as_often_as_the_file_says() {
    for frames in [RESET, END] {
        let by_hand = ByHand::answering(frames).await;
        let lines = "retry = { attempts = 1, budget = \"100%\" }";
        let gateway = by_hand.gateway_with(lines).await;
        let mut asking = JoinSet::new();
        for _ in 0..8 {
            let mut client = gateway.connect().await;
            asking.spawn(async move { client.ask(get("/")).await });
        }
        for answer in asking.join_all().await {
            let line = gateway.line_of(&answer.expect(502)).await;
            assert_eq!(line["reason"], "upstream_reset", "{line}");
            assert!(line["attempts"].as_u64() <= Some(2), "{line}");
        }
        let sent = by_hand.streams.load(Ordering::SeqCst);
        assert!(sent <= 16, "{sent} streams for 8 requests");
        if !frames.is_empty() {
            assert_eq!(sent, 16, "each is repeated once");
        }
    }
}

/// Clients, not the server, are the cause of so many requests that the server sends ENHANCE_YOUR_CALM. So this is no
/// failure of the server. For bodies that stop coming see `http2_faults`.
#[tokio::test]
async fn what_clients_do_to_streams_ejects_nobody() {
    let (one, other) = (ByHand::answering(CALM).await, ByHand::answering(CALM).await);
    let [one, other] = [&one, &other].map(|by_hand| by_hand.server.port());
    let gateway = gateway(&format!(
        "servers = [\"h2c://127.0.0.1:{one}\", \"h2c://127.0.0.1:{other}\"]\n\
             retry = false\neject = {{ after = 1 }}"
    ))
    .await;
    for _ in 0..2 {
        let asked = request("POST", "/", &[("Content-Length", "0")]);
        gateway.connect().await.ask(asked).await.expect(502);
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
}
