//! One client over streams in memory: reuse, retries, early answers, framing in both directions.

use super::*;
use bytes::Buf as _;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body, SizeHint};
use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

/// A body of prepared pieces; an empty one is a pause.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    trailers: Option<HeaderMap>,
    fails: bool,
}

impl Pieces {
    fn of(pieces: &[&[u8]]) -> Self {
        Self {
            pieces: pieces.iter().map(|piece| piece.to_vec()).collect(),
            ..Self::default()
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.pieces.pop_front() {
            Some(piece) if piece.is_empty() => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece.into())))),
            None if self.fails => Poll::Ready(Some(Err(io::ErrorKind::Other.into()))),
            None => Poll::Ready(
                self.trailers
                    .take()
                    .map(|fields| Ok(Frame::trailers(fields))),
            ),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none() && !self.fails
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl OutgoingBody for Pieces {}

type Client = Http1<Pieces, DuplexStream>;

fn connected(room: usize) -> (Client, DuplexStream) {
    let (client_end, server_end) = duplex(room);
    (Http1::new(client_end, Rc::default()), server_end)
}

fn get() -> Request<Pieces> {
    Request::builder()
        .uri("/a?b")
        .body(Pieces::default())
        .unwrap()
}

fn post(length: Option<&str>, body: Pieces) -> Request<Pieces> {
    let mut request = Request::post("/").header("host", "a");
    if let Some(length) = length {
        request = request.header("content-length", length);
    }
    request.body(body).unwrap()
}

async fn answer(client: &mut Client) -> Result<Response<()>, AnswerError> {
    std::future::poll_fn(|cx| client.poll_answer(cx)).await
}

async fn whole_body(client: &mut Client) -> Result<Vec<u8>, AnswerError> {
    let mut body = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| client.poll_frame(cx)).await {
        if let Some(data) = frame?.data_ref() {
            body.extend_from_slice(data);
        }
    }
    Ok(body)
}

/// All bytes that have arrived at the server's end.
fn received(server_end: &mut DuplexStream) -> Vec<u8> {
    let mut bytes = BytesMut::with_capacity(1 << 16);
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(1..)) = pin!(server_end.read_buf(&mut bytes)).poll(&mut cx) {}
    bytes.to_vec()
}

#[tokio::test]
async fn one_connection_carries_one_exchange_after_the_other() {
    let (mut client, mut server_end) = connected(1 << 16);
    for _ in 0..100 {
        client.begin(get(), &[]);
        let served = async {
            tokio::task::yield_now().await;
            assert_eq!(received(&mut server_end), b"GET /a?b HTTP/1.1\r\n\r\n");
            let text = b"HTTP/1.1 200 OK\r\ncontent-length: 300\r\n\r\n";
            server_end.write_all(text).await.unwrap();
            server_end.write_all(&[b'x'; 300]).await.unwrap();
        };
        let (answered, ()) = tokio::join!(answer(&mut client), served);
        assert_eq!(answered.unwrap().status(), StatusCode::OK);
        assert_eq!(client.length(), Some(300));
        assert_eq!(whole_body(&mut client).await.unwrap(), [b'x'; 300]);
        assert!(client.is_free() && client.rest());
        assert_eq!(
            client.buffer.bytes.capacity(),
            0,
            "a resting connection has no buffer"
        );
    }
}

#[tokio::test]
async fn added_lines_stand_behind_the_fields_and_before_the_framing() {
    let (mut client, mut server_end) = connected(1 << 16);
    client.begin(
        post(None, Pieces::of(&[b"abc"])),
        &[b"via: 1.1 b\r\nx-id: ", b"7", b"\r\n"],
    );
    let served = async {
        tokio::task::yield_now().await;
        let expected = "POST / HTTP/1.1\r\nhost: a\r\nvia: 1.1 b\r\nx-id: 7\r\n\
                        transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(
            str::from_utf8(&received(&mut server_end)).unwrap(),
            expected
        );
        server_end
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
    };
    let (answered, ()) = tokio::join!(answer(&mut client), served);
    answered.unwrap();
}

#[tokio::test]
async fn bytes_that_were_not_asked_for_end_the_connection() {
    let text = b"HTTP/1.1 204 No Content\r\n\r\n";
    for early in [true, false] {
        let (mut client, mut server_end) = connected(1 << 16);
        client.begin(get(), &[]);
        let served = async {
            tokio::task::yield_now().await;
            server_end.write_all(text).await.unwrap();
        };
        let (answered, ()) = tokio::join!(answer(&mut client), served);
        answered.unwrap();
        if early {
            assert!(client.is_free() && client.rest());
        }
        server_end.write_all(b"H").await.unwrap();
        if early {
            client.begin(get(), &[]);
            let refused = answer(&mut client).await.unwrap_err();
            assert!(matches!(refused, AnswerError::Unasked(_)));
            assert!(client.into_unsent(false).is_some(), "nothing was written");
        } else {
            assert!(!client.rest());
        }
    }
}

#[tokio::test]
async fn a_request_of_which_nothing_was_written_can_be_sent_again() {
    let (mut client, server_end) = connected(1 << 16);
    drop(server_end);
    client.begin(post(Some("3"), Pieces::of(&[b"abc"])), &[]);
    let failed = answer(&mut client).await.unwrap_err();
    assert!(matches!(failed, AnswerError::Incomplete));
    let unsent = client.into_unsent(false).unwrap();

    let (mut client, mut server_end) = connected(1 << 16);
    client.restart(unsent);
    let served = async {
        tokio::task::yield_now().await;
        let expected = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(received(&mut server_end), expected);
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        server_end.write_all(text).await.unwrap();
    };
    let (answered, ()) = tokio::join!(answer(&mut client), served);
    answered.unwrap();
    assert!(client.is_free() && client.rest());
}

#[tokio::test]
async fn a_request_that_was_written_is_sent_again_only_if_it_may_be_repeated() {
    for (repeatable, heard) in [(true, false), (false, false), (true, true)] {
        let (mut client, mut server_end) = connected(1 << 16);
        client.begin(get(), &[]);
        let served = async {
            tokio::task::yield_now().await;
            received(&mut server_end);
            if heard {
                server_end.write_all(b"HTTP").await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(server_end);
        };
        let (answered, ()) = tokio::join!(answer(&mut client), served);
        answered.unwrap_err();
        let unsent = client.into_unsent(repeatable);
        assert_eq!(unsent.is_some(), repeatable && !heard);
        if let Some(unsent) = unsent {
            let (mut client, mut server_end) = connected(1 << 16);
            client.restart(unsent);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(client.poll_answer(&mut cx).is_pending());
            assert_eq!(received(&mut server_end), b"GET /a?b HTTP/1.1\r\n\r\n");
        }
    }
}

#[tokio::test]
async fn an_early_answer_comes_while_the_request_goes_up() {
    let (mut client, mut server_end) = connected(1 << 10);
    let big = vec![b'x'; 1 << 14];
    client.begin(post(Some("32768"), Pieces::of(&[&big, &big])), &[]);
    let served = async {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        tokio::task::yield_now().await;
        server_end.write_all(text).await.unwrap();
    };
    let (answered, ()) = tokio::join!(answer(&mut client), served);
    answered.unwrap();
    assert_eq!(whole_body(&mut client).await.unwrap(), b"ok");
    assert!(client.is_writing() && !client.is_free());
    let mut taken = Vec::new();
    let reading = async {
        while !taken.ends_with(&[b'x'; 4]) || taken.len() < 32768 {
            let mut part = [0; 512];
            let count = server_end.read(&mut part).await.unwrap();
            taken.extend_from_slice(&part[..count]);
        }
    };
    let (written, ()) = tokio::join!(std::future::poll_fn(|cx| client.poll_upload(cx)), reading);
    written.unwrap();
    assert!(client.is_free() && client.rest());
}

#[tokio::test]
async fn a_server_that_answers_and_takes_no_more_is_heard() {
    let (mut client, mut server_end) = connected(1 << 10);
    let big = vec![b'x'; 1 << 14];
    client.begin(post(Some("16384"), Pieces::of(&[&big])), &[]);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(client.poll_answer(&mut cx).is_pending());
    let text = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
    server_end.write_all(text).await.unwrap();
    drop(server_end);
    let status = answer(&mut client).await.unwrap().status();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(whole_body(&mut client).await.unwrap(), b"no");
    assert!(!client.is_writing() && !client.is_free());
}

#[tokio::test]
async fn a_body_that_is_not_as_announced_ends_the_exchange() {
    let failing = Pieces {
        fails: true,
        ..Pieces::of(&[b"ab"])
    };
    let bodies = [
        Pieces::of(&[b"abcd"]),
        Pieces::of(&[b"a", b"", b"b"]),
        failing,
    ];
    for body in bodies {
        let (mut client, _server_end) = connected(1 << 10);
        client.begin(post(Some("3"), body), &[]);
        assert!(answer(&mut client).await.is_err());
        assert!(client.into_unsent(true).is_none());
    }
}

#[tokio::test]
async fn chunks_are_bounded() {
    let zeros = "0".repeat(33);
    let long = "x".repeat(17 * 1024);
    let many = "a: b\r\n".repeat(101);
    for (chunks, is_refused) in [
        ("5\r\nhello\r\n0\r\n\r\n".to_owned(), false),
        (
            "00005 ;a=\"b\"\r\nhello\r\n000\r\na: b\r\n\r\n".to_owned(),
            false,
        ),
        ("10000000000000000\r\n".to_owned(), true),
        (format!("{zeros}\r\n"), true),
        (format!("1;{long}\r\n"), true),
        (format!("1{}\r\n", " ".repeat(17 * 1024)), true),
        (format!("0\r\na: {long}\r\n\r\n"), true),
        (format!("0\r\n{many}\r\n"), true),
        ("0\r\na: b\nc: d\r\n\r\n".to_owned(), true),
        ("1\nx\r\n".to_owned(), true),
        ("1\r\nxy\r\n".to_owned(), true),
        ("1;a\n".to_owned(), true),
        ("-1\r\n".to_owned(), true),
        ("0x1\r\n".to_owned(), true),
    ] {
        for piece in [1, 7, chunks.len()] {
            let mut decoder = ChunkDecoder::new();
            let (mut bytes, mut refused) = (BytesMut::new(), false);
            'all: for part in chunks.as_bytes().chunks(piece) {
                bytes.extend_from_slice(part);
                loop {
                    match decoder.decode(&mut bytes) {
                        Ok(Decoded::Data(_) | Decoded::Trailers(_)) => {}
                        Ok(Decoded::More | Decoded::End) => break,
                        Err(_) => {
                            refused = true;
                            break 'all;
                        }
                    }
                }
            }
            assert_eq!(refused, is_refused, "{:.40}", chunks.escape_debug());
            assert!(refused || decoder.is_over() && !bytes.has_remaining());
        }
    }
}

/// A request as seen by a hyper server.
#[derive(Debug, Default)]
struct Seen {
    method: Method,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: usize,
}

fn lines(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let lines = fields.iter();
    let mut lines: Vec<_> = lines
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_request_is_read_as_it_was_meant(
        method in prop::sample::select(vec!["GET", "PUT", "POST", "DELETE", "X-ODD"]),
        target in "/[a-z0-9%._~-]{0,20}(\\?[a-z=&]{0,9})?",
        fields in prop::collection::vec(("x-[a-z0-9]{1,9}", "[ -~]{0,30}"), 0..12),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..6),
        is_sized in any::<bool>(),
        room in prop::sample::select(vec![7_usize, 100, 65536]),
        trailers in prop::collection::vec("t-[a-c]", 0..4),
    ) {
        let body: Vec<u8> = pieces.concat();
        let mut meant = Request::builder().method(method).uri(&target).body(()).unwrap();
        for (name, value) in &fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            meant.headers_mut().append(name, HeaderValue::from_str(value.trim()).unwrap());
        }
        let expected = lines(meant.headers());
        let mut sent = HeaderMap::new();
        for name in &trailers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            sent.append(name, HeaderValue::from_static("v"));
        }
        if is_sized {
            meant.headers_mut().insert("content-length", body.len().into());
        } else {
            meant.headers_mut().insert("trailer", HeaderValue::from_static("t-a, t-b, host"));
        }
        let announced = sent.iter().filter(|(name, _)| *name != "t-c").count();
        let is_bodiless = pieces.is_empty() && sent.is_empty();
        let request = meant.map(|()| Pieces {
            pieces: pieces.clone().into(),
            trailers: Some(sent).filter(|sent| !sent.is_empty()),
            fails: false,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let seen = runtime.block_on(async {
            let (mut client, server_end) = connected(room);
            client.begin(request, &[]);
            let seen = Rc::new(RefCell::new(Seen::default()));
            let service = service_fn(|request: Request<hyper::body::Incoming>| {
                let seen = Rc::clone(&seen);
                async move {
                    let (head, body) = request.into_parts();
                    let whole = body.collect().await.unwrap();
                    let trailers = whole.trailers().map_or(0, HeaderMap::len);
                    *seen.borrow_mut() = Seen {
                        method: head.method,
                        target: head.uri.to_string(),
                        fields: lines(&head.headers),
                        body: whole.to_bytes().to_vec(),
                        trailers,
                    };
                    Ok::<_, Infallible>(Response::new(String::from("ok")))
                }
            });
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(server_end), service);
            let asking = async {
                answer(&mut client).await.unwrap();
                whole_body(&mut client).await.unwrap();
                assert!(client.is_free() && client.rest());
                drop(client);
            };
            let (served, ()) = tokio::join!(serving, asking);
            served.unwrap();
            seen.take()
        });
        prop_assert_eq!(seen.method, method);
        prop_assert_eq!(seen.target, target);
        prop_assert_eq!(seen.body, body);
        prop_assert_eq!(seen.trailers, if is_sized || is_bodiless { 0 } else { announced });
        let framing = ["content-length", "transfer-encoding", "trailer"];
        let others = seen.fields.into_iter().filter(|(name, _)| !framing.contains(&name.as_str()));
        prop_assert_eq!(others.collect::<Vec<_>>(), expected);
    }
}
