//! Any bytes as the answer of a server: the gateway's client must read the same from them as hyper's client. The target
//! in `fuzz/` includes this file.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncWrite as _, DuplexStream, duplex};
use tollgate::upstream::http1::{AnswerError, ChunkFault, HeadFault, Http1, ReadBuffers};

/// Room for all that either side sends.
const ROOM: usize = 1 << 20;

/// The result of a client that has read a server's bytes.
#[derive(Debug, Default)]
struct Outcome {
    head: Option<Head>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// The answer is complete.
    complete: bool,
    /// The words of the client if it refused the answer, or if the answer broke off.
    refused: Option<String>,
    /// The connection can carry another request.
    reusable: bool,
    /// The trailers were refused.
    refused_trailers: bool,
    /// The transfer coding was refused.
    refused_coding: bool,
}

#[derive(Debug, PartialEq)]
struct Head {
    status: StatusCode,
    version: Version,
    reason: Option<ReasonPhrase>,
    fields: HeaderMap,
}

impl Head {
    fn of<B>(response: Response<B>) -> Self {
        let (mut parts, _) = response.into_parts();
        // The gateway's client leaves out a last `close`. With hyper, too, the gateway removes it before the answer is
        // passed on.
        let mut said = parts.headers.get_all(header::CONNECTION).iter();
        if said.next_back().is_some_and(|last| last == "keep-alive") {
            drop_last(&mut parts.headers, &header::CONNECTION);
        }
        Self {
            status: parts.status,
            version: parts.version,
            reason: parts.extensions.remove(),
            fields: parts.headers,
        }
    }
}

/// Drops the last line of a field.
fn drop_last(fields: &mut HeaderMap, name: &HeaderName) {
    let lines: Vec<_> = fields.get_all(name).iter().cloned().collect();
    fields.remove(name);
    for line in &lines[..lines.len() - 1] {
        fields.append(name, line.clone());
    }
}

/// Takes `bytes` for a server's answer. The first two bytes say what is asked, and in which pieces the answer comes.
/// Was there an answer?
///
/// # Panics
/// If the gateway's client and hyper's client disagree, except where the gateway's client is stricter on purpose.
pub(crate) fn compare(bytes: &[u8]) -> bool {
    let [how, cut, answer @ ..] = bytes else {
        return false;
    };
    let method = match how % 4 {
        0 => Method::HEAD,
        _ => Method::GET,
    };
    let pieces: Vec<&[u8]> = match cut {
        0 => vec![answer],
        cut => answer.chunks(usize::from(*cut)).collect(),
    };
    let ours = by_ours(&method, &pieces);
    let hypers = by_hyper(&method, &pieces);
    let both = || format!("ours {ours:#?}\nhyper {hypers:#?}");
    let has_bare_feed = answer
        .windows(2)
        .any(|pair| pair[0] != b'\r' && pair[1] == b'\n');
    if ours.refused_trailers && has_bare_feed {
        // hyper accepts lines of trailers that end with a line feed alone, or ignores them.
        return false;
    }
    if ours.refused_coding {
        // hyper passes on a body that only a decoder of its coding could read.
        return false;
    }
    assert_eq!(ours.head, hypers.head, "{}", both());
    assert_eq!(ours.complete, hypers.complete, "{}", both());
    assert_eq!(
        ours.refused.is_some(),
        hypers.refused.is_some(),
        "{}",
        both()
    );
    assert_eq!(ours.trailers, hypers.trailers, "{}", both());
    assert!(ours.body == hypers.body, "{}", both());
    if ours.reusable != hypers.reusable {
        assert!(hypers.reusable && ours.may_close(), "{}", both());
    }
    ours.complete
}

impl Outcome {
    /// Has the answer a property for which the gateway's client closes a connection that hyper's client keeps?
    fn may_close(&self) -> bool {
        let Some(head) = &self.head else {
            return false;
        };
        let says_close = |value: &http::HeaderValue| {
            let text = value.as_bytes().to_ascii_lowercase();
            text.windows(5).any(|word| word == b"close")
        };
        let fields = &head.fields;
        head.version == Version::HTTP_10
            || (fields.contains_key(header::TRANSFER_ENCODING)
                && fields.contains_key(header::CONTENT_LENGTH))
            // hyper leaves out lines with bytes beyond ASCII.
            || fields.get_all(header::CONNECTION).iter().any(says_close)
    }
}

/// Runs `turn` until it reports no further progress.
fn exhaust(mut turn: impl FnMut(&mut Context<'_>) -> bool) {
    let mut cx = Context::from_waker(Waker::noop());
    while turn(&mut cx) {}
}

fn put(stream: &mut DuplexStream, bytes: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    // A client that has closed its connection takes no bytes.
    let _ = Pin::new(stream).poll_write(&mut cx, bytes);
}

fn request(method: &Method) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri("/");
    request.body(Empty::new()).expect("a request")
}

fn by_ours(method: &Method, pieces: &[&[u8]]) -> Outcome {
    let (near, far) = duplex(ROOM);
    let mut far = Some(far);
    let mut client = Http1::new(near, Rc::<ReadBuffers>::default());
    client.begin(request(method), &[]);
    let mut outcome = Outcome::default();
    our_turns(&mut client, &mut outcome);
    for piece in pieces {
        if let Some(far) = &mut far {
            put(far, piece);
        }
        our_turns(&mut client, &mut outcome);
    }
    outcome.reusable = client.is_free() && client.rest();
    if !outcome.complete && outcome.refused.is_none() {
        far = None;
        our_turns(&mut client, &mut outcome);
    }
    drop(far);
    outcome
}

fn our_turns(client: &mut Http1<Empty<Bytes>, DuplexStream>, outcome: &mut Outcome) {
    exhaust(|cx| {
        if outcome.complete || outcome.refused.is_some() {
            return false;
        }
        if outcome.head.is_none() {
            match client.poll_answer(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(response)) => outcome.head = Some(Head::of(response)),
                Poll::Ready(Err(error)) => {
                    outcome.refused_coding = matches!(
                        &error,
                        AnswerError::Head(HeadFault::UnaskedCoding | HeadFault::CodingTwice, _)
                    );
                    outcome.refused = Some(format!("{error:?}"));
                }
            }
            return true;
        }
        match client.poll_frame(cx) {
            Poll::Pending => return false,
            Poll::Ready(None) => outcome.complete = true,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => outcome.body.extend_from_slice(&data),
                Err(frame) => outcome.trailers = frame.into_trailers().ok(),
            },
            Poll::Ready(Some(Err(error))) => {
                outcome.refused_trailers =
                    matches!(error, AnswerError::Chunks(ChunkFault::Trailers, _));
                outcome.refused = Some(format!("{error:?}"));
            }
        }
        true
    });
}

fn by_hyper(method: &Method, pieces: &[&[u8]]) -> Outcome {
    let (near, far) = duplex(ROOM);
    let mut far = Some(far);
    let mut cx = Context::from_waker(Waker::noop());
    let shaken = pin!(http1::handshake(TokioIo::new(near))).poll(&mut cx);
    let Poll::Ready(Ok((mut sender, connection))) = shaken else {
        unreachable!("hyper's handshake neither waits nor fails");
    };
    let mut connection = Some(connection);
    let mut sending = Box::pin(sender.send_request(request(method)));
    let mut body: Option<Incoming> = None;
    let mut outcome = Outcome::default();
    let mut turns = |outcome: &mut Outcome| {
        exhaust(|cx| {
            if let Some(moving) = &mut connection
                && Pin::new(moving).poll(cx).is_ready()
            {
                connection = None;
            }
            if outcome.complete || outcome.refused.is_some() {
                return false;
            }
            let Some(body) = &mut body else {
                match sending.as_mut().poll(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(response)) => {
                        let (parts, incoming) = response.into_parts();
                        body = Some(incoming);
                        outcome.head = Some(Head::of(Response::from_parts(parts, ())));
                    }
                    Poll::Ready(Err(error)) => outcome.refused = Some(format!("{error:?}")),
                }
                return true;
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => outcome.complete = true,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => outcome.body.extend_from_slice(&data),
                    Err(frame) => outcome.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => outcome.refused = Some(format!("{error:?}")),
            }
            true
        });
    };
    turns(&mut outcome);
    for piece in pieces {
        if let Some(far) = &mut far {
            put(far, piece);
        }
        turns(&mut outcome);
    }
    // The connection notices bytes behind an answer only when it is polled once more.
    turns(&mut outcome);
    let is_over = outcome.complete;
    if !is_over && outcome.refused.is_none() {
        far = None;
        turns(&mut outcome);
    }
    drop(sending);
    outcome.reusable = is_over && connection.is_some() && sender.is_ready();
    drop(far);
    outcome
}
