//! The log describes the fault of an HTTP/2 server that does not answer: the frame, its code, and the malformed part.

use super::gateway;
use crate::support::h2_frames::{DATA, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame, read_frame};
use crate::support::{Connection, End, Upstream, get, tollgate};

const END: u8 = 1;
const OK_OF_FIVE: &[u8] = b"\x88\x0f\x0d\x015";

/// A server that sends these bytes after the head of its first request, and closes the connection.
async fn sending(bytes: Vec<u8>) -> Upstream {
    Upstream::playing(move |mut connection: Connection| {
        let bytes = bytes.clone();
        async move {
            let _ = play(&mut connection, &bytes).await;
            connection.wire.leave().await;
        }
    })
    .await
}

async fn play(connection: &mut Connection, bytes: &[u8]) -> Result<(), End> {
    let wire = &mut connection.wire;
    wire.exactly(24).await?;
    wire.send(frame(SETTINGS, 0, 0, &[])).await;
    loop {
        let (kind, flags, _) = read_frame(wire).await?;
        match kind {
            SETTINGS if flags & 1 == 0 => wire.send(frame(SETTINGS, 1, 0, &[])).await,
            HEADERS => {
                wire.send(bytes).await;
                return Ok(());
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn each_fault_of_http2_is_told_with_its_frame() {
    // PUSH_PROMISE is a frame that only servers send.
    const PUSH_PROMISE: u8 = 5;
    let long = [&[0, 0, 0, 1, 0, 0, 0, 2][..], b"why\"\x01", &[b'x'; 300]].concat();
    for (bytes, reason, words, quoted) in [
        (
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]),
            "upstream_reset",
            "ended the stream: RST_STREAM with INTERNAL_ERROR (2)",
            "",
        ),
        (
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 99]),
            "upstream_reset",
            "RST_STREAM with code 99",
            "",
        ),
        (
            frame(GOAWAY, 0, 0, &long),
            "upstream_reset",
            "ended the connection: GOAWAY with INTERNAL_ERROR (2)",
            "\"why\\\"\\x01xxx",
        ),
        (
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 13]),
            "upstream_reset",
            "RST_STREAM with HTTP_1_1_REQUIRED (13), write `http = \"1.1\"`, or `http://`",
            "",
        ),
        (
            frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 13]),
            "upstream_reset",
            "GOAWAY with HTTP_1_1_REQUIRED (13), write `http = \"1.1\"`",
            "",
        ),
        (
            frame(HEADERS, 5, 1, b"\x88\x00\x0aconnection\x05close"),
            "upstream_invalid",
            "head is malformed: PROTOCOL_ERROR (1), the head has a field that HTTP/2 does not have (`connection`",
            "",
        ),
        (
            frame(HEADERS, 5, 1, b"\x88\x00\x02X-\x01y"),
            "upstream_invalid",
            "in a head a field's name or value is not valid",
            "",
        ),
        (
            frame(HEADERS, 5, 1, b"\x88\x00\x01x\x03a\x01b"),
            "upstream_invalid",
            "in a head a field's name or value is not valid",
            "",
        ),
        (
            frame(HEADERS, 5, 1, b"\x00\x01x\x01y"),
            "upstream_invalid",
            "the field `:status` is missing",
            "",
        ),
        (
            frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
            "upstream_invalid",
            "came before the answer: PROTOCOL_ERROR (1), the compression of a head's fields (HPACK) is broken",
            "",
        ),
        (
            frame(DATA, 0, 1, b"early"),
            "upstream_invalid",
            "frames came before the answer: PROTOCOL_ERROR (1), a body came without a head",
            "",
        ),
        (
            frame(PUSH_PROMISE, 4, 1, b"\x00\x00\x00\x02\x88"),
            "upstream_invalid",
            "a push (PUSH_PROMISE), which the gateway does not take: switch pushes off in the server",
            "",
        ),
        (
            frame(DATA, 0, 1, &[0; 20_000]),
            "upstream_invalid",
            "FRAME_SIZE_ERROR (6), a frame has a length that it may not have",
            "",
        ),
        (
            [
                frame(HEADERS, 4, 1, OK_OF_FIVE),
                frame(DATA, END, 1, b"more than five"),
            ]
            .concat(),
            "upstream_invalid",
            "malformed: PROTOCOL_ERROR (1), the body is longer than its `content-length`",
            "",
        ),
        (
            [
                frame(HEADERS, 4, 1, OK_OF_FIVE),
                frame(DATA, END, 1, b"few"),
            ]
            .concat(),
            "upstream_invalid",
            "malformed: PROTOCOL_ERROR (1), the body is shorter than its `content-length`",
            "",
        ),
        (
            Vec::new(),
            "upstream_reset",
            "the connection ended before the answer",
            "",
        ),
    ] {
        let server = sending(bytes).await;
        let lines = format!(
            "servers = \"h2c://127.0.0.1:{}\"\nretry = false",
            server.port()
        );
        let gateway = gateway(&lines).await;
        for _ in 0..2 {
            let answer = gateway.get("/").await.expect(502);
            let told = gateway.line_of(&answer).await;
            assert_eq!(told["reason"], reason, "{told}");
            let fault = told["upstream_fault"].as_str().unwrap_or_default();
            assert!(fault.contains(words), "{words}: {told}");
        }
        let said = gateway
            .said
            .line(0, "the cause", |line| line.contains("no valid answer"))
            .await;
        assert!(said.contains(words) && said.contains(quoted), "{said}");
        let lines = gateway.said.lines();
        let count = lines.iter().filter(|line| line.contains("no valid answer"));
        assert_eq!(count.count(), 1, "one a minute");
    }
}

/// `check --connect` finds the same faults as requests, and describes them in the same words.
#[tokio::test]
async fn check_connect_tells_faults_of_http2_in_the_same_words() {
    for (bytes, words) in [
        (
            frame(HEADERS, 5, 1, b"\x88\x00\x02X-\x01y"),
            "in a head a field's name or value is not valid",
        ),
        (
            frame(5, 4, 1, b"\x00\x00\x00\x02\x88"),
            "a push (PUSH_PROMISE), which the gateway does not take",
        ),
        (
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 13]),
            "write `http = \"1.1\"`",
        ),
        (
            [
                frame(HEADERS, 4, 1, OK_OF_FIVE),
                frame(DATA, END, 1, b"few"),
            ]
            .concat(),
            "the body is shorter than its `content-length`",
        ),
    ] {
        let server = sending(bytes).await;
        let folder = tempfile::tempdir().unwrap();
        let file = format!(
            "[upstreams.main]\nservers = \"h2c://127.0.0.1:{}\"\nhealth = \"/\"\n\
             [routes.all]\nupstream = \"main\"\n",
            server.port()
        );
        std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
        let told = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
        assert_eq!(told.code, Some(3), "{}{}", told.stdout, told.stderr);
        assert!(told.stdout.contains(words), "{words}: {}", told.stdout);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_told_as_such() {
    let cut = [frame(HEADERS, 4, 1, OK_OF_FIVE), frame(DATA, 0, 1, b"hel")].concat();
    let server = sending(cut).await;
    let gateway = gateway(&format!("servers = \"h2c://127.0.0.1:{}\"", server.port())).await;
    let mut client = gateway.connect().await;
    client.send(get("/cut")).await;
    client.everything().await;
    let told = gateway.line_where("path", "/cut").await;
    assert_eq!(
        told["upstream_fault"], "the connection ended inside the answer's body",
        "{told}"
    );
}
